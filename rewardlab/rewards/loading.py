"""Builds reward models from a registered name or from a checkpoint."""

import dataclasses
import inspect
import itertools
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rewardlab.compat import ding_models
from rewardlab.config.schema import RewardConfig, RewardModelConfig, ScoringBackend
from rewardlab.data.used_episodes import UsedEpisodes
from rewardlab.devices import find_device
from rewardlab.errors import ConfigError, DataError, RewardlabError, user_traceback
from rewardlab.frame_crops import crop_box
from rewardlab.limits import check_pixels, excerpt
from rewardlab.models.weights import build_to_fit
from rewardlab.registry import unknown_name
from rewardlab.rewards.base import REWARD_MODELS, BaseRewardModel, ScalarLogger
from rewardlab.rewards.checkpoint import StoredModel, read_checkpoint
from rewardlab.rewards.classifier import SuccessClassifier
from rewardlab.rewards.foreign import KERNEL, infer_config, keeps_feature_map
from rewardlab.rewards.trained_tasks import read_tasks

# Keys of a reward model's config that are not arguments of its class.
_NOT_MODEL_ARGUMENTS = ("checkpoint_path", "debug_save_dir", "weight", "cotrain", "name", "ends_episode")
# Keys that change neither weights nor scores: a run may set them differently than the checkpoint.
_MAY_DIFFER = (
    *("precision", "dropout", "freeze_encoder", "resize"),
    *("learning_rate", "batch_size", "update_per_collect", "clear_buffer_per_iters", "seed", "expert_data_path"),
)


def create_reward_model(
    cfg: Any, device: str | torch.device = "cpu", tb_logger: ScalarLogger | None = None
) -> BaseRewardModel:
    """Build the reward model that `cfg` (a dataclass or a mapping) names by `model_type` or `type`.

    The other keys are arguments of its constructor; null means the default. With a `checkpoint_path` the model is
    loaded from there.
    """
    settings = _read_settings(cfg)
    if "checkpoint_path" in settings:
        model = load_reward_model(settings["checkpoint_path"], overrides=cfg, device=device)
        model.tb_logger = tb_logger
        return model
    names = {key: settings.pop(key) for key in ("model_type", "type") if key in settings}
    if len(set(names.values())) != 1:
        found = f"found {names}" if names else "missing"
        raise ConfigError(f"model_type: {found}; expected one of {', '.join(sorted(REWARD_MODELS))}")
    name = next(iter(names.values()))
    cls = REWARD_MODELS.find(name)
    if ding_models.is_ding_class(cls):
        return ding_models.make(cls, settings, device, tb_logger)
    settings = {key: value for key, value in settings.items() if key not in _NOT_MODEL_ARGUMENTS}
    accepted = _arguments(cls)
    # Every config has these keys; models without them always run in fp32, or look at no frames.
    for key in ("precision", "resize"):
        if key not in accepted and settings.get(key) == getattr(RewardModelConfig(), key):
            del settings[key]
    for key in settings:
        if key not in accepted:
            raise ConfigError(unknown_name(f"key of reward model '{name}'", key, accepted))
    model = cls(**settings).to(find_device(device))
    model.tb_logger = tb_logger
    model.read_files()
    return model


def load_reward_model(
    path: str | Path | None,
    *,
    overrides: Any = None,
    device: str | torch.device = "cpu",
    backend: ScoringBackend = "torch",
) -> BaseRewardModel:
    """Load a reward model from a checkpoint directory, or a success classifier from a .safetensors or .pt file.

    `overrides` (a RewardModelConfig or a mapping) describes weights that are stored without a config. A key that
    disagrees with the checkpoint is an error, except those that change no score. `backend` is the library with which
    a success classifier scores frames, see `reward.backend`.
    """
    if path is None:
        raise ConfigError(
            "checkpoint_path: found null, expected the path of a trained reward model (random weights are never used)"
        )
    stored = read_checkpoint(Path(path))
    given = {key: value for key, value in _read_settings(overrides).items() if key not in _NOT_MODEL_ARGUMENTS}
    if "type" in given:
        given["model_type"] = given.pop("type")
    if "model_type" in given:
        REWARD_MODELS.find(given["model_type"])  # imports the module of "module:name", which registers the model
    config = stored.config or infer_config(stored.weights, {**stored.stated, **given}, stored.source)
    _refuse_policy(config, stored.source)
    if config["model_type"] not in REWARD_MODELS:
        unknown = unknown_name("reward model", config["model_type"], REWARD_MODELS)
        raise DataError(
            f"{stored.source}: {unknown}. For a model of your own, name the module that registers it: "
            "rewardlab score --trust-modules MODULE, or reward.model.model_type=MODULE:NAME in a config"
        )
    cls = REWARD_MODELS[config["model_type"]]
    with _errors_of_architecture(stored.source):
        model = _build(cls, _merge_settings(cls, config, given, stored), stored)
    try:
        model.load_state_dict(stored.weights)
    except DataError as error:
        raise DataError(f"{stored.source}: {str(error).removeprefix('state_dict: ')}") from error
    if isinstance(model, SuccessClassifier):
        _load_facts(model, config, stored)
    model.to(find_device(device))
    if isinstance(model, SuccessClassifier):
        model.use_backend(backend)
    return model


