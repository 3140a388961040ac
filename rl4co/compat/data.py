"""Files as in the published `rl4co.data`."""

from __future__ import annotations

import os

from pathlib import Path
from typing import Any

from rl4co.core.errors import ConfigError
from rl4co.data.formats import BenchmarkInstance, read_instance
from rl4co.data.formats.solutions import parse_routes
from rl4co.data.formats.source import Source

#: Where the published functions look for files, below the working directory.
_SOLOMON = Path("data", "solomon")


def check_extension(filename: str, extension: str = ".npz") -> str:
    """The file name with the extension, which is added if it is missing."""
    return filename if os.path.splitext(filename)[1] == extension else f"{filename}{extension}"


def load_solomon_instance(
    name: str, path: str | os.PathLike[str] | None = None, edge_weights: bool = False
) -> dict[str, Any]:
    """An instance of Solomon's set as arrays.

    Args:
        name: Name of the instance, "C101" say.
        path: Folder with the file; None: `data/solomon/instances`. Nothing is downloaded.
        edge_weights: Whether to add the matrix of Euclidean distances.

    Returns:
        `name`, `vehicles`, `capacity`, `node_coord [N, 2]`, `demand [N]`, `time_window [N, 2]`,
        `service_time [N]` and, if asked for, `edge_weight [N, N]`; the depot comes first.
    """
    folder = _SOLOMON / "instances" if path is None else Path(path)
    found = read_instance(folder / f"{name}.txt", rounding="exact")
    if not isinstance(found, BenchmarkInstance) or found.time_windows is None:
        raise ConfigError(f"expected an instance with time windows, got {folder / name}.txt")
    arrays = {
        "name": found.name,
        "vehicles": found.nominal_vehicles,
        "capacity": found.capacity,
        "node_coord": found.coordinates,
        "demand": found.demand,
        "time_window": found.time_windows,
        "service_time": found.service_times,
    }
    return {**arrays, "edge_weight": found.edge_costs.all_pairs()} if edge_weights else arrays


def load_solomon_solution(name: str, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """A solution of an instance of Solomon's set: `routes` (customers, from 1) and `cost`.

    Args:
        name: Name of the instance.
        path: Folder with the `.sol` file; None: `data/solomon/solutions`. Nothing is downloaded.
    """
    folder = _SOLOMON / "solutions" if path is None else Path(path)
    found = parse_routes(Source.read(folder / f"{name}.sol"))
    return {"routes": [list(route) for route in found.routes], "cost": found.value}
