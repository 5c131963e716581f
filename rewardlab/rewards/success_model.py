"""A trained success classifier as a script uses it: frames of a camera in, a probability and a verdict out."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from PIL.Image import Image
from torch import Tensor

from rewardlab.config.schema import RewardConfig
from rewardlab.errors import DataError
from rewardlab.figures.trust import TrustFigures
from rewardlab.frame_crops import Crop
from rewardlab.models.checkpoint_config import CARD, locate_checkpoint
from rewardlab.models.image_preprocessor import ImageArray
from rewardlab.observations import has_colors_last
from rewardlab.rewards.classifier import SuccessClassifier
from rewardlab.rewards.loading import load_success_classifier
from rewardlab.rewards.manager import RewardManager

Picture: TypeAlias = ImageArray | Image
Pictures: TypeAlias = Picture | Sequence[Picture]  # one frame, or a batch
Frames: TypeAlias = Pictures | Mapping[str, Pictures]  # of the only camera, or by camera

_EXPECTED = "expected a frame [height, width, 3] or a batch [n, height, width, 3], uint8 or floats in [0, 1]"


def load(path: str | Path, *, device: str | torch.device = "auto", **settings: Any) -> "SuccessModel":
    """Load a trained success classifier.

    >>> model = rewardlab.load("runs/classifier")
    >>> model.probability(frame), model.verdict(frame)
    (0.9731, True)

    `path` is the directory of a run, a checkpoint in it (checkpoints/best_model), or a .safetensors or .pt file.
    `device` is auto (a GPU if there is one), cpu, cuda ... `settings` are keys of `reward.model`: those that a file
    without a config does not say, such as `image_size=(3, 128, 128)`, or `resize="allow"` for frames of any size.
    """
    checkpoint = locate_checkpoint(Path(path))
    return SuccessModel(load_success_classifier(checkpoint, overrides=settings, device=device), checkpoint)


class SuccessModel:
    """A trained success classifier: says how probable it is that the task is done in a frame.

    Frames go in as the camera gives them: cropping, resizing, normalising and calibrating are parts of the model, and
    the same as in training, in RL and in `rewardlab score`. A frame is a NumPy array or a tensor, uint8 or floats in
    [0, 1], or a Pillow image; a batch is an array with one more axis, or a list of frames. The channels are red, green,
    blue; for OpenCV's, say `bgr=True`. A model with several cameras takes a dictionary with the frames of each.

    `classifier` is the reward model itself.
    """

    def __init__(self, classifier: SuccessClassifier, path: str | Path) -> None:
        self.classifier = classifier
        self.path = Path(path)

    def probability(self, frames: Frames, *, bgr: bool = False) -> float | npt.NDArray[np.float32]:
        """Return the calibrated probability that the task is done: a number for a frame, an array for a batch."""
        probability = self._probabilities(frames, bgr)
        return float(probability) if probability.ndim == 0 else probability.numpy()

    def verdict(self, frames: Frames, *, bgr: bool = False) -> bool | npt.NDArray[np.bool_]:
        """Return whether the probability is above `threshold`: a bool for a frame, an array for a batch."""
        # As in rewards: a comparison in Python would round the threshold differently.
        (term,) = RewardManager(self.classifier, RewardConfig()).terms
        success = term.predicts_success(self._probabilities(frames, bgr))
        return bool(success) if success.ndim == 0 else success.numpy()

    @property
    def threshold(self) -> float:
        """The probability above which a frame counts as a success, chosen in training for few false positives."""
        return self.classifier.threshold

    @property
    def cameras(self) -> tuple[str, ...]:
        """The names of the cameras that the model looks at."""
        return self.classifier.image_keys

    @property
    def frame_sizes(self) -> dict[str, tuple[int, int]]:
        """Height and width, by camera, of the frames that it was trained on; larger ones of that aspect are reduced."""
        return {camera: size.pixels for camera, size in self.classifier.frame_sizes.items()}

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of what the network sees, after cropping and resizing."""
        return self.classifier.image_size[1:]

    @property
    def crop(self) -> dict[str, Crop]:
        """What it looks at of the frames of a camera: top, left, height, width; {} if everywhere at everything."""
        prepare = self.classifier.network.preprocess
        return {camera: prepare.box(camera) for camera in prepare.crop}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of the episodes that it was trained on; () if the checkpoint does not say."""
        return self.classifier.tasks or ()

    @cached_property
    def figures(self) -> TrustFigures | None:
        """How far the model can be trusted, measured on held-out episodes; None if the checkpoint does not say."""
        return TrustFigures.from_json(self.classifier.metrics) if self.classifier.metrics else None

    @cached_property
    def card(self) -> str:
        """The model card, as Markdown; "" for a file without one."""
        file = self.path / CARD
        return file.read_text() if file.is_file() else ""

    def __repr__(self) -> str:
        cameras = ", ".join(f"{camera} {height}x{width}" for camera, (height, width) in self.frame_sizes.items())
        measured = "not measured" if self.figures is None else self.figures.sentence()
        kind = self.classifier.model_type
        return f"<{kind} at {self.path}: looks at {cameras}; success above {self.threshold:.4g}. {measured}>"

    def _probabilities(self, frames: Frames, bgr: bool) -> Tensor:
        """Return the probability of one frame [], or of a batch [n]."""
        arrays = {camera: _as_array(given, camera) for camera, given in self._by_camera(frames).items()}
        for camera, array in arrays.items():
            _check_form(array, camera)
        if bgr:
            arrays = {camera: _reversed_colors(array, camera) for camera, array in arrays.items()}
        if len({array.ndim for array in arrays.values()}) > 1:
            found = ", ".join(f"{camera} {list(array.shape)}" for camera, array in arrays.items())
            raise DataError(f"found {found}; expected one frame of each camera, or a batch of each")
        single = next(iter(arrays.values())).ndim == 3
        scores = self.classifier.score({key: array[None] if single else array for key, array in arrays.items()})
        return scores[0] if single else scores

    def _by_camera(self, frames: Frames) -> dict[str, Pictures]:
        wanted = ", ".join(self.cameras)
        if not isinstance(frames, Mapping):
            if len(self.cameras) > 1:
                raise DataError(
                    f"found a {type(frames).__name__}, but the model looks at {len(self.cameras)} cameras; expected a "
                    f"dictionary with a frame of each: {wanted}"
                )
            return {self.cameras[0]: frames}
        missing = [camera for camera in self.cameras if camera not in frames]
        if missing:
            found = ", ".join(map(str, frames)) or "none"
            raise DataError(f"no frame of camera '{missing[0]}'; found: {found}; the model looks at {wanted}")
        return {camera: frames[camera] for camera in self.cameras}


def _as_array(given: Pictures, camera: str) -> ImageArray:
    if isinstance(given, (np.ndarray, Tensor)):
        return given
    if isinstance(given, Image):
        return np.asarray(given.convert("RGB"))
    if not isinstance(given, (list, tuple)) or not given:
        kind = "an empty list" if isinstance(given, (list, tuple)) else f"a {type(given).__name__}"
        hint = "; a file is read with PIL.Image.open" if isinstance(given, (str, Path)) else ""
        raise DataError(
            f"camera '{camera}': found {kind}, expected a NumPy array, a tensor, a Pillow image or a list of them{hint}"
        )
    arrays = [_as_array(frame, camera) for frame in given]
    if len({(type(array), array.shape, str(array.dtype)) for array in arrays}) > 1:
        kinds = ", ".join(dict.fromkeys(f"{array.dtype} {list(array.shape)}" for array in arrays))
        raise DataError(f"camera '{camera}': found frames of several kinds ({kinds}), expected all alike")
    return torch.stack(arrays) if isinstance(arrays[0], Tensor) else np.stack(arrays)  # type: ignore[arg-type]


def _check_form(array: ImageArray, camera: str) -> None:
    shape, hint = list(array.shape), ""
    if len(shape) in (3, 4) and (3 in (shape[-1], shape[-3])):
        return
    if len(shape) == 2 or shape[-1:] == [1]:
        hint = ". A grey picture: repeat it for red, green and blue"
    elif len(shape) in (3, 4) and 4 in (shape[-1], shape[-3]):
        hint = ". The fourth channel is transparency: leave it out, as in frame[..., :3]"
    dtype = str(array.dtype).removeprefix("torch.")
    raise DataError(f"camera '{camera}': found {dtype} {shape}, {_EXPECTED}{hint}")


def _reversed_colors(array: ImageArray, camera: str) -> ImageArray:
    axis = -1 if has_colors_last(array, camera) else -3
    return array.flip(axis) if isinstance(array, Tensor) else np.flip(array, axis)
