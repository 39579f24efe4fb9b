# SPDX-License-Identifier: Apache-2.0
"""Small vectors that the GPUs of a process group exchange within a layer."""

import hashlib
import os
import pathlib
import socket
import weakref
from typing import Any

import torch
from torch import distributed


class Exchange:
    """Exchanges short float32 vectors of the processes of a group, each on its GPU.

    A collective of NCCL costs the host about 0.2 ms, and a network has two for each batch norm. On one
    host the vectors may therefore be written to PyTorch's symmetric memory, which one kernel of each GPU
    reads and adds up: with VOXCONV_SYMMETRIC_MEMORY=1 in the environment of all processes, where
    torch.distributed._symmetric_memory serves them.

    All processes call the same methods in the same order, on streams that follow each other. The host
    waits when an exchange of a new length takes its memory, and not otherwise. What is gathered is the
    same in all processes, bit by bit.
    """

    def __init__(self, group: Any, device: torch.device):
        self.group, self.device = group, device
        self.world, self.rank = distributed.get_world_size(group), distributed.get_rank(group)
        self._gathers = distributed.get_backend(group) == "nccl"  # Gloo gathers no CUDA tensors
        self._memory = _symmetric_memory(group, device)
        self._buffers: dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]] = {}
        self._numbers: dict[float, torch.Tensor] = {}

    def number(self, value: float) -> torch.Tensor:
        """float32 [1], which must not be written to. The last few are kept."""
        made = self._numbers.get(value)
        if made is None:
            if len(self._numbers) >= 64:
                self._numbers.clear()
            made = self._numbers[value] = torch.full((1,), value, device=self.device)
        return made

    def gather(self, *parts: torch.Tensor) -> torch.Tensor:
        """The parts of each process one after the other, [processes, at least their length]."""
        length = sum(len(part) for part in parts)
        if self._memory is not None:
            width = -(-length // 4) * 4  # the kernel reads 16 bytes at once
            total = self._add("gather", parts, self.world * width, self.rank * width, length)
            return total.view(self.world, width)
        if self._gathers:
            rows = parts[0].new_empty((self.world, length))
            distributed.all_gather_into_tensor(rows, torch.cat(parts), group=self.group)
            return rows
        rows = parts[0].new_zeros((self.world, length))  # each fills its row, and the sum is all rows
        torch.cat(parts, out=rows[self.rank])
        distributed.all_reduce(rows, group=self.group)
        return rows

    def sum(self, *parts: torch.Tensor) -> torch.Tensor:
        """The sum over the processes of their parts one after the other."""
        length = sum(len(part) for part in parts)
        if self._memory is not None:
            return self._add("sum", parts, -(-length // 4) * 4, 0, length)[:length]
        total = torch.cat(parts)
        distributed.all_reduce(total, group=self.group)
        return total

    def _add(
        self, use: str, parts: tuple[torch.Tensor, ...], size: int, begin: int, length: int
    ) -> torch.Tensor:
        """The processes' memory of `size` numbers added up, where this one's parts lie from `begin` on."""
        if (use, length) not in self._buffers:
            memory = self._memory.empty(size, dtype=torch.float32, device=self.device)
            memory.zero_()
            self._memory.rendezvous(memory, self.group)
            self._buffers[use, length] = memory, memory[begin : begin + length]
        memory, own = self._buffers[use, length]
        torch.cat(parts, out=own)
        # Waits on the device for the others' parts at its begin, and for their reading at its end.
        return torch.ops.symm_mem.one_shot_all_reduce(memory, "sum", self.group.group_name)


# Kept by the modules that use them: an exchange must not outlive its group.
_exchanges: "weakref.WeakValueDictionary[tuple[int, int], Exchange]" = weakref.WeakValueDictionary()


def exchange_of(group: Any, device: torch.device) -> Exchange:
    """The exchange of the group on this GPU, made by all processes at once. Callers keep it."""
    place = id(group), device.index  # an exchange keeps its group
    made = _exchanges.get(place)
    if made is None:
        made = _exchanges[place] = Exchange(group, device)
    return made


def _symmetric_memory(group: Any, device: torch.device) -> Any:
    """PyTorch's module, if it serves all processes of the group; else None."""
    if os.environ.get("VOXCONV_SYMMETRIC_MEMORY") != "1":
        return None
    try:
        from torch.distributed import _symmetric_memory as memory

        known = hasattr(torch.ops.symm_mem, "one_shot_all_reduce") and hasattr(memory, "rendezvous")
    except (ImportError, AttributeError, RuntimeError):
        known = False
    if not _all(group, device, known) or not _on_one_host(group, device):
        return None
    try:
        first = memory.empty(4, dtype=torch.float32, device=device)
        memory.rendezvous(first, group)
        works = True
    except RuntimeError:
        works = False
    return memory if _all(group, device, works) else None


def _all(group: Any, device: torch.device, flag: bool) -> bool:
    """Whether the flag is set in all processes. The host waits."""
    flags = torch.tensor([int(flag)], device=device)
    distributed.all_reduce(flags, distributed.ReduceOp.MIN, group=group)
    return bool(flags.item())


def _on_one_host(group: Any, device: torch.device) -> bool:
    """Whether all processes run on one host, and their GPUs reach each other's memory. The host waits."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
    name = socket.gethostname() + (boot.read_text() if boot.exists() else "")
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
    rows = torch.zeros((distributed.get_world_size(group), 2), dtype=torch.int64, device=device)
    rows[distributed.get_rank(group)] = torch.tensor([number, device.index])
    distributed.all_reduce(rows, group=group)
    hosts, devices = rows.t().tolist()
    reached = all(
        other == device.index
        or (other < torch.cuda.device_count()
            and torch.cuda.can_device_access_peer(device.index, other))
        for other in devices
    )
    return len(set(hosts)) == 1 and _all(group, device, reached)
