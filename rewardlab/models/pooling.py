"""Pooling that keeps where things are."""

import torch
from torch import Tensor, nn


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
