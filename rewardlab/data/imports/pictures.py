"""Folders of pictures by class: success/ and failure/, or as the command line names them."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from rewardlab.data.episodes import UNKNOWN, Episode
from rewardlab.data.images import IMAGE_SUFFIXES, picture_size, read_image
from rewardlab.data.imports.blocks import frames_of_a_block
from rewardlab.data.imports.files import find_files
from rewardlab.data.imports.grouping import Picture, group_pictures
from rewardlab.data.imports.labels import ALIASES, Label, label_columns
from rewardlab.data.imports.picture_size import Size
from rewardlab.data.imports.source import ImportedEpisode, ImportOptions, Source, camera_name
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_sizes import resize_picture
from rewardlab.keys import IMAGES
from rewardlab.limits import listed


class Pictures(Source):
    """Pictures whose folder says what they show. `unsure/` has those that are neither."""

    kind: ClassVar[str] = "folders of pictures"
    looks_for: ClassVar[str] = "pictures (.png, .jpg) in folders success/ and failure/, or as --success, --failure say"
    reads: ClassVar[frozenset[str]] = frozenset({"success", "failure", "cameras", "every"})

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether most files in the folders of a directory are pictures."""
        if not path.is_dir():
            return False
        files = [file for file in find_files(path).files if file.parent != path]
        return bool(files) and 2 * sum(map(_is_picture, files)) >= len(files)

    def __init__(self, path: Path, options: ImportOptions) -> None:
        super().__init__(path, options)
        self.options = options
        self.camera = camera_name(options)
        files, self.left_out = find_files(path)
        folders = _class_folders(path, [file for file in files if _is_picture(file)], options)
        pictures = list(self._sort(files, folders))[:: options.every]
        if not pictures:
            raise DataError(f"{path}: none of its pictures can be read. {self.left_out[0][0]}: {self.left_out[0][1]}")
        grouped = group_pictures(pictures)
        self._episodes = _cut(grouped.episodes, options.size.of(self._recorded))
        self.grouping = f"pictures grouped into {len(self._episodes)} episodes {grouped.words}"
        self.remarks += filter(None, [options.size.describe(self._recorded)])

    def __len__(self) -> int:
        return len(self._episodes)

    def episodes(self, skip: frozenset[int]) -> Iterator[ImportedEpisode]:
        for number, (name, pictures) in enumerate(self._episodes):
            if number not in skip:
                yield self._read(number, name, pictures)

    def _sort(self, files: list[Path], folders: dict[str, Label]) -> Iterator[Picture]:
        """Yield the pictures of one size whose class is known, and note the others."""
        first: Path | None = None
        for file in files:
            place = file.relative_to(self.path)
            label = next((folders[part] for part in reversed(place.parts[:-1]) if part in folders), None)
            if not _is_picture(file):
                self.left_out.append((str(place), "not a picture (.png, .jpg)"))
                continue
            if label is None:
                self.left_out.append((str(place), "in no folder of a class"))
                continue
            try:
                size = picture_size(file)
            except DataError as error:
                self.left_out.append((str(place), str(error)))
                continue
            if first is None:
                first, self._recorded = file, size
            self.options.size.check_same(self._recorded, str(first), size, str(file))
            rest = tuple(part for part in place.parts[:-1] if part not in folders)
            yield Picture(file, rest, label, file.stat().st_mtime)

    def _read(self, number: int, name: str, pictures: list[Picture]) -> ImportedEpisode:
        size = self.options.size.of(self._recorded)
        frames, labels, left_out = [], [], []
        for picture in pictures:
            try:
                frames.append(resize_picture(read_image(picture.path), size))
                labels.append(picture.label)
            except DataError as error:
                left_out.append((str(picture.path.relative_to(self.path)), str(error)))
        if not frames:
            return ImportedEpisode(number, name, None, f"none of its pictures can be read ({left_out[0][1]})")
        columns = {IMAGES + self.camera: np.stack(frames), **label_columns(labels)}
        episode = Episode.from_columns(columns, task=self.options.task or UNKNOWN)
        return ImportedEpisode(number, name, episode, left_out=tuple(left_out))


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in IMAGE_SUFFIXES


def _class_folders(path: Path, pictures: list[Path], options: ImportOptions) -> dict[str, Label]:
    """Return the folders of the classes, by name."""
    seen = sorted({part for file in pictures for part in file.relative_to(path).parts[:-1]})
    named: dict[Label, tuple[str, ...]] = {"success": options.success, "failure": options.failure, "unsure": ()}
    folders: dict[str, Label] = {}
    for label, names in named.items():
        for name in names:
            if name not in seen:
                raise ConfigError(f"--{label}: {path} has no folder '{name}' with pictures; found {listed(seen)}")
            if folders.setdefault(name, label) != label:
                raise ConfigError(f"the folder '{name}' is named by both --success and --failure")
        if not names:
            other = {*options.success, *options.failure}
            found = [name for name in seen if name.lower() in ALIASES[label] and name not in other]
            if len({name.lower() for name in found}) > 1:
                raise DataError(f"{path} has the folders {listed(found)}; say which shows it by --{label} NAME")
            folders |= dict.fromkeys(found, label)
    if not {"success", "failure"} & set(folders.values()):
        raise DataError(
            f"{path} has no folder that is called success or failure; found {listed(seen) or 'none with pictures'}. "
            "Name them: --success NAME --failure NAME"
        )
    return folders


def _cut(episodes: dict[str, list[Picture]], size: Size) -> list[tuple[str, list[Picture]]]:
    """Cut episodes that would fill the memory into blocks."""
    most = frames_of_a_block(size)
    starts = ((name, pictures, range(0, len(pictures), most)) for name, pictures in episodes.items())
    return [(name, pictures[start : start + most]) for name, pictures, begin in starts for start in begin]
