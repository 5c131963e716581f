"""The toy device is as strict as CUDA: what slips through here would fail on a GPU."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from toy_device import DeviceMismatch, toy_devices

pytestmark = pytest.mark.usefixtures("toy")


def ones(device: str) -> torch.Tensor:
    return torch.ones(2, device=device)


def generator(device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(0)


MIXTURES: dict[str, Callable[[], Any]] = {
    "a sum": lambda: ones("toy") + ones("cpu"),
    "two devices": lambda: ones("toy:0") + ones("toy:1"),
    "a concatenation": lambda: torch.cat([ones("toy"), ones("cpu")]),
    "a written row": lambda: ones("toy").index_put_((torch.tensor([0, 1]),), ones("cpu")),
    "a network": lambda: nn.Linear(2, 1).to("toy")(ones("cpu")),
    "a where": lambda: torch.where(ones("toy") > 0, ones("cpu"), ones("toy")),
    "a CPU generator": lambda: torch.randn(2, device="toy", generator=generator("cpu")),
    "a toy generator": lambda: torch.randn(2, generator=generator("toy")),
    "a permutation": lambda: torch.randperm(2, device="toy", generator=generator("cpu")),
}


@pytest.mark.parametrize("mixture", MIXTURES.values(), ids=MIXTURES.keys())
def test_devices_do_not_mix(mixture: Callable[[], Any]) -> None:
    with pytest.raises(DeviceMismatch):
        mixture()


def test_numbers_and_indices_may_be_the_cpus() -> None:
    assert (ones("toy") + torch.tensor(2.0)).tolist() == [3.0, 3.0]
    assert ones("toy")[torch.tensor([0])].device == torch.device("toy:0")


def test_a_toy_tensor_is_neither_an_array_nor_pickled() -> None:
    with pytest.raises(TypeError, match="cpu"):
        ones("toy").numpy()
    with pytest.raises(TypeError, match="CPU first"):
        torch.save(ones("toy"), io.BytesIO())
    assert ones("toy").cpu().numpy().tolist() == [1.0, 1.0]


def test_the_same_seed_draws_what_the_cpu_draws() -> None:
    drawn = torch.randn(5, device="toy", generator=generator("toy"))
    assert torch.equal(drawn.cpu(), torch.randn(5, generator=generator("cpu")))


def test_memory_ends() -> None:
    with toy_devices(memory=1000), pytest.raises(torch.OutOfMemoryError):
        torch.ones(1000, device="toy")
