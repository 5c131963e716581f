"""Networks: everything that should learn learns, what is frozen stays, and the fast copy says the same."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from rewardlab.models.classifiers import (
    ImageClassifier,
    SpatialLearnedEmbeddings,
    average_pool_classifier,
    spatial_classifier,
    success_loss,
)
from rewardlab.models.image_preprocessor import ImagePreprocessor
from rewardlab.models.inference import InferenceBackend, InferenceNetwork, success_probability
from rewardlab.models.resnet import Norm

Build = Callable[..., ImageClassifier]


def average(
    keys: tuple[str, ...] = ("a",), size: int = 64, norm: Norm = "batch", arch: str = "resnet10"
) -> ImageClassifier:
    prepare = ImagePreprocessor(keys, (3, size, size))
    return average_pool_classifier(prepare, arch=arch, hidden_dim=30, dropout=0.1, width=8, norm=norm)


def spatial(
    keys: tuple[str, ...] = ("a",),
    size: int = 64,
    norm: Norm = "batch",
    arch: str = "resnet10",
    frozen: bool = False,
    averaged: bool = False,
) -> ImageClassifier:
    return spatial_classifier(
        ImagePreprocessor(keys, (3, size, size)),
        arch=arch,
        hidden_dim=30,
        num_spatial_blocks=4,
        average=averaged,
        frozen=frozen,
        width=8,
        norm=norm,
    )


def frames(count: int, size: int = 64, keys: tuple[str, ...] = ("a", "b")) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(count)
    return {key: torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8, generator=generator) for key in keys}


def trained(network: ImageClassifier, size: int = 64) -> ImageClassifier:
    """Running statistics as after training, so that folding them is not trivial."""
    network.train()(frames(8, size))
    return network.eval()


def test_spatial_embeddings_by_hand() -> None:
    pooling = SpatialLearnedEmbeddings(height=1, width=2, channels=2, num_features=2)
    with torch.no_grad():
        pooling.kernel.copy_(torch.tensor([[[[1.0, 0.0], [2.0, 1.0]]], [[[0.0, 1.0], [1.0, 3.0]]]]))
    maps = torch.tensor([[[[10.0, 20.0]], [[30.0, 40.0]]]])
    # channel 0: 10*1 + 20*2, 10*0 + 20*1; channel 1: 30*0 + 40*1, 30*1 + 40*3
    assert pooling(maps).tolist() == [[50.0, 20.0, 40.0, 150.0]]


@pytest.mark.parametrize("build", [average, spatial])
@pytest.mark.parametrize("keys", [("a",), ("a", "b")])
def test_every_parameter_gets_a_gradient(build: Build, keys: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    network = build(keys).train()
    network.learn(frames(8), torch.arange(8) % 2).backward()
    without = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not without


def test_a_frozen_encoder_is_untouched_and_the_rest_learns() -> None:
    torch.manual_seed(0)
    network = spatial(frozen=True).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    trainable = {name for name, p in network.named_parameters() if p.requires_grad}
    assert trainable == {name for name in before if name.startswith("head.")}
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad])
    for _ in range(2):
        optimizer.zero_grad()
        network.learn(frames(8), torch.arange(8) % 2).backward()
        optimizer.step()
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == trainable
    assert not network.encoder.training
    assert network.head.training


def test_cameras_share_the_encoder() -> None:
    one, two = average(("a",)), average(("a", "b"))
    assert one.encoder.state_dict().keys() == two.encoder.state_dict().keys()
    two.eval()
    images = frames(3)
    swapped = {"a": images["b"], "b": images["a"]}
    assert not torch.allclose(two(images), two(swapped))


def test_loss_by_hand() -> None:
    logits = torch.tensor([0.0, 2.0])
    plain = (torch.log(torch.tensor(2.0)) + torch.log1p(torch.exp(torch.tensor(2.0)))) / 2
    labels = torch.tensor([True, False])
    assert success_loss(logits, labels) == pytest.approx(float(plain))


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "build",
    [
        lambda: trained(average(("a", "b"))),
        lambda: trained(average(size=40, norm="group"), 40),
        lambda: trained(average(size=32, arch="resnet50"), 32),
        lambda: trained(spatial()),
    ],
)
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_frame_has_one_score_whatever_batch_it_is_in(
    build: Callable[[], ImageClassifier], threads: int, backend: InferenceBackend
) -> None:
    torch.manual_seed(0)
    network = build()
    size = network.preprocess.image_size[1]
    images = frames(70, size)
    fast = InferenceNetwork(network, backend=backend)

    def score(rows: Tensor | slice) -> Tensor:
        return success_probability(fast({key: array[rows] for key, array in images.items()}), temperature=1.7)

    scores = score(slice(None))
    assert torch.allclose(scores, torch.sigmoid(network(images) / 1.7), atol=1e-5)
    order = torch.randperm(70)
    assert torch.equal(score(order), scores[order])
    for start, count in ((0, 1), (69, 1), (5, 2), (3, 7), (0, 16), (7, 33), (1, 65)):
        assert torch.equal(score(slice(start, start + count)), scores[start : start + count])


def test_the_fast_copy_leaves_the_network_alone() -> None:
    network = average().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    InferenceNetwork(network)(frames(2))
    assert network.training
    assert all(p.requires_grad for p in network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_the_other_layout_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where oneDNN is missing, the copy is folded and channels last; scores of one and many agree within rounding."""
    network = trained(spatial())
    packed = InferenceNetwork(network)(frames(5))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = InferenceNetwork(network)
    assert torch.allclose(plain(frames(5)), packed, atol=1e-4)
    one = {key: array[:1] for key, array in frames(5).items()}
    assert torch.allclose(plain(one), plain(frames(5))[:1], atol=1e-5)
    assert torch.equal(plain(frames(5))[:2], plain({key: array[:2] for key, array in frames(5).items()}))


def test_the_weights_are_prepared_once() -> None:
    """Otherwise oneDNN reorders them at every call, a third of the time of a single frame."""
    fast = InferenceNetwork(average())
    convolutions = [layer for layer in fast.encoder.encoder.modules() if isinstance(layer, nn.Conv2d)]
    weights = [layer.weight for layer in convolutions]
    assert all(weight.is_mkldnn for weight in weights)
    fast(frames(1))
    fast(frames(3))
    assert all(layer.weight is weight for layer, weight in zip(convolutions, weights, strict=True))


def test_no_frames_no_scores() -> None:
    assert InferenceNetwork(average())(frames(0)).shape == (0,)
    assert success_probability(torch.empty(0)).shape == (0,)
