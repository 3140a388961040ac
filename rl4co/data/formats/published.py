"""`Published`: what solving and benchmarking want of an instance, whatever its problem is.

:class:`~rl4co.data.formats.instance.BenchmarkInstance` (routes) and
:class:`~rl4co.data.formats.schedules.BenchmarkShop` (schedules) are such instances. Solutions are
nested tuples that only the instance understands.
"""

from __future__ import annotations

import os

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.errors import ConfigError

#: How far a number with all of its digits may be from a value, relative to it.
VALUE_TOLERANCE = 1e-7


class Published(Protocol):
    """An instance as a file gives it, in its original units."""

    # ---------------------------------------------------------------- facts

    @property
    def name(self) -> str:
        """Name of the instance."""

    @property
    def problem(self) -> str:
        """Name of the environment."""

    @property
    def source(self) -> Path | None:
        """The file."""

    @property
    def size(self) -> int:
        """Number of nodes, or of operations."""

    @property
    def size_text(self) -> str:
        """The size in words."""

    @property
    def value_name(self) -> str:
        """What the value of a solution is called, such as `cost`."""

    @property
    def maximize(self) -> bool:
        """Whether more is better."""

    @property
    def decimals(self) -> int | None:
        """Digits after the point that values have; None: any number."""

    @property
    def published(self) -> float | None:
        """Best-known value that a table or the file itself gave."""

    @property
    def best_known(self) -> float | None:
        """Best-known value: published, else that of the best-known solution."""

    @property
    def lower_bound(self) -> float | None:
        """What no solution costs less than, if that is known."""

    @property
    def best_solution(self) -> Any:
        """Best-known solution, None if there is none; refused if it breaks a constraint."""

    @property
    def solver_options(self) -> Mapping[str, int]:
        """Limits that the environment does not know, as options of solvers."""

    # ---------------------------------------------------------------- solutions

    def objective(self, solution: Any) -> float:
        """Value of a solution."""

    def check(self, solution: Any, tolerance: float = ...) -> None:
        """Raises InvalidSolutionError unless a solution keeps all constraints.

        Args:
            solution: The solution.
            tolerance: Slack of sums of real numbers, relative to their limits.
        """

    def gap(self, value: float) -> float:
        """How much worse a value is than the best-known one, relative to it."""

    def facts(self, solution: Any) -> dict[str, str]:
        """What is worth telling people about a solution besides its value."""

    def lines(self, solution: Any) -> list[str]:
        """A solution in words, for people."""

    def record(self, solution: Any) -> dict[str, Any]:
        """A solution and the sizes of the instance in plain values, as JSON wants it."""

    # ---------------------------------------------------------------- files

    @property
    def suffixes(self) -> Sequence[str]:
        """Suffixes of files that solutions are written to, the usual one first."""

    def format_solution(self, solution: Any, suffix: str) -> str:
        """Text of a file with a valid solution, by one of the suffixes."""

    def read_solution(self, path: str | os.PathLike[str]) -> Any:
        """A solution from a file; refused if it breaks a constraint."""

    # ---------------------------------------------------------------- the environment's view

    def as_problem(self, problem: str) -> Published:
        """The same instance for the environment of a more general problem."""

    def to_tensordict(self, normalize: bool) -> TensorDict:
        """The instance as a batch of one: float32 as policies want it, or exact in float64."""

    def from_actions(self, actions: Tensor | Sequence[int]) -> Any:
        """The solution that actions `[T]` or `[1, T]` build in the environment."""

    def to_actions(self, solution: Any) -> Tensor:
        """Actions `[1, T]`, int64, that build a solution in the environment."""


def relative_gap(instance: Published, value: float) -> float:
    """How much worse a value is than the best-known one, relative to it (0.01 is 1 %)."""
    best = instance.best_known
    if best is None:
        raise ConfigError(
            f"expected an instance with a best-known value, got none for {instance.name}; "
            "read it with solution= or best_known="
        )
    worse = best - value if instance.maximize else value - best
    if worse and not best:
        raise ConfigError(
            f"expected a best-known value other than 0 of {instance.name}, got 0 for a value of "
            f"{value:g}; compare the values themselves"
        )
    return worse / abs(best) if worse else 0.0


def differs(value: float, stated: float) -> bool:
    """Whether a value is another one than a stated number, which may have fewer digits."""
    digits = repr(stated).partition(".")[2]
    last_digit = 1.0 if digits == "0" else 10.0 ** -len(digits)
    return abs(value - stated) >= max(last_digit, VALUE_TOLERANCE * abs(value))


def one_solution(actions: Tensor | Sequence[int]) -> Tensor:
    """The actions of one solution, `[T]` or `[1, T]`, as `[T]` on the CPU."""
    tensor = torch.as_tensor(actions).cpu()
    if tensor.dim() == 2 and len(tensor) == 1:
        tensor = tensor[0]
    if tensor.dim() != 1:
        raise ConfigError(
            f"expected the actions of one solution, [T] or [1, T], got {list(tensor.shape)}; "
            "pick one solution of a batch"
        )
    return tensor
