"""Facts about the ATSP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
ONCE = "every node is visited exactly once"

# Along 0 → 1 → 2 → 0 it costs 1 + 2 + 3, against the arrows 7 + 9 + 5.
ONE_WAY: dict[str, Any] = {"cost_matrix": [[0.0, 1.0, 7.0], [5.0, 0.0, 2.0], [3.0, 9.0, 0.0]]}
# Nodes on a circular one-way road: from i to j it is (j - i) mod 4 stops.
ROUNDABOUT: dict[str, Any] = {
    "cost_matrix": [
        [0.0, 1.0, 2.0, 3.0],
        [3.0, 0.0, 1.0, 2.0],
        [2.0, 3.0, 0.0, 1.0],
        [1.0, 2.0, 3.0, 0.0],
    ]
}
PAIR: dict[str, Any] = {"cost_matrix": [[0.0, 2.5], [0.5, 0.0]]}

CASES = (
    Case("with the arrows", ONE_WAY, [0, 1, 2], reward=-(1.0 + 2.0 + 3.0)),
    Case("against the arrows", ONE_WAY, [0, 2, 1], reward=-(7.0 + 9.0 + 5.0)),
    Case("from another node", ONE_WAY, [2, 0, 1], reward=-(3.0 + 1.0 + 2.0)),
    # One turn with the traffic; against it every leg is three quarters of a turn.
    Case("once around", ROUNDABOUT, [1, 2, 3, 0], reward=-4.0),
    Case("backwards", ROUNDABOUT, [3, 2, 1, 0], reward=-4.0 * 3.0),
    Case("every other exit", ROUNDABOUT, [0, 2, 1, 3], reward=-(2.0 + 3.0 + 2.0 + 1.0)),
    Case("there and back", PAIR, [1, 0], reward=-3.0),
    Case("one node", {"cost_matrix": [[0.0]]}, [0], reward=0.0),
    Case(
        "the diagonal is not travelled",
        {"cost_matrix": [[9.0, 2.5], [0.5, 9.0]]},
        [0, 1],
        reward=-3.0,
    ),
    Case(
        "coordinates do not count",
        {**PAIR, "locs": [[0.0, 0.0], [30.0, 40.0]]},
        [0, 1],
        reward=-3.0,
    ),
    # Solutions
    Case("node twice", ONE_WAY, [0, 1, 1], violates=ONCE),
    Case("node missing", ONE_WAY, [0, 1], violates=ONCE),
    Case("back to the start", ONE_WAY, [0, 1, 2, 0], violates=ONCE),
    Case("no node at all", ONE_WAY, [], violates=ONCE),
    Case("node beyond the last", ONE_WAY, [0, 1, 3], violates="every action exists"),
    # Instances
    Case("cost not a number", {"cost_matrix": [[0.0, NAN], [1.0, 0.0]]}, faults="is finite"),
    Case("infinite arc", {"cost_matrix": [[0.0, INF], [1.0, 0.0]]}, faults="cost_matrix is finite"),
    Case("matrix not square", {"cost_matrix": [[0.0, 1.0]]}, faults="key 'cost_matrix' of shape"),
    Case("flat matrix", {"cost_matrix": [0.0, 1.0]}, faults="key 'cost_matrix' of shape"),
    Case("places of other nodes", {**PAIR, "locs": [[0.0, 0.0]]}, faults="key 'locs' of shape"),
    Case("integer costs", {"cost_matrix": [[0, 1], [2, 0]]}, faults="floating point dtype"),
    Case("coordinates only", {"locs": [[0.0, 0.0]]}, faults="missing: ['cost_matrix']"),
)
