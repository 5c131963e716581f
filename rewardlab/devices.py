"""Torch devices: what a machine has, random generators and batches on them, and errors that name them.

Networks are built on the CPU, so that a seed gives the same weights everywhere, and then moved. Whatever is stored or
sent to another worker is on the CPU.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rewardlab.arguments import check_seed, split_device
from rewardlab.errors import ConfigError, RewardlabError

T = TypeVar("T", Tensor, TensorDict)
CPU = torch.device("cpu")


class OutOfMemory(RewardlabError):
    """A device has no memory left for a component."""


def accelerator() -> str | None:
    """Return the kind of accelerator that this machine has, such as "cuda"; None if it has none.

    Apple's "mps" does not count: it has no float64, in which running statistics are kept.
    """
    found = torch.accelerator.current_accelerator(check_available=True)
    return None if found is None or found.type == "mps" else found.type


def device_count(kind: str, key: str = "cluster.device") -> int:
    """Return how many devices of a kind this machine has; `key` is named if PyTorch does not know the kind."""
    if kind == "cpu":
        return 1
    try:
        torch.device(kind)
        module: Any = torch.get_device_module(kind)
    except RuntimeError as error:
        raise ConfigError(
            f"{key}: PyTorch knows no device '{kind}'; expected auto, cpu, cuda or another device of PyTorch"
        ) from error
    return module.device_count() if module.is_available() else 0


def find_device(wanted: str | torch.device, key: str = "device") -> torch.device:
    """Return a device of this machine: "auto" is its accelerator if it has one. One that is not there is an error."""
    try:
        kind, number = split_device(str(wanted))
    except ValueError as expected:
        raise ConfigError(f"{key}: found {wanted}, expected {expected}") from None
    kind = (accelerator() or "cpu") if kind == "auto" else kind
    count = device_count(kind, key)
    if (number or 0) >= count:
        has = f"{count} of kind {kind}, numbered from 0" if count else f"no {kind} device"
        raise ConfigError(f"{key}: found {wanted}, but this machine has {has}; set it to auto or cpu")
    return torch.device(kind) if number is None else torch.device(kind, number)


def use_device(device: torch.device) -> None:
    """Make `device` the current one of this process, where libraries such as NCCL allocate."""
    if device.type != "cpu":
        torch.get_device_module(device).set_device(device)


def device_of(module: torch.nn.Module) -> torch.device:
    """Return the device of a network, all of whose parameters are on one; the CPU if it has none."""
    parameter = next(module.parameters(), None)
    return CPU if parameter is None else parameter.device


def seeded_generator(seed: int, device: torch.device = CPU) -> torch.Generator:
    """Return a generator for random numbers on `device`: one of another device is refused there."""
    try:
        check_seed(seed)
    except ValueError as expected:
        raise ConfigError(f"seed: found {seed}, expected {expected}") from None
    return torch.Generator(device).manual_seed(seed)


def forked_random_numbers(device: torch.device) -> AbstractContextManager[None]:
    """Leave torch's global generators of the CPU and of `device` as they were, whatever is drawn inside."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)


def restore_generator(generator: torch.Generator, state: Tensor) -> None:
    """Continue from the saved state of a generator; one of another kind of device starts again from its own seed."""
    try:
        generator.set_state(state)
    except RuntimeError:
        warnings.warn(
            f"the saved random generator is not one of {generator.device.type}: the run goes on with other random "
            "numbers than on the device where it was saved",
            stacklevel=2,
        )


def to_device(values: T, device: str | torch.device) -> T:
    """Return a tensor or a batch on `device`. To CUDA it goes through pinned memory: the copy does not block then."""
    if isinstance(device, str):
        device = find_device(device)
    if device.type == "cuda" and (values.device is None or values.device.type == "cpu"):
        return values.pin_memory().to(device, non_blocking=True)
    if device.type == "cpu" and values.device is None:  # a batch that does not say where it is, is on the CPU
        return values
    return values.to(device)


def on_cpu(value: Any) -> Any:
    """Return nested dictionaries and lists with all tensors on the CPU, detached; tensors there are not copied."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, TensorDictBase):
        return value.cpu()
    if isinstance(value, Mapping):
        return {key: on_cpu(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [on_cpu(item) for item in value]
    return value


@contextmanager
def memory_errors_named(component: str, device: str | torch.device) -> Iterator[None]:
    """Turn PyTorch's error about memory into one that names the component and the keys that decide its use."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        keys = {
            "actor": "lower actor.global_batch_size, actor.micro_batch_size (a classifier) or env.train.num_envs (ppo)",
            "env": "lower env.train.num_envs",
            "rollout": "lower env.train.num_envs",
            "reward": "choose a smaller model",
        }
        raise OutOfMemory(
            f"{device} has no memory left for the component '{component}' ({str(error).splitlines()[0]}). Move it to "
            f"another device with cluster.component_placement.{component}, or {keys[component]}"
        ) from error
