"""CVRPLIB and VRPLIB (`.vrp`): capacities, with time windows, backhauls or a limit on routes.

Known sections: coordinates or a matrix, DEMAND_SECTION, DEPOT_SECTION, TIME_WINDOW_SECTION,
SERVICE_TIME_SECTION, BACKHAUL_SECTION (amounts to pick up at every node; or, as LKH-3 has it, a
list of nodes that ends with -1, whose demands are picked up). Known keywords: CAPACITY, VEHICLES,
DISTANCE (longest route), SERVICE_TIME (of every customer). DISTANCE together with a service time
limits the duration of a route, services included: it becomes the time at which the depot closes.
VEHICLES limits the number of routes. The number in a name (A-n32-k5) does not: it is the least that
the total demand needs, and some best-known solutions have more routes.

Distances are rounded as the literature on each set does, which the files do not say: to the nearest
integer (EUC_2D of TSPLIB); to one decimal, cut off, for instances with time windows; not at all for
the sets CMT, Golden, Li and Tai. The argument `rounding` of the reader overrides it.
"""

from __future__ import annotations

import difflib
import re
import warnings

from typing import Any

import numpy as np

from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.sections import PLACE_SECTIONS, Sections
from rl4co.data.formats.source import is_number
from rl4co.data.layouts import name_problem

SECTIONS = (
    *PLACE_SECTIONS,
    "DEMAND_SECTION",
    "DEPOT_SECTION",
    "TIME_WINDOW_SECTION",
    "SERVICE_TIME_SECTION",
    "BACKHAUL_SECTION",
)

#: Keywords of the header; others have no effect.
KEYWORDS = (
    "NAME",
    "COMMENT",
    "TYPE",
    "DIMENSION",
    "CAPACITY",
    "VEHICLES",
    "DISTANCE",
    "SERVICE_TIME",
    "EDGE_WEIGHT_TYPE",
    "EDGE_WEIGHT_FORMAT",
    "NODE_COORD_TYPE",
    "DISPLAY_DATA_TYPE",
)

#: TYPE → whether routes end at their last customer. The sections say the rest.
TYPES = {
    "VRP": False,
    "CVRP": False,
    "ACVRP": False,
    "DCVRP": False,
    "DVRP": False,
    "VRPTW": False,
    "CVRPTW": False,
    "VRPB": False,
    "VRPBTW": False,
    "OVRP": True,
    "OVRPTW": True,
}

#: Sets of CVRPLIB with real-valued distances, by the names of their instances.
_REAL_VALUED = re.compile(r"(?:CMT|Golden_?|Li_?|Tai)\d+[a-d]?", re.IGNORECASE)

#: Number of vehicles in the names of the sets A, B, E, F, M, P and X.
_NUMBER_IN_NAME = re.compile(r"-k(\d+)$")


def read_cvrplib(sections: Sections) -> BenchmarkInstance:
    """An instance from a `.vrp` file."""
    sections.reject_other_sections(SECTIONS)
    _note_unknown(sections)
    name = sections.header.get("NAME", "") or sections.source.name
    places = sections.places(_rounding(sections, name))
    labels = places.labels
    depot = sections.depot(labels)
    order = np.array([depot, *(place for place in range(len(labels)) if place != depot)])
    fields: dict[str, Any] = {
        **_demands(sections, labels),
        **_times(sections, labels, depot),
    }
    fields = {
        key: value[order] if isinstance(value, np.ndarray) else value
        for key, value in fields.items()
    }
    fields["open_routes"] = TYPES[sections.require("TYPE").split()[0].upper()]
    if fields["demand"][0] != 0:
        got = f"{fields['demand'][0]:g} for node {labels[depot]}"
        raise sections.fault("DEMAND_SECTION", "a depot without demand", got)
    costs = places.costs.take(order)
    in_name = _NUMBER_IN_NAME.search(name)
    return BenchmarkInstance(
        name=name,
        problem=name_problem(fields, costs),
        edge_costs=costs,
        coordinates=None if places.points is None else places.points[order],
        capacity=_capacity(sections),
        vehicles=_vehicles(sections),
        nominal_vehicles=None if in_name is None else int(in_name[1]),
        labels=tuple(labels[place] for place in order),
        comment=sections.header.get("COMMENT", ""),
        source=sections.source.path,
        **fields,
    )


