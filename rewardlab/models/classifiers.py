"""Networks that look at one frame and say how much it looks like success."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.models.image_preprocessor import ImagePreprocessor, Images
from rewardlab.models.resnet import Norm, Padding, ResNet, map_size


def success_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of logits [B] with labels [B] (0 or 1): what every success classifier is trained on."""
    # In float32 whatever the network runs in: bf16 has 8 bits, too few for a mean over a batch.
    return functional.binary_cross_entropy_with_logits(logits.float(), labels.to(logits.device, torch.float32))


class AveragePoolHead(nn.Module):
    """Feature maps [B, cameras, C, H, W] to logits [B]: average over positions, then a small MLP."""

    def __init__(self, channels: int, cameras: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(cameras * channels, hidden_dim)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden_dim, 1)

    def forward(self, maps: Tensor) -> Tensor:
        features = maps.mean(dim=(-2, -1)).flatten(1)
        return self.out(self.dropout(torch.relu(self.hidden(features)))).squeeze(-1)


class SpatialLearnedEmbeddings(nn.Module):
    """Weighted sums of a feature map over its positions, with learned weights (SERL, Luo et al. 2024).

    Each channel has `num_features` maps of weights of its own: [B, C, H, W] becomes [B, C * num_features]. Unlike an
    average it can tell a cube at the goal from a cube beside it.
    """

    def __init__(self, height: int, width: int, channels: int, num_features: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(channels, height, width, num_features))
        # LeCun normal over the positions that are summed: the output has the scale of the input for any map size.
        nn.init.normal_(self.kernel, std=(height * width) ** -0.5)

    def forward(self, maps: Tensor) -> Tensor:
        return torch.einsum("bchw,chwf->bcf", maps, self.kernel).flatten(1)


class SpatialHead(nn.Module):
    """Feature maps [B, cameras, C, H, W] to logits [B]: learned spatial pooling, Linear, LayerNorm, Tanh, Linear.

    With `average` the map is averaged to a single position first. Cameras share the encoder but not this pooling.
    """

    def __init__(
        self, channels: int, height: int, width: int, cameras: int, hidden_dim: int, blocks: int, average: bool
    ) -> None:
        super().__init__()
        self.average = average
        if average:
            height = width = 1
        self.pooling = SpatialLearnedEmbeddings(height, width, cameras * channels, blocks)
        self.hidden = nn.Linear(cameras * channels * blocks, hidden_dim)
        self.norm = nn.LayerNorm(hidden_dim)
        self.out = nn.Linear(hidden_dim, 1)

    def pool(self, maps: Tensor) -> Tensor:
        """Return the features [B, cameras * C * blocks]."""
        maps = maps.flatten(1, 2)
        if self.average:
            maps = maps.mean(dim=(-2, -1), keepdim=True)
        return self.pooling(maps)

    def forward(self, maps: Tensor) -> Tensor:
        return self.out(torch.tanh(self.norm(self.hidden(self.pool(maps))))).squeeze(-1)


class ImageClassifier(nn.Module):
    """Raw images of one or several cameras to logits [B]: preprocessing, a ResNet that cameras share, a head.

    A frozen encoder stays in eval mode through `train()`: no gradient, no update of running statistics.
    """

    def __init__(
        self, preprocess: ImagePreprocessor, encoder: ResNet, head: nn.Module, *, frozen: bool = False
    ) -> None:
        super().__init__()
        self.preprocess = preprocess
        self.encoder = encoder
        self.head = head
        self.freeze_encoder(frozen)

    def freeze_encoder(self, frozen: bool = True) -> None:
        self.frozen = frozen
        self.encoder.requires_grad_(not frozen)
        self.train(self.training)

    def train(self, mode: bool = True) -> "ImageClassifier":
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def forward(self, images: Images) -> Tensor:
        weight = self.encoder.conv1.weight
        pixels = self.preprocess(images, weight.device).to(weight.dtype)
        stacked = pixels.flatten(0, 1)
        if stacked.device.type == "cpu":  # training is faster: benchmarks/training_speed.py layouts
            stacked = stacked.contiguous(memory_format=torch.channels_last)
        # Only the encoder is cut off: with the head inside too, its layers would silently never learn.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            maps = self.encoder(stacked)
        return self.head(maps.unflatten(0, pixels.shape[:2]))

    def learn(self, images: Images, labels: Tensor) -> Tensor:
        """Compute the loss on a batch; goes through `forward`, the only method that FSDP2 hooks."""
        return success_loss(self(images), labels)


def average_pool_classifier(
    preprocess: ImagePreprocessor, *, arch: str, hidden_dim: int, dropout: float, width: int, norm: Norm
) -> ImageClassifier:
    encoder = ResNet(arch, width=width, norm=norm)
    head = AveragePoolHead(encoder.channels, len(preprocess.image_keys), hidden_dim, dropout)
    return ImageClassifier(preprocess, encoder, head)


def spatial_classifier(
    preprocess: ImagePreprocessor,
    *,
    arch: str,
    hidden_dim: int,
    num_spatial_blocks: int,
    average: bool,
    frozen: bool,
    width: int,
    norm: Norm,
    padding: Padding = "symmetric",
) -> ImageClassifier:
    encoder = ResNet(arch, width=width, norm=norm, padding=padding)
    height, breadth = (map_size(side) for side in preprocess.image_size[1:])
    cameras = len(preprocess.image_keys)
    head = SpatialHead(encoder.channels, height, breadth, cameras, hidden_dim, num_spatial_blocks, average=average)
    return ImageClassifier(preprocess, encoder, head, frozen=frozen)
