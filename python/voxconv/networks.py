# SPDX-License-Identifier: Apache-2.0
"""The papers' networks.

A network is made without values of its parameters. Network.load or Network.initialize gives them.

>>> import voxconv
>>> network = voxconv.networks.minkunet42(in_channels=4, classes=19, width=0.25).initialize(seed=1)
>>> x = voxconv.load("scene:sphere?n=1000", channels=4)
>>> network(x)
SparseTensor(911 voxels, 19 channels, f32, stride 1, cpu)
"""

from collections.abc import Sequence

from voxconv._voxconv import Network

__all__ = ["Network", "centerpoint", "minkunet42", "sparseresnet21"]


def minkunet42(in_channels: int = 4, classes: int = 19, width: float = 1.0) -> Network:
    """MinkUNet with 42 convolutions, for segmentation (Choy et al., 2019).

    Args:
        in_channels: features of an input voxel.
        classes: channels of the linear head; 0 leaves it out.
        width: a factor on all other channel counts, which must stay whole numbers.

    Raises:
        ValueError: an argument does not fit.
    """
    return Network("minkunet42", in_channels, classes, width)


def sparseresnet21(in_channels: int = 4, width: float = 1.0) -> Network:
    """SparseResNet with 21 convolutions, a backbone for detection.

    Args and errors are those of minkunet42.
    """
    return Network("sparseresnet21", in_channels, width=width)


def centerpoint(in_channels: int = 5, width: float = 1.0,
                grid: Sequence[int] | None = None) -> Network:
    """The sparse encoder of CenterPoint and SECOND, with 21 convolutions.

    Args:
        grid: voxels of the detector's grid as six whole numbers, the least x, y, z and the greatest
            x, y, z, such as (0, 0, 0, 1439, 1439, 40). Strided layers drop outputs outside, as
            SpConv does. Without it they keep all.

    Other args and errors are those of minkunet42.
    """
    return Network("centerpoint", in_channels, width=width, grid=grid)
