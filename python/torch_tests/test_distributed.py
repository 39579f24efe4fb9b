# SPDX-License-Identifier: Apache-2.0
"""Two processes against one process with all samples: on the CPU, both on one GPU where there is one, and
each on a GPU of its own where there are two. Gloo serves the first two; NCCL wants a GPU for each process."""

import copy
import gc
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import warnings
from datetime import timedelta
from unittest import mock

import numpy as np
import pytest
import torch
import voxconv
import voxconv.torch as vt
from test_torch import scene
from torch import distributed, multiprocessing, nn
from voxconv import _voxconv
from voxconv.torch import exchange as exchanges
from voxconv.torch import ops
from voxconv.torch.exchange import exchange_of

ROOT = pathlib.Path(__file__).parents[2]
# Far above what a step takes on a busy machine, and below the time that CTest gives all tests.
LIMIT = timedelta(seconds=150)


def network():
    torch.manual_seed(0)
    made = vt.Sequential(
        vt.SubMConv3d(5, 8, 3, bias=False), vt.BatchNorm(8), nn.ReLU(),
        vt.SparseConv3d(8, 12, 2, stride=2, key="a"), vt.BatchNorm(12), nn.ReLU(),
        vt.SparseInverseConv3d(12, 4, 2, key="a"),
    )
    return vt.convert_sync_batchnorm(made)


def sample(index, device, sizes=(120, 60)):
    x = scene(n=sizes[index], size=8)
    return vt.SparseTensor(x.coords, x.features.detach().to(device))


def both(device):
    """The two samples as one tensor, of batches 0, 1 and 2, 3."""
    coords, features = [], []
    for index in range(2):
        x = sample(index, device)
        rows = x.coords
        rows[:, 0] += 2 * index
        coords.append(rows)
        features.append(x.features)
    return vt.SparseTensor(torch.cat(coords), torch.cat(features))


def loss(y, rows):
    return y.features.square().sum() / rows


def trained(rank, rows, device):
    """The parameters' gradients and the buffers after two steps on this process's sample."""
    made = network().to(device)
    parallel = nn.parallel.DistributedDataParallel(made)
    for _ in range(2):  # the mean of the processes' gradients
        parallel.zero_grad()
        (2 * loss(parallel(sample(rank, device)), rows)).backward()
    return {name: value.grad for name, value in made.named_parameters()} | dict(made.named_buffers())


def normalised(rank, device, rows=(50, 0), channels=6, **settings):
    """Batch norm of so many rows of each process: results, gradients and buffers."""
    torch.manual_seed(1)
    given = torch.randn(50, channels, device=device)[: rows[rank]].requires_grad_()
    norm = vt.SyncBatchNorm(channels, **settings).to(device)
    y = norm(given)
    weighted = (y.exp() * torch.arange(channels, device=device)).sum()
    made = {"y": y.detach(), **{name: value.clone() for name, value in norm.named_buffers()}}
    parameters = [given, *norm.parameters()]
    del norm, y  # the backward pass needs neither
    gc.collect()
    weighted.backward()
    return made | dict(zip(("grad", "weight", "bias"), (p.grad for p in parameters)))


def grown(device, channels=(6, 300)):
    """Two batch norms forward, of which the second needs more shared memory, and both backward. Each
    process has the same rows, which gives what one has."""
    torch.manual_seed(2)
    given = [torch.randn(40, c, device=device, requires_grad=True) for c in channels]
    norms = [vt.SyncBatchNorm(c).to(device) for c in channels]
    sums = [(norm(x).exp() * torch.linspace(0, 1, len(x), device=device)[:, None]).sum()
            for norm, x in zip(norms, given)]
    sum(sums).backward()
    made = {f"grad{i}": x.grad for i, x in enumerate(given)}
    return made | {f"{i}.{n}": v for i, norm in enumerate(norms) for n, v in norm.named_buffers()}


CASES_OF_NORMS = {
    "one_has_none": {},
    "none_have_any": {"rows": (0, 0)},
    "one_row": {"rows": (0, 1)},
    "not_affine": {"affine": False, "rows": (50, 0)},
    "no_statistics": {"track_running_stats": False},
    "cumulative": {"momentum": None},
}


