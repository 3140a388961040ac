"""Files with the solution of a job: JSON, CSV, coordinates, a plot; used in worker processes."""

from __future__ import annotations

import base64
import io
import json

from collections.abc import Sequence
from typing import Any

from rl4co.core.errors import ConfigError
from rl4co.data.formats import BenchmarkInstance, BenchmarkMedian
from rl4co.serve._instances import GivenInstance
from rl4co.tasks.solve import plot


def result_file(
    given: GivenInstance, actions: Sequence[int], form: str, title: str
) -> dict[str, str]:
    """A solution as a file: `media_type` and `content`, in base64.

    Args:
        given: The instance.
        actions: Actions of the environment.
        form: json, csv, coordinates or png.
        title: Title of the plot.
    """
    instance = given.benchmark
    found = instance.from_actions(actions)
    if form == "json":
        content, media = instance.format_solution(found, ".json").encode(), "application/json"
    elif form == "csv":
        content, media = _csv(given.solution(actions, found)).encode(), "text/csv"
    elif form == "coordinates":
        content = json.dumps(_features(given, given.solution(actions, found))).encode()
        media = "application/geo+json"
    else:
        buffer = io.BytesIO()
        plot(instance, found, title).savefig(buffer, dpi=150, format="png")
        content, media = buffer.getvalue(), "image/png"
    return {"media_type": media, "content": base64.b64encode(content).decode()}


def _csv(solution: dict[str, Any]) -> str:
    """One line for each visit, operation or facility."""
    if "schedule" in solution:
        columns = ["job", "operation", "machine", "start", "end"]
        rows = [[operation[key] for key in columns] for operation in solution["schedule"]]
    elif "chosen" in solution:
        columns, rows = ["facility"], [[place] for place in solution["chosen"]]
    else:
        columns = ["route", "position", "node"]
        rows = [
            [number, position, node]
            for number, route in enumerate(solution.get("routes") or [solution["tour"]], start=1)
            for position, node in enumerate(route, start=1)
        ]
    return "\n".join(",".join(map(str, row)) for row in [columns, *rows]) + "\n"


def _features(given: GivenInstance, solution: dict[str, Any]) -> dict[str, Any]:
    """Lines and points in the form of GeoJSON, in the coordinates of the instance."""
    instance = given.benchmark
    points = getattr(instance, "coordinates", None)
    if not isinstance(instance, BenchmarkInstance | BenchmarkMedian) or points is None:
        raise ConfigError(
            f"expected an instance with coordinates, got {instance.name}; use the format json"
        )
    order = range(len(points)) if given.nodes is None else given.nodes
    places = {node: points[k].tolist() for k, node in enumerate(order)}
    if "chosen" in solution:
        features = [
            _feature("Point", places[place], {"facility": place}) for place in solution["chosen"]
        ]
    else:
        features = []
        is_open = bool(getattr(instance, "open_routes", False))
        for number, route in enumerate(solution.get("routes") or [solution["tour"]], start=1):
            stops = [0, *route, *([] if is_open else [0])] if "routes" in solution else route
            closed = stops if "routes" in solution else [*route, route[0]]
            line = [places[node] for node in closed]
            features.append(_feature("LineString", line, {"route": number, "nodes": closed}))
    return {"type": "FeatureCollection", "features": features}


def _feature(kind: str, coordinates: Any, properties: dict[str, Any]) -> dict[str, Any]:
    geometry = {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "geometry": geometry, "properties": properties}
