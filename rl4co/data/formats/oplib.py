"""OPLib (`.oplib`): orienteering problems on the instances of TSPLIB.

The TSPLIB form with a COST_LIMIT, a NODE_SCORE_SECTION and one depot, at which the tour begins and
ends. Best-known scores include that of the depot.

Reference: Kobeaga et al. (2018), https://github.com/bcamath-ds/OPLib
"""

from __future__ import annotations

import numpy as np

from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.sections import PLACE_SECTIONS, Sections

TYPES = ("OP",)


def read_oplib(sections: Sections) -> BenchmarkInstance:
    """An instance from an `.oplib` file."""
    sections.reject_other_sections((*PLACE_SECTIONS, "NODE_SCORE_SECTION", "DEPOT_SECTION"))
    places = sections.places()
    labels = places.labels
    depot = sections.depot(labels)
    order = np.array([depot, *(place for place in range(len(labels)) if place != depot)])
    prizes = sections.column("NODE_SCORE_SECTION", labels)[order]
    return BenchmarkInstance(
        # Instances of the four generations have the same NAME, that of the TSP.
        name=sections.source.name,
        problem="op",
        edge_costs=places.costs.take(order),
        coordinates=None if places.points is None else places.points[order],
        prizes=prizes,
        max_length=sections.number("COST_LIMIT"),
        labels=tuple(labels[place] for place in order),
        comment=sections.header.get("COMMENT", ""),
        source=sections.source.path,
    )
