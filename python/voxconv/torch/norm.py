# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over voxels."""

from typing import Any

import torch
from torch import distributed, nn
from torch.autograd.function import once_differentiable

from voxconv import _voxconv
from voxconv.torch import ops
from voxconv.torch.exchange import exchange_of
from voxconv.torch.tensor import SparseTensor


def _over_rows(normalise: Any, x: SparseTensor | torch.Tensor) -> SparseTensor | torch.Tensor:
    if isinstance(x, SparseTensor):
        return x.with_features(normalise(x.features))
    return normalise(x)


class BatchNorm(nn.BatchNorm1d):
    """torch.nn.BatchNorm1d of a SparseTensor, or of its features [N, C]: every voxel is a sample.

    Arguments, parameters and state_dict are those of torch.nn.BatchNorm1d.
    """

    takes_sparse = True

    def forward(self, x: Any) -> Any:
        return _over_rows(super().forward, x)


class SyncBatchNorm(BatchNorm):
    """BatchNorm with the statistics of all processes' voxels, for DistributedDataParallel.

    Each voxel counts the same, however many of them a process has; a process may have none. A batch
    without any voxel leaves the running statistics as they are. Sums are exchanged once forward and once
    backward on CUDA. Where GPUs of one host reach each other's memory (PyTorch 2.6 or later), the engine's
    kernels do it themselves, for parameters and statistics in float32 and up to 1024 channels. Elsewhere
    NCCL does it: with VOXCONV_SYMMETRIC_MEMORY=0 in the environment of all processes, while a CUDA
    graph is recorded, and where a process sees its own GPU alone (CUDA_VISIBLE_DEVICES). Where a process
    cannot take shared memory, all use NCCL, and that process warns. On the CPU Gloo does it twice each
    way, and so does NCCL for float64. torch.nn.SyncBatchNorm does not serve the CPU, and on
    CUDA its host waits for the device in every layer. Without a process group, and in evaluation with
    running statistics, this is BatchNorm. The host waits for the device only where an exchange takes
    memory, and in training with momentum=None. voxconv.torch.compile refuses it.

    Args:
        num_features, eps, momentum, affine, track_running_stats: as for BatchNorm.
        process_group: the processes whose voxels are counted together; all unless given.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_group = process_group

    def forward(self, x: Any) -> Any:
        alone = not (distributed.is_available() and distributed.is_initialized())
        uses_batch = self.training or not self.track_running_stats
        if alone or not uses_batch or distributed.get_world_size(self.process_group) == 1:
            return super().forward(x)
        known = x.voxels.known if isinstance(x, SparseTensor) else {}
        return _over_rows(lambda features: self._normalise(features, known), x)

    # A graph of torch.compile would have the exchange of the forward pass, and none in the backward pass.
    @ops.outside_of_graphs
    def _normalise(self, features: torch.Tensor, known: dict[Any, Any]) -> torch.Tensor:
        self._check_input_dim(features)
        if features.is_cuda and features.dtype != torch.float64:
            return self._normalise_by_kernels(features, known)
        x = features if features.dtype == torch.float64 else features.float()
        sums = x.sum(0, dtype=torch.float64)
        count = sums.new_full((1,), len(x))
        total = _Sum.apply(torch.cat([sums, count]), self.process_group)
        rows = total[-1].detach()
        count = rows.clamp(min=1)
        mean = total[:-1] / count
        centred = x - mean.to(x.dtype)
        squares = centred.square().sum(0, dtype=torch.float64)
        var = _Sum.apply(squares, self.process_group) / count
        if self.training and self.track_running_stats:
            self._update(mean.detach(), var.detach() * count / (count - 1).clamp(min=1), rows > 0)
        y = centred * torch.rsqrt(var + self.eps).to(x.dtype)
        if self.affine:
            y = y * self.weight + self.bias
        return y.to(features.dtype)

    def _normalise_by_kernels(self, x: torch.Tensor, known: dict[Any, Any]) -> torch.Tensor:
        step, running = 0.0, (None, None)
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            step = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
            running = self.running_mean, self.running_var
        group = distributed.group.WORLD if self.process_group is None else self.process_group
        exchange = exchange_of(group, x.device)
        weight, bias = self.weight, self.bias
        if not self.affine:
            weight, bias = (exchange.filled(value, self.num_features) for value in (1.0, 0.0))
        in_float = all(t is None or t.dtype == torch.float32 for t in (weight, bias, *running))
        peers = exchange.peers(self.num_features) if in_float else None
        given = x.contiguous(), weight, bias, running, step, self.eps
        if peers is not None:
            return _PeerNorm.apply(*given, peers)
        return _KernelNorm.apply(*given, exchange, known)

    def _update(self, mean: torch.Tensor, var: torch.Tensor, has_rows: torch.Tensor) -> None:
        self.num_batches_tracked.add_(1)
        step = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, value in ((self.running_mean, mean), (self.running_var, var)):
            running.lerp_(value.to(running.dtype), has_rows.to(running.dtype) * step)


class _Sum(torch.autograd.Function):
    """The sum over all processes, whose gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx, values, group):  # type: ignore[override]
        ctx.group = group
        values = values.contiguous().clone()
        distributed.all_reduce(values, group=group)
        return values

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        return _Sum.apply(grad, ctx.group), None


