"""Environments that a module of the user's defines, by `module:name`: a class, or a function that returns one."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv, VectorWrapper

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.cameras import DRAWN
from rewardlab.envs.closing import closed_after_errors
from rewardlab.envs.make_copies import make_copies
from rewardlab.envs.missing import is_of_vulkan, missing_vulkan_driver
from rewardlab.envs.opengl import is_of_opengl, unusable_backend
from rewardlab.envs.own_vector_env import finish_vector_env
from rewardlab.envs.single import finish
from rewardlab.errors import ConfigError, user_traceback
from rewardlab.registry import import_named, unknown_name

EXPECTED = "a class of gymnasium.Env, or a function that returns an environment"


def make_from_module(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Build `cfg.num_envs` copies of what `module:name` makes; of a vector environment, one with so many."""
    maker = find_maker(cfg.id)
    if not _makes_vectors(maker):
        return make_copies(cfg, make_one)
    env = _call(maker, cfg, num_envs=cfg.num_envs)
    if not isinstance(env, VectorEnv):
        _close(env)
        found = f"{maker.__name__}() has a parameter num_envs, but returned {_kind(env)}"
        raise ConfigError(f"environment '{cfg.id}': {found}; expected a gymnasium.vector.VectorEnv of so many")
    with closed_after_errors(env.close):
        return finish_vector_env(env, cfg)


def make_one(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    """Build one of the copies."""
    maker = find_maker(cfg.id)
    env = _call(maker, cfg)
    if isinstance(env, VectorEnv):
        _close(env)
        raise ConfigError(
            f"environment '{cfg.id}': {maker.__name__}() returned a vector environment of {env.num_envs}; expected a "
            "parameter num_envs, by which env.train.num_envs and env.eval.num_envs say how many there are"
        )
    if not isinstance(env, gymnasium.Env):
        found = f"{maker.__name__}() returned {_kind(env)}"
        raise ConfigError(f"environment '{cfg.id}': {found}; expected {_expected(env)}")
    return finish(env, cfg)


def find_maker(env_id: str) -> Callable[..., Any]:
    """Import `module:name` and return the class or function, or raise what is wrong with it."""
    module_name, _, name = env_id.rpartition(":")
    module = import_named(module_name, f"environment '{env_id}'")
    if not hasattr(module, name):
        raise unknown_environment(env_id)
    found = getattr(module, name)
    if isinstance(found, gymnasium.Env | VectorEnv):
        raise ConfigError(
            f"environment '{env_id}' exists already; expected {EXPECTED}, since a run makes more than one of them"
        )
    if isinstance(found, type) and not issubclass(found, gymnasium.Env | VectorEnv):
        raise ConfigError(f"environment '{env_id}' is a class of {_bases(found)}; expected {_expected(found)}")
    if not callable(found):
        raise ConfigError(f"environment '{env_id}' is {_kind(found)}; expected {EXPECTED}")
    return found


def unknown_environment(env_id: str) -> ConfigError:
    """Return the error for an id that neither Gymnasium nor the module in it knows, with the nearest that there is."""
    module_name, _, name = env_id.rpartition(":")
    if not module_name:
        known = unknown_name("environment", name, gymnasium.registry).partition(" Choices:")[0].removesuffix(".")
        return ConfigError(f"{known}. If it comes from a package or a file of yours, name that too: package:Id")
    module = import_named(module_name, f"environment '{env_id}'")
    offered = [*_registered_by(module_name), *_makers_in(module)]
    if not offered:
        known = unknown_name("environment", name, gymnasium.registry).partition(" Choices:")[0].removesuffix(".")
        return ConfigError(f"{known}. {module_name} registers no environment and has none; expected {EXPECTED} there")
    return ConfigError(unknown_name(f"environment of {module_name}", name, offered))


@contextmanager
def errors_of_constructor(cfg: EnvConfig) -> Iterator[None]:
    """Name the environment in errors that others raise while it is built; the user's own stay as they are."""
    try:
        yield
    except ConfigError:
        raise
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigError(f"environment '{cfg.id}' needs a package that is not installed: {error}") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"environment '{cfg.id}': {error}") from error
    except Exception as error:
        if is_of_opengl(error):
            raise unusable_backend(cfg.id, error) from error
        if is_of_vulkan(error):
            raise missing_vulkan_driver(cfg.id, str(error)) from error
        if user_traceback(error) is not None:  # in its constructor
            raise
        what = "does not take these options" if isinstance(error, TypeError) else f"fails with {type(error).__name__}"
        raise ConfigError(f"environment '{cfg.id}' {what}: {error}") from error


