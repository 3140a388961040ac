"""TSPLIB: travelling salesman problems, symmetric (`.tsp`) and asymmetric (`.atsp`).

Coordinates with any EDGE_WEIGHT_TYPE of :data:`~rl4co.data.formats.distances.EDGE_WEIGHT_TYPES`, or
a matrix (EXPLICIT) in every EDGE_WEIGHT_FORMAT. Fixed edges are kept and checked, but environments
do not know them.
"""

from __future__ import annotations

import numpy as np

from rl4co.data.formats.distances import IntArray
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.sections import PLACE_SECTIONS, Sections, node_name

#: TYPE → environment.
TYPES = {"TSP": "tsp", "ATSP": "atsp"}


def read_tsplib(sections: Sections) -> BenchmarkInstance:
    """An instance from a `.tsp` or `.atsp` file."""
    sections.reject_other_sections((*PLACE_SECTIONS, "FIXED_EDGES_SECTION"))
    places = sections.places()
    return BenchmarkInstance(
        name=sections.header.get("NAME", "") or sections.source.name,
        problem=TYPES[sections.require("TYPE").split()[0].upper()],
        edge_costs=places.costs,
        coordinates=places.points,
        fixed_edges=_fixed_edges(sections, places.labels),
        labels=places.labels,
        comment=sections.header.get("COMMENT", ""),
        source=sections.source.path,
    )


def _fixed_edges(sections: Sections, labels: tuple[str, ...]) -> IntArray | None:
    section = "FIXED_EDGES_SECTION"
    if section not in sections.rows:
        return None
    edges = []
    for line, words in sections.rows[section]:
        if words == ["-1"]:
            break
        ends = [node_name(word) for word in words]
        if len(ends) != 2 or not set(ends) <= set(labels):
            raise sections.fault(section, "two nodes", repr(" ".join(words)[:60]), line=line)
        edges.append([labels.index(end) for end in ends])
    return np.array(edges, dtype=np.int64).reshape(-1, 2)
