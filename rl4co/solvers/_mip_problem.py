"""`MixedIntegerProblem`: one plain description of mixed-integer programs for all solvers of them.

$$\\min_x c^\\top x \\quad \\text{with} \\quad l \\le A x \\le u, \\quad x \\in [0, 1]^n, \\quad
  x_j \\in \\{0, 1\\} \\text{ for some } j$$

Workers get it by pickle, so nothing here imports torch.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


class Result(NamedTuple):
    """The result of a solver.

    Attributes:
        values: Values of the variables `[n]`; None: no solution was found in time.
        bound: Lower bound on the cost of any solution.
        optimal: Whether the solution is proven to be optimal.
        seconds: How long it took.
    """

    values: Floats | None
    bound: float
    optimal: bool
    seconds: float


class Limits(NamedTuple):
    """When to stop.

    Attributes:
        max_runtime: Seconds.
        seed: Random seed.
    """

    max_runtime: float
    seed: int


@dataclasses.dataclass(frozen=True)
class MixedIntegerProblem:
    """A mixed-integer program with n variables between 0 and 1, and m rows.

    Attributes:
        cost: What a unit of each variable costs `[n]`.
        is_integer: Which variables are 0 or 1 `[n]`.
        start: First entry of each row in `column` and `value` `[m + 1]`.
        column: Variables of the entries.
        value: Coefficients of the entries.
        lower: Least value of each row `[m]`; minus infinity: none.
        upper: Largest value of each row `[m]`; infinity: none.
        guess: A solution to start from `[n]`, or None.
    """

    cost: Floats
    is_integer: npt.NDArray[np.bool_]
    start: Ints
    column: Ints
    value: Floats
    lower: Floats
    upper: Floats
    guess: Floats | None = None

    @property
    def num_rows(self) -> int:
        """Number m of rows."""
        return len(self.lower)

    def row(self, index: int) -> tuple[Ints, Floats]:
        """Variables and coefficients of a row."""
        entries = slice(self.start[index], self.start[index + 1])
        return self.column[entries], self.value[entries]


class Rows:
    """The rows of a problem, one block after the other."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Any, ...]] = []

    def add(
        self,
        columns: Sequence[npt.NDArray[Any]],
        values: Sequence[float],
        lower: float = -np.inf,
        upper: float = np.inf,
    ) -> None:
        """Rows with the same number of entries.

        Args:
            columns: Variables of the entries, one array `[rows]` for each entry of a row.
            values: Their coefficients.
            lower: Least value of each row.
            upper: Largest value of each row.
        """
        table = np.stack([np.asarray(column) for column in columns], axis=1)  # [rows, entries]
        coefficients = np.broadcast_to(np.asarray(values, dtype=np.float64), table.shape)
        self._blocks.append((table.shape, table.ravel(), coefficients.ravel(), lower, upper))

    def problem(
        self, cost: Floats, is_integer: npt.NDArray[np.bool_], guess: Floats | None
    ) -> MixedIntegerProblem:
        """The problem with these rows."""
        widths = np.concatenate([np.full(shape[0], shape[1]) for shape, *_ in self._blocks])
        return MixedIntegerProblem(
            cost=cost,
            is_integer=is_integer,
            start=np.concatenate([[0], np.cumsum(widths)]).astype(np.int32),
            column=np.concatenate([block[1] for block in self._blocks]).astype(np.int32),
            value=np.concatenate([block[2] for block in self._blocks]),
            lower=np.concatenate([np.full(shape[0], low) for shape, _, _, low, _ in self._blocks]),
            upper=np.concatenate([np.full(shape[0], up) for shape, *_, up in self._blocks]),
            guess=guess,
        )