def may_draw(maker: object) -> bool:
    """Return False if a class of environments says that it has no render_mode 'rgb_array', or cannot be told one."""
    metadata = getattr(maker, "metadata", None)
    if not isinstance(metadata, dict):  # a function
        return True
    if metadata is gymnasium.Env.metadata and isinstance(maker, type):  # a class that says nothing
        return "render_mode" in _parameters(maker)
    return DRAWN in metadata.get("render_modes", ())


def _call(maker: Callable[..., Any], cfg: EnvConfig, **given: Any) -> Any:
    """Call a class or a function with the options of the config, and with `render_mode` if it takes that."""
    options, parameters = {**given, **cfg.options}, _parameters(maker)
    drawn = {"render_mode": DRAWN, **options}
    with errors_of_constructor(cfg):
        if parameters:
            _check_options(maker, cfg.id, options)
        if "render_mode" in parameters and may_draw(maker):
            return maker(**drawn)
        if not _takes_any(maker) or "render_mode" in options:
            return maker(**options)
        try:
            return maker(**drawn)
        except TypeError as error:  # what it passes its arguments on to does not take this one
            if "render_mode" not in str(error):
                raise
            return maker(**options)


def _check_options(maker: Callable[..., Any], env_id: str, options: dict[str, Any]) -> None:
    try:
        inspect.signature(maker).bind(**options)
    except TypeError as error:
        taken = ", ".join(name for name in _parameters(maker) if name not in ("num_envs", "render_mode")) or "none"
        raise ConfigError(
            f"environment '{env_id}': {error}. Its arguments are env.train.options; {maker.__name__}() takes: {taken}"
        ) from error


def _makes_vectors(maker: Callable[..., Any]) -> bool:
    if isinstance(maker, type):
        return issubclass(maker, VectorEnv)
    return "num_envs" in _parameters(maker)


def _parameters(maker: Callable[..., Any]) -> list[str]:
    """Return the names of what a class or a function takes; none if it does not say."""
    try:
        return list(inspect.signature(maker).parameters)
    except (TypeError, ValueError):  # of a function written in C
        return []


def _takes_any(maker: Callable[..., Any]) -> bool:
    """Return whether a class or a function takes any keyword, to pass it on."""
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)


def _registered_by(module_name: str) -> list[str]:
    """Return the ids that Gymnasium knows from a module, or from the package that it is in."""
    package = module_name.partition(".")[0]
    found = []
    for env_id, spec in gymnasium.registry.items():
        entry = spec.entry_point
        place = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
        if place.partition(":")[0].partition(".")[0] == package:
            found.append(env_id)
    return found


def _makers_in(module: ModuleType) -> list[str]:
    """Return the public names of a module that may make environments."""
    found = []
    for name, value in vars(module).items():
        is_class = isinstance(value, type) and issubclass(value, gymnasium.Env | VectorEnv)
        is_class = is_class and not issubclass(value, gymnasium.Wrapper | VectorWrapper)
        if not name.startswith("_") and (is_class or inspect.isfunction(value)) and value.__module__ == module.__name__:
            found.append(name)
    return found


def _expected(found: Any) -> str:
    """Return what was expected in the place of something that is no environment."""
    classes = found.__mro__ if isinstance(found, type) else type(found).__mro__
    if any(one.__module__.partition(".")[0] == "gym" for one in classes):
        return "one of gymnasium.Env; this is one of the older gym, which the package shimmy converts (shimmy.GymV26)"
    if all(hasattr(found, method) for method in ("reset", "step")):
        return "gymnasium.Env among its base classes"
    return "a gymnasium.Env or a gymnasium.vector.VectorEnv"


def _bases(found: type) -> str:
    return ", ".join(f"{base.__module__}.{base.__name__}" for base in found.__bases__)


def _kind(value: object) -> str:
    if value is None:
        return "None"
    return f"a {type(value).__name__}" if hasattr(value, "__dict__") else f"{repr(value)[:40]} ({type(value).__name__})"


def _close(env: Any) -> None:
    getattr(env, "close", lambda: None)()