def exchanged(rank, device):
    """What two processes get of each other's vectors, in two rounds of the same and of other lengths."""
    exchange = exchange_of(distributed.group.WORLD, torch.zeros(1, device=device).device)
    rounds = []
    for length in (5, 5, 8):
        a = torch.arange(float(length), device=device) + 100 * rank
        rows = exchange.gather(a, -a, exchange.filled(rank + 7.0))
        rounds += [rows[:, : 2 * length + 1].clone(), exchange.sum(a, 2 * a)]
    return rounds


def kept(device, shares):
    """An exchange outlives what uses it, and grows, as long as its group is there."""
    place = torch.zeros(1, device=device).device
    exchange = exchange_of(distributed.group.WORLD, place)
    gc.collect()
    assert exchange_of(distributed.group.WORLD, place) is exchange
    peers = exchange.peers(6)
    assert (peers is not None) == shares
    if shares:
        assert exchange.peers(512) is peers and peers.channels == 512  # grown() needed it
        assert exchange.peers(513).channels == 1024 and exchange.peers(6) is not peers
        assert exchange.peers(1025) is None


class Faulty:
    """Symmetric memory that fails in one process alone."""

    def __init__(self, memory, rank, fails):
        self.memory, self.rank, self.fails = memory, rank, fails

    def empty(self, *arguments, **settings):
        if self.fails == "empty" and self.rank == 1:
            raise MemoryError("no room\nfor anything")
        return self.memory.empty(*arguments, **settings)

    def rendezvous(self, *arguments):
        shared = self.memory.rendezvous(*arguments)
        if self.fails == "rendezvous" and self.rank == 1:
            raise RuntimeError("cannot reach it")
        return shared


def agreed(rank, device, fails):
    """If one process gets no memory, both use collectives, and that one warns."""
    group = distributed.new_group()
    place = torch.zeros(1, device=device).device
    exchange = exchange_of(group, place)
    memory = exchange._memory
    if device == "cpu":
        memory = mock.Mock()
        torch.cuda.synchronize = lambda device: None
    exchange._memory = Faulty(memory, rank, fails)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert exchange.peers(64) is None and exchange.peers(64) is None
    reasons = {"empty": "no room", "rendezvous": "cannot reach it"}
    wanted = [f"SyncBatchNorm: {place} shares no memory with the other GPUs, so that collectives exchange "
              f"the sums: {reasons[fails]}"] * rank
    texts = [str(warning.message) for warning in caught]
    assert [text for text in texts if text.startswith("SyncBatchNorm")] == wanted
    total = exchange.sum(torch.ones(2, device=device))
    assert total.tolist() == [2, 2]


def recorded(rank, device):
    """A batch norm in a CUDA graph: what two replays give, and what they give unrecorded."""
    rows = torch.randn(40 + rank, 6, device=device).requires_grad_()
    norm = vt.SyncBatchNorm(6).to(device)
    plain = vt.SyncBatchNorm(6).to(device)

    def step(norm):
        y = norm(rows)
        (grad,) = torch.autograd.grad(y.exp().sum(), rows)
        return y.detach(), grad

    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            step(norm)
        graph = torch.cuda.CUDAGraph()
        stream.synchronize()
        norm.load_state_dict(plain.state_dict())
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            made = step(norm)
    torch.cuda.synchronize()
    for seed in range(2):
        torch.manual_seed(seed + 2 * rank)
        with torch.no_grad():
            rows.copy_(torch.randn_like(rows))
        graph.replay()
        for got, want in zip(made, step(plain)):
            close(got, want, f"replay {seed}")
    for name, value in plain.named_buffers():
        if value.dtype.is_floating_point:
            close(norm.state_dict()[name], value, name)


def compiled(rank):
    """torch.compile leaves the exchanges of both passes as they are."""
    plain = network()
    graphs = copy.deepcopy(plain)
    x = sample(rank, "cpu")
    for run in (plain, torch.compile(graphs, backend="aot_eager")):
        run(x).features.square().sum().backward()
    for (name, p), q in zip(plain.named_parameters(), graphs.parameters()):
        close(q.grad, p.grad, name)


