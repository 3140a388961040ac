"""The mixing network of MatNet's attention in compiled loops, forward and backward.

The reference is :func:`rl4co.models.nn.mixed_attention.mix_scores`. Its hidden layer is as many
times larger than the scores as it has units, so tensor operations on a CPU spend their time moving
it through memory; a loop keeps it in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torch import Tensor
from torch.autograd.function import once_differentiable

from rl4co.kernels.compile import CompiledFunction, compiled
from rl4co.kernels.switch import are_enabled
from rl4co.kernels.threads import run_in_chunks

#: Hidden values below which a second thread costs more than it brings.
ONE_THREAD = 2**20


def mix_scores(scores: Tensor, entries: Tensor, mixer: Tensor) -> Tensor | None:
    """Mixed scores `[B, H, R, C]`, differentiable; None where the reference has to run.

    Arguments are those of the reference implementation.
    """
    precise = scores.dtype in (torch.float32, torch.float64)
    on_cpu = scores.device.type == "cpu" and not torch.compiler.is_compiling()
    if not (are_enabled() and precise and on_cpu):
        return None
    mixed: Tensor = _Mix.apply(scores, entries, mixer)
    return mixed


class _Mix(torch.autograd.Function):
    """The loops as one differentiable operation."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, entries: Tensor, mixer: Tensor) -> Tensor:
        inputs = [x.detach().contiguous() for x in (scores, entries, mixer)]
        ctx.save_for_backward(*inputs)
        mixed = torch.empty_like(inputs[0])
        _run(_mix, [*inputs, mixed])
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        scores, entries, mixer = ctx.saved_tensors
        grad_scores = torch.empty_like(scores)
        # Every instance has a sum of its own, so that threads need not wait for each other.
        grad_mixer = mixer.new_empty(len(scores), *mixer.shape)
        _run(_mix_backward, [scores, entries, mixer, grad.contiguous(), grad_scores, grad_mixer])
        return grad_scores, None, grad_mixer.sum(0)


def _run(loop: CompiledFunction, tensors: Sequence[Tensor]) -> None:
    """Runs a loop over the instances of contiguous tensors."""
    scores, _, mixer = tensors[:3]
    many = scores.numel() * mixer.shape[1] > ONE_THREAD
    arrays = [tensor.numpy() for tensor in tensors]
    run_in_chunks(
        lambda rows: loop(*arrays, rows.start, rows.stop),
        len(scores),
        torch.get_num_threads() if many else 1,
    )


@compiled(fast_sums=True)
def _mix(
    scores: np.ndarray,
    entries: np.ndarray,
    mixer: np.ndarray,
    mixed: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Mixes instances `start`..`stop`; shapes as in :func:`mix_scores`."""
    zero = mixer.dtype.type(0)
    for b in range(start, stop):
        entry = entries[b].ravel()
        for h in range(scores.shape[1]):
            score, out = scores[b, h].ravel(), mixed[b, h].ravel()
            for p in range(score.size):
                out[p] = zero
            for m in range(mixer.shape[1]):
                by_score, by_entry = mixer[h, m, 0], mixer[h, m, 1]
                bias, outer = mixer[h, m, 2], mixer[h, m, 3]
                for p in range(score.size):
                    hidden = by_score * score[p] + by_entry * entry[p] + bias
                    out[p] += outer * max(hidden, zero)


@compiled(fast_sums=True)
def _mix_backward(
    scores: np.ndarray,
    entries: np.ndarray,
    mixer: np.ndarray,
    grad: np.ndarray,
    grad_scores: np.ndarray,
    grad_mixer: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Gradients of the scores `[B, H, R, C]` and, of each instance, of the mixer `[B, H, M, 4]`."""
    zero = mixer.dtype.type(0)
    for b in range(start, stop):
        entry = entries[b].ravel()
        for h in range(scores.shape[1]):
            score, upper = scores[b, h].ravel(), grad[b, h].ravel()
            lower = grad_scores[b, h].ravel()
            for p in range(score.size):
                lower[p] = zero
            for m in range(mixer.shape[1]):
                by_score, by_entry = mixer[h, m, 0], mixer[h, m, 1]
                bias, outer = mixer[h, m, 2], mixer[h, m, 3]
                sum_score, sum_entry, sum_one, sum_hidden = zero, zero, zero, zero
                for p in range(score.size):
                    hidden = by_score * score[p] + by_entry * entry[p] + bias
                    active = upper[p] if hidden > zero else zero
                    lower[p] += by_score * outer * active
                    sum_score += active * score[p]
                    sum_entry += active * entry[p]
                    sum_one += active
                    sum_hidden += active * hidden
                grad_mixer[b, h, m, 0] = outer * sum_score
                grad_mixer[b, h, m, 1] = outer * sum_entry
                grad_mixer[b, h, m, 2] = outer * sum_one
                grad_mixer[b, h, m, 3] = sum_hidden
