# SPDX-License-Identifier: Apache-2.0
"""Every mistake is one clear line that names the argument."""

import copy
import pickle

import numpy as np
import pytest
import reference
import voxconv

COORDS, FEATURES = reference.scene()
W = reference.weights(27, 5, 7)


def tensor():
    return voxconv.SparseTensor(COORDS, FEATURES)


def row(*values):
    return np.array([values], np.int32)


ONE = np.ones((1, 5), np.float32)


class NeedsGrad:
    requires_grad = True


class OnAnotherDevice:
    def __dlpack_device__(self):
        return (10, 0)


TABLE = [
    # coordinates
    (lambda: voxconv.SparseTensor(COORDS.astype(np.int64), FEATURES), ValueError,
     "coords: dtype int64; int32 is needed"),
    (lambda: voxconv.SparseTensor(COORDS[:, :3].copy(), FEATURES), ValueError,
     f"coords: shape [{len(COORDS)}, 3]; [N, 4] (batch, x, y, z) is needed"),
    (lambda: voxconv.SparseTensor(COORDS[0], FEATURES), ValueError,
     "coords: shape [4]; [N, 4] (batch, x, y, z) is needed"),
    (lambda: voxconv.SparseTensor(COORDS[:, ::-1], FEATURES), ValueError,
     f"coords: shape [{len(COORDS)}, 4] with strides [4, -1] is not contiguous; "
     "a row-major array without gaps is needed"),
    (lambda: voxconv.SparseTensor(np.repeat(row(0, 1, 2, 3), 2, 0), np.ones((2, 5), np.float32)),
     ValueError,
     "coordinates: row 1 (0, 1, 2, 3) duplicates row 0; rows must be unique"),
    (lambda: voxconv.SparseTensor(row(0, 0, 131072, 0), ONE), ValueError,
     "coordinates: row 0 has y = 131072; allowed are -131072..131071"),
    (lambda: voxconv.SparseTensor(row(512, 0, 0, 0), ONE), ValueError,
     "coordinates: row 0 has batch 512; allowed are 0..511"),
    (lambda: voxconv.SparseTensor(row(0, 3, 0, 0), ONE, stride=2), ValueError,
     "coordinates: row 0 has x = 3; it must be a multiple of the tensor stride 2"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES, stride=0), ValueError,
     "tensor stride 0: must be at least 1"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES, stride=(1, 2)), ValueError,
     "stride (1, 2): a whole number is needed, or three for x, y, z"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES, stride=1.5), ValueError,
     "stride 1.5: a whole number is needed, or three for x, y, z"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES, stride=2**40), ValueError,
     "stride 1099511627776: a whole number is needed, or three for x, y, z"),
    # features
    (lambda: voxconv.SparseTensor(COORDS, FEATURES.astype(np.float64)), ValueError,
     "features: dtype float64; on the CPU float32 is needed"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES.astype(np.float16)), ValueError,
     "features: dtype float16; on the CPU float32 is needed"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES[:-1]), ValueError,
     f"features: shape [{len(COORDS) - 1}, 5]; {len(COORDS)} rows are needed, "
     "one for each coordinate"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES[:, 0].copy()), ValueError,
     f"features: shape [{len(COORDS)}]; [N, C] is needed"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES[:, ::2]), ValueError,
     f"features: shape [{len(COORDS)}, 3] with strides [5, 2] is not contiguous; "
     "a row-major array without gaps is needed"),
    (lambda: voxconv.SparseTensor(COORDS, np.asfortranarray(FEATURES)), ValueError,
     f"features: shape [{len(COORDS)}, 5] with strides [1, {len(COORDS)}] is not contiguous; "
     "a row-major array without gaps is needed"),
    (lambda: voxconv.SparseTensor(COORDS, NeedsGrad()), ValueError,
     "features: requires a gradient, which this function does not pass on; "
     "give it a detached array"),
    (lambda: voxconv.SparseTensor(NeedsGrad(), FEATURES), ValueError,
     "coords: requires a gradient, which this function does not pass on; "
     "give it a detached array"),
    (lambda: voxconv.SparseTensor(COORDS, OnAnotherDevice()), ValueError,
     "features: lies on device type 10 of DLPack; allowed are 1 (CPU) and 2 (CUDA)"),
    (lambda: voxconv.SparseTensor(COORDS, None), TypeError,
     "features: NoneType is no array of numbers that DLPack or the buffer protocol shares"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES.tolist()), TypeError,
     "features: list is no array of numbers that DLPack or the buffer protocol shares"),
    (lambda: voxconv.SparseTensor(COORDS, FEATURES.astype(object)), TypeError,
     "features: numpy.ndarray is no array of numbers that DLPack or the buffer protocol shares"),
    (lambda: tensor().with_features(FEATURES[:3]), ValueError,
     f"features: shape [3, 5]; {len(COORDS)} rows are needed, one for each coordinate"),
    # layers
    (lambda: voxconv.conv(tensor(), W[:26]), ValueError,
     "weights: shape [26, 5, 7]; [27, 5, C_out] is needed"),
    (lambda: voxconv.conv(tensor(), W.reshape(-1, 7)), ValueError,
     "weights: shape [135, 7]; [27, 5, C_out] is needed"),
    (lambda: voxconv.conv(tensor(), W[:, :4].copy()), ValueError,
     "weights: shape [27, 4, 7]; [27, 5, C_out] is needed"),
    (lambda: voxconv.conv(tensor(), W.astype(np.int32)), ValueError,
     "weights: dtype int32; on the CPU float32 is needed"),
    (lambda: voxconv.conv(FEATURES, W), TypeError,
     "x: a SparseTensor is needed, not numpy.ndarray"),
    (lambda: voxconv.conv(None, W), TypeError, "x: a SparseTensor is needed, not NoneType"),
    (lambda: voxconv.conv(tensor(), W, bias=np.ones(6, np.float32)), ValueError,
     "bias: float32 [6]; float32 [7] is needed"),
    (lambda: voxconv.conv(tensor(), W, kernel=0), ValueError, "kernel 0: "),
    (lambda: voxconv.conv(tensor(), W, kernel="3"), ValueError,
     "kernel '3': a whole number is needed, or three for x, y, z"),
    (lambda: voxconv.conv(tensor(), W, kernel=np.zeros((3, 3))), ValueError, "kernel array("),
    (lambda: voxconv.conv(tensor(), W, kind="dense"), ValueError, "kind 'dense'"),
    (lambda: voxconv.conv(tensor(), W, rule="dilate"), ValueError,
     "rule 'dilate': has no meaning with kind submanifold; "
     "it is for strided and inverse layers"),
    (lambda: voxconv.conv(tensor(), W, mapping="hassh"), ValueError,
     "mapping 'hassh' is unknown; there are "),
    (lambda: voxconv.conv(tensor(), W, mapping="hash:variant=x"), ValueError, "variant"),
    (lambda: voxconv.conv(tensor(), W, dataflow="gemm"), ValueError,
     "dataflow 'gemm' is unknown; there are "),
    (lambda: voxconv.conv(tensor(), W, precision="f64"), ValueError, "f64"),
    (lambda: voxconv.conv(tensor(), W, precision="f16"), ValueError,
     "precision 'f16': has no meaning for features of f32"),
    (lambda: voxconv.conv(tensor(), W, precision="tf32"), NotImplementedError, ""),
    (lambda: voxconv.conv(tensor(), W, kernel=3, map=voxconv.KernelMap(tensor())), ValueError,
     "map: has the layer's geometry and outputs, which must not be given again"),
    (lambda: voxconv.conv(
        voxconv.SparseTensor(COORDS[:9], FEATURES[:9]), W, map=voxconv.KernelMap(tensor())),
     ValueError, f"map: made for {len(COORDS)} voxels of stride 1; x has 9 of stride 1"),
    (lambda: voxconv.conv(tensor(), W, kind="inverse", kernel=3), ValueError,
     "outputs: is missing"),
    (lambda: voxconv.conv(tensor(), W, kind="inverse", stride=2, outputs=tensor()), ValueError,
     "stride 2: with kind inverse it must divide the input's tensor stride 1"),
    (lambda: voxconv.KernelMap(tensor()).inverse(), ValueError,
     "inverse of kind submanifold: only strided ones have one"),
    (lambda: voxconv.conv(tensor(), W, outputs=tensor()), ValueError,
     "outputs: has no meaning with kind submanifold; it is for inverse layers"),
    (lambda: voxconv.pool(tensor(), "median"), ValueError,
     "mode 'median': allowed are max, sum, average and average_present"),
    (lambda: voxconv.pool(tensor(), "sum", convention="spconv"), ValueError,
     "mode 'sum': allowed are max and average with the convention spconv"),
    (lambda: voxconv.pool(tensor(), convention="minkowski"), ValueError,
     "convention 'minkowski': allowed are voxconv and spconv"),
    # passes
    (lambda: voxconv.convolve(voxconv.KernelMap(tensor()), FEATURES[:9], W), ValueError,
     f"features: shape [9, 5]; the kernel map has {len(COORDS)} inputs"),
    (lambda: voxconv.convolve(voxconv.KernelMap(tensor()), FEATURES, W, bias=np.ones((7, 1), np.float32)),
     ValueError, "bias: float32 [7, 1]; float32 [7] is needed"),
    (lambda: voxconv.convolve(voxconv.KernelMap(tensor()), FEATURES, W, bias=np.ones(7)),
     ValueError, "bias: dtype float64; on the CPU float32 is needed"),
    (lambda: voxconv.convolve(tensor(), FEATURES, W), TypeError,
     "map: a KernelMap is needed, not voxconv._voxconv.SparseTensor"),
    (lambda: voxconv.convolve(
        voxconv.KernelMap(tensor()), FEATURES, W, out=np.empty((3, 7), np.float32)), ValueError,
     f"out: shape [3, 7]; [{len(COORDS)}, 7] is needed"),
    (lambda: voxconv.convolve(
        voxconv.KernelMap(tensor()), FEATURES, W[:, :, :5].copy(), out=FEATURES), ValueError,
     "out: overlaps another argument"),
    (lambda: voxconv.convolve(
        voxconv.KernelMap(tensor()), FEATURES, W, out=np.empty((len(COORDS), 7))), ValueError,
     "out: dtype float64; on the CPU float32 is needed"),
    (lambda: voxconv.input_grad(voxconv.KernelMap(tensor()), FEATURES, W), ValueError,
     "weights: shape [27, 5, 7]; output_grad has 5 channels"),
    (lambda: voxconv.weight_grad(voxconv.KernelMap(tensor()), FEATURES, FEATURES[:9]), ValueError,
     f"output_grad: shape [9, 5]; the kernel map has {len(COORDS)} outputs"),
    (lambda: voxconv.KernelMap(tensor()).to("csr"), ValueError,
     "form 'csr': allowed are pairs and neighbour_table"),
    # inputs
    (lambda: voxconv.load("scene:nowhere"), ValueError, "nowhere"),
    (lambda: voxconv.load("/nonexistent/scan.bin"), ValueError, "/nonexistent/scan.bin"),
    (lambda: voxconv.load(3), TypeError, "input: a path is needed, not int"),
    (lambda: voxconv.load("scene:sphere", voxel_size="x"), ValueError,
     "voxel_size 'x': a number is needed, or three for x, y, z"),
    (lambda: voxconv.load("scene:uniform?n=9&box=8", voxel_size=3), ValueError,
     "voxel_size has no meaning here; these are voxels, not points"),
    (lambda: voxconv.load("scene:uniform?n=9&box=8", origin=1), ValueError,
     "origin has no meaning here; these are voxels, not points"),
    (lambda: voxconv.load("scene:sphere?n=9", samples=5), ValueError,
     "samples has no meaning here; it is for meshes"),
    (lambda: voxconv.load("scene:sphere", batch=512), ValueError,
     "batch 512: allowed are whole numbers 0 .. 511"),
    (lambda: voxconv.load("scene:sphere", channels=0), ValueError,
     "channels 0: allowed are whole numbers 1 .. 65536"),
    (lambda: voxconv.load("scene:sphere", device="tpu"), ValueError,
     "device 'tpu': allowed are cpu, cuda and cuda:INDEX"),
    (lambda: voxconv.voxelize(np.ones((3, 2))), ValueError,
     "points: shape [3, 2]; [N, 3] is needed"),
    (lambda: voxconv.voxelize(np.ones((3, 3), np.int32)), ValueError,
     "points: dtype int32; float32 or float64 is needed"),
    (lambda: voxconv.voxelize(np.full((3, 3), np.nan)), ValueError, "nan"),
    (lambda: voxconv.voxelize(np.ones((3, 3)), np.ones((2, 1))), ValueError,
     "features: shape [2, 1]; [3, C] is needed"),
    # networks
    (lambda: voxconv.networks.minkunet42(width=0.3), ValueError, "width"),
    (lambda: voxconv.networks.minkunet42(classes=-1), ValueError,
     "classes -1: allowed are whole numbers 0 .. 65536"),
    (lambda: voxconv.networks.minkunet42()(tensor()), ValueError, ""),
    (lambda: voxconv.networks.minkunet42().load({}), ValueError, "weights: '"),
    (lambda: voxconv.networks.minkunet42().state_dict(), ValueError,
     "has no values; call load or initialize first"),
    (lambda: voxconv.networks.sparseresnet21(width=0.25).initialize()(tensor()), ValueError, "5"),
    (lambda: voxconv.networks.minkunet42().initialize()(tensor(), plan=[{"layer": "x"}]), ValueError,
     "plan: 'c_in' is missing in layer 'x'"),
    (lambda: copy.deepcopy(voxconv.networks.minkunet42()), TypeError,
     "Network: has no copies and no pickles; copy its state_dict, and load it into another"),
    (lambda: pickle.dumps(voxconv.KernelMap(tensor())), TypeError,
     "KernelMap: has no copies and no pickles; use save and load"),
    # the rest
    (lambda: voxconv.merge_results("here", "there"), TypeError,
     "directories: a list of paths is needed, not one path"),
    (lambda: voxconv.load_plugin("/nonexistent/plugin.so"), ValueError,
     "plugin '/nonexistent/plugin.so': there is no such file"),
    (lambda: voxconv.load_plugin(__file__), ValueError, "no shared library"),
    (lambda: voxconv.verify(mapping="hassh"), ValueError, "mapping 'hassh' is unknown"),
    (lambda: voxconv.verify(mapping="sorted_search:variant=double_traversed,query_block=300"),
     ValueError,
     "is none of the variants that verify runs; these are "),
    (lambda: voxconv.verify(filter="nothing like it"), ValueError,
     "no case matches filter 'nothing like it'"),
    (lambda: voxconv.verify(backend="tpu"), ValueError, "tpu"),
    (lambda: voxconv.ab("spconv2", "minuet", "scene:sphere", channels=(4,)), ValueError,
     "channels (4,): a tuple (C_in, C_out) is needed"),
    (lambda: voxconv.ab("hash/implicit_gemm", "hash", "scene:sphere"), ValueError, "hash"),
    (lambda: voxconv.ab("spconv2", "minuet", "scene:sphere", pairs=3), ValueError,
     "pairs 3: allowed are whole numbers 20 .. 1000000"),
    (lambda: voxconv.ab("spconv2", "minuet", "scene:sphere", network="minkunet42", kernel=3),
     ValueError, "network: has its own layers"),
    (lambda: voxconv.ab("spconv2", "minuet", tensor(), voxel_size=3), ValueError,
     "voxel_size: has no meaning for a SparseTensor, which holds voxels already"),
    (lambda: voxconv.ab("spconv2", "minuet", "scene:uniform?n=9&box=8", voxel_size=3), ValueError,
     "voxel_size has no meaning here; these are voxels, not points"),
    (lambda: voxconv.networks.centerpoint(grid=(0, 0, 0, 131072, 39, 39)), ValueError,
     "allowed are voxels -131072 .. 131071"),
    (lambda: voxconv.set_num_threads(-1), ValueError,
     "threads -1: allowed are whole numbers 0 .. 1024"),
]


@pytest.mark.parametrize("call, error, message", TABLE, ids=range(len(TABLE)))
def test_message(call, error, message):
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert caught.type is error
    assert message in text
    assert text and "\n" not in text


def test_read_only_out_is_refused():
    m = voxconv.KernelMap(tensor())
    out = np.empty((len(COORDS), 7), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="^out: is read-only$"):
        voxconv.convolve(m, FEATURES, W, out=out)


def test_read_only_input_is_taken():
    features = FEATURES.copy()
    features.flags.writeable = False
    assert len(voxconv.conv(voxconv.SparseTensor(COORDS, features), W)) == len(COORDS)


def test_an_array_is_a_triple():
    kernel = np.array([3, 3, 3])
    np.testing.assert_array_equal(
        voxconv.conv(tensor(), W, kernel=kernel).features, voxconv.conv(tensor(), W, kernel=3).features)


def test_cuda_is_refused_without_cuda_or_device():
    with pytest.raises((NotImplementedError, RuntimeError, ValueError)) as caught:
        voxconv.load("scene:sphere", device="cuda:99")
    assert "cuda" in str(caught.value).lower()
