"""TSPPDLIB: travelling salesman problems with pickups and deliveries.

The TSPLIB form with nodes `+i` (pickup) and `-i` (delivery), the start `+0`, the end `-0`, and a
PRECEDENCE_SECTION. Start and end become the depot: it is left at the one and reached at the other,
so that open routes, which reach `-0` at no cost, keep their costs.

Reference: O'Neil and Hoffman (2018), https://github.com/grubhub/tsppdlib
"""

from __future__ import annotations

import numpy as np

from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.sections import PLACE_SECTIONS, Sections

_PAIRS = "PRECEDENCE_SECTION"


def looks_like_tsppd(sections: Sections) -> bool:
    """Whether there are precedences, or nodes named as if there should be."""
    nodes = sections.rows.get("NODE_COORD_SECTION", ())
    return _PAIRS in sections.rows or any(words[0] == "+0" for _, words in nodes)


def read_tsppd(sections: Sections) -> BenchmarkInstance:
    """An instance from a `.tsp` file with precedences."""
    sections.reject_other_sections((*PLACE_SECTIONS, _PAIRS))
    places = sections.places()
    position = {label: place for place, label in enumerate(places.labels)}
    pairs = _pairs(sections, position)
    start, end = _ends(sections, pairs)
    orders = [pair for pair in pairs if pair != (start, end)]
    nodes = [start, *(pickup for pickup, _ in orders), *(delivery for _, delivery in orders)]
    departure = np.array([position[label] for label in nodes])
    arrival = departure.copy()
    arrival[0] = position[end]
    if np.array_equal(places.costs(departure, departure[:1]), places.costs(departure, arrival[:1])):
        arrival = departure  # the end is where the start is
    count = len(orders)
    numbers = np.arange(1, count + 1)
    return BenchmarkInstance(
        name=sections.header.get("NAME", "") or sections.source.name,
        problem="pdp",
        edge_costs=places.costs.take(departure, arrival),
        coordinates=None if places.points is None else places.points[departure],
        pairs=np.stack([numbers, numbers + count], axis=1),  # [P, 2]
        labels=tuple(nodes),
        comment=sections.header.get("COMMENT", ""),
        source=sections.source.path,
    )


def _pairs(sections: Sections, position: dict[str, int]) -> list[tuple[str, str]]:
    pairs = []
    for line, words in sections.lines_of(_PAIRS):
        if words == ["-1"]:
            break
        if len(words) != 2 or not set(words) <= set(position):
            raise sections.fault(_PAIRS, "two nodes", repr(" ".join(words)[:60]), line=line)
        pairs.append((words[0], words[1]))
    listed = sorted(label for pair in pairs for label in pair)
    if listed != sorted(position):
        got = f"{len(pairs)} pairs of {len(position)} nodes"
        raise sections.fault(_PAIRS, "every node in one pair", got)
    return pairs


def _ends(sections: Sections, pairs: list[tuple[str, str]]) -> tuple[str, str]:
    ends = ("+0", "-0")
    if ends not in pairs:
        remedy = "add the start +0 and the end -0"
        raise sections.fault(_PAIRS, "the pair '+0 -0' of the depot", "none", remedy)
    return ends
