"""The part of the LKH solver that runs in worker processes; imports neither torch nor TorchRL.

LKH checks the clock only between its runs. The parent process kills it; LKH keeps the
best tour so far in a file, which :func:`read_tour` reads.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import tempfile
import time

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rl4co.solvers._job_report import job_start

#: Seconds beyond its time after which LKH ends its process, unless it was killed before. It does
#: not let other threads of Python run, so these would not notice that the owner is gone.
LAST_RESORT = 10.0
#: A year, which is as good as for ever.
LONG = 365.0 * 24 * 3600


def solve_tour(
    matrix: npt.NDArray[np.int64],
    runs: int,
    seed: int,
    max_runtime: float,
    best_file: str,
    start: Sequence[int] | None = None,
) -> list[int] | None:
    """Nodes of a short closed tour, starting at node 0.

    None if its time was over before all runs were done: then the best tour is in the file.

    Args:
        matrix: Integer distances `[N, N]`.
        runs: Number of runs of Lin-Kernighan-Helsgaun.
        seed: Seed of the first run.
        max_runtime: Seconds after which no further run or trial is begun.
        best_file: File for the best tour so far.
        start: Tour with which each run begins; None: LKH makes one.
    """
    began = job_start(max_runtime)
    # The public `elkai.DistanceMatrix` has no way to pass a time limit or a seed.
    from elkai import _elkai

    size = len(matrix)
    if size < 4:
        # LKH rejects fewer than three nodes, and with three only the direction is left to choose.
        return _tiny_tour(matrix)
    header = {
        "TYPE": "TSP" if (matrix == matrix.T).all() else "ATSP",
        "DIMENSION": size,
        "EDGE_WEIGHT_TYPE": "EXPLICIT",
        "EDGE_WEIGHT_FORMAT": "FULL_MATRIX",
    }
    problem = [f"{key} : {value}" for key, value in header.items()]
    problem += ["EDGE_WEIGHT_SECTION", *(" ".join(map(str, row.tolist())) for row in matrix), ""]
    left = max_runtime - (time.perf_counter() - began)
    if left <= 0:
        return None
    parameters: dict[str, float | str] = {
        "RUNS": runs,
        "SEED": seed,
        "TOTAL_TIME_LIMIT": left,
        "PROBLEM_FILE": ":stdin:",
        "OUTPUT_TOUR_FILE": best_file,
    }
    with _tour_file(start) as file, open(os.devnull, "w") as nowhere:
        if file is not None:
            parameters["INITIAL_TOUR_FILE"] = file
        settings = "".join(f"{key} = {value}\n" for key, value in parameters.items())
        faulthandler.dump_traceback_later(min(left, LONG) + LAST_RESORT, exit=True, file=nowhere)
        try:
            nodes = _elkai.solve_problem(settings, "\n".join(problem))
        finally:
            faulthandler.cancel_dump_traceback_later()
    is_late = time.perf_counter() - began >= max_runtime
    return None if is_late else _from_zero(nodes, size)


def read_tour(best_file: str, size: int) -> list[int] | None:
    """The best tour that LKH has written, starting at node 0; None: none, or not to its end."""
    try:
        words = Path(best_file).read_text(encoding="ascii").split("TOUR_SECTION")[1].split()
    except (OSError, IndexError):
        return None
    return _from_zero([int(word) for word in words if word.isdigit()], size)


def _from_zero(nodes: Sequence[int], size: int) -> list[int] | None:
    """LKH's tour, whose nodes count from 1, starting at node 0; None unless it has all nodes."""
    if sorted(nodes) != list(range(1, size + 1)):
        return None  # zeros, if its time was over before the first run
    first = nodes.index(1)
    return [node - 1 for node in (*nodes[first:], *nodes[:first])]


@contextlib.contextmanager
def _tour_file(tour: Sequence[int] | None) -> Iterator[str | None]:
    """A file with the tour while the block runs: LKH takes it no other way."""
    if tour is None:
        yield None
        return
    lines = ["TYPE : TOUR", f"DIMENSION : {len(tour)}", "TOUR_SECTION"]
    lines += [str(node + 1) for node in tour]
    handle, path = tempfile.mkstemp(suffix=".tour")
    try:
        with os.fdopen(handle, "w") as file:
            file.write("\n".join([*lines, "-1", "EOF", ""]))
        yield path
    finally:
        os.unlink(path)


def solve_path(
    matrix: npt.NDArray[np.int64],
    runs: int,
    seed: int,
    max_runtime: float,
    best_file: str,
    start: Sequence[int] | None = None,
) -> list[int] | None:
    """Nodes of a short path from node 0 to the last but one, through all but the last, or None.

    Args:
        matrix: Integer distances `[N + 1, N + 1]`; the last node joins both ends of the path.
        runs: See :func:`solve_tour`.
        seed: See :func:`solve_tour`.
        max_runtime: See :func:`solve_tour`.
        best_file: See :func:`solve_tour`; it has the closed tour.
        start: Path with which each run begins; None: LKH makes one.
    """
    size = len(matrix) - 1
    if size < 4:
        return list(range(size))  # nothing to choose
    closed = None if start is None else [*start, size]
    tour = solve_tour(matrix, runs, seed, max_runtime, best_file, closed)
    return None if tour is None else path_from_tour(tour)


def path_from_tour(tour: Sequence[int]) -> list[int]:
    """The path in a tour from node 0 on whose last node joins the path's ends."""
    size = len(tour) - 1
    # The tour goes 0 ... last, joint; or, read backwards, 0, joint, last ...
    if tour[1] == size:
        tour = [0, *reversed(tour[1:])]
    return [*(node for node in tour if node < size - 1), size - 1]


#: LKH never forgets the name of a file with a tour: a process that was told one takes no job
#: without. Workers are kept apart by the names of their functions.
improve_tour, improve_path = solve_tour, solve_path


def _tiny_tour(matrix: npt.NDArray[np.int64]) -> list[int]:
    if len(matrix) < 3:
        return list(range(len(matrix)))
    forward = matrix[0, 1] + matrix[1, 2] + matrix[2, 0]
    backward = matrix[0, 2] + matrix[2, 1] + matrix[1, 0]
    return [0, 1, 2] if forward <= backward else [0, 2, 1]
