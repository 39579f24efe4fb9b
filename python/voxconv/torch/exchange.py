# SPDX-License-Identifier: Apache-2.0
"""Small vectors that the GPUs of a process group exchange within a layer."""

import hashlib
import itertools
import os
import pathlib
import socket
import warnings
import weakref
from typing import Any, Callable

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
    gathered is the same in all processes, bit by bit. What may fail in one process alone is agreed on, so
    that all processes exchange in the same way.
    """

    _serials = itertools.count()

    def __init__(self, group: Any, device: torch.device):
        self._group, self.device = weakref.ref(group), device
        self.serial = next(self._serials)  # tells it from all others of this process
        self.world, self.rank = distributed.get_world_size(group), distributed.get_rank(group)
        self._gathers = distributed.get_backend(group) == "nccl"  # Gloo gathers no CUDA tensors
        self._memory = _symmetric_memory(group, device)
        self._peers: _Peers | None = None
        self._filled: dict[tuple[float, int], torch.Tensor] = {}

    @property
    def group(self) -> Any:
        """The group, which this does not keep. RuntimeError once it has been destroyed."""
        group = self._group()
        if group is None:
            raise RuntimeError("SyncBatchNorm: its process group has been destroyed")
        return group

    def records(self) -> bool:
        """Whether a CUDA graph is recorded. What is computed now has its values at each replay only."""
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def peers(self, channels: int) -> "_Peers | None":
        """The memory by which voxconv._voxconv._shared_norm exchanges sums of up to so many channels; None
        where the processes share no memory, and while a CUDA graph is recorded, since each exchange has a
        number that a replay would not count on. Who exchanges again later, such as in a backward pass,
        keeps what this returns. The host waits when more channels than before need memory. If a process
        cannot take it, all processes use the collectives from then on."""
        if self._memory is None or channels > _voxconv._BatchPeers.most_channels or self.records():
            return None
        if self._peers is None or self._peers.channels < channels:
            room = max(256, 1 << (channels - 1).bit_length())
            self._peers = _shared_peers(self._memory, self.group, self.device, room)
            if self._peers is None:
                self._memory = None
        return self._peers

    def filled(self, value: float, length: int = 1) -> torch.Tensor:
        """float32 [length] of one value, which must not be written to. The last few are kept."""
        place = value, length
        made = self._filled.get(place)
        if made is None:
            made = torch.full((length,), value, dtype=torch.float32, device=self.device)
            if not self.records():
                if len(self._filled) >= 64:
                    self._filled.clear()
                self._filled[place] = made
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

    def __init__(self, own: torch.Tensor, shared: Any, world: int, rank: int, channels: int):
        self._own, self._shared, self.channels = own, shared, channels
        own.zero_()
        places = [
            shared.get_buffer(process, (len(own),), torch.float32).data_ptr()
            for process in range(world)
        ]
        self.handle = _voxconv._BatchPeers(places, rank, channels)


def _shared_peers(memory: Any, group: Any, device: torch.device, channels: int) -> _Peers | None:
    """None in all processes if one of them cannot. When this returns, the memory of all is zero."""
    world, rank = distributed.get_world_size(group), distributed.get_rank(group)
    pair = _rendezvous(memory, group, device, _voxconv._BatchPeers.bytes(world, channels) // 4)
    if pair is None:
        return None
    return _agreed(group, device, lambda: _Peers(*pair, world, rank, channels))


# Each lives as long as its group is registered, which is the same in all processes. Collecting garbage is
# not: a process that made an exchange anew would wait for others that still have theirs.
_exchanges: dict[tuple[int, int | None], Exchange] = {}


def exchange_of(group: Any, device: torch.device) -> Exchange:
    """The exchange of the group on this GPU, made by all processes at once."""
    place = id(group), device.index
    made = _exchanges.get(place)
    if made is None:
        made = _exchanges[place] = Exchange(group, device)
        weakref.finalize(group, _exchanges.pop, place, None).atexit = False
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
    if not _all(group, device, known) or not _reach_each_other(group, device):
        return None
    return None if _rendezvous(memory, group, device, 4) is None else memory


def _rendezvous(
    memory: Any, group: Any, device: torch.device, size: int
) -> tuple[torch.Tensor, Any] | None:
    """float32 [size] of this process and what reaches that of the others; None in all processes if one of
    them cannot. The host waits."""

    def allocate() -> torch.Tensor:
        # Up to 2.11 at least, PyTorch writes what belongs to the memory on a stream of its own, to blocks
        # that earlier work of the current stream may still use.
        torch.cuda.synchronize(device)
        return memory.empty(size, dtype=torch.float32, device=device)

    own = _agreed(group, device, allocate)
    if own is None:
        return None
    shared = _agreed(group, device, lambda: memory.rendezvous(own, group))
    return None if shared is None else (own, shared)


def _agreed(group: Any, device: torch.device, attempt: Callable[[], Any]) -> Any:
    """What attempt() returns. None in all processes if it raises or returns None in one of them. A process
    where it raises warns. The host waits."""
    made = None
    try:
        made = attempt()
    except Exception as error:  # whatever it is, the others wait for this process's answer
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(
            f"SyncBatchNorm: {device} shares no memory with the other GPUs, so that collectives exchange "
            f"the sums: {reason}",
            stacklevel=2,
        )
    return made if _all(group, device, made is not None) else None


def _all(group: Any, device: torch.device, flag: bool) -> bool:
    """Whether the flag is set in all processes. The host waits."""
    flags = torch.tensor([int(flag)], device=device)
    distributed.all_reduce(flags, distributed.ReduceOp.MIN, group=group)
    return bool(flags.item())


def _number(text: str) -> int:
    """A number below 2^56 that stands for the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def _gpu(index: int) -> int:
    """What tells a GPU from all others, by whatever index a process has it."""
    return _number(str(torch.cuda.get_device_properties(index).uuid))


def _reach_each_other(group: Any, device: torch.device) -> bool:
    """Whether all processes run on one host, and their GPUs reach each other's memory. The host waits."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
    host = _number(socket.gethostname() + (boot.read_text() if boot.exists() else ""))
    rows = torch.zeros((distributed.get_world_size(group), 2), dtype=torch.int64, device=device)
    rows[distributed.get_rank(group)] = torch.tensor([host, _gpu(device.index)])
    distributed.all_reduce(rows, group=group)
    hosts, gpus = rows.t().tolist()
    return len(set(hosts)) == 1 and _all(group, device, _reaches(device.index, gpus))


def _reaches(index: int, gpus: list[int]) -> bool:
    """Whether a GPU of this process reaches the memory of all others, by their _gpu. One that this process
    does not see (CUDA_VISIBLE_DEVICES) counts as out of reach: CUDA cannot be asked about it."""
    seen = {_gpu(i): i for i in range(torch.cuda.device_count())}
    return all(
        gpu in seen
        and (seen[gpu] == index or torch.cuda.can_device_access_peer(index, seen[gpu]))
        for gpu in gpus
    )
