# SPDX-License-Identifier: Apache-2.0
"""voxconv.torch on a GPU: memory, streams, waits, threads, and compiled networks. Without a device all skip."""

import copy
import gc
import threading

import numpy as np
import pytest
import reference
import torch
import voxconv
import voxconv.torch as vt
from device_memory import kept_by
from test_torch import unet
from voxconv import _voxconv

HAS_DEVICE = voxconv.has_cuda and torch.cuda.is_available()
pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device, or a module without CUDA")


def scene(n=2000, size=30, channels=16, dtype=torch.float32, grad=False):
    coords, features = reference.scene(n=n, size=size, channels=channels)
    features = torch.tensor(features).cuda().to(dtype).requires_grad_(grad)
    return torch.tensor(coords).cuda(), features


def error(a, b):
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    return float((a - b).norm() / b.norm())


def busy():
    """Keeps the current stream busy for about a second, which is long for a host that others use, too."""
    torch.cuda._sleep(2_000_000_000)


def waits():
    return _voxconv._synchronisations(torch.cuda.current_device())


@pytest.mark.parametrize("contiguous", [True, False])
def test_features_are_not_copied(contiguous):
    coords, features = scene()
    given = features if contiguous else features.t().contiguous().t()
    x = vt.SparseTensor(coords, given)
    assert x.features.data_ptr() == given.data_ptr()
    handle = voxconv.SparseTensor(coords, features)
    assert handle.features.data_ptr() == features.data_ptr()
    assert x.with_features(features).features.data_ptr() == features.data_ptr()
    layer = vt.SubMConv3d(16, 8, 3).cuda()
    before = layer.weight.data_ptr()
    assert error(layer(x).features, layer(vt.SparseTensor(coords, features)).features) == 0
    assert layer.weight.data_ptr() == before


def test_results_lie_in_pytorchs_allocator():
    coords, features = scene()
    x, layer = vt.SparseTensor(coords, features), vt.SubMConv3d(16, 64, 3, bias=False).cuda()
    with torch.no_grad():
        layer(x)
        before = torch.cuda.memory_allocated()
        y = layer(x).features
        assert torch.cuda.memory_allocated() - before >= y.numel() * 4
        del y
        assert torch.cuda.memory_allocated() == before


def test_coordinates_are_checked_on_the_device():
    coords, features = scene()
    last = len(coords) - 1
    voxconv.SparseTensor(coords, features)  # the first one takes page-locked memory
    before = waits()
    x = voxconv.SparseTensor(coords, features)
    assert waits() - before == 1
    assert torch.equal(torch.from_dlpack(x.coords), coords)
    for row, message in [
        ((0, 131072, 0, 0), f"row {last} has x = 131072"),
        ((512, 0, 0, 0), f"row {last} has batch 512"),
        (tuple(coords[3].tolist()), f"row {last} .* duplicates row 3"),
    ]:
        wrong = coords.clone()
        wrong[last] = torch.tensor(row, dtype=torch.int32)
        with pytest.raises(ValueError, match=message):
            vt.SparseTensor(wrong, features)
    with pytest.raises(ValueError, match="z = .* must be a multiple of the tensor stride 2"):
        odd = torch.tensor([[0, 2, 4, 5]], dtype=torch.int32).cuda()
        vt.SparseTensor(odd, features[:1], stride=2)


@pytest.mark.parametrize("own_stream", [False, True])
def test_passes_are_ordered_with_the_current_stream(own_stream):
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        coords, features = scene(grad=True)
        x, layer = vt.SparseTensor(coords, features), vt.SubMConv3d(16, 32, 3).cuda()
        want = layer(x).features.detach().clone()
        dy = torch.randn_like(want)
        (grad,) = torch.autograd.grad(layer(x).features, features, dy)
        late, late_dy = torch.zeros_like(features, requires_grad=True), torch.zeros_like(dy)
        torch.cuda.synchronize()
        busy()
        with torch.no_grad():
            late.copy_(features)  # done only after the delay
            late_dy.copy_(dy)
        y = layer(x.with_features(late)).features
        (got,) = torch.autograd.grad(y, late, late_dy)
        z = y.detach() * 2
        late_dy.zero_()
    torch.cuda.synchronize()
    assert error(z, 2 * want) < 1e-6
    assert error(got, grad) < 1e-6


def test_a_layer_does_not_wait():
    coords, features = scene(grad=True)
    x, layer = vt.SparseTensor(coords, features), vt.SubMConv3d(16, 16, 3).cuda()
    for _ in range(2):  # makes the maps, loads kernels: those that add to gradients by the second
        layer(x).features.sum().backward()
    torch.cuda.synchronize()
    before = waits()
    busy()
    delay = torch.cuda.Event()
    delay.record()
    layer(x).features.sum().backward()
    assert not delay.query()  # the device is still busy: the host went on
    assert waits() == before
    torch.cuda.synchronize()


