"""Devices that are not there, or are written in a way that nobody meant."""

import pytest

from rewardlab.cli import main
from rewardlab.config import config_from_mapping
from rewardlab.devices import find_device
from rewardlab.errors import ConfigError


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("cuda:x", "device: found cuda:x, expected auto, cpu, cuda or another"),
        ("cuda:-1", "device: found cuda:-1, expected auto"),
        ("gpu", "device: PyTorch knows no device 'gpu'; expected auto, cpu, cuda"),
        ("cpu:1", "device: found cpu:1, expected cpu, which has no numbers"),
        ("cuda:0", "device: found cuda:0, but this machine has no cuda device; set it to auto or cpu"),
    ],
)
def test_a_device_that_is_not_there_is_answered_with_what_is(wanted: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_device(wanted)


@pytest.mark.usefixtures("toy")
def test_the_accelerator_is_found_and_counted() -> None:
    assert find_device("auto").type == "toy"
    assert find_device("toy:1").index == 1
    with pytest.raises(ConfigError, match="found toy:2, but this machine has 2 of kind toy, numbered from 0"):
        find_device("toy:2")


@pytest.mark.parametrize(
    ("device", "message"),
    [("cpu:1", "expected cpu, which has no numbers"), ("auto:1", "cluster.device"), ("CUDA", "expected auto, cpu")],
)
def test_a_config_refuses_devices_that_mean_nothing(device: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_from_mapping({"cluster": {"device": device}})


def test_a_config_writes_devices_in_one_way() -> None:
    devices = {text: config_from_mapping({"cluster": {"device": text}}).cluster.device for text in ("cpu:0", "cuda:01")}
    assert devices == {"cpu:0": "cpu", "cuda:01": "cuda:1"}


def test_a_command_names_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["score", "model", "data", "--device", "cuda:x"])
    assert "--device: found 'cuda:x', expected auto, cpu" in capsys.readouterr().err
