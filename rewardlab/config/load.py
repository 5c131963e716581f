"""From YAML and `key=value` overrides to a checked ExperimentConfig, or to an error that says what to change.

Weakest to strongest: the defaults of the schema, what an older key implies, the YAML files (one that builds on others
after them), the sizes for the chosen machine, the overrides. Older keys are translated first, file by file, so that a
key by its older name and by today's are one key. Interpolations are resolved on the whole, and then everything is
validated at once.
"""

import dataclasses
import functools
import itertools
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from rewardlab.compat import Translation, show_notes
from rewardlab.compat.config_keys import translate
from rewardlab.compat.names import todays_config
from rewardlab.config.machines import check_machine, choose_machine
from rewardlab.config.run_checks import check_run
from rewardlab.config.schema import SEVERAL_MODELS, ExperimentConfig
from rewardlab.config.schema_keys import schema_keys
from rewardlab.config.yaml_files import check_values, compose_files, limited_interpolations, yaml_message
from rewardlab.errors import ConfigError
from rewardlab.nested import leaves, nest
from rewardlab.registry import nearest_name, nearest_names, unknown_name

# Environment variables that give a key its default.
ENVIRONMENT = {"DEBUG_IMAGE_SAVE_DIR": "reward.model.debug_save_dir"}

MAX_OVERRIDE = 10_000  # characters: parsing one takes a second then
MAX_MISTAKES = 30  # that are shown; looking for the nearest names takes time
MISSING = "???"  # how a YAML file says that a value must be given

# What other libraries call some keys.
OTHER_NAMES = {
    **{"learning_rate": "lr", "batch_size": "global_batch_size", "epochs": "max_epochs", "discount": "gamma"},
    **{"n_envs": "num_envs", "n_steps": "rollout_steps", "buffer_size": "replay_size"},
    **{"total_timesteps": "max_env_steps", "ent_coef": "entropy_coef", "out": "log_path", "env_id": "id"},
}

# What pydantic found wrong -> what to say was expected.
EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a block of keys",
    "dataclass_type": "a block of keys",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
}


def load_config(
    name: str, overrides: Sequence[str] = (), *, config_dir: Path | None = None, check_files: bool = True
) -> ExperimentConfig:
    """Load a configuration by its name in `config_dir`, or by the path of a .yaml file.

    `check_files=False` is for looking at a configuration without running it: what `check_run` checks is not checked.
    """
    return _build(*_read(name, overrides, config_dir), check_files)