def test_devices_and_streams_are_not_mixed():
    coords, features = scene()
    x, layer = vt.SparseTensor(coords, features), vt.SubMConv3d(16, 8, 3).cuda()
    with pytest.raises(ValueError, match="^features: on cpu; the voxels are on cuda:0$"):
        x.with_features(features.cpu())
    with pytest.raises(ValueError, match="^weights: lies on cpu; the other arguments lie on cuda:0$"):
        vt.SubMConv3d(16, 8, 3)(x)
    with torch.cuda.stream(torch.cuda.Stream()):
        with pytest.raises(ValueError, match="^[a-z]+: was made for another CUDA stream"):
            layer(x)


def test_a_network_waits_for_sizes_alone():
    coords, features = scene(channels=4, dtype=torch.float16)
    network = vt.compile(vt.models.MinkUNet42(width=0.25).cuda().half().eval())
    with torch.no_grad():
        network(vt.SparseTensor(coords, features))
        x = vt.SparseTensor(coords, features)
        before = waits()
        network(x)
    assert waits() - before <= 1


def test_ten_thousand_calls_take_no_memory():
    coords, features = scene(n=300)
    x, layer = vt.SparseTensor(coords, features), vt.SubMConv3d(16, 16, 3).cuda()

    def call():
        layer.weight.grad = None
        layer(x).features.sum().backward()

    for _ in range(100):
        call()
    gc.collect()
    allocated = torch.cuda.memory_allocated()
    assert kept_by(call) < 8 << 20
    assert torch.cuda.memory_allocated() == allocated


def test_ten_thousand_frames_take_no_memory():
    """Each frame makes its maps anew."""
    coords, features = scene(n=300)
    network = vt.Sequential(
        vt.SubMConv3d(16, 16, 3), vt.SparseConv3d(16, 16, 2, key="down"), vt.SubMConv3d(16, 16, 3),
        vt.SparseInverseConv3d(16, 16, 2, key="down"),
    ).cuda().eval()

    def frame():
        with torch.no_grad():
            network(vt.SparseTensor(coords, features))

    for _ in range(100):
        frame()
    gc.collect()
    allocated = torch.cuda.memory_allocated()
    assert kept_by(frame) < 8 << 20
    assert torch.cuda.memory_allocated() == allocated


@pytest.mark.parametrize("own_streams", [False, True])
def test_two_threads_at_once(own_streams):
    faults = []

    def work(seed):
        try:
            stream = torch.cuda.Stream() if own_streams else torch.cuda.current_stream()
            with torch.cuda.stream(stream):
                coords, features = scene(n=500 + 100 * seed)
                layer = vt.SubMConv3d(16, 16, 3, bias=False).cuda()
                want = layer(vt.SparseTensor(coords, features)).features.detach()
                for _ in range(100):
                    y = layer(vt.SparseTensor(coords, features)).features
                    y.sum().backward()
                    if not torch.equal(y, want):
                        faults.append(f"thread {seed}: other values")
                torch.cuda.current_stream().synchronize()
        except Exception as fault:  # noqa: BLE001
            faults.append(repr(fault))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults


@pytest.mark.parametrize(
    "dtype, bound", [(torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)]
)
def test_gradients_are_those_of_the_cpu(dtype, bound):
    network = unet(None)
    exact, on_device = copy.deepcopy(network), network.cuda().to(dtype)
    coords, features = scene(n=400, size=14, channels=5, grad=False)
    x = vt.SparseTensor(coords.cpu(), features.cpu().requires_grad_())
    z = vt.SparseTensor(coords, features.detach().to(dtype).requires_grad_())
    y, w = exact(x).features, on_device(z).features
    assert w.dtype == dtype
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    y.backward(dy)
    w.backward(dy.cuda().to(dtype))
    assert error(w, y) < bound
    assert error(z.features.grad, x.features.grad) < 4 * bound
    for (name, p), q in zip(on_device.named_parameters(), exact.parameters()):
        assert p.grad.dtype == dtype
        assert error(p.grad, q.grad) < 4 * bound, name


@pytest.mark.parametrize(
    "dtype, bound", [(torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)]
)
def test_a_compiled_network_is_the_network(dtype, bound):
    network = voxconv.networks.minkunet42(width=0.25).initialize(3)
    coords, features = scene(channels=4)
    exact = network(voxconv.SparseTensor(coords.cpu().numpy(), features.cpu().numpy())).features
    module = vt.models.MinkUNet42(width=0.25).load_network(network).cuda().eval().to(dtype)
    with torch.no_grad():
        x = vt.SparseTensor(coords, features.to(dtype))
        for run in (module, vt.compile(module), vt.compile(module, fold_batch_norm=False)):
            y = run(x)
            assert y.features.dtype == dtype and y.voxels is x.voxels
            assert error(y.features, torch.tensor(exact)) < bound


