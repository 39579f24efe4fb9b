# SPDX-License-Identifier: Apache-2.0
"""Segmenters of voxconv.torch layers."""

import torch
import voxconv.torch as vt
from torch import nn


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


class Residual(nn.Module):
    """Two convolutions and a shortcut, which is a product of each voxel's channels where their number
    changes."""

    takes_sparse = True

    def __init__(self, c_in: int, c_out: int):
        super().__init__()
        self.body = vt.Sequential(
            *block(c_in, c_out), vt.SubMConv3d(c_out, c_out, 3, bias=False), vt.BatchNorm(c_out)
        )
        self.shortcut = (
            vt.Sequential(nn.Linear(c_in, c_out, bias=False), vt.BatchNorm(c_out))
            if c_in != c_out else vt.Sequential()
        )

    def forward(self, x: vt.SparseTensor) -> vt.SparseTensor:
        y = self.body(x).features + self.shortcut(x).features
        return x.with_features(torch.relu(y))


class MinkUNet42(nn.Module):
    """The segmenter of Choy et al. (2019) with the layers of voxconv.networks.minkunet42."""

    ENCODER, DECODER = (32, 64, 128, 256), (256, 128, 96, 96)

    def __init__(self, in_channels: int, classes: int, width: int = 32):
        super().__init__()
        if width % 8:
            raise ValueError(f"width: {width}; a multiple of 8 is needed")
        scaled = [channels * width // 32 for channels in self.ENCODER + self.DECODER]
        self.stem = vt.Sequential(*block(in_channels, width), *block(width, width))
        self.down, self.encoder = nn.ModuleList(), nn.ModuleList()
        self.up, self.decoder = nn.ModuleList(), nn.ModuleList()
        channels, skips = width, []
        for level, c in enumerate(scaled[:4]):
            skips.append(channels)
            self.down.append(vt.Sequential(
                vt.SparseConv3d(channels, channels, 2, stride=2, bias=False, key=str(level)),
                vt.BatchNorm(channels), nn.ReLU()))
            self.encoder.append(vt.Sequential(Residual(channels, c), Residual(c, c)))
            channels = c
        for level, c in zip(reversed(range(4)), scaled[4:]):
            self.up.append(vt.Sequential(
                vt.SparseInverseConv3d(channels, c, 2, bias=False, key=str(level)),
                vt.BatchNorm(c), nn.ReLU()))
            self.decoder.append(vt.Sequential(Residual(c + skips[level], c), Residual(c, c)))
            channels = c
        self.head = nn.Linear(channels, classes)

    def forward(self, x: vt.SparseTensor) -> torch.Tensor:
        x = self.stem(x)
        skips = []
        for down, encoder in zip(self.down, self.encoder):
            skips.append(x)
            x = encoder(down(x))
        for up, decoder in zip(self.up, self.decoder):
            x = decoder(vt.cat([up(x), skips.pop()]))
        return self.head(x.features)


NETWORKS = {"unet": (UNet, 8), "minkunet42": (MinkUNet42, 32)}  # with their usual widths