# The count of a process without rows: PyTorch's kernel divides by the rows so far.
_NO_ROWS = 1e-30


def _mend_running(
    running: Any, before: list[torch.Tensor], rows: torch.Tensor, step: float
) -> None:
    """The running statistics of batches of one row and of none, for which PyTorch's kernel divides by 0."""
    mean, var = running
    mean.copy_(torch.where(rows > 0.5, mean, before[0]))
    kept = torch.where(rows > 0.5, before[1] * (1 - step), before[1])  # one row has no variance
    var.copy_(torch.where(rows > 1.5, var, kept))


class _KernelNorm(torch.autograd.Function):
    """Batch norm over all processes' rows by PyTorch's CUDA kernels, which read [N, C] twice forward and
    twice backward. `known` keeps the processes' counts for the norms of the same voxels."""

    @staticmethod
    def forward(ctx, x, weight, bias, running, step, eps, exchange, known):  # type: ignore[override]
        channels = x.shape[1]
        if len(x):
            mean, invstd = torch.batch_norm_stats(x, eps)
        else:
            mean = exchange.filled(0.0, channels)
            invstd = exchange.filled(eps**-0.5, channels)
        rows = exchange.gather(mean, invstd, exchange.filled(float(len(x)) or _NO_ROWS))
        counts = rows[:, 2 * channels]
        before = [None if t is None or len(x) > 1 else t.clone() for t in running]
        mean, invstd = torch.batch_norm_gather_stats_with_counts(  # its first tensor gives the dtype
            rows, rows[:, :channels], rows[:, channels : 2 * channels], *running, step, eps, counts
        )
        if before[0] is not None:
            _mend_running(running, before, counts.sum(), step)
        whole = known.get(exchange.serial)
        if whole is None:
            whole = counts.to(torch.int32)
            if not exchange.records():
                known[exchange.serial] = whole
        ctx.exchange = exchange
        ctx.save_for_backward(x, weight, mean, invstd, whole)
        return torch.batch_norm_elemt(x, weight, bias, mean, invstd, eps) if len(x) else x.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[override]
        x, weight, mean, invstd, counts = ctx.saved_tensors
        needs = ctx.needs_input_grad
        grad = grad.contiguous()
        if len(x):
            sum_dy, sum_dy_xmu, grad_weight, grad_bias = torch.batch_norm_backward_reduce(
                grad, x, mean, invstd, weight, True, needs[1], needs[2]
            )
        else:
            sum_dy, sum_dy_xmu = torch.zeros_like(mean), torch.zeros_like(mean)
            grad_weight = torch.zeros_like(weight) if needs[1] else None
            grad_bias = torch.zeros_like(weight) if needs[2] else None
        sums = ctx.exchange.sum(sum_dy, sum_dy_xmu)
        dx = grad
        if needs[0] and len(x):
            dx = torch.batch_norm_backward_elemt(
                grad, x, mean, invstd, weight, *sums.chunk(2), counts
            )
        return dx, grad_weight, grad_bias, None, None, None, None, None


class _PeerNorm(torch.autograd.Function):
    """The same by the engine's kernels, of which one sums up, exchanges and goes on: three launches forward
    and three backward."""

    @staticmethod
    def forward(ctx, x, weight, bias, running, step, eps, peers):  # type: ignore[override]
        y = torch.empty_like(x)
        statistics = x.new_empty(2 * x.shape[1] + 2, dtype=torch.float32)
        given = x.detach(), weight.detach(), bias.detach()
        _voxconv._shared_norm(peers.handle, *given, *running, step, eps, statistics, y)
        ctx.peers = peers
        ctx.save_for_backward(x, weight, statistics)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[override]
        x, weight, statistics = ctx.saved_tensors
        needs = ctx.needs_input_grad
        sums = statistics.new_empty(2 * x.shape[1])
        dx = torch.empty_like(x) if needs[0] else None
        grad = grad.to(x.dtype).contiguous()
        _voxconv._shared_norm_grad(
            ctx.peers.handle, grad, x.detach(), weight.detach(), statistics, sums, dx
        )
        grad_bias, grad_weight = sums.chunk(2)
        return dx, grad_weight, grad_bias, None, None, None, None


def convert_sync_batchnorm(module: nn.Module, process_group: Any = None) -> nn.Module:
    """The network with SyncBatchNorm for its batch norms.

    torch.nn.SyncBatchNorm.convert_sync_batchnorm makes modules that do not take a SparseTensor, and
    that do not run on the CPU.

    Args:
        module: a network, whose BatchNorm and torch.nn.BatchNorm1d are replaced in place. Their
            parameters and statistics are kept. Batch norms of other shapes become
            torch.nn.SyncBatchNorm.
        process_group: the processes whose voxels are counted together; all unless given.

    Returns:
        `module`, or what replaces it.
    """
    made: nn.Module = module
    if isinstance(module, nn.BatchNorm1d):
        made = SyncBatchNorm(
            module.num_features, module.eps, module.momentum, module.affine,
            module.track_running_stats, process_group,
        )
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(made, name, getattr(module, name))
        made.training = module.training
    elif isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(
        module, nn.SyncBatchNorm
    ):
        return nn.SyncBatchNorm.convert_sync_batchnorm(module, process_group)
    for name, child in module.named_children():
        made.add_module(name, convert_sync_batchnorm(child, process_group))
    return made
