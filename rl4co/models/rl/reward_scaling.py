"""Running standardisation of advantages."""

from __future__ import annotations

import torch

from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.models.rl.processes import sum_over_processes


class RewardScaler(nn.Module):
    """Scales advantages by a constant or by running statistics.

    Args:
        scale: None (as they are), a number to divide by, "norm" (running mean and deviation) or
            "scale" (running deviation only).
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, scale: float | str | None = None) -> None:
        super().__init__()
        if isinstance(scale, str) and scale not in ("norm", "scale"):
            raise ConfigError(
                f"expected reward_scale None, a number, 'norm' or 'scale', got {scale!r}"
            )
        if isinstance(scale, int | float) and not isinstance(scale, bool) and scale <= 0:
            raise ConfigError(f"expected a positive reward_scale, got {scale}")
        self.scale = scale
        for name in ("count", "mean", "squares"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        """Scaled scores of the same shape; updates the running statistics."""
        if self.scale is None:
            return scores
        if not isinstance(self.scale, str):
            return scores / self.scale
        self._update(scores.detach().double().flatten())
        variance = self.squares / (self.count - 1).clamp_min(1)
        # Without any variance there is nothing to scale by.
        deviation = torch.where(variance > 0, variance.sqrt(), 1.0).to(scores.dtype)
        centre = self.mean.to(scores.dtype) if self.scale == "norm" else 0.0
        return (scores - centre) / deviation

    def _update(self, batch: Tensor) -> None:
        """Chan's parallel update of mean and sum of squared deviations, over all processes."""
        size, total = sum_over_processes(torch.stack([batch.new_tensor(len(batch)), batch.sum()]))
        mean = total / size
        squares = sum_over_processes((batch - mean).square().sum())
        delta = mean - self.mean
        count = self.count + size
        self.squares += squares + delta.square() * self.count * size / count
        self.mean += delta * size / count
        self.count.copy_(count)
