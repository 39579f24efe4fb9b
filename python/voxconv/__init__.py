# SPDX-License-Identifier: Apache-2.0
"""3D sparse convolution on point clouds: mappings and dataflows as plugins.

Arrays go in and come out by DLPack, without copies: NumPy's on the CPU, and those of PyTorch, CuPy
and JAX. The device of the arrays decides where a call runs. The GIL is released while it runs.
Calls on one device follow each other, whichever threads make them.

`has_cuda` says whether this build has the CUDA backend. It does not say that there is a device.

>>> import numpy as np, voxconv
>>> x = voxconv.load("scene:sphere?n=1000", channels=4)
>>> y = voxconv.conv(x, np.ones((27, 4, 8), np.float32), kernel=3)
>>> y.features.shape == (len(x), 8)
True
"""

from voxconv import interop, networks
from voxconv._voxconv import (
    KernelMap,
    SparseTensor,
    __version__,
    ab,
    conv,
    convolve,
    experiment,
    experiments,
    global_pool,
    has_cuda,
    input_grad,
    list_plugins,
    load,
    load_plugin,
    merge_results,
    num_threads,
    plugin_stream,
    pool,
    register_dataflow,
    register_mapping,
    scenes,
    set_num_threads,
    tune,
    verify,
    voxelize,
    weight_grad,
)
from voxconv.reports import report

__all__ = [
    "KernelMap",
    "SparseTensor",
    "__version__",
    "ab",
    "conv",
    "convolve",
    "experiment",
    "experiments",
    "global_pool",
    "has_cuda",
    "input_grad",
    "interop",
    "list_plugins",
    "load",
    "load_plugin",
    "merge_results",
    "networks",
    "num_threads",
    "plugin_stream",
    "pool",
    "register_dataflow",
    "register_mapping",
    "report",
    "scenes",
    "set_num_threads",
    "tune",
    "verify",
    "voxelize",
    "weight_grad",
]
