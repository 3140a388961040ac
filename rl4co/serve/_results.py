"""Files with the solution of a job: JSON, CSV, coordinates, a plot; used in worker processes."""

from __future__ import annotations

import base64
import io
import json

from collections.abc import Sequence
from typing import Any

from rl4co.core.errors import ConfigError
from rl4co.data.formats import BenchmarkInstance, BenchmarkMedian
from rl4co.serve._instances import ClientInstance
from rl4co.tasks.solve import plot


def result_file(
    instance: ClientInstance, actions: Sequence[int], form: str, title: str
) -> dict[str, str]:
    """A solution as a file: `media_type` and `content`, in base64.

    Args:
        instance: The instance.
        actions: Actions of the environment.
        form: json, csv, coordinates or png.
        title: Title of the plot.
    """
    benchmark = instance.benchmark
    solution = benchmark.from_actions(actions)
    if form == "json":
        content, media = benchmark.format_solution(solution, ".json").encode(), "application/json"
    elif form == "csv":
        content, media = _csv(instance.solution_record(solution)).encode(), "text/csv"
    elif form == "coordinates":
        features = _features(instance, instance.solution_record(solution))
        content, media = json.dumps(features).encode(), "application/geo+json"
    else:
        buffer = io.BytesIO()
        plot(benchmark, solution, title).savefig(buffer, dpi=150, format="png")
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
        routes = solution["routes"] if "routes" in solution else [solution["tour"]]
        rows = [
            [number, position, node]
            for number, route in enumerate(routes, start=1)
            for position, node in enumerate(route, start=1)
        ]
    return "\n".join(",".join(map(str, row)) for row in [columns, *rows]) + "\n"


def _features(instance: ClientInstance, solution: dict[str, Any]) -> dict[str, Any]:
    """Lines and points in the form of GeoJSON, in the coordinates of the instance."""
    benchmark = instance.benchmark
    points = getattr(benchmark, "coordinates", None)
    if not isinstance(benchmark, BenchmarkInstance | BenchmarkMedian) or points is None:
        raise ConfigError(
            f"expected an instance with coordinates, got {benchmark.name}; use the format json"
        )
    numbers = range(len(points)) if instance.nodes is None else instance.nodes
    places = {node: points[k].tolist() for k, node in enumerate(numbers)}
    if "chosen" in solution:
        features = [
            _feature("Point", places[place], {"facility": place}) for place in solution["chosen"]
        ]
    else:
        ends = [] if getattr(benchmark, "open_routes", False) else [0]
        paths = [[0, *route, *ends] for route in solution.get("routes", ())]
        if "tour" in solution:
            paths = [[*solution["tour"], *solution["tour"][:1]]]
        features = [
            _feature("LineString", [places[n] for n in path], {"route": number, "nodes": path})
            for number, path in enumerate(paths, start=1)
        ]
    return {"type": "FeatureCollection", "features": features}


def _feature(kind: str, coordinates: Any, properties: dict[str, Any]) -> dict[str, Any]:
    geometry = {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "geometry": geometry, "properties": properties}
