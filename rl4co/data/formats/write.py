"""Writing solutions: routes as CVRPLIB or OPLib `.sol`, TSPLIB tours or JSON, schedules as JSON.

A file is written under a temporary name and renamed, so it is either complete or missing. The
instance's `read_solution` reads the same solution.
"""

from __future__ import annotations

import os
import uuid

from pathlib import Path
from typing import Any

from rl4co.core.errors import UnknownNameError, WriteError
from rl4co.data.formats.benchmark import Benchmark
from rl4co.data.io import atomic_write


def write_solution(path: str | os.PathLike[str], instance: Benchmark, solution: Any) -> Path:
    """Write a valid solution, in the format that the suffix names.

    Args:
        path: File to write; `.sol` (routes and cost; OPLib's form if there are prizes), `.tour`
            (TSP and ATSP) or `.json` (routes or schedules). Folders are created.
        instance: The instance.
        solution: Solution, as for the instance's `objective`.

    Returns:
        The path that was written.

    Raises:
        InvalidSolutionError: The solution breaks a constraint; then nothing is written.
    """
    target = check_target(path, instance)
    instance.check(solution)
    text = instance.format_solution(solution, target.suffix.lower())
    with atomic_write(target) as file:
        file.write(text.encode())
    return target


def check_target(path: str | os.PathLike[str], instance: Benchmark) -> Path:
    """Raise unless solutions of an instance can be written to a file.

    Args:
        path: As for :func:`write_solution`.
        instance: The instance.

    Returns:
        The path.
    """
    target = Path(path)
    if target.suffix.lower() not in instance.suffixes:
        kind = f"suffix of a solution of {instance.problem}"
        raise UnknownNameError(kind, target.suffix, instance.suffixes)
    require_writable(target)
    return target


def require_writable(target: Path) -> None:
    """Raise OSError if a file cannot be written; folders above it need not exist yet.

    Permissions are tested: a file is created in the folder and removed.
    """
    try:
        place = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    except OSError as error:  # a name that is too long, for instance
        raise WriteError(target, error) from error
    if target.exists() and not target.is_file():
        kind = "the folder" if target.is_dir() else "a device or pipe"
        raise IsADirectoryError(f"expected a file to write, got {kind} {target}; name a file")
    if place != target and not place.is_dir():
        raise NotADirectoryError(
            f"expected a folder to write {target} into, got the file {place}; give another path"
        )
    if not os.access(place, os.W_OK):
        raise PermissionError(
            f"expected a place to write {target} to, got {place}, which is read-only; "
            "give another path"
        )
    # As `atomic_write` will do it.
    probe = (place if place != target else place.parent) / f".{target.name}.{uuid.uuid4().hex}.tmp"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise WriteError(target, error) from error
