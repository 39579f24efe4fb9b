# SPDX-License-Identifier: Apache-2.0
"""The papers' networks as modules. Their layers are those of voxconv.networks, by the same names."""

import numbers
from collections.abc import Mapping
from typing import Any

import torch
from voxconv._voxconv import Network
from torch import nn

from voxconv.torch.functional import add, cat, relu
from voxconv.torch.modules import SparseConv3d, SparseInverseConv3d, SubMConv3d
from voxconv.torch.norm import BatchNorm
from voxconv.torch.joining import is_plain, joined, joined_residual, may_join
from voxconv.torch.tensor import SparseTensor

# The network's names of a batch norm's arrays, by PyTorch's.
_NORM = {"weight": "gamma", "bias": "beta", "running_mean": "mean", "running_var": "variance"}


class ConvBlock(nn.Module):
    """A convolution without bias, batch norm, ReLU.

    Args:
        conv: a layer of voxconv.torch with bias=False.
        activation: whether the ReLU is there.
    """

    takes_sparse = True

    def __init__(self, conv: nn.Module, activation: bool = True):
        super().__init__()
        self.conv, self.activation = conv, activation
        self.bn = BatchNorm(conv.out_channels)

    def forward(self, x: SparseTensor) -> SparseTensor:
        layers = self._modules  # PyTorch's look-up of a module costs the host more
        conv, bn = layers["conv"], layers["bn"]
        y = joined(x, conv, bn, self.activation) if may_join(x) else None
        if y is not None:
            return y
        x = bn(conv(x))
        return relu(x) if self.activation else x


class ResidualBlock(nn.Module):
    """Two submanifold convolutions of kernel 3, and the input added to their result. An input of other
    channels goes through a convolution of kernel 1 and batch norm first."""

    takes_sparse = True

    def __init__(self, in_channels: int, out_channels: int, **plugins: str):
        super().__init__()
        conv = lambda c_in, kernel=3: SubMConv3d(  # noqa: E731
            c_in, out_channels, kernel, bias=False, **plugins
        )
        self.conv1 = ConvBlock(conv(in_channels))
        self.conv2 = ConvBlock(conv(out_channels), activation=False)
        self.shortcut = None
        if in_channels != out_channels:
            self.shortcut = ConvBlock(conv(in_channels, 1), activation=False)

    def forward(self, x: SparseTensor) -> SparseTensor:
        y = self._evaluate(x) if may_join(x) else None
        if y is not None:
            return y
        y, last = self.conv1(x), self.conv2
        if may_join(y) and is_plain(last, (ConvBlock.forward,)):
            other = x if self.shortcut is None else self.shortcut(x)
            z = joined(y, last.conv, last.bn, True, other)
            return relu(add(last(y), other)) if z is None else z
        y = last(y)
        return relu(add(y, x if self.shortcut is None else self.shortcut(x)))

    def _evaluate(self, x: SparseTensor) -> SparseTensor | None:
        """The block by one call of the engine. None if its layers must run by themselves."""
        pairs = []
        for block in (self.conv1, self.conv2, self.shortcut):
            if block is None:
                pairs.append(None)
                continue
            if not is_plain(block, (ConvBlock.forward,)) or block.activation != (not pairs):
                return None
            layers = block._modules
            pairs.append((layers["conv"], layers["bn"]))
        return joined_residual(x, *pairs)


