"""Facts about maximum coverage, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN = float("nan")
TWICE = "no set is chosen twice"
ENOUGH = "as many sets are chosen as asked for"
RANGE = "n_sets_to_choose is a whole number from 1 to the number of sets"
ITEMS = "membership has numbers of items from 1, or 0 for padding"

# Sets {1, 2, 3}, {3, 4}, {5}, {1, 4, 5} of items that weigh 1, 2, 4, 8, 16.
SETS = [[1.0, 2.0, 3.0], [3.0, 4.0, 0.0], [0.0, 5.0, 0.0], [1.0, 4.0, 5.0]]
WEIGHTS = [1.0, 2.0, 4.0, 8.0, 16.0]


def instance(k: float, sets: Any = SETS, weights: Any = WEIGHTS) -> dict[str, Any]:
    """An instance in which k sets are chosen."""
    return {"membership": sets, "weights": weights, "n_sets_to_choose": [k]}


CASES = (
    Case("one set", instance(1.0), [0], reward=1.0 + 2.0 + 4.0),
    Case("padding in front", instance(1.0), [2], reward=16.0),
    # Item 3 is in both and counts once.
    Case("two that overlap", instance(2.0), [0, 1], reward=1.0 + 2.0 + 4.0 + 8.0),
    Case("everything", instance(2.0), [3, 0], reward=31.0),
    Case("in the other order", instance(2.0), [0, 3], reward=31.0),
    Case("nothing new", instance(3.0), [3, 0, 1], reward=31.0),
    Case("all sets", instance(4.0), [2, 1, 3, 0], reward=31.0),
    Case("worthless items", instance(1.0, weights=[0.0] * 5), [0], reward=0.0),
    Case("one set of one item", instance(1.0, [[1.0]], [2.5]), [0], reward=2.5),
    # Solutions
    Case("set twice", instance(2.0), [3, 3], violates=TWICE),
    Case("too few", instance(3.0), [3, 0], violates=ENOUGH),
    Case("none", instance(1.0), [], violates=ENOUGH),
    Case("beyond the last", instance(1.0), [4], violates="every action exists"),
    # Instances
    Case("more than there are", instance(5.0), faults=RANGE),
    Case("nothing to choose", instance(0.0), faults=RANGE),
    Case("half a set", instance(1.5), faults=RANGE),
    Case("item twice", instance(1.0, [[1.0, 2.0, 1.0]]), faults="no set has an item twice"),
    Case("item out of range", instance(1.0, [[1.0, 6.0]]), faults=ITEMS),
    Case("negative item", instance(1.0, [[1.0, -1.0]]), faults=ITEMS),
    Case("half an item", instance(1.0, [[1.0, 1.5]]), faults=ITEMS),
    Case("empty set", instance(1.0, [[1.0, 2.0], [0.0, 0.0]]), faults="no set is empty"),
    Case("negative weight", instance(1.0, [[1.0]], [-1.0]), faults="weights is not negative"),
    Case("weight not a number", instance(1.0, [[1.0]], [NAN]), faults="weights is finite"),
    Case("integer items", instance(1.0, [[1, 2]]), faults="floating point dtype"),
    Case("no weights", {"membership": SETS, "n_sets_to_choose": [1.0]}, faults="['weights']"),
)