def work(rank, folder, device, backend, shares):
    """`shares`: whether the two GPUs' memory is to be shared."""
    if backend == "nccl":
        device = f"cuda:{rank if torch.cuda.device_count() > 1 else 0}"
        torch.cuda.set_device(device)
    rows = sum(len(sample(index, "cpu")) for index in range(2))
    distributed.init_process_group(
        backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2, timeout=LIMIT
    )
    torch.save(trained(rank, rows, device), f"{folder}/{rank}.pth")
    for name, case in CASES_OF_NORMS.items():
        torch.save(normalised(rank, device, **case), f"{folder}/{name}{rank}.pth")
    torch.save(grown(device), f"{folder}/grown{rank}.pth")
    torch.save(exchanged(rank, device), f"{folder}/exchanged{rank}.pth")
    kept(device, shares)
    if shares or (device == "cpu" and hasattr(_voxconv, "_BatchPeers")):
        for fails in ("empty", "rendezvous"):
            agreed(rank, device, fails)
    if backend == "nccl":
        recorded(rank, device)
    if device == "cpu" and ops.HAS_OPERATORS:
        compiled(rank)
    # Only now, when DistributedDataParallel is freed: examples/train_ddp.py says why.
    distributed.destroy_process_group()
    gc.collect()
    assert not exchanges._exchanges  # those of groups that are no more


def run_both(folder, device, backend, shares, environments=({}, {})):
    context = multiprocessing.get_context("spawn")
    running = []
    end = time.monotonic() + LIMIT.total_seconds()
    try:
        for rank, environment in enumerate(environments):
            with mock.patch.dict(os.environ, environment):
                process = context.Process(target=work, args=(rank, folder, device, backend, shares))
                process.start()
            running.append(process)
        while any(process.exitcode is None for process in running):
            assert not any(process.exitcode for process in running), "a process failed; see its output"
            assert time.monotonic() < end, f"two processes did not end within {LIMIT}"
            time.sleep(0.05)
        assert not any(process.exitcode for process in running), "a process failed; see its output"
    finally:
        for process in running:
            process.kill()


def close(got, want, name):
    assert torch.linalg.norm(got - want) <= 1e-4 * torch.linalg.norm(want) + 1e-6, name


TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
HAS_DEVICE = voxconv.has_cuda and torch.cuda.is_available()
HAS_SYMMETRIC = HAS_DEVICE and TORCH >= (2, 6)
HAS_TWO = HAS_DEVICE and torch.cuda.device_count() > 1
PLACES = [("cpu", "gloo")] + [("cuda", "gloo")] * HAS_DEVICE + [("cuda", "nccl")] * HAS_TWO
CASES = [
    (device, backend, symmetric)
    for device, backend in PLACES
    for symmetric in ["0"] + ["1"] * (device == "cuda" and HAS_SYMMETRIC)
]


def check_results(folder, device):
    """What two processes wrote, against one process with all samples."""
    x = both(device)
    made = network().to(device)
    for _ in range(2):
        made.zero_grad()
        loss(made(x), len(x)).backward()
    expected = {name: value.grad for name, value in made.named_parameters()}
    expected |= dict(made.named_buffers())
    for rank in range(2):
        values = torch.load(folder / f"{rank}.pth", map_location=device, weights_only=True)
        assert values.keys() == expected.keys()
        for name, value in expected.items():
            if value.dtype.is_floating_point:
                close(values[name], value, name)
            else:
                assert values[name] == value
    for rank in range(2):
        rounds = torch.load(folder / f"exchanged{rank}.pth", map_location=device, weights_only=True)
        for length, rows, total in zip((5, 5, 8), rounds[::2], rounds[1::2]):
            a = torch.arange(float(length), device=device)
            for other in range(2):
                want = torch.cat([a + 100 * other, -a - 100 * other, a.new_full((1,), other + 7.0)])
                assert torch.equal(rows[other], want)
            assert torch.equal(total, torch.cat([2 * a + 100, 4 * a + 200]))


def check_norms(folder, device):
    """Batch norms of two processes against that of all rows in one."""
    for name, case in CASES_OF_NORMS.items():
        rows = case.get("rows", (50, 0))
        both_have = [torch.load(folder / f"{name}{rank}.pth", map_location=device, weights_only=True)
                     for rank in range(2)]
        buffers = [key for key in both_have[0] if key.startswith(("running", "num"))]
        assert all(torch.equal(both_have[0][key], both_have[1][key]) for key in buffers), name
        assert [len(values["y"]) for values in both_have] == list(rows)
        if name == "one_row":  # torch.nn.BatchNorm1d refuses it
            variance = both_have[0]["running_var"]
            close(variance, torch.full_like(variance, 0.9), name)
            continue
        alone = normalised(0, device, **case)
        for key in [*buffers, *(["y", "grad"] if rows[0] else [])]:
            close(both_have[0][key].double(), alone[key].double(), (name, key))
        if "weight" in alone and alone["weight"] is not None:
            close(both_have[0]["weight"] + both_have[1]["weight"], alone["weight"], name)
            close(both_have[0]["bias"] + both_have[1]["bias"], alone["bias"], name)
    want = grown(device)
    for rank in range(2):
        values = torch.load(folder / f"grown{rank}.pth", map_location=device, weights_only=True)
        for name, value in want.items():
            if name.endswith("running_var"):  # the same rows twice: 79 in place of 39 below the line
                value = (value - 0.9) * (39 / 40) * (80 / 79) + 0.9
            close(values[name].double(), value.double(), name)