class MinkUNet42(nn.Module):
    """The segmentation network of voxconv.networks.minkunet42 (Choy et al., 2019): 42 convolutions and 7
    shortcuts.

    Args:
        in_channels: features of a voxel.
        classes: scores of a voxel; 0 leaves the linear head out.
        width: scales all other channel counts, which must stay whole.
        mapping, dataflow: specs of plugins for all layers (voxconv.list_plugins).

    Takes and gives a SparseTensor of stride 1. Names and shapes of parameters follow from
    voxconv.networks.minkunet42; load_network reads its weights.
    """

    takes_sparse = True

    def __init__(
        self, in_channels: int = 4, classes: int = 19, width: float = 1.0, **plugins: str
    ):
        super().__init__()
        if not isinstance(classes, int) or classes < 0:
            raise ValueError(f"classes: {classes}; a whole number of at least 0 is needed")
        if isinstance(width, bool) or not isinstance(width, numbers.Real):
            raise ValueError(f"width: {width!r}; a number is needed")
        channels = [width * c for c in (32, 32, 64, 128, 256, 256, 128, 96, 96)]
        if any(c != int(c) or c < 1 for c in channels):
            raise ValueError(f"width: {width}; channels {channels} must be whole and at least 1")
        c = [int(value) for value in channels]
        inverse = {name: plugins[name] for name in plugins if name == "dataflow"}
        self.stem = nn.Module()
        self.stem.conv1 = ConvBlock(SubMConv3d(in_channels, c[0], 3, bias=False, **plugins))
        self.stem.conv2 = ConvBlock(SubMConv3d(c[0], c[0], 3, bias=False, **plugins))
        for k in range(4):
            stage = nn.Module()
            key = f"level{k + 1}"
            down = SparseConv3d(c[k], c[k], 2, stride=2, bias=False, key=key, **plugins)
            stage.down = ConvBlock(down)
            stage.res1 = ResidualBlock(c[k], c[k + 1], **plugins)
            stage.res2 = ResidualBlock(c[k + 1], c[k + 1], **plugins)
            self.add_module(f"encoder{k + 1}", stage)
        for k in range(4):
            stage = nn.Module()
            out, skip = c[5 + k], c[3 - k]
            stage.up = ConvBlock(
                SparseInverseConv3d(c[4 + k], out, 2, bias=False, key=f"level{4 - k}", **inverse)
            )
            stage.res1 = ResidualBlock(out + skip, out, **plugins)
            stage.res2 = ResidualBlock(out, out, **plugins)
            self.add_module(f"decoder{k + 1}", stage)
        self.head = nn.Linear(c[8], classes) if classes > 0 else None

    def forward(self, x: SparseTensor) -> SparseTensor:
        x = self.stem.conv2(self.stem.conv1(x))
        skips = []
        for k in range(4):
            stage = getattr(self, f"encoder{k + 1}")
            skips.append(x)
            x = stage.res2(stage.res1(stage.down(x)))
        for k in range(4):
            stage = getattr(self, f"decoder{k + 1}")
            x = stage.res2(stage.res1(cat([stage.up(x), skips.pop()])))
        return x if self.head is None else x.with_features(self.head(x.features))

    def load_network(self, network: Network | Mapping[str, Any]) -> "MinkUNet42":
        """Copies the weights of a network of voxconv.networks, or of its state dict, and returns self.

        ValueError if a name is missing or left over, or a shape is another one. Nothing is changed
        then.
        """
        given = dict(network.state_dict() if isinstance(network, Network) else network)
        state = {}
        for name, value in self.state_dict().items():
            if name.endswith("num_batches_tracked"):
                continue
            array = given.pop(_network_name(name), None)
            if array is None:
                raise ValueError(f"network: '{_network_name(name)}' is missing")
            tensor = torch.as_tensor(array)
            if name == "head.weight":
                tensor = tensor.t()
            if tensor.shape != value.shape:
                raise ValueError(
                    f"network '{_network_name(name)}': shape {list(tensor.shape)}; "
                    f"{list(value.shape)} is needed"
                )
            state[name] = tensor
        if given:
            raise ValueError(f"network: '{next(iter(given))}' is no parameter of MinkUNet42")
        self.load_state_dict(state, strict=False)
        return self


def _network_name(name: str) -> str:
    """The network's name of a parameter or buffer."""
    layer, _, last = name.rpartition(".")
    if layer.endswith(".bn"):
        return f"{layer}.{_NORM[last]}"
    return f"{layer.removesuffix('.conv')}.{last}"
