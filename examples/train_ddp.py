#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a segmenter with voxconv.torch on one or more processes.

    python examples/train_ddp.py --steps 20
    torchrun --standalone --nproc_per_node=2 examples/train_ddp.py --steps 20 --checkpoint run.pth
    torchrun --standalone --nproc_per_node=2 examples/train_ddp.py --network minkunet42 --frames a.npz b.npz
    python examples/train_ddp.py --network minkunet42 --frames a.npz b.npz --scaling 2

Without --frames, the scenes are synthetic, and a voxel's class is its height. The processes share the
scenes of a step, each as many and with about as many voxels. Losses are weighted by voxels and batch
norm counts all voxels, so that two processes compute what one process computes on all scenes. A
checkpoint that exists is gone on from. --scaling N measures what N processes give: frames a second
beside one process with its share of the scenes, and losses beside one process with all of them.
"""

import argparse
import os
import pathlib
import time

import torch
import voxconv
import voxconv.torch as vt
from segmentation import batches, networks, scaling
from torch import distributed, nn

WARMUP = 10  # steps that frames a second leave out


def save(path: pathlib.Path, step: int, network: nn.Module, optimizer: torch.optim.Optimizer):
    """Replaces the file in one step: a run that ends meanwhile leaves the old one whole."""
    # Tensors and whole numbers, which every version's torch.load(weights_only=True) takes.
    moments = optimizer.state_dict()["state"]
    state = {"step": step, "network": network.state_dict(), "optimizer": moments}
    new = path.with_suffix(".new")
    torch.save(state, new)
    os.replace(new, path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=networks.NETWORKS, default="unet")
    parser.add_argument("--steps", type=int, default=20, help="the number of the last step")
    parser.add_argument("--scenes", type=int, default=4, help="scenes of a step, of all processes")
    parser.add_argument("--frames", type=pathlib.Path, nargs="+",
                        help=".npz files with xyz, intensity, label and class_names, in place of scenes")
    parser.add_argument("--voxel-size", type=float, default=0.05, help="of --frames")
    parser.add_argument("--azimuths", type=int, default=200, help="columns of a synthetic scan")
    parser.add_argument("--width", type=int, help="channels of the finest level")
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw")
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="file to go on from and to write")
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--workers", type=int, default=2, help="processes that make batches")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() and voxconv.has_cuda
                        else "cpu", help="cpu or cuda")
    parser.add_argument("--autocast", action="store_true", help="compute in bfloat16")
    parser.add_argument("--scaling", type=int, metavar="N", help="compare N processes with one")
    return parser.parse_args()


class Report:
    """Prints each step's loss once the step is computed, while the host queues the next one, and the
    frames a second."""

    def __init__(self, options: argparse.Namespace, device: torch.device):
        self.options, self.last = options, time.perf_counter()
        self.sums = torch.empty(2, pin_memory=device.type == "cuda")
        self.event = torch.cuda.Event() if device.type == "cuda" else None
        self.step: int | None = None
        self.waited = 0.0  # for batches, in seconds
        self.begin: tuple[int, float] | None = None

    def add(self, step: int, sums: torch.Tensor) -> None:
        """`sums`: the loss of all voxels that count, and their number."""
        self.flush()
        self.step = step
        self.sums.copy_(sums, non_blocking=True)
        if self.event is not None:
            self.event.record()

    def flush(self) -> None:
        if self.step is None:
            return
        if self.event is not None:
            self.event.synchronize()
        total, voxels = self.sums.tolist()
        now = time.perf_counter()
        print(f"step {self.step} loss {total / voxels:.6f} voxels {int(voxels)} {now - self.last:.3f} s",
              flush=True)
        if self.begin is None and self.step >= WARMUP:
            self.begin, self.waited = (self.step, now), 0.0
        elif self.begin is not None and self.step == self.options.steps:
            steps = self.step - self.begin[0]
            print(f"frames a second {steps * self.options.scenes / (now - self.begin[1]):.2f} "
                  f"(steps {self.begin[0] + 1} to {self.step}; {1e3 * self.waited / steps:.1f} ms a step "
                  "were waits for batches)", flush=True)
        self.step, self.last = None, now


def train(options: argparse.Namespace, device: torch.device, world: int, rank: int) -> None:
    torch.manual_seed(0)
    source = (batches.Frames(options.frames, options.voxel_size) if options.frames
              else batches.Scans(options.azimuths))
    state, begin = None, 0
    if options.checkpoint is not None and options.checkpoint.exists():
        state = torch.load(options.checkpoint, map_location=device, weights_only=True)
        begin = state["step"]
    steps = range(begin + 1, options.steps + 1)
    dataset = batches.Steps(source, options.scenes, world, rank)
    data = iter(batches.loader(dataset, steps, options.workers, device.type == "cuda"))

    make, usual_width = networks.NETWORKS[options.network]
    network = make(4, source.classes, options.width or usual_width)
    network = vt.convert_sync_batchnorm(network).to(device)
    optimizer = (torch.optim.AdamW(network.parameters(), lr=options.rate)
                 if options.optimizer == "adamw"
                 else torch.optim.SGD(network.parameters(), lr=options.rate, momentum=0.9))
    if state is not None:
        network.load_state_dict(state["network"])
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state["optimizer"]})
    parallel = network
    if world > 1:
        # SyncBatchNorm's statistics are those of all processes already.
        parallel = nn.parallel.DistributedDataParallel(
            network, broadcast_buffers=False, gradient_as_bucket_view=True)
    report = Report(options, device)

    for step in steps:
        start = time.perf_counter()
        batch = next(data)
        report.waited += time.perf_counter() - start
        x = vt.SparseTensor(batch.coords.to(device, non_blocking=True),
                            batch.features.to(device, non_blocking=True))
        labels = batch.labels.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=options.autocast):
            scores = parallel(x)
        total = nn.functional.cross_entropy(scores.float(), labels, reduction="sum",
                                            ignore_index=batches.IGNORED)
        counted = (labels != batches.IGNORED).sum()
        sums = torch.stack([total.detach(), counted.to(total.dtype)])
        if world > 1:
            distributed.all_reduce(sums)
        optimizer.zero_grad(set_to_none=True)
        (total * world / sums[1]).backward()  # DistributedDataParallel takes the processes' mean
        optimizer.step()
        if rank != 0:
            continue
        report.add(step, sums)
        last = step == options.steps
        if options.checkpoint is not None and (last or step % options.every == 0):
            save(options.checkpoint, step, network, optimizer)
    report.flush()


def main() -> None:
    options = arguments()
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    shares = options.scaling or world
    if options.scenes % shares:
        raise SystemExit(f"--scenes {options.scenes}: a multiple of the {shares} processes is needed")
    if options.scaling is not None:
        return scaling.compare(__file__, options)
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
        # voxconv works on it as on its own; with CUDA's default stream each call is ordered by events.
        torch.cuda.set_stream(torch.cuda.Stream(device))
    if world > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    train(options, device, world, rank)
    # train() has freed DistributedDataParallel by now. A reducer that outlives this call waits for the
    # threads of Gloo while it holds the GIL, and these may wait for the GIL.
    if world > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
