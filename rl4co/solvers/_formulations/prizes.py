"""Formulations of problems in which one tour chooses its customers: OP and PCTSP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl4co.solvers._formulations._base import (
    SHARE,
    Formulation,
    Instance,
    customers_of,
    lengths,
    one_route,
)
from rl4co.solvers._problem import Route, RoutingProblem, Vehicle


def orienteering(env: Any, instance: Instance) -> RoutingProblem:
    """OP: lengths cost nothing but are limited; prizes not collected are lost."""
    length, prize = lengths(instance), instance["prize"]
    limit = max(float(instance["max_length"][0]) - env.length_margin, 0.0)
    return RoutingProblem(
        length,
        customers_of(len(length)),
        (Vehicle(max_length=limit, rate=0.0),),
        constant=-float(prize.sum()),
        skip_cost=prize,
    )


def prize_collecting(env: Any, instance: Instance) -> RoutingProblem:
    """PCTSP and SPCTSP, with the real prizes, as if they were known in advance."""
    length, prize = lengths(instance), instance["real_prize"]
    required = float(instance["prize_required"][0]) * (1.0 - SHARE * env.prize_tolerance)
    enough = float(prize.sum()) >= required  # otherwise all customers must be visited
    return RoutingProblem(
        length,
        customers_of(len(length)),
        (Vehicle(),),
        skip_cost=instance["penalty"] if enough else None,
        prize=prize if enough else None,
        min_prize=required if enough else 0.0,
    )


def encode_selection(
    env: Any, problem: RoutingProblem, routes: Sequence[Route]
) -> tuple[list[int], int]:
    """The chosen customers in turn, then the depot."""
    return [*one_route(routes), 0], 0


PRIZES = {
    "op": Formulation(orienteering, encode_selection),
    "pctsp": Formulation(prize_collecting, encode_selection),
    "spctsp": Formulation(prize_collecting, encode_selection),
}