def show_config(name: str, overrides: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Return every key of a configuration as YAML, and what it lacks before it can be run.

    A mandatory value that is not given is shown as ???.
    """
    full, _, _ = _merge(*_read(name, overrides), keep_missing=True)
    given, lacking = _without_missing(full)
    try:
        cfg = _validate(given)
    except _RuleBroken as error:  # keys that do not go together yet: they are shown as they are
        return OmegaConf.to_yaml(OmegaConf.create(full)), [*map(_not_given, lacking), str(error)]
    shown = OmegaConf.create(dataclasses.asdict(cfg))
    for path in lacking:
        OmegaConf.update(shown, path, MISSING, force_add=True)
    return OmegaConf.to_yaml(shown), list(map(_not_given, lacking))


def config_from_mapping(
    mapping: Mapping[str, Any], overrides: Sequence[str] = (), *, check_files: bool = True
) -> ExperimentConfig:
    """Build a configuration from a nested dictionary as YAML would give it."""
    return _build([mapping], [_parse(text) for text in overrides], check_files)


def text_override(key: str, text: str) -> str:
    """The override `key=text`, quoted so that a path with spaces, commas or brackets arrives as it is."""
    return f"{key}={QuotedString(text, Quote.double).with_quotes()}"


def to_overrides(values: Mapping[str, Any]) -> list[str]:
    """Return values by dotted keys as overrides; a key whose value is None is left out."""
    given = {key: value for key, value in values.items() if value is not None}
    texts = {key: str(value) for key, value in given.items() if isinstance(value, (str, Path))}
    return [text_override(key, texts[key]) if key in texts else f"{key}={json.dumps(given[key])}" for key in given]


def config_names(config_dir: Path | None = None) -> dict[str, str]:
    """The configurations that can be loaded by name, each with the first sentence of the comment at its top."""
    files = config_files(config_dir)
    names = {}
    for name in sorted(files, key=lambda name: (name.count("/"), name)):
        lines = files[name].read_text(encoding="utf-8", errors="replace").splitlines()
        comment = [line[1:].strip() for line in itertools.takewhile(lambda line: line.startswith("# "), lines)]
        names[name] = re.split(r"(?<=\.)\s+(?=[A-Z])", " ".join(comment))[0]
    return names


def config_files(config_dir: Path | None = None) -> dict[str, Path]:
    """The files of the configurations that can be loaded by name."""
    directories = (config_dir,) if config_dir is not None else default_config_dirs()
    return {
        file.relative_to(directory).with_suffix("").as_posix(): file.absolute()
        for directory in directories
        for file in directory.rglob("*.yaml")
    }


def default_config_dirs() -> tuple[Path, ...]:
    """Inside the package when installed from a wheel; in a checkout, where users edit them."""
    package = Path(__file__).parents[1]
    installed, checkout = package / "configs", package.parent
    return (installed,) if installed.is_dir() else (checkout / "configs", checkout / "examples/embodiment/config")


def to_yaml(cfg: ExperimentConfig) -> str:
    """Every key with its value; loading the text gives an equal configuration."""
    return OmegaConf.to_yaml(OmegaConf.create(dataclasses.asdict(cfg)))


def _read(
    name: str, overrides: Sequence[str], config_dir: Path | None = None
) -> tuple[list[dict[str, Any]], Sequence[Override]]:
    """Return what the files of a configuration say, the strongest last, and the overrides of its keys."""
    shipped = (config_dir,) if config_dir is not None else default_config_dirs()
    file = _find(name, config_files(config_dir), shipped)
    groups, keys = _split_overrides(overrides, (file.parent, *shipped))
    return _compose(file, groups, shipped), keys


def _find(name: str, files: Mapping[str, Path], shipped: Sequence[Path]) -> Path:
    """The file of a config."""
    if name.endswith(".yaml"):
        file = Path(name).absolute()
        if not _is_file(file) and os.path.lexists(file):
            raise ConfigError(f"{name} is not a file; expected a configuration file")
        if not _is_file(file):
            raise ConfigError(f"there is no configuration file {name}{_nearest_file(file, files)}")
        return file
    name = todays_config(name, files)
    if name not in files:
        raise ConfigError(
            f"{unknown_name('config', name, files)} (`rewardlab config list` shows all; a file is given as PATH.yaml)"
        )
    return files[name]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def _nearest_file(file: Path, names: Collection[str]) -> str:
    """Return a hint at the file beside it, or at the shipped config, whose name is nearest."""
    beside = [path.name for path in file.parent.glob("*.yaml")] if _is_directory(file.parent) else []
    near = nearest_name(file.name, beside)
    if near is not None:
        return f". Did you mean {file.with_name(near)}?"
    near = nearest_name(file.stem, names)
    return "" if near is None else f". Did you mean '{near}', which comes with rewardlab and is given without .yaml?"


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _parse(text: str) -> Override:
    if len(text) > MAX_OVERRIDE:
        raise ConfigError(
            f"override '{text[:50]}...': has {len(text):,} characters, expected at most {MAX_OVERRIDE:,}; write "
            "it to a YAML file"
        )
    try:
        override = OverridesParser.create().parse_override(text)
        sweeps = override.is_sweep_override()
        value = None if sweeps else override.value()
    except Exception as error:  # Hydra raises errors of many kinds for text that it cannot parse
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"override '{text}': expected key=value, with quotes around special text ({reason})"
        ) from None
    if not override.key_or_group:
        raise ConfigError(f"override '{text}': expected key=value, found no key")
    if sweeps:
        raise ConfigError(
            f"override '{text}': expected one value; a list is written [a,b] and text with commas in quotes"
        )
    check_values(value, override.key_or_group)
    return override


def _split_overrides(overrides: Sequence[str], config_dirs: Sequence[Path]) -> tuple[list[str], list[Override]]:
    """Choices of a config group (a directory of YAML files), which Hydra composes, and overrides of a key."""
    groups, keys = [], []
    for text in overrides:
        override = _parse(text)
        if any(_is_directory(directory / override.key_or_group) for directory in config_dirs):
            groups.append(text)
        else:
            keys.append(override)
    return groups, keys


def _compose(file: Path, groups: Sequence[str], shipped: Sequence[Path]) -> list[dict[str, Any]]:
    """The keys of a file and of the files that it builds on, file by file, the strongest last."""
    # A user's own file may build on a shipped one: `defaults: [tabletop_pickcube, _self_]`.
    try:
        with limited_interpolations():
            composed, parts = compose_files(file, shipped, groups)
    except ConfigError:
        raise
    except yaml.YAMLError as error:
        raise ConfigError(yaml_message(file, error)) from None
    except RecursionError:
        raise ConfigError(f"{file}: its defaults lead back to itself, or are nested too deep") from None
    except Exception as error:  # Hydra raises errors of many kinds, all of them about what the files say
        raise ConfigError(f"{file}: {_hydra_message(error)}") from None
    whole = _container(composed, resolve=False)
    layers = [_read_part(part, (file.parent, *shipped)) for part in parts if not str(part.package).startswith("hydra")]
    # Files that Hydra found elsewhere, or joined in another way, are taken as one.
    return layers if functools.reduce(_over, layers, {}) == whole else [whole]


def _read_part(part: ResultDefault, directories: Sequence[Path]) -> dict[str, Any]:
    """The keys of one of the files that make up a config, in the block where Hydra puts them."""
    files = (directory / f"{part.config_path}.yaml" for directory in directories)
    found = next((file for file in files if file.is_file()), None)
    content = OmegaConf.load(found) if found is not None else None
    if not isinstance(content, DictConfig):
        return {}
    keys = {key: value for key, value in _container(content, resolve=False).items() if key not in ("defaults", "hydra")}
    for block in reversed((part.package or "").split(".") if part.package else []):
        keys = {block: keys}
    return keys


def _hydra_message(error: Exception) -> str:
    cause = error if str(error).strip() else error.__cause__ or error
    if isinstance(cause, OmegaConfBaseException):
        return _omegaconf_message(cause)
    return str(cause).strip().partition("\n\n")[0] or type(cause).__name__  # the rest is Hydra's search path


def _build(layers: Sequence[Mapping[str, Any]], overrides: Sequence[Override], check_files: bool) -> ExperimentConfig:
    full, chosen, machines = _merge(layers, overrides)
    cfg = _validate(full)
    if check_files:
        check_machine(cfg.cluster, machines)
        check_run(cfg, chosen)
    return cfg


def _merge(
    layers: Sequence[Mapping[str, Any]], overrides: Sequence[Override], *, keep_missing: bool = False
) -> tuple[dict[str, Any], dict[str, Any], Sequence[str]]:
    """Return all keys with their values; only those that were given, in today's names; machines to choose from."""
    layers, overrides, machines = choose_machine(layers, overrides)
    notes: list[str] = []
    implied: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for layer in layers:
        check_values(layer, "")
        translated = translate(layer)
        notes += translated.notes
        implied, given = _over(implied, translated.implied), _over(given, translated.mapping)
    try:
        raw = OmegaConf.create(given)
        for override in overrides:
            translated = _translate_override(override)
            notes += translated.notes
            implied = _over(implied, translated.implied)
            for path, value in leaves(translated.mapping):
                _set(raw, ".".join(path), value)
        chosen = _over(implied, _container(raw, resolve=False))
        with limited_interpolations():
            full = _resolve(chosen, keep_missing=keep_missing)
    except OmegaConfBaseException as error:
        raise ConfigError(_omegaconf_message(error)) from None
    check_values(full, "")
    show_notes(notes, stacklevel=5)
    return full, chosen, machines


def _set(raw: DictConfig, key: str, value: Any) -> None:
    try:
        # A list takes the place of what was there, which may be a single block (reward.model).
        OmegaConf.update(raw, key, value, merge=not isinstance(value, list))
    except (ValueError, TypeError):
        parent, _, last = key.rpartition(".")
        raise ConfigError(f"{key}: {parent} is a list here; write {parent}.0.{last} for its first item") from None


def _translate_override(override: Override) -> Translation:
    if override.is_delete():
        raise ConfigError(f"override '{override.input_line}': a key cannot be removed; give it another value")
    return translate(nest({override.key_or_group: override.value()}))


def _over(below: Any, above: Any) -> Any:
    """`above` on top of `below`, block by block."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    return {**below, **{key: _over(below[key], value) if key in below else value for key, value in above.items()}}


def _resolve(raw: dict[str, Any], *, keep_missing: bool = False) -> dict[str, Any]:
    """Fill in what was not given, and resolve interpolations on the whole."""
    raw = _without_unused_model(_eval_inherits_train(raw))
    defaults = OmegaConf.create(dataclasses.asdict(ExperimentConfig()))
    for variable, key in ENVIRONMENT.items():
        OmegaConf.update(defaults, key, os.environ.get(variable) or None)
    models = raw.get("reward", {}).get("model") if isinstance(raw.get("reward"), dict) else None
    if isinstance(models, list):  # defaults do not reach into lists
        place = defaults.reward.model.debug_save_dir
        models = [{"debug_save_dir": place, **model} if isinstance(model, dict) else model for model in models]
        raw = {**raw, "reward": {**raw["reward"], "model": models}}
    full = OmegaConf.create(_over(_container(defaults, resolve=False), raw))
    return _container(full, resolve=True, keep_missing=keep_missing)


def _without_unused_model(raw: dict[str, Any]) -> dict[str, Any]:
    """A reward model that is switched off need not be complete: what its config leaves open (???) is left out."""
    reward = raw.get("reward")
    if not isinstance(reward, dict) or reward.get("use_reward_model") is not False or "model" not in reward:
        return raw
    return {**raw, "reward": {**reward, "model": _without_open_values(reward["model"])}}


def _without_open_values(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_open_values(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_open_values(item) for key, item in value.items() if item != MISSING}


def _eval_inherits_train(raw: dict[str, Any]) -> dict[str, Any]:
    envs = raw.get("env")
    if not isinstance(envs, dict) or "train" not in envs:
        return raw
    return {**raw, "env": _over({"eval": envs["train"]}, envs)}


def _container(cfg: DictConfig, *, resolve: bool, keep_missing: bool = False) -> dict[str, Any]:
    container = OmegaConf.to_container(cfg, resolve=resolve, throw_on_missing=resolve and not keep_missing)
    if not isinstance(container, dict):
        raise ConfigError(f"expected a block of keys, found {container!r}")
    return {str(key): value for key, value in container.items()}


def _without_missing(full: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values without those that are ???, and the keys of the latter."""
    lacking = [path for path, value in leaves(full) if value == MISSING]

    def without(block: dict[str, Any], prefix: tuple[str, ...] = ()) -> dict[str, Any]:
        kept = {key: value for key, value in block.items() if (*prefix, key) not in lacking}
        return {k: without(v, (*prefix, k)) if isinstance(v, dict) else v for k, v in kept.items()}

    return without(full), [".".join(path) for path in lacking]


def _not_given(key: str) -> str:
    return f"{key}: not given, but required ({MISSING} in the config); add {key}=VALUE to the command or the config"


def _omegaconf_message(error: OmegaConfBaseException) -> str:
    if isinstance(error, MissingMandatoryValue):
        return _not_given(str(error.full_key))
    reason = (error.msg or str(error)).strip().partition("\n")[0]
    reason = re.sub(r'^\w+ raised while resolving interpolation: "?(.*?)"?$', r"\1", reason)
    return f"{error.full_key}: {reason}" if error.full_key else reason


class _RuleBroken(ConfigError):
    """Every key is valid, but some do not go together."""


def _validate(full: dict[str, Any]) -> ExperimentConfig:
    try:
        # JSON is where strict pydantic takes a list for a tuple and a block for a dataclass, and still no "3" for a 3.
        return TypeAdapter(ExperimentConfig).validate_json(json.dumps(full, default=str))
    except ValidationError as error:
        found = error.errors()
        kind = _RuleBroken if all(each["type"] == "rule" for each in found) else ConfigError
        lines = [validation_message(each) for each in found[:MAX_MISTAKES]]
        lines += [f"... and {len(found) - MAX_MISTAKES} more"] if len(found) > MAX_MISTAKES else []
    # A mistake in env.train is found again in env.eval, which inherits it: say it once.
    inherited = {line.replace("env.train", "env.eval") for line in lines if "env.train" in line}
    raise kind("\n".join(line for line in lines if line not in inherited)) from None


def validation_message(error: Any) -> str:
    """One line: the key, what was found, what was expected."""
    kind, context = error["type"], error.get("ctx", {})
    key = ".".join(str(part) for part in error["loc"] if part not in ("[key]", *SEVERAL_MODELS))
    if kind == "unexpected_keyword_argument":
        return unknown_key(key)
    if kind == "rule":  # names its key relative to the block that it was found in
        return f"{key}.{error['msg']}" if key else str(error["msg"])
    if kind == "missing":
        return f"{key}: not given, but required"
    if kind == "literal_error" and isinstance(error["input"], str):
        choices = re.findall(r"'([^']*)'", context["expected"])
        if error["loc"][-1] == "[key]":
            parent = key.rpartition(".")[0]
            return unknown_name("key", key, [f"{parent}.{choice}" for choice in choices])
        return f"{key}: {unknown_name('value', error['input'], choices)}"
    if kind in ("literal_error", "value_error"):
        expected = context.get("expected") or context["error"]
    else:
        expected = EXPECTED[kind].format(**context) if kind in EXPECTED else error["msg"]
    return f"{key}: found {json.dumps(error['input'])}, expected {expected}"


def unknown_key(key: str) -> str:
    """Return the error message for an unknown key: where keys of this name are, else keys with a name like it."""
    name = re.sub(r"\.\d+\.", ".", key)
    parent, _, last = name.rpartition(".")
    keys = _keys_like_those_in(key)
    beside = {k for k in keys if k.rpartition(".")[0] == parent}
    meant = keys_called(name) or _like(last, beside) or _like(last, keys)
    if not meant:
        return unknown_name("key", key, beside or {k for k in keys if "." not in k})
    others = ", ".join(meant[1:4])
    return f"unknown key '{key}'. Did you mean '{meant[0]}'?" + (f" Like it: {others}" if others else "")


def keys_called(name: str) -> list[str]:
    """Return the keys that have the last part of a dotted name for their own, the likeliest first."""
    last = name.rpartition(".")[2]
    found = sorted(k for k in _keys_like_those_in(name) if k.rpartition(".")[2] == OTHER_NAMES.get(last, last))
    return sorted(found, key=lambda k: k != nearest_name(name, found))


def _keys_like_those_in(name: str) -> set[str]:
    """Return all keys; those of env.eval, which env.train has too, only for a name that begins with it."""
    return {k for k in schema_keys() if not k.startswith("env.eval.") or name.startswith("env.eval.")}


def _like(last: str, keys: Collection[str]) -> list[str]:
    """Return the keys whose own name, without their block, is like one, the nearest first."""
    near = nearest_names(last, {k.rpartition(".")[2] for k in keys})
    return [k for name in near for k in sorted(keys) if k.rpartition(".")[2] == name]
