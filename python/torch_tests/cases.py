# SPDX-License-Identifier: Apache-2.0
"""Layers that several tests go through."""

import torch
import voxconv.torch as vt


def layers(c_in: int, c_out: int) -> list[torch.nn.Module]:
    """One of each kind with an own gradient, for inputs of stride 1 and, of a transposed one, 2."""
    return [
        vt.SubMConv3d(c_in, c_out, 3),
        vt.SubMConv3d(c_in, c_out, (1, 3, 1), dilation=2, bias=False),
        vt.SparseConv3d(c_in, c_out, 2, stride=2),
        vt.SparseConv3d(c_in, c_out, 3, stride=2, padding=1, rule="dilate"),
        vt.TransposedConv3d(c_in, c_out, 2, stride=2),
        vt.MaxPool3d(),
        vt.MaxPool3d(convention="spconv"),
        vt.SumPool3d(3, 2),
        vt.AvgPool3d(),
        vt.AvgPool3d(present=False),
        vt.BatchNorm(c_in),
    ]