def test_a_compiled_step_is_the_modules():
    torch.manual_seed(0)
    module = vt.models.MinkUNet42(width=0.25).cuda()
    coords, features = scene(channels=4)
    runs = {"modules": copy.deepcopy(module), "compiled": vt.compile(copy.deepcopy(module))}
    dy = torch.randn(len(coords), 19, device="cuda")
    exact = copy.deepcopy(module).cpu().double()
    exact(vt.SparseTensor(coords.cpu(), features.cpu().double())).features.backward(dy.cpu().double())
    # A rounding turns a ReLU here and there, whose gradient is then another one: 5e-3 were seen.
    for name, run in runs.items():
        run(vt.SparseTensor(coords, features)).features.backward(dy)
        own = run.module if name == "compiled" else run
        for (place, p), q in zip(own.named_parameters(), exact.parameters()):
            assert error(p.grad, q.grad) < 2e-2, (name, place)
        for (place, p), q in zip(own.named_buffers(), exact.buffers()):
            assert error(p, q) < 1e-4, (name, place)


def test_losses_of_compiled_steps_fall_as_the_modules_do():
    coords, features = scene(channels=4)
    labels = torch.tensor(np.arange(len(coords)) % 7).cuda()
    courses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        network = vt.models.MinkUNet42(classes=7, width=0.25).cuda()
        network = vt.compile(network) if compiled else network
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cuda")
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                scores = network(vt.SparseTensor(coords, features)).features
                assert scores.dtype == torch.float16
            loss = torch.nn.functional.cross_entropy(scores.float(), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        courses.append(losses)
    assert courses[1][-1] < courses[1][0]
    np.testing.assert_allclose(courses[1][:5], courses[0][:5], rtol=2e-2)


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 2e-6), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)])
def test_joined_layers_equal_the_layers_in_float64(dtype, bound):
    torch.manual_seed(0)
    coords, features = scene(dtype=dtype)
    network = vt.Sequential(
        vt.models.ResidualBlock(16, 24), vt.SubMConv3d(24, 13, 3, bias=False), vt.BatchNorm(13), torch.nn.ReLU()
    ).cuda()
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm1d):
            part.running_mean.uniform_(-0.5, 0.5), part.running_var.uniform_(0.5, 1.5)
    network = network.to(dtype).eval()
    exact = copy.deepcopy(network).double()(vt.SparseTensor(coords, features.double())).features
    x = vt.SparseTensor(coords, features)
    with torch.no_grad():
        assert error(network(x).features, exact) < 3 * bound  # of three convolutions, one after the other
        separate = network[3](network[2](network[1](network[0](x)).features))
        assert error(network(x).features, exact) <= error(separate, exact) + bound
        torch.cuda.synchronize()
        before = waits()
        network(x)
        assert waits() == before
        with torch.autocast("cuda", dtype=torch.float16):
            y = network.float()(vt.SparseTensor(coords, features.float()))
    assert y.dtype == torch.float16 and error(y.features, exact) < 3e-2


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_a_joined_step_equals_the_layers(dtype):
    torch.manual_seed(0)
    coords, features = scene()
    network = vt.Sequential(
        vt.models.ResidualBlock(16, 24), vt.SubMConv3d(24, 16, 3, bias=False), vt.BatchNorm(16), torch.nn.ReLU()
    ).cuda()
    exact = copy.deepcopy(network).double()
    separate = copy.deepcopy(network)
    for part in separate.modules():
        if isinstance(part, torch.nn.BatchNorm1d):
            part.register_forward_hook(lambda *_: None)

    def step(module, features):
        features = features.clone().requires_grad_()
        enabled = dtype is not None and features.dtype == torch.float32
        with torch.autocast("cuda", dtype=dtype or torch.float16, enabled=enabled):
            y = module(vt.SparseTensor(coords, features)).features
        (y.float() * torch.linspace(-1, 1, y.numel(), device="cuda").view_as(y)).sum().backward()
        assert y.dtype == (dtype if enabled else features.dtype)
        buffers = [b.double() for b in module.buffers()]
        return [y.detach(), features.grad, *(p.grad for p in module.parameters()), *buffers]

    expected = step(exact, features.double())
    one_by_one = step(separate, features)
    found = step(network, features)
    floor = {None: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    for value, other, right in zip(found, one_by_one, expected):
        assert error(value, right) <= 2 * error(other, right) + floor
    torch.cuda.synchronize()
    x = vt.SparseTensor(coords, features)
    network(x).features.sum().backward()  # which counts the pairs of the map
    torch.cuda.synchronize()
    before = waits()
    network(x).features.sum().backward()
    assert waits() == before
