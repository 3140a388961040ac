"""Augmentation and files as in the published `rl4co.data`."""

from __future__ import annotations

import os

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.data.augment import (
    NAMED_AUGMENTATIONS,
    AugmentFn,
    dihedral_8_augmentation,
    symmetric_augmentation,
)
from rl4co.data.formats import BenchmarkInstance, read_instance
from rl4co.data.formats.solutions import parse_routes
from rl4co.data.formats.source import Source

#: Where the published functions look for files, below the working directory.
_SOLOMON = Path("data", "solomon")


# ---------------------------------------------------------------- augmentation


def dihedral_8_augmentation_wrapper(xy: Tensor, reduce: bool | int = True) -> Tensor:
    """The eight symmetries of coordinates.

    Args:
        xy: With `reduce`, coordinates that are repeated eight times already, `[8 * B, N, 2]`.
        reduce: Whether to take only the first eighth of `xy`.
    """
    return dihedral_8_augmentation(xy[: len(xy) // 8] if reduce else xy)


def symmetric_transform(x: Tensor, y: Tensor, phi: Tensor, offset: float = 0.5) -> Tensor:
    """Points turned about (offset, offset), and mirrored where the angle exceeds 2π.

    Args:
        x: `[B, N, 1]`.
        y: `[B, N, 1]`.
        phi: Angles from 0 to 4π, `[B, 1, 1]`.
        offset: Centre of the turn.

    Shapes:
        → `[B, N, 2]`
    """
    x, y = x - offset, y - offset
    turned = torch.cat([x * phi.cos() - y * phi.sin(), x * phi.sin() + y * phi.cos()], -1)
    return torch.where(phi > 2 * torch.pi, turned.flip(-1), turned) + offset


def get_augment_function(augment_fn: str | AugmentFn) -> Callable[..., Tensor]:
    """The function of repeated coordinates `[A * B, N, 2]` and A that a name stands for."""
    if callable(augment_fn):
        return augment_fn
    functions: dict[str, Callable[..., Tensor]] = {
        "dihedral8": dihedral_8_augmentation_wrapper,
        "symmetric": symmetric_augmentation,
    }
    if augment_fn not in functions:
        raise UnknownNameError("augmentation", augment_fn, NAMED_AUGMENTATIONS)
    return functions[augment_fn]


# ---------------------------------------------------------------- files


def check_extension(filename: str, extension: str = ".npz") -> str:
    """The file name with the extension, which is added unless it is there."""
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
