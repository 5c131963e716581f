"""Limits for YAML and interpolations, checked before anything is built from them.

A few lines of YAML can stand for any number of values: aliases of aliases, a list that contains itself, interpolations
of interpolations. The text is therefore first read as a stream of events, which needs no memory for what it stands for.

Unlike the limits of `rewardlab.limits`, nothing raises these: no config is near them.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.utils import create_config_search_path
from hydra.core.default_element import ResultDefault
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.base import Container

from rewardlab.errors import ConfigError

MAX_BYTES = 200_000  # of a file
MAX_VALUES = 10_000  # keys and values of a file, those behind aliases and interpolations included
MAX_DEPTH = 32  # blocks and lists inside each other; OmegaConf fails at about 60
MAX_RESOLVING = 20_000  # characters of all texts with ${...} that are resolved: about a second
MAX_INTERPOLATION = 2_000  # characters of a text with ${...}: parsing it takes time that grows with the square
MAX_RESOLVED = 100_000  # characters of a text after its interpolations are resolved

_DEFAULTS = "expected a list of configs to build on, such as [tabletop_pickcube, _self_]"
_events_loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # C is ten times as fast, where it is installed


class CheckedConfigSource(FileConfigSource):
    """Where Hydra reads YAML files from: each is checked before it is built, also those that `defaults` name."""

    @staticmethod
    def scheme() -> str:
        return "checked-file"

    def load_config(self, config_path: str) -> ConfigResult:
        file = Path(os.path.realpath(Path(self.path, self._normalize_file_name(config_path))))
        check_yaml(file)
        loaded = super().load_config(config_path)
        if isinstance(loaded.config, DictConfig):
            _check_defaults(file, loaded.config)
        return loaded


def compose_files(file: Path, shipped: Sequence[Path], groups: Sequence[str]) -> tuple[DictConfig, list[ResultDefault]]:
    """Let Hydra read a file and all that its `defaults` name, from its own directory or from one of `shipped`.

    Returns the whole, and the files that it was made of, the strongest last. Not with `hydra.compose`, which has one
    directory for a process, and reads it without our checks.
    """
    Plugins.instance().register(CheckedConfigSource)
    version.setbase("1.3")
    scheme = CheckedConfigSource.scheme()
    loader = ConfigLoaderImpl(create_config_search_path(f"{scheme}://{file.parent}"))
    # Takes the place of a search path in the files, which might name Python packages.
    quoted = (str(directory.absolute()).replace("'", r"\'") for directory in shipped)
    search = ", ".join(f"'{scheme}://{directory}'" for directory in quoted)
    overrides = [*groups, f"hydra.searchpath=[{search}]"]
    composed = loader.load_configuration(file.stem, overrides, run_mode=RunMode.RUN, from_shell=False)
    with open_dict(composed):
        composed.pop("hydra", None)
    return composed, list(loader.compute_defaults_list(file.stem, overrides, RunMode.RUN).defaults)


def check_yaml(file: Path) -> None:
    """Raise if a file is not YAML text, or stands for more than a config can hold."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{file}: has more than {MAX_BYTES:,} bytes, which no config needs; expected a YAML file")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x}"
        raise ConfigError(
            f"{file}, line {line}: found {found}, expected text in UTF-8; save the file as UTF-8"
        ) from None
    try:
        _check_events(file, yaml.parse(text, Loader=_events_loader))
    except yaml.YAMLError as error:
        raise ConfigError(yaml_message(file, error)) from None