@pytest.mark.parametrize("device, backend, symmetric", CASES)
def test_two_processes_compute_what_one_does_with_the_double_batch(
    tmp_path, monkeypatch, device, backend, symmetric
):
    monkeypatch.setenv("VOXCONV_SYMMETRIC_MEMORY", symmetric)
    monkeypatch.setenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1")  # both on one GPU
    run_both(str(tmp_path), device, backend, symmetric == "1")
    check_results(tmp_path, device)
    check_norms(tmp_path, device)


@pytest.mark.skipif(not HAS_TWO, reason="not two CUDA devices")
def test_processes_that_see_their_own_gpu_alone_go_by_nccl(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1")  # both are their cuda:0
    gpus = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0,1").split(",")
    run_both(str(tmp_path), "cuda", "nccl", False, [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus[:2]])
    check_results(tmp_path, "cuda")
    check_norms(tmp_path, "cuda")


def test_gpus_are_told_apart_by_what_they_are(monkeypatch):
    here = ["GPU-a", "GPU-b", "GPU-c"]  # of which the last does not reach the first
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(here))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda i: mock.Mock(uuid=here[i])
    )
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda a, b: {a, b} != {0, 2})
    number = exchanges._number
    assert exchanges._reaches(0, [number("GPU-a"), number("GPU-b")])
    assert exchanges._reaches(0, [number("GPU-a")] * 2)  # two processes on one
    assert not exchanges._reaches(0, [number("GPU-a"), number("GPU-c")])
    here[1:] = []  # both processes call theirs cuda:0
    assert not exchanges._reaches(0, [number("GPU-a"), number("GPU-b")])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(*arguments, processes=1):
    """The losses that examples/train_ddp.py prints, by step. The environment is that of torchrun, which
    in Debian 12 does not run on its Python."""
    command = [sys.executable, str(ROOT / "examples" / "train_ddp.py"), "--device", "cpu"]
    command += ["--azimuths", "40", "--scenes", "2", "--width", "4", *map(str, arguments)]
    shared = {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(free_port())}
    running = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(processes)
    ]
    try:
        outputs = [process.communicate(timeout=LIMIT.total_seconds()) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, errors) in zip(running, outputs):
        assert process.returncode == 0, errors
    lines = re.findall(r"step (\d+) loss (\S+)", outputs[0][0])
    return {int(step): float(value) for step, value in lines}


def test_the_example_trains_on_two_processes_and_goes_on(tmp_path):
    one = train("--steps", 4)
    assert one[4] < one[1]
    begin = train("--steps", 2, "--checkpoint", tmp_path / "run.pth", processes=2)
    assert begin.keys() == {1, 2}
    rest = train("--steps", 4, "--checkpoint", tmp_path / "run.pth", processes=2)
    assert rest.keys() == {3, 4}
    two = {**begin, **rest}
    np.testing.assert_allclose([two[step] for step in one], list(one.values()), rtol=1e-3)


def test_scenes_are_shared_by_their_sizes():
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from segmentation.batches import balanced
    finally:
        sys.path.pop(0)
    assert balanced([1, 1, 1, 1], 2) == [[0, 2], [1, 3]]
    assert balanced([9, 1, 8, 2, 7, 3], 2) == [[0, 3, 5], [1, 2, 4]]  # 14 and 16 voxels
    assert sorted(sum(balanced(list(range(12)), 3), [])) == list(range(12))


def test_scenes_that_cannot_be_shared_are_refused():
    with pytest.raises(AssertionError, match="--scenes 3: a multiple of the 2 processes"):
        train("--scenes", 3, processes=2)
