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
from voxconv import _voxconv


class Exchange:
    """Exchanges short float32 vectors of the processes of a group, each on its GPU.

    A collective of NCCL costs the host about 0.2 ms, and a network has two for each batch norm. On one host
    the engine's kernels may therefore write to the memory of the other GPUs themselves (peers), where
    torch.distributed._symmetric_memory shares it. VOXCONV_SYMMETRIC_MEMORY=0 in the environment of all
    processes leaves everything to the collectives.

    All processes call the same methods in the same order, on streams that follow each other. What is
    gathered is the same in all processes, bit by bit.
    """

    def __init__(self, group: Any, device: torch.device):
        self.group, self.device = group, device
        self.world, self.rank = distributed.get_world_size(group), distributed.get_rank(group)
        self._gathers = distributed.get_backend(group) == "nccl"  # Gloo gathers no CUDA tensors
        self._memory = _symmetric_memory(group, device)
        self._peers: _Peers | None = None
        self._numbers: dict[float, torch.Tensor] = {}

    def peers(self, channels: int) -> "_Peers | None":
        """The memory by which voxconv._voxconv._shared_norm exchanges sums of up to so many channels; None
        where the processes share no memory, and while a CUDA graph is recorded, since each exchange has a
        number that a replay would not count on. Who exchanges again later, such as in a backward pass,
        keeps what this returns. The host waits when more channels than before need memory."""
        if self._memory is None or channels > _voxconv._BatchPeers.most_channels:
            return None
        if torch.cuda.is_current_stream_capturing():
            return None
        if self._peers is None or self._peers.channels < channels:
            room = max(256, 1 << (channels - 1).bit_length())
            self._peers = _Peers(self._memory, self.group, self.device, room)
        return self._peers

    def number(self, value: float) -> torch.Tensor:
        """float32 [1], which must not be written to. The last few are kept."""
        made = self._numbers.get(value)
        if made is None:
            if len(self._numbers) >= 64:
                self._numbers.clear()
            made = self._numbers[value] = torch.full((1,), value, device=self.device)
        return made

    def gather(self, *parts: torch.Tensor) -> torch.Tensor:
        """The parts of each process one after the other, [processes, their length]."""
        length = sum(len(part) for part in parts)
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
        total = torch.cat(parts)
        distributed.all_reduce(total, group=self.group)
        return total


class _Peers:
    """Memory of all processes that each of them reaches, for so many channels."""

    def __init__(self, memory: Any, group: Any, device: torch.device, channels: int):
        world, rank = distributed.get_world_size(group), distributed.get_rank(group)
        self.channels = channels
        size = _voxconv._BatchPeers.bytes(world, channels) // 4
        # Up to 2.11 at least, PyTorch writes what belongs to the memory on a stream of its own, to blocks
        # that earlier work of the current stream may still use.
        torch.cuda.synchronize(device)
        self._own = memory.empty(size, dtype=torch.float32, device=device)
        self._shared = memory.rendezvous(self._own, group)
        self._own.zero_()
        _all(group, device, True)  # the others' memory is zero, too
        places = [
            self._shared.get_buffer(process, (size,), torch.float32).data_ptr()
            for process in range(world)
        ]
        self.handle = _voxconv._BatchPeers(places, rank, channels)


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
    wanted = os.environ.get("VOXCONV_SYMMETRIC_MEMORY", "1") != "0"
    world = distributed.get_world_size(group)
    try:
        from torch.distributed import _symmetric_memory as memory

        known = hasattr(memory, "rendezvous") and hasattr(memory, "empty")
    except (ImportError, AttributeError, RuntimeError):
        known = False
    known = known and wanted and hasattr(_voxconv, "_BatchPeers") and world <= _voxconv._BatchPeers.most
    if not _all(group, device, known) or not _on_one_host(group, device):
        return None
    try:
        torch.cuda.synchronize(device)  # _Peers says why
        memory.rendezvous(memory.empty(4, dtype=torch.float32, device=device), group)
        works = True
    except (RuntimeError, TypeError):
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