def yaml_message(file: Path, error: yaml.YAMLError) -> str:
    """Return where a YAML text is wrong, and why."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{file}: not valid YAML: {' '.join(str(error).split())}"
    return f"{file}, line {mark.line + 1}: not valid YAML: {getattr(error, 'problem', None) or error}"


def _check_events(file: Path, events: Iterator[Any]) -> None:
    """Count values and depth without building anything; an alias counts as all that it stands for."""
    known: dict[str, tuple[int, int]] = {}  # anchor -> values and depth of what it names
    open_blocks: list[list[Any]] = [[None, 0, 0]]  # of each block that has begun: anchor, values, depth so far
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_blocks.append([event.anchor, 1, 1])
            known.pop(event.anchor, None)
            values, depth = 0, 0
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, values, depth = open_blocks.pop()
            if anchor is not None:
                known[anchor] = values, depth
        elif isinstance(event, yaml.AliasEvent):
            begun = any(event.anchor == anchor for anchor, *_ in open_blocks)
            if event.anchor not in known and begun:
                raise ConfigError(f"{file}, line {line}: *{event.anchor} is inside of what it stands for; remove it")
            values, depth = known.get(event.anchor, (1, 0))
        elif isinstance(event, yaml.ScalarEvent):
            values, depth = 1, 0
            _check_text(event.value, f"{file}, line {line}")
            if event.anchor is not None:
                known[event.anchor] = 1, 0
        else:
            continue
        block = open_blocks[-1]
        block[1], block[2] = block[1] + values, max(block[2], depth + 1)
        if len(open_blocks) + depth > MAX_DEPTH:
            raise ConfigError(
                f"{file}, line {line}: blocks are more than {MAX_DEPTH} deep; expected fewer inside others"
            )
        if sum(values for _, values, _ in open_blocks) > MAX_VALUES:
            raise ConfigError(
                f"{file}, line {line}: stands for more than {MAX_VALUES:,} values, those behind aliases (*name) "
                "included; expected fewer"
            )


def _check_defaults(file: Path, config: DictConfig) -> None:
    if "defaults" not in config:
        return
    found = OmegaConf.to_container(config, resolve=False)["defaults"]  # type: ignore[call-overload, index]
    if not isinstance(found, list):
        raise ConfigError(f"{file}: defaults: found {found!r}, {_DEFAULTS}")
    for item in found:
        if not (isinstance(item, dict) and len(item) == 1):
            right = isinstance(item, str)
        else:
            (group, option) = next(iter(item.items()))
            options = option if isinstance(option, list) else [option]
            right = isinstance(group, str) and all(isinstance(each, (str, type(None))) for each in options)
        if not right:
            raise ConfigError(f"{file}: defaults: found {item!r} in the list, {_DEFAULTS}")


def check_values(value: Any, key: str, depth: int = 1) -> int:
    """Return how many values a nested value has; raise if it has too many, too deep, or text that nothing can name.

    `key` is where it stands in the config.
    """
    if isinstance(value, str):
        _check_text(value, key)
        return 1
    if not isinstance(value, (dict, list, tuple)):
        return 1
    if depth > MAX_DEPTH:
        raise ConfigError(f"{key[:100]}: blocks are more than {MAX_DEPTH} deep; expected fewer inside others")
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    count = 1
    for name, item in items:
        _check_text(str(name), key)
        count += 1 + check_values(item, f"{key}.{name}" if key else str(name), depth + 1)
        if count > 2 * MAX_VALUES:  # keys are counted as well
            raise ConfigError(f"{key}: has more than {MAX_VALUES:,} values; expected fewer")
    return count


def _check_text(text: str, key: str) -> None:
    wrong = next((c for c in text if c == "\0" or "\ud800" <= c <= "\udfff"), None)
    if wrong is not None:
        raise ConfigError(f"{key}: found {text[:100]!r}; expected text without the character U+{ord(wrong):04X}")
    if "${" in text and len(text) > MAX_INTERPOLATION:
        raise ConfigError(
            f"{key}: found {len(text):,} characters with ${{...}} among them; expected at most {MAX_INTERPOLATION:,}"
        )


class _ResolvingBudget(threading.local):
    left: int | None = None  # characters that may still be resolved in this thread; None = any number


_budget = _ResolvingBudget()
_resolve_parse_tree = Container.resolve_parse_tree


def _resolve_within_budget(self: Container, parse_tree: Any, *args: Any, **kwargs: Any) -> Any:
    if _budget.left is None:
        return _resolve_parse_tree(self, parse_tree, *args, **kwargs)
    last = parse_tree.stop
    _budget.left -= 10 if last is None else last.stop + 1
    value = _resolve_parse_tree(self, parse_tree, *args, **kwargs) if _budget.left >= 0 else None
    if _budget.left < 0 or (isinstance(value, str) and len(value) > MAX_RESOLVED):
        _budget.left = -1
        raise ConfigError(
            f"interpolations (${{...}}) lead to too many others, or to more than {MAX_RESOLVED:,} characters; "
            "expected fewer"
        )
    return value


# As in Hydra: ${now:%Y-%m-%d_%H-%M-%S} in the name of a directory.
OmegaConf.register_new_resolver("now", lambda pattern: datetime.now().strftime(pattern), replace=True)

# OmegaConf has no limit, and no place for one: an interpolation of interpolations would fill the memory.
Container.resolve_parse_tree = _resolve_within_budget  # type: ignore[method-assign]


@contextmanager
def limited_interpolations() -> Iterator[None]:
    """Let OmegaConf resolve a limited number of interpolations in this thread."""
    _budget.left = MAX_RESOLVING
    try:
        yield
    finally:
        _budget.left = None
