# SPDX-License-Identifier: Apache-2.0
"""Two processes against one process with all samples: on the CPU, both on one GPU where there is one, and
each on a GPU of its own where there are two. Gloo serves the first two; NCCL wants a GPU for each process."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import time
from datetime import timedelta

import numpy as np
import pytest
import torch
import voxconv
import voxconv.torch as vt
from test_torch import scene
from torch import distributed, multiprocessing, nn
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


def normalised(rank, device):
    """Batch norm of rows that the second process has none of: results, gradients and buffers."""
    torch.manual_seed(1)
    rows = torch.randn(50, 6, device=device)[: (50, 0)[rank]].requires_grad_()
    norm = vt.SyncBatchNorm(6).to(device)
    y = norm(rows)
    (y.exp() * torch.arange(6, device=device)).sum().backward()
    return {"y": y.detach(), "grad": rows.grad, "weight": norm.weight.grad, **dict(norm.named_buffers())}


def exchanged(rank, device):
    """What two processes get of each other's vectors, in two rounds of the same and of other lengths."""
    exchange = exchange_of(distributed.group.WORLD, torch.zeros(1, device=device).device)
    symmetric = device != "cpu" and os.environ["VOXCONV_SYMMETRIC_MEMORY"] == "1"
    assert (exchange.peers(6) is not None) == symmetric
    rounds = []
    for length in (5, 5, 8):
        a = torch.arange(float(length), device=device) + 100 * rank
        rows = exchange.gather(a, -a, exchange.number(rank + 7.0))
        rounds += [rows[:, : 2 * length + 1].clone(), exchange.sum(a, 2 * a)]
    return rounds


def work(rank, folder, device, backend):
    if backend == "nccl":
        device = f"cuda:{rank}"
        torch.cuda.set_device(rank)
    rows = sum(len(sample(index, "cpu")) for index in range(2))
    distributed.init_process_group(
        backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2, timeout=LIMIT
    )
    torch.save(trained(rank, rows, device), f"{folder}/{rank}.pth")
    torch.save(normalised(rank, device), f"{folder}/norm{rank}.pth")
    torch.save(exchanged(rank, device), f"{folder}/exchanged{rank}.pth")
    # Only now, when DistributedDataParallel is freed: examples/train_ddp.py says why.
    distributed.destroy_process_group()


def run_both(folder, device, backend):
    running = multiprocessing.spawn(work, (folder, device, backend), nprocs=2, join=False)
    end = time.monotonic() + LIMIT.total_seconds()
    try:
        while not running.join(timeout=1):  # raises what a process raised
            assert time.monotonic() < end, f"two processes did not end within {LIMIT}"
    finally:
        for process in running.processes:
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


@pytest.mark.parametrize("device, backend, symmetric", CASES)
def test_two_processes_compute_what_one_does_with_the_double_batch(
    tmp_path, monkeypatch, device, backend, symmetric
):
    monkeypatch.setenv("VOXCONV_SYMMETRIC_MEMORY", symmetric)
    monkeypatch.setenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1")  # both on one GPU
    run_both(str(tmp_path), device, backend)
    x = both(device)
    made = network().to(device)
    for _ in range(2):
        made.zero_grad()
        loss(made(x), len(x)).backward()
    expected = {name: value.grad for name, value in made.named_parameters()}
    expected |= dict(made.named_buffers())
    for rank in range(2):
        values = torch.load(tmp_path / f"{rank}.pth", map_location=device, weights_only=True)
        assert values.keys() == expected.keys()
        for name, value in expected.items():
            if value.dtype.is_floating_point:
                close(values[name], value, name)
            else:
                assert values[name] == value
    for rank in range(2):
        rounds = torch.load(
            tmp_path / f"exchanged{rank}.pth", map_location=device, weights_only=True
        )
        for length, rows, total in zip((5, 5, 8), rounds[::2], rounds[1::2]):
            a = torch.arange(float(length), device=device)
            for other in range(2):
                want = torch.cat([a + 100 * other, -a - 100 * other, a.new_full((1,), other + 7.0)])
                assert torch.equal(rows[other], want)
            assert torch.equal(total, torch.cat([2 * a + 100, 4 * a + 200]))
    alone = normalised(0, device)
    for rank in range(2):
        values = torch.load(tmp_path / f"norm{rank}.pth", map_location=device, weights_only=True)
        assert len(values["y"]) == (50, 0)[rank]
        for name in ["running_mean", "running_var"] + (["y", "grad", "weight"] if rank == 0 else []):
            close(values[name], alone[name], name)


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
