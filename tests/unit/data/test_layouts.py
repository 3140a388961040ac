"""Files find their problem by what the layouts say of themselves, not by a list of problems."""

from __future__ import annotations

import numpy as np
import pytest

from rl4co.core.errors import InvalidInstanceError, UnknownNameError
from rl4co.core.registry import ENVS, LAYOUTS
from rl4co.data.formats.distances import EdgeCosts
from rl4co.data.layouts import RoutingLayout, includes, name_problem, routing_layout

SYMMETRIC = EdgeCosts.of_matrix(np.ones((3, 3)))
ASYMMETRIC = EdgeCosts.of_matrix(np.arange(9.0).reshape(3, 3))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (set(), "tsp"),
        ({"service_times"}, "tsp"),
        ({"demand"}, "cvrp"),
        ({"demand", "capacity", "time_windows", "service_times"}, "cvrptw"),
        ({"demand", "backhaul_demand"}, "mtvrp"),
        ({"demand", "open_routes", "time_windows"}, "mtvrp"),
        ({"demand", "max_length"}, "mtvrp"),
        ({"prizes", "max_length"}, "op"),
        ({"pairs"}, "pdp"),
        ({"pairs", "demand", "time_windows"}, "pdptw"),
    ],
)
def test_the_problem_that_knows_all_fields_and_fewest_others(fields: set[str], expected: str):
    """Fields that are there without a value do not count."""
    given = dict.fromkeys(fields, True) | {"prize": None}
    assert name_problem(given, SYMMETRIC) == expected
    assert name_problem({**given, "open_routes": given.get("open_routes", False)}, SYMMETRIC) == (
        expected
    )


def test_costs_by_direction_make_a_tour_asymmetric():
    assert name_problem({}, ASYMMETRIC) == "atsp"
    assert name_problem({"demand": [1.0]}, ASYMMETRIC) == "cvrp"


def test_fields_that_no_problem_has_together_are_rejected():
    """Otherwise one of them would be read and ignored."""
    with pytest.raises(InvalidInstanceError, match="demand, prizes together"):
        name_problem({"prizes": [1.0], "demand": [1.0]}, SYMMETRIC)


def test_a_new_layout_is_found(monkeypatch: pytest.MonkeyPatch):
    """It needs no line anywhere else."""

    class Prizes(RoutingLayout):
        marks = frozenset({"prizes"})
        knows = frozenset({"demand"})
        includes = ("cvrp",)

    monkeypatch.setitem(LAYOUTS._entries, "prizes", Prizes)
    assert name_problem({"prizes": [1.0], "demand": [1.0]}, SYMMETRIC) == "prizes"
    assert isinstance(routing_layout("prizes"), Prizes)
    assert includes("prizes", "cvrp") and not includes("cvrp", "prizes")


def test_layouts_are_of_environments():
    """All but the PDPTW, whose files can be read without one."""
    assert set(LAYOUTS.names()) - {"pdptw"} <= set(ENVS.names())
    for name in LAYOUTS.names():
        assert set(LAYOUTS[name].includes) <= set(LAYOUTS.names())


@pytest.mark.parametrize("name", ["cvpr", "jssp"])
def test_unknown_problems_are_named(name: str):
    with pytest.raises(UnknownNameError, match="cvrp"):
        routing_layout(name)