@contextmanager
def _errors_of_architecture(source: Path) -> Iterator[None]:
    """Name the file in errors about values that it describes an architecture with; they may be of any type."""
    try:
        yield
    except (RewardlabError, MemoryError):
        raise
    except Exception as error:
        if user_traceback(error) is not None:  # in a reward model of the user
            raise
        raise DataError(f"{source}: its architecture cannot be built ({excerpt(error)})") from error


def _refuse_policy(config: Mapping[str, Any], source: Path) -> None:
    if config.get("model_type") == "policy":
        raise DataError(
            f"{source}: is the checkpoint of a policy, expected that of a reward model, such as checkpoints/best_model "
            "of `rewardlab train-reward`, or reward_models/best of a policy's run"
        )


def load_success_classifier(
    path: str | Path,
    *,
    overrides: Any = None,
    device: str | torch.device = "cpu",
    backend: ScoringBackend = "torch",
) -> SuccessClassifier:
    """Load a success classifier as `load_reward_model` does; another kind of reward model is an error."""
    model = load_reward_model(path, overrides=overrides, device=device, backend=backend)
    if not isinstance(model, SuccessClassifier):
        raise DataError(f"{path}: holds a '{model.model_type}', expected a success classifier")
    return model


def named_models(config: RewardConfig) -> dict[str, RewardModelConfig]:
    """Return the reward models of a run by the names of their terms: `name` in the config, else the model type."""
    named: dict[str, RewardModelConfig] = {}
    given = [model.name for model in config.models if model.name is not None]
    for model in config.models:
        if model.name is not None and given.count(model.name) > 1:
            raise ConfigError(f"reward.model.name: found '{model.name}' twice; expected a name for each model")
        named[model.name or _unused_name(model_class(model).model_type, {*named, *given})] = model
    return named


