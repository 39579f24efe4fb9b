# SPDX-License-Identifier: Apache-2.0
"""Segmenters of voxconv.torch layers."""

import torch
import voxconv.torch as vt
from torch import nn
from voxconv.torch import models


def block(c_in: int, c_out: int, kernel: int = 3) -> nn.Module:
    return vt.Sequential(
        vt.SubMConv3d(c_in, c_out, kernel, bias=False), vt.BatchNorm(c_out), nn.ReLU()
    )


class UNet(nn.Module):
    """Two levels down and up again, with skip connections."""

    def __init__(self, in_channels: int, classes: int, width: int = 8):
        super().__init__()
        self.stem = block(in_channels, width)
        self.down1 = vt.SparseConv3d(width, 2 * width, 2, stride=2, key="1")
        self.middle = block(2 * width, 2 * width)
        self.down2 = vt.SparseConv3d(2 * width, 2 * width, 2, stride=2, key="2")
        self.bottom = block(2 * width, 2 * width)
        self.up2 = vt.SparseInverseConv3d(2 * width, 2 * width, 2, key="2")
        self.up1 = vt.SparseInverseConv3d(4 * width, width, 2, key="1")
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: vt.SparseTensor) -> torch.Tensor:
        fine = self.stem(x)
        coarse = self.middle(self.down1(fine))
        y = vt.cat([self.up2(self.bottom(self.down2(coarse))), coarse])
        return self.head(vt.cat([self.up1(y), fine]).features)


class MinkUNet42(nn.Module):
    """voxconv.torch.models.MinkUNet42, which gives the scores alone."""

    def __init__(self, in_channels: int, classes: int, width: int = 32):
        super().__init__()
        self.network = models.MinkUNet42(in_channels, classes, width / 32)

    def forward(self, x: vt.SparseTensor) -> torch.Tensor:
        return self.network(x).features


NETWORKS = {"unet": (UNet, 8), "minkunet42": (MinkUNet42, 32)}  # with their usual widths
