"""Curriculum of improvement methods: solutions that are good already are harder to improve."""

from __future__ import annotations

import dataclasses
import math

from rl4co.core.errors import ConfigError, UnknownNameError

CURRICULA = ("linear", "sigmoid", "none")


@dataclasses.dataclass(frozen=True)
class Curriculum:
    """How many moves a batch is improved by before training begins, epoch by epoch.

    A function of the epoch alone, so that a resumed run goes on where it was.

    | kind | moves in epoch e |
    |---|---|
    | `"linear"` | $\\lfloor e / s \\rfloor$ |
    | `"sigmoid"` | $\\lfloor s E (S(e) - S(0)) / (S(E) - S(0)) \\rfloor$ |
    | `"none"` | 0 |

    with $S(e) = 1 / (1 + \\exp(-0.02 (e - E / 2)))$.

    Args:
        kind: One of the above.
        scalar: s.
        epochs: E, the epochs of the training.
    """

    kind: str = "linear"
    scalar: float = 2.0
    epochs: int = 200

    def __post_init__(self) -> None:
        if self.kind not in CURRICULA:
            raise UnknownNameError("curriculum", self.kind, CURRICULA)
        if not (self.scalar > 0 and self.epochs > 0):
            raise ConfigError(
                f"expected a positive CL_scalar and CL_epochs, got {self.scalar}, {self.epochs}"
            )

    def steps(self, epoch: int) -> int:
        """Moves before training in an epoch, counted from 0."""
        if self.kind == "none":
            return 0
        if self.kind == "linear":
            return math.floor(epoch / self.scalar)
        first, last = self._curve(0), self._curve(self.epochs)
        share = (self._curve(epoch) - first) / (last - first)
        return math.floor(self.scalar * self.epochs * share)

    def _curve(self, epoch: int) -> float:
        return 1 / (1 + math.exp(-0.02 * (epoch - self.epochs / 2)))
