"""Pure functions from logits to log-probabilities.

Masks are True where an action is allowed. No function changes its arguments.
"""

from __future__ import annotations

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Minus infinity for all but the `k` largest logits of a row (ties at the border survive)."""
    if k < 1:
        raise ConfigError(f"expected top_k of at least 1, got {k}; leave it out to keep all")
    border = logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]
    return torch.where(logits >= border, logits, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Minus infinity outside the nucleus: the smallest set of actions of probability `p`."""
    if not 0.0 < p <= 1.0:
        raise ConfigError(f"expected top_p in (0, 1], got {p}; leave it out to keep all actions")
    ordered, order = logits.sort(dim=-1, descending=True)
    probability = ordered.softmax(-1)
    # An action stays if the more likely ones do not reach p by themselves; the first always stays.
    before = probability.cumsum(-1) - probability
    keep_ordered = before < p
    keep = torch.zeros_like(keep_ordered).scatter(-1, order, keep_ordered)
    return torch.where(keep, logits, -torch.inf)


def filter_logits(
    logits: Tensor,
    mask: Tensor | None,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 0.0,
    tanh_clipping: float = 0.0,
) -> Tensor:
    """Logits after clipping, masking, temperature, top-k and top-p, in this order.

    Args:
        logits: `[*B, N]`.
        mask: Allowed actions `[*B, N]`, or None to skip masking.
        temperature: Divides the logits; above 1 flattens the distribution.
        top_k: Keep this many actions (0 = all).
        top_p: Keep the nucleus of this probability (0 = all).
        tanh_clipping: Bound of the tanh clipping (0 = none; Bello et al., 2017).

    Returns:
        `[*B, N]` in float32 or better: half precision cannot tell the logits of a few hundred
        actions apart, and its cumulative sums lose the last ones.
    """
    if logits.dtype.itemsize < 4:
        logits = logits.float()
    if tanh_clipping > 0:
        logits = torch.tanh(logits) * tanh_clipping
    if mask is not None:
        logits = torch.where(mask, logits, -torch.inf)
    if temperature != 1.0:
        logits = logits / temperature
    if top_k:
        logits = keep_top_k(logits, top_k)
    if top_p:
        logits = keep_top_p(logits, top_p)
    return logits


def process_logits(
    logits: Tensor,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    top_p: float = 0.0,
    top_k: int = 0,
    tanh_clipping: float = 0.0,
    mask_logits: bool = True,
) -> Tensor:
    """Log-probabilities `[*B, N]` of filtered logits (see :func:`filter_logits`)."""
    if mask_logits and mask is None:
        raise ConfigError("expected a mask, got None; pass mask_logits=False to go without")
    filtered = filter_logits(
        logits,
        mask if mask_logits else None,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        tanh_clipping=tanh_clipping,
    )
    return filtered.log_softmax(-1)


def sample_actions(
    logits: Tensor, rng: torch.Generator | None = None, uniform: Tensor | None = None
) -> Tensor:
    """One action per row, drawn from the softmax of the logits: `[*B, N]` → `[*B]`.

    Inverts the cumulative distribution with one uniform number per row, which is several times
    faster than `torch.multinomial` (one exponential number per entry).

    Args:
        logits: `[*B, N]`.
        rng: Random stream of these numbers; None: torch's global one.
        uniform: The numbers themselves `[*B, 1]`, in [0, 1).
    """
    return sample_weights(logits.softmax(-1), rng, uniform)


def sample_weights(
    weights: Tensor, rng: torch.Generator | None = None, uniform: Tensor | None = None
) -> Tensor:
    """One index per row, as likely as its weight (not negative): `[*B, N]` → `[*B]`."""
    dtype = weights.dtype if weights.dtype.itemsize >= 4 else torch.float32
    cumulative = weights.cumsum(-1, dtype=dtype)
    if uniform is None:
        uniform = torch.empty_like(cumulative[..., :1]).uniform_(generator=rng)
    # Strictly below the total even after rounding, so that the last, possibly forbidden, entries
    # are never reached; entries of weight zero have no interval of their own.
    threshold = uniform * (cumulative[..., -1:] * (1.0 - 2.0**-20))
    index = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
    # A row without weights (all forbidden, or NaN) is reported elsewhere; here it stays in range.
    return index.clamp_max(weights.shape[-1] - 1)
