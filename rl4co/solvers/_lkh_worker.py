"""The part of the LKH solver that runs in worker processes; imports neither torch nor TorchRL."""

from __future__ import annotations

import contextlib
import os
import tempfile

from collections.abc import Iterator, Sequence


def solve_tour(
    matrix: Sequence[Sequence[int]],
    runs: int,
    seed: int,
    max_runtime: float,
    start: Sequence[int] | None = None,
) -> list[int]:
    """Nodes of a short closed tour, starting at node 0.

    Args:
        matrix: Integer distances `[N][N]`.
        runs: Number of runs of Lin-Kernighan-Helsgaun.
        seed: Seed of the first run.
        max_runtime: Seconds after which no further run or trial is begun.
        start: Tour with which each run begins; None: LKH makes one.
    """
    # The public `elkai.DistanceMatrix` has no way to pass a time limit or a seed.
    from elkai import _elkai

    size = len(matrix)
    if size < 4:
        # LKH refuses fewer than three nodes, and with three only the direction is left to choose.
        return _tiny_tour(matrix)
    symmetric = all(matrix[i][j] == matrix[j][i] for i in range(size) for j in range(i))
    parameters: dict[str, float | str] = {
        "RUNS": runs,
        "SEED": seed,
        "TOTAL_TIME_LIMIT": max_runtime,
        "PROBLEM_FILE": ":stdin:",
    }
    header = {
        "TYPE": "TSP" if symmetric else "ATSP",
        "DIMENSION": size,
        "EDGE_WEIGHT_TYPE": "EXPLICIT",
        "EDGE_WEIGHT_FORMAT": "FULL_MATRIX",
    }
    problem = [f"{key} : {value}" for key, value in header.items()]
    problem += ["EDGE_WEIGHT_SECTION", *(" ".join(map(str, row)) for row in matrix), ""]
    with _tour_file(start) as file:
        if file is not None:
            parameters["INITIAL_TOUR_FILE"] = file
        settings = "".join(f"{key} = {value}\n" for key, value in parameters.items())
        tour = [node - 1 for node in _elkai.solve_problem(settings, "\n".join(problem))]
    first = tour.index(0)
    return tour[first:] + tour[:first]


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
    matrix: Sequence[Sequence[int]],
    runs: int,
    seed: int,
    max_runtime: float,
    start: Sequence[int] | None = None,
) -> list[int]:
    """Nodes of a short path from node 0 to the last but one, through all but the last.

    Args:
        matrix: Integer distances `[N + 1][N + 1]`; the last node joins both ends of the path.
        runs: See :func:`solve_tour`.
        seed: See :func:`solve_tour`.
        max_runtime: See :func:`solve_tour`.
        start: Path with which each run begins; None: LKH makes one.
    """
    size = len(matrix) - 1
    if size < 4:
        return list(range(size))  # nothing to choose
    closed = None if start is None else [*start, size]
    tour = solve_tour(matrix, runs, seed, max_runtime, closed)
    # The tour goes 0 ... last, joint; or, read backwards, 0, joint, last ...
    if tour[1] == size:
        tour = [0, *reversed(tour[1:])]
    return [*(node for node in tour if node < size - 1), size - 1]


#: LKH never forgets the name of a file with a tour: a process that was told one takes no job
#: without. Workers are kept apart by the names of their functions.
improve_tour, improve_path = solve_tour, solve_path


def _tiny_tour(matrix: Sequence[Sequence[int]]) -> list[int]:
    if len(matrix) < 3:
        return list(range(len(matrix)))
    forward = matrix[0][1] + matrix[1][2] + matrix[2][0]
    backward = matrix[0][2] + matrix[2][1] + matrix[1][0]
    return [0, 1, 2] if forward <= backward else [0, 2, 1]
