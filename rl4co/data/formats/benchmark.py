"""`Benchmark`: an instance of any problem as its file has it, in its original units.

:class:`~rl4co.data.formats.instance.BenchmarkInstance` (routes),
:class:`~rl4co.data.formats.schedules.BenchmarkShop` (schedules) and
:class:`~rl4co.data.formats.pmed.BenchmarkMedian` (facilities) are benchmarks. Solutions are nested
tuples that only the instance understands.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import os

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.data.layouts import includes

#: How far a number with all of its digits may be from a value, relative to it.
VALUE_TOLERANCE = 1e-7

Self = TypeVar("Self", bound="Benchmark")


class Benchmark(abc.ABC):
    """An instance in its original units; subclasses are frozen dataclasses."""

    # ---------------------------------------------------------------- facts

    if TYPE_CHECKING:  # Fields of some subclasses and properties of others.

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
        def stated_best_known(self) -> float | None:
            """Best-known value that a table or the file itself gave."""

        @property
        def lower_bound(self) -> float | None:
            """Value that no solution is below, None if unknown."""

        @property
        def solution_file(self) -> Path | None:
            """File with the best-known solution."""

        @property
        def value_name(self) -> str:
            """Name of the value of a solution, such as `cost`."""

        @property
        def maximize(self) -> bool:
            """Whether more is better."""

        @property
        def decimals(self) -> int | None:
            """Digits after the point that values have; None: any number."""

        @property
        def suffixes(self) -> Sequence[str]:
            """Suffixes of files that solutions are written to, the usual one first."""

    @functools.cached_property
    def best_known(self) -> float | None:
        """Best-known value: stated, of the best-known solution, or in the file; None: unknown."""
        if self.stated_best_known is not None:
            return self.stated_best_known
        if self.best_solution is not None:
            return self.objective(self.best_solution)
        return self._find_best_known()

    @functools.cached_property
    def best_solution(self) -> Any:
        """Best-known solution, None if there is none.

        Raises:
            FileFormatError: Its file is damaged, or it breaks a constraint.
        """
        return None if self.solution_file is None else self.read_solution(self.solution_file)

    def _find_best_known(self) -> float | None:
        """Best-known value from the file of the instance, or from a table beside it."""
        return None

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of nodes, vertices or operations."""

    @property
    @abc.abstractmethod
    def size_text(self) -> str:
        """The size in words."""

    @property
    def solver_options(self) -> Mapping[str, int]:
        """Limits that the environment does not know, as options of solvers."""
        return {}

    def with_rounding(self: Self, rounding: str) -> Self:
        """The same instance with another rounding of distances, and hence no best-known value.

        Args:
            rounding: exact, nearest, up, down, one_decimal or next.

        Raises:
            UnsupportedError: The instance has no distances to round.
        """
        raise UnsupportedError(
            f"expected no rounding for {self.name} ({self.problem}), whose numbers are whole, got "
            f"{rounding!r}; leave it out"
        )

    def as_problem(self: Self, problem: str) -> Self:
        """The same instance for the environment of a more general problem.

        A CVRP or CVRPTW is an MTVRP, a TSP is an ATSP, a JSSP is an FJSP. Solutions mean the same
        in both.

        Args:
            problem: Name of the environment.
        """
        if problem == self.problem:
            return self
        if not includes(problem, self.problem):
            raise UnsupportedError(
                f"expected an instance of {problem}, got one of {self.problem} ({self.name}); "
                f"use what is made for {self.problem}, or give another file"
            )
        return dataclasses.replace(self, problem=problem)  # type: ignore[type-var]

    # ---------------------------------------------------------------- solutions

    @abc.abstractmethod
    def objective(self, solution: Any, /) -> float:
        """Value of a solution: cost in original units, prize of orienteering, or makespan."""

    @abc.abstractmethod
    def check(self, solution: Any, /, tolerance: float = ...) -> None:
        """Raise :class:`InvalidSolutionError` unless a solution satisfies all constraints.

        Args:
            solution: The solution.
            tolerance: Slack of sums of real numbers, relative to their limits; it has no effect
                where all numbers are whole.
        """

    def gap(self, value: float) -> float:
        """How much worse a value is than the best-known one, relative to it (0.01 is 1 %).

        Args:
            value: As from :meth:`objective`.
        """
        best = self.best_known
        if best is None:
            raise ConfigError(
                f"expected an instance with a best-known value, got none for {self.name}; "
                "read it with solution= or best_known="
            )
        worse = best - value if self.maximize else value - best
        if worse and not best:
            raise ConfigError(
                f"expected a best-known value other than 0 of {self.name}, got 0 for a value of "
                f"{value:g}; compare the values themselves"
            )
        return worse / abs(best) if worse else 0.0

    def facts(self, solution: Any, /) -> dict[str, str]:
        """Facts about a solution besides its value, for people."""
        return {}

    @abc.abstractmethod
    def lines(self, solution: Any, /) -> list[str]:
        """A solution in words, for people; numbered as in solution files."""

    @abc.abstractmethod
    def record(self, solution: Any, /) -> dict[str, Any]:
        """A solution and the sizes of the instance in plain values, as JSON has them."""

    # ---------------------------------------------------------------- files

    @abc.abstractmethod
    def format_solution(self, solution: Any, suffix: str, /) -> str:
        """Text of a file with a valid solution, by one of the suffixes."""

    @abc.abstractmethod
    def read_solution(self, path: str | os.PathLike[str]) -> Any:
        """A solution from a file.

        Raises:
            FileFormatError: The file is damaged, or the solution breaks a constraint.
        """

    # ---------------------------------------------------------------- the environment's view

    @abc.abstractmethod
    def to_tensordict(self, normalize: bool) -> TensorDict:
        """The instance for its environment, as a batch of one.

        Args:
            normalize: Whether numbers are float32, scaled as policies expect them; otherwise they
                are exact, in float64.
        """

    @abc.abstractmethod
    def from_actions(self, actions: Tensor | Sequence[int]) -> Any:
        """The solution that actions `[T]` or `[1, T]` build in the environment."""

    @abc.abstractmethod
    def to_actions(self, solution: Any, /) -> Tensor:
        """Actions `[1, T]`, int64, that build a solution in the environment."""


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
