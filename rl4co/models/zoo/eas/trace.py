"""The steps of a rollout with all that their gradient needs, so that nothing is computed twice.

What efficient active search learns comes behind the glimpse (the paper's layer and its logit keys),
so the heads of the glimpse are constants. A step notes them, the hidden values of the layer, and
the derivative of its log-probability by the logits, which is known once the action is chosen:

$$\\frac{\\partial \\log p_a}{\\partial z_i} =
  ([i = a] - p_i)\\, \\frac{C}{\\tau} (1 - \\tanh^2 z_i)$$

The gradient of a solution's log-likelihood is then a sum over steps of a few products.
"""

from __future__ import annotations

import dataclasses

from typing import Any, NamedTuple

import torch

from torch import Tensor
from torch.autograd.function import once_differentiable

from rl4co.decoding.logits import sample_weights
from rl4co.decoding.strategies import Sampling

#: How far below the others the logits of forbidden actions are: their probability is exactly 0.
_FAR = 1e9


@dataclasses.dataclass
class StepTrace:
    """What the steps of a rollout leave behind, a list entry for each step.

    Attributes:
        heads: Heads of the glimpse `[R, S, D]`.
        hidden: Values between the layer's two products `[R, S, D]`; empty without a layer.
        slopes: Derivatives of the step's log-probability by its logits `[R, S, N]`.
        log_probs: Log-probabilities of the chosen actions `[R, S]`.
        barrier: Of the step under way: 0 where an action is allowed, else a number that no logit
            makes up for `[R, S, N]`.
    """

    heads: list[Tensor] = dataclasses.field(default_factory=list)
    hidden: list[Tensor] = dataclasses.field(default_factory=list)
    slopes: list[Tensor] = dataclasses.field(default_factory=list)
    log_probs: list[Tensor] = dataclasses.field(default_factory=list)
    barrier: Tensor | None = None

    def raise_barrier(self, mask: Tensor, dtype: torch.dtype) -> Tensor:
        """The barrier of a step; in plain arithmetic, which is faster than `torch.where`."""
        self.barrier = mask.to(dtype).sub_(1.0).mul_(_FAR)
        return self.barrier


