"""Formulations of problems as mixed-integer programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl4co.solvers._mip_problem import Floats, MixedIntegerProblem
from rl4co.solvers.formulations._base import Formulation

#: The state of one instance after reset, as arrays.
Arrays = dict[str, Any]


class MIPFormulation(Formulation):
    """How one problem is handed to solvers of mixed-integer programs.

    It may begin with a smaller problem than the whole one, whose bound holds for the whole one.
    """

    kind = "formulation as a mixed-integer program"
    solvers = ("highs", "scip", "local_search", "greedy")

    def build(self, instance: Arrays, first: Sequence[int], attempt: int) -> MixedIntegerProblem:
        """The problem of one instance; costs are those of the environment.

        Args:
            instance: The instance.
            first: Actions of a solution to start from.
            attempt: How many problems came before, each of them too small.
        """
        raise NotImplementedError

    def decode(self, instance: Arrays, values: Floats) -> list[int]:
        """Actions of a solution, from the values of the variables."""
        raise NotImplementedError

    def is_complete(self, instance: Arrays, problem: MixedIntegerProblem, values: Floats) -> bool:
        """Whether a solution of the problem is one of the full instance at the same cost."""
        return True
