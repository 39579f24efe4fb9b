#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small segmenter with voxconv.torch on one or more processes.

    python examples/train_ddp.py --steps 20
    torchrun --standalone --nproc_per_node=2 examples/train_ddp.py --steps 20 --checkpoint run.pth

The scenes are synthetic, and a voxel's class is its height. The scenes of a step are shared among the
processes. Losses are weighted by voxels and batch norm counts all voxels, so that two processes compute
what one process computes on all scenes. A checkpoint that exists is gone on from.
"""

import argparse
import os
import pathlib
import time

import numpy as np
import torch
import voxconv
import voxconv.torch as vt
from torch import distributed, nn

CLASSES = 4


class UNet(nn.Module):
    """Two levels down and up again, with skip connections."""

    def __init__(self, in_channels: int, width: int):
        super().__init__()

        def block(c_in: int, c_out: int) -> nn.Module:
            return vt.Sequential(
                vt.SubMConv3d(c_in, c_out, 3, bias=False), vt.BatchNorm(c_out), nn.ReLU()
            )

        self.stem = block(in_channels, width)
        self.down1 = vt.SparseConv3d(width, 2 * width, 2, stride=2, key="1")
        self.middle = block(2 * width, 2 * width)
        self.down2 = vt.SparseConv3d(2 * width, 2 * width, 2, stride=2, key="2")
        self.bottom = block(2 * width, 2 * width)
        self.up2 = vt.SparseInverseConv3d(2 * width, 2 * width, 2, key="2")
        self.up1 = vt.SparseInverseConv3d(4 * width, width, 2, key="1")
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x: vt.SparseTensor) -> torch.Tensor:
        fine = self.stem(x)
        coarse = self.middle(self.down1(fine))
        y = vt.cat([self.up2(self.bottom(self.down2(coarse))), coarse])
        return self.head(vt.cat([self.up1(y), fine]).features)


def batch(step: int, samples: list[int], azimuths: int) -> tuple[vt.SparseTensor, torch.Tensor]:
    """The scenes of these samples as one tensor, and the classes of its voxels."""
    coords, features, labels = [], [], []
    for index, sample in enumerate(samples):
        cloud = voxconv.load(
            f"scene:lidar64?azimuths={azimuths}&seed={1000 * step + sample}",
            voxel_size=0.5, channels=4, batch=index,
        )
        rows = np.array(cloud.coords)
        height = rows[:, 3] - rows[:, 3].min()
        labels.append(torch.tensor(np.minimum(height // 4, CLASSES - 1), dtype=torch.long))
        coords.append(torch.tensor(rows))
        features.append(torch.tensor(cloud.features) / 10)
    return vt.SparseTensor(torch.cat(coords), torch.cat(features)), torch.cat(labels)


def move(x: vt.SparseTensor, labels: torch.Tensor, device: torch.device):
    return vt.SparseTensor(x.coords.to(device), x.features.to(device)), labels.to(device)


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
    parser.add_argument("--steps", type=int, default=20, help="the number of the last step")
    parser.add_argument("--scenes", type=int, default=4, help="scenes of a step, of all processes")
    parser.add_argument("--azimuths", type=int, default=200, help="columns of a scan")
    parser.add_argument("--width", type=int, default=8, help="channels of the finest level")
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="file to go on from and to write")
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() and voxconv.has_cuda
                        else "cpu", help="cpu or cuda")
    parser.add_argument("--autocast", action="store_true", help="compute in bfloat16")
    return parser.parse_args()


def train(options: argparse.Namespace, device: torch.device, world: int, rank: int) -> None:
    torch.manual_seed(0)
    network = vt.convert_sync_batchnorm(UNet(4, options.width)).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=options.rate)
    begin = 0
    if options.checkpoint is not None and options.checkpoint.exists():
        state = torch.load(options.checkpoint, map_location=device, weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state["optimizer"]})
        begin = state["step"]
    parallel = nn.parallel.DistributedDataParallel(network) if world > 1 else network

    for step in range(begin + 1, options.steps + 1):
        start = time.perf_counter()
        mine = list(range(rank, options.scenes, world))
        x, labels = move(*batch(step, mine, options.azimuths), device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=options.autocast):
            scores = parallel(x)
        total = nn.functional.cross_entropy(scores.float(), labels, reduction="sum")
        sums = torch.stack([total.detach(), total.new_tensor(len(x))])
        if world > 1:
            distributed.all_reduce(sums)
        loss, voxels = (sums[0] / sums[1]).item(), int(sums[1].item())
        optimizer.zero_grad(set_to_none=True)
        (total * world / voxels).backward()  # DistributedDataParallel takes the mean of the processes
        optimizer.step()
        if rank == 0:
            seconds = time.perf_counter() - start
            print(f"step {step} loss {loss:.6f} voxels {voxels} {seconds:.3f} s", flush=True)
            last = step == options.steps
            if options.checkpoint is not None and (last or step % options.every == 0):
                save(options.checkpoint, step, network, optimizer)


def main() -> None:
    options = arguments()
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if options.scenes % world:
        raise SystemExit(f"--scenes {options.scenes}: a multiple of the {world} processes is needed")
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if world > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    train(options, device, world, rank)
    # train() has freed DistributedDataParallel by now. A reducer that outlives this call waits for the
    # threads of Gloo while it holds the GIL, and these may wait for the GIL.
    if world > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