def _unused_name(model_type: str, taken: set[str]) -> str:
    numbered = (f"{model_type}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([model_type], numbered) if name not in taken)


def model_class(config: RewardModelConfig) -> type[BaseRewardModel]:
    """Return the class of a configured model, from its checkpoint if it has one, else from its model_type."""
    chosen = None if config.model_type is None else REWARD_MODELS.find(config.model_type)
    if config.checkpoint_path is not None:
        # Weights without a config are those of success classifiers of other tools.
        described = read_checkpoint(Path(config.checkpoint_path)).config or {}
        _refuse_policy(described, Path(config.checkpoint_path))
        stored = described.get("model_type")
        chosen = chosen if stored is None else REWARD_MODELS[stored]
    return chosen or SuccessClassifier


def _read_settings(cfg: Any) -> dict[str, Any]:
    """Return the keys of a model's config that are not null, with those of `options` among them."""
    if cfg is None:
        return {}
    if dataclasses.is_dataclass(cfg) and not isinstance(cfg, type):
        cfg = {field.name: getattr(cfg, field.name) for field in dataclasses.fields(cfg)}
    if not isinstance(cfg, Mapping):
        raise ConfigError(f"config of a reward model: found a {type(cfg).__name__}, expected a mapping or a dataclass")
    settings = {str(key): value for key, value in cfg.items() if value is not None}
    return settings | settings.pop("options", {})


def _arguments(cls: type) -> set[str]:
    """Return the keyword arguments of a constructor, including those that it passes to its parent class."""
    names: set[str] = set()
    for klass in cls.__mro__:
        if "__init__" not in vars(klass):
            continue
        parameters = inspect.signature(vars(klass)["__init__"]).parameters.values()
        own = (inspect.Parameter.KEYWORD_ONLY, *([inspect.Parameter.POSITIONAL_OR_KEYWORD] if not names else []))
        names |= {parameter.name for parameter in parameters if parameter.kind in own}
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            break
    return names - {"self"}


def _merge_settings(
    cls: type[BaseRewardModel], config: Mapping[str, Any], given: Mapping[str, Any], stored: StoredModel
) -> dict[str, Any]:
    """Return the stored architecture with the settings `given` in a config; a disagreement is an error."""
    architecture = dict(config["architecture"])
    if KERNEL in stored.weights:
        _infer_use_pretrain(architecture, given, stored)
    known = _arguments(cls)
    for key, value in given.items():
        if key in ("use_pretrain", "pretrained_encoder_path"):  # the checkpoint's encoder takes precedence
            continue
        if key == "model_type":
            if REWARD_MODELS.find(value) is not cls:
                raise _disagreement(key, value, config["model_type"], stored)
        elif key == "crop" and stored.config is not None:
            if _boxes(value, architecture) != _boxes(architecture.get("crop"), architecture):
                raise _disagreement(key, value, architecture.get("crop", "the whole frame"), stored)
        elif key in architecture and key not in _MAY_DIFFER:
            if _as_list(architecture[key]) != _as_list(value):
                raise _disagreement(key, value, architecture[key], stored)
        elif key in known:
            architecture[key] = value
        elif key not in _MAY_DIFFER:
            raise ConfigError(unknown_name(f"key of reward model '{cls.model_type}'", key, known))
    return architecture


def _boxes(crops: Any, architecture: Mapping[str, Any]) -> dict[str, Any]:
    """Return crops by camera, in pixels of the recorded frames."""
    sizes = architecture.get("frame_sizes") or {}
    found = crops.items() if isinstance(crops, Mapping) else ()
    return {
        key: crop_box(crop, sizes[key][0], sizes[key][1], f"crop.{key}") if key in sizes else _as_list(crop)
        for key, crop in found
    }


def _disagreement(key: str, value: Any, found: Any, stored: StoredModel) -> ConfigError:
    return ConfigError(
        f"{key}: the config says {_as_list(value)}, the checkpoint {stored.source} was trained with {_as_list(found)}. "
        "Remove the key: the checkpoint has its architecture"
    )


def _infer_use_pretrain(architecture: dict[str, Any], given: Mapping[str, Any], stored: StoredModel) -> None:
    described, size = architecture.get("use_pretrain", True), architecture.get("image_size", (3, 64, 64))
    if not isinstance(size, (list, tuple)) or not all(type(side) is int for side in size):
        return  # the class says what is wrong with it
    actual = keeps_feature_map(stored.weights[KERNEL], tuple(size), otherwise=described)
    architecture["use_pretrain"] = actual
    if not actual:
        architecture["pretrained_encoder_path"] = None
    if described != actual or given.get("use_pretrain", actual) != actual:
        warnings.warn(
            f"use_pretrain is {str(not actual).lower()} in the config, but {stored.source} was trained with "
            f"{str(actual).lower()}, as the kernel {list(stored.weights[KERNEL].shape)} of its pooling shows: "
            f"using {str(actual).lower()}",
            stacklevel=2,
        )


def _build(cls: type[BaseRewardModel], architecture: Mapping[str, Any], stored: StoredModel) -> BaseRewardModel:
    unknown = sorted(set(architecture) - _arguments(cls))
    if unknown:
        sentence = unknown_name(f"key of reward model '{cls.model_type}'", unknown[0], _arguments(cls))
        raise ConfigError(f"{stored.source}: {sentence}")
    with warnings.catch_warnings():
        # The weights of a frozen encoder without a path are in the checkpoint.
        warnings.filterwarnings("ignore", message="freeze_encoder without")
        model = build_to_fit(lambda: cls(**architecture), stored.weights, stored.source)
    if isinstance(model, SuccessClassifier):  # frames of any size are resized to this one
        check_pixels(*model.image_size[1:], f"{stored.source}, image_size")
    return model


def _load_facts(model: SuccessClassifier, config: Mapping[str, Any], stored: StoredModel) -> None:
    try:
        model.threshold = float(config.get("threshold", 0.5))
        model.temperature = float(config.get("temperature", 1.0))
        prior = config.get("class_prior")
        model.class_prior = None if prior is None else float(prior)
        model.metrics = dict(config.get("metrics") or {})
        model.notes = [str(note) for note in config.get("notes") or []]
        used = config.get("used_episodes")
        model.used_episodes = None if used is None else UsedEpisodes(**used)
        model.tasks = read_tasks(config)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{stored.source}: threshold, temperature, class_prior, metrics or used_episodes is broken ({error})"
        ) from error
    if not (0 < model.threshold < 1 and 0 < model.temperature < float("inf")):
        raise DataError(
            f"{stored.source}: threshold is {model.threshold}, temperature {model.temperature}; expected a threshold "
            "between 0 and 1 and a positive temperature"
        )


def _as_list(value: Any) -> Any:
    return [_as_list(item) for item in value] if isinstance(value, (list, tuple)) else value