def _note_unknown(sections: Sections) -> None:
    """Warn of keywords that have no effect."""
    for keyword, line in sections.header_lines.items():
        if keyword not in KEYWORDS:
            close = difflib.get_close_matches(keyword, KEYWORDS, n=1)
            hint = f"did you mean {close[0]}?" if close else "it has no effect"
            warnings.warn(
                f"{sections.source.path}, line {line}: expected the keywords "
                f"{', '.join(KEYWORDS)}, got {keyword!r}; {hint}",
                stacklevel=2,
            )


def _rounding(sections: Sections, name: str) -> str | None:
    """The rule for EUC_2D; other types say themselves how to round."""
    if sections.header.get("EDGE_WEIGHT_TYPE") != "EUC_2D":
        return None
    if "TIME_WINDOW_SECTION" in sections.rows:
        return "one_decimal"
    return "exact" if _REAL_VALUED.fullmatch(name) else "nearest"


def _capacity(sections: Sections) -> float:
    words = sections.require("CAPACITY").split()
    if len(words) > 1 and all(map(is_number, words)):
        remedy = "split the instance; heterogeneous fleets are not supported"
        raise sections.fault(
            "CAPACITY", "one capacity for all vehicles", " ".join(words)[:60], remedy
        )
    return sections.number("CAPACITY")


def _vehicles(sections: Sections) -> int | None:
    if "VEHICLES" not in sections.header:
        return None
    line = sections.header_lines["VEHICLES"]
    (number,) = sections.source.integers([sections.header["VEHICLES"]], line, "VEHICLES")
    return number


def _demands(sections: Sections, labels: tuple[str, ...]) -> dict[str, Any]:
    """Amounts delivered to each node and picked up there."""
    section = "BACKHAUL_SECTION"
    demand = sections.column("DEMAND_SECTION", labels)
    if not _is_list(sections, section, len(labels)):
        return {"demand": demand, "backhaul_demand": _optional(sections, section, labels)}
    place = {label: position for position, label in enumerate(labels)}
    is_backhaul = np.zeros(len(labels), dtype=bool)
    for line, (name,) in sections.node_list(section):
        if name not in place:
            raise sections.fault(section, "one of the nodes", f"node {name}", line=line)
        is_backhaul[place[name]] = True
    return {
        "demand": np.where(is_backhaul, 0.0, demand),
        "backhaul_demand": np.where(is_backhaul, demand, 0.0),
    }


def _is_list(sections: Sections, section: str, size: int) -> bool:
    """Whether a section is a list of nodes, as in LKH-3, and not one number for each node."""
    rows = [words for _, words in sections.rows.get(section, ())]
    if not rows or rows[-1][-1] != "-1":
        return any(len(words) != 2 for words in rows)
    return [len(words) for words in rows[:-1]] != [2] * size


def _optional(sections: Sections, section: str, labels: tuple[str, ...]) -> Any:
    return sections.column(section, labels) if section in sections.rows else None


def _times(sections: Sections, labels: tuple[str, ...], depot: int) -> dict[str, Any]:
    """Windows and service times, or the limit of a route."""
    service = _optional(sections, "SERVICE_TIME_SECTION", labels)
    constant = sections.optional_number("SERVICE_TIME")
    if service is None and constant:
        service = np.full(len(labels), constant)
        service[depot] = 0.0
    limit = sections.optional_number("DISTANCE") or None
    if "TIME_WINDOW_SECTION" in sections.rows:
        windows = sections.table("TIME_WINDOW_SECTION", labels, 2).values
    elif limit is not None and service is not None:
        windows, limit = np.array([[0.0, limit]] * len(labels)), None
    else:
        windows = None
    return {"time_windows": windows, "service_times": service, "max_length": limit}