@dataclasses.dataclass(frozen=True)
class ImitatingSampling(Sampling):
    """Sampling in which the last solution of each row is given.

    All instances meet the same random numbers: what is drawn for one of them does not depend on
    the others in its batch.

    Args:
        batch: Instances B of the rows `[R]`, R = K · B.
        incumbent: Actions `[R, T]` of the last solution, -1 behind their ends; None: it is sampled
            like the others.
    """

    batch: int = 1
    incumbent: Tensor | None = None

    def choose(self, logits: Tensor, step: int) -> Tensor:
        """Actions `[R, S]`."""
        return self.draw(logits.softmax(-1), step)

    def draw(self, chances: Tensor, step: int) -> Tensor:
        """Actions `[R, S]` for probabilities `[R, S, N]`."""
        rows, solutions, _ = chances.shape
        shape = (rows // self.batch, 1, solutions, 1)
        uniform = torch.rand(shape, generator=self.rng, device=chances.device, dtype=chances.dtype)
        uniform = uniform.expand(-1, self.batch, -1, -1).flatten(0, 1)  # [R, S, 1]
        action = sample_weights(chances, uniform=uniform)
        if self.incumbent is None:
            return action
        # A finished solution waits for its batch mates with an action that changes nothing.
        last = chances[:, -1].argmax(-1)  # [R]
        if step < self.incumbent.shape[-1]:
            given = self.incumbent[:, step]
            last = torch.where(given < 0, last, given)
        return torch.cat([action[:, :-1], last.unsqueeze(-1)], -1)


@dataclasses.dataclass(frozen=True)
class RecordedSampling(ImitatingSampling):
    """The same, noting each step's derivative; for distributions without top-k and top-p.

    Args:
        trace: Where to note it.
    """

    trace: StepTrace = dataclasses.field(default_factory=StepTrace)

    def filter(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Clipped and masked logits; the derivative of the clipping is kept for :meth:`choose`."""
        scale = (self.tanh_clipping or 1.0) / self.temperature
        if self.tanh_clipping > 0:
            logits = logits.tanh()
            slope = torch.addcmul(logits.new_full((), scale), logits, logits, value=-scale)
        else:
            slope = logits.new_full((1, 1, 1), scale)
        self.trace.slopes.append(slope)
        barrier = self.trace.barrier
        assert barrier is not None, "the pointer raised it"
        return torch.add(barrier, logits, alpha=scale)

    def choose(self, logits: Tensor, step: int) -> Tensor:
        """Actions `[R, S]`."""
        chances = logits.softmax(-1)
        action = self.draw(chances, step)
        index = action.unsqueeze(-1)  # [R, S, 1]
        picked = chances.gather(-1, index)
        self.trace.log_probs.append(picked.squeeze(-1).log())
        # In place: the probabilities are not needed any more.
        change = chances.neg_().scatter_add_(-1, index, torch.ones_like(picked))
        self.trace.slopes[-1] = change.mul_(self.trace.slopes[-1])
        return action


class ScoreWeights(NamedTuple):
    """What turns heads $h$ into logits: $h K^\\top + \\mathrm{ReLU}(h W + c) M^\\top + b$.

    Attributes:
        keys: $K$ `[R, N, D]`.
        bias: $b$ `[R, 1, N]`, or None.
        hidden_keys: $M$ `[R, N, D]`, the layer's second product and the keys in one; None without
            a layer, like what follows.
        weight: $W$ `[R, D, D]`.
        weight_bias: $c$ `[R, 1, D]`.
    """

    keys: Tensor
    bias: Tensor | None = None
    hidden_keys: Tensor | None = None
    weight: Tensor | None = None
    weight_bias: Tensor | None = None


class _KnownLikelihood(torch.autograd.Function):
    """Known log-likelihoods `[R, S]` of a trace and their gradient."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, trace: StepTrace, *weights: Tensor | None) -> Tensor:
        ctx.trace = trace
        ctx.save_for_backward(*weights)
        return total.view_as(total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, needs = ScoreWeights(*ctx.saved_tensors), ctx.needs_input_grad[2:]
        sums = [
            torch.zeros_like(value) if value is not None and needed else None
            for value, needed in zip(weights, needs, strict=True)
        ]
        grad = grad.unsqueeze(-1)  # [R, S, 1]
        for step, slope in enumerate(ctx.trace.slopes):
            scaled = slope * grad  # [R, S, N]
            heads = ctx.trace.heads[step]
            if sums[0] is not None:
                sums[0].baddbmm_(scaled.mT, heads)
            if sums[1] is not None:
                sums[1].add_(scaled.sum(1, keepdim=True))
            if weights.hidden_keys is not None:
                hidden = ctx.trace.hidden[step]
                inner = torch.bmm(scaled, weights.hidden_keys)  # [R, S, D]
                inner = torch.ops.aten.threshold_backward(inner, hidden, 0)
                _add_layer_(sums[2:], scaled, heads, hidden, inner)
        return (None, None, *sums)


def _add_layer_(
    sums: list[Tensor | None], scaled: Tensor, heads: Tensor, hidden: Tensor, inner: Tensor
) -> None:
    """Adds one step's gradients of the layer's weights (see :class:`ScoreWeights`) to the sums."""
    hidden_keys, weight, weight_bias = sums
    if hidden_keys is not None:
        hidden_keys.baddbmm_(scaled.mT, hidden)
    if weight is not None:
        weight.baddbmm_(heads.mT, inner)
    if weight_bias is not None:
        weight_bias.add_(inner.sum(1, keepdim=True))


def known_likelihood(trace: StepTrace, weights: ScoreWeights) -> Tensor:
    """Log-likelihoods `[R, S]` of a trace's solutions, differentiable by the weights."""
    total = torch.stack(trace.log_probs).sum(0)  # [T, R, S] -> [R, S]
    return _KnownLikelihood.apply(total, trace, *weights)
