"""p-median problems of the OR-Library (`pmed1.txt` ... `pmed40.txt`), and their solutions.

A file is whole numbers: the number of vertices, of edges and of facilities, then one edge per line,
two vertices (counted from 1) and its length. The cost of serving a vertex from another is the
length of the shortest path; of an edge that is listed twice, the last line counts. A table of
optima beside the file, `pmedopt.csv` (columns `instance` and `optimum`), has its best-known value.

A solution is a tuple of vertices, counted from 0. Its file is JSON, with vertices as in the
instance's file:

```json
{"name": "pmed1", "problem": "flp", "cost": 5819, "facilities": [7, 13, 65, 91, 99]}
```

Reference: Beasley (1985), http://people.brunel.ac.uk/~mastjjb/jeb/orlib/pmedinfo.html
"""

from __future__ import annotations

import dataclasses
import json
import os

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from rl4co.core.errors import InvalidSolutionError
from rl4co.data.formats.benchmark import Benchmark, one_solution
from rl4co.data.formats.numbers import row_widths
from rl4co.data.formats.solutions import load_json
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source

#: Name of the table of optima that lies beside the instances.
OPTIMA_FILE = "pmedopt.csv"
#: Keys of a solution in JSON.
JSON_KEYS = ("name", "problem", "cost", "facilities")

#: Vertices with a facility, from 0.
Facilities = tuple[int, ...]


def looks_like_pmed(source: Source) -> bool:
    """Whether a file begins with lines of three whole numbers; it may be damaged further on."""
    widths = row_widths(source)
    words = [word for line in source.lines[:3] for word in line.split()]
    return bool(widths) and set(widths) == {3} and all(word.isdecimal() for word in words)


def read_pmed(source: Source) -> BenchmarkMedian:
    """An instance from a file of the OR-Library.

    Raises:
        FileFormatError: The file is cut short, or its numbers make no sense.
    """
    rows = [
        (number, source.integers(line.split(), number))
        for number, line in enumerate(source.lines, start=1)
        if line.strip()
    ]
    line, head = rows[0]
    if len(head) != 3 or min(head) < 1 or head[2] > head[0]:
        raise source.fault(
            "the numbers of vertices, edges and facilities (no more than vertices), from 1",
            " ".join(map(str, head)), CORRECT, line=line,
        )  # fmt: skip
    vertices, edges, facilities = head
    # Counted before anything is allocated: a graph that is connected has n - 1 edges or more.
    if len(rows) - 1 != edges or edges < vertices - 1:
        raise source.fault(
            f"{edges} edges that connect {vertices} vertices", f"{len(rows) - 1}", TRUNCATED
        )
    costs = _shortest_paths(_edge_lengths(source, rows[1:], vertices))
    if not np.isfinite(costs).all():
        raise source.fault("a connected graph", "vertices without a path to others", CORRECT)
    return BenchmarkMedian(source.name, costs, facilities, source.path)


def _edge_lengths(
    source: Source, rows: list[tuple[int, list[int]]], vertices: int
) -> npt.NDArray[np.float64]:
    """Lengths of edges `[N, N]`, infinite where there is none."""
    lengths = np.full((vertices, vertices), np.inf)
    np.fill_diagonal(lengths, 0.0)
    for line, edge in rows:
        if len(edge) != 3 or not all(1 <= end <= vertices for end in edge[:2]) or edge[2] < 0:
            raise source.fault(
                f"two vertices from 1 to {vertices} and a length that is not negative",
                " ".join(map(str, edge)), CORRECT, line=line,
            )  # fmt: skip
        one, other = edge[0] - 1, edge[1] - 1
        if one != other:
            lengths[one, other] = lengths[other, one] = edge[2]
    return lengths


def _shortest_paths(lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Lengths of the shortest paths between all vertices (Floyd and Warshall): `[N, N]`."""
    paths = lengths.copy()
    for middle in range(len(paths)):
        np.minimum(paths, paths[:, middle, None] + paths[None, middle], out=paths)
    return paths


@dataclasses.dataclass(frozen=True, eq=False)
class BenchmarkMedian(Benchmark):
    """A p-median problem in original lengths, with its best-known value.

    Attributes:
        name: Name of the instance.
        costs: Lengths of shortest paths from a facility (row) to a vertex `[N, N]`.
        num_facilities: Number of facilities.
        source: The file.
        coordinates: `[N, 2]`, if the costs are distances between places.
        stated_best_known: Best-known value, if a table has one.
        lower_bound: Value that no solution is below, if a table has one.
        solution_file: File with the best-known solution.
        problem: Name of the environment.
    """

    name: str
    costs: npt.NDArray[np.float64]
    num_facilities: int
    source: Path | None = None
    stated_best_known: float | None = None
    lower_bound: float | None = None
    solution_file: Path | None = None
    problem: str = "flp"
    coordinates: npt.NDArray[np.float64] | None = None

    value_name = "cost"
    maximize = False
    suffixes = (".json",)

    def __repr__(self) -> str:
        return f"BenchmarkMedian({self.name!r}, {self.size_text})"

    # ---------------------------------------------------------------- facts

    @property
    @override
    def size(self) -> int:
        return len(self.costs)

    @property
    @override
    def size_text(self) -> str:
        return f"{self.size} vertices, {self.num_facilities} facilities"

    @property
    @override
    def decimals(self) -> int | None:
        return 0 if np.array_equal(self.costs, self.costs.round()) else None

    @override
    def _find_best_known(self) -> float | None:
        from rl4co.data.formats.best_known import read_best_known  # which knows all formats

        table = None if self.source is None else self.source.parent / OPTIMA_FILE
        return read_best_known(table, self) if table is not None and table.is_file() else None

    # ---------------------------------------------------------------- solutions

    @override
    def objective(self, facilities: Facilities) -> float:
        return float(self.costs[list(facilities)].min(axis=0).sum())

    @override
    def check(self, facilities: Facilities, tolerance: float = 0.0) -> None:
        violation = self._violation(facilities)
        if violation is not None:
            raise InvalidSolutionError(violation, [0], 1)

    def _violation(self, facilities: Facilities) -> str | None:
        if len(facilities) != self.num_facilities:
            return f"{self.num_facilities} facilities (there are {len(facilities)})"
        if len(set(facilities)) < len(facilities):
            return "no vertex has two facilities"
        if not all(0 <= vertex < self.size for vertex in facilities):
            return f"facilities are among the {self.size} vertices"
        return None

    @override
    def lines(self, facilities: Facilities) -> list[str]:
        return ["Facilities: " + " ".join(str(vertex + 1) for vertex in facilities)]

    @override
    def record(self, facilities: Facilities) -> dict[str, Any]:
        return {
            "vertices": self.size,
            "cost": self.objective(facilities),
            "facilities": [vertex + 1 for vertex in facilities],
        }

    # ---------------------------------------------------------------- files

    @override
    def format_solution(self, facilities: Facilities, suffix: str) -> str:
        numbers = [vertex + 1 for vertex in facilities]
        cost = self.objective(facilities)
        exact = cost if self.decimals is None else int(cost)
        values = (self.name, self.problem, exact, numbers)
        return json.dumps(dict(zip(JSON_KEYS, values, strict=True))) + "\n"

    @override
    def read_solution(self, path: str | os.PathLike[str]) -> Facilities:
        source = Source.read(path)
        data = load_json(source)
        numbers = data.get("facilities")
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise source.fault(
                "a list of vertices (whole numbers) under the key facilities",
                f"the keys {sorted(data)}", CORRECT,
            )  # fmt: skip
        facilities = tuple(number - 1 for number in numbers)
        violation = self._violation(facilities)
        if violation is not None:
            raise source.fault(
                f"a solution of {self.name}: {violation}", "another one",
                "use another solution (the file's may be that of another instance)",
            )  # fmt: skip
        return facilities

    # ---------------------------------------------------------------- the environment's view

    @override
    def to_tensordict(self, normalize: bool) -> TensorDict:
        costs = torch.from_numpy(self.costs).unsqueeze(0)  # [1, N, N]
        instance = {"to_choose": torch.tensor([self.num_facilities])}
        if self.coordinates is not None:
            places = torch.from_numpy(self.coordinates).unsqueeze(0)  # [1, N, 2]
            if normalize:  # to the unit square, costs in the same unit
                places = places - places.amin(-2, keepdim=True)
                extent = places.max().clamp_min(1e-12)
                places, costs = (places / extent).float(), (costs / extent).float()
            instance["locs"] = places.clone()
        elif normalize:
            costs = (costs / costs.max().clamp_min(1e-12)).float()
        return TensorDict({**instance, "cost_matrix": costs.clone()}, batch_size=[1])

    def from_actions(self, actions: Tensor | Sequence[int]) -> Facilities:
        """The facilities of a solution in the environment's encoding, in ascending order.

        Args:
            actions: `[T]` or `[1, T]`.
        """
        return tuple(sorted(one_solution(actions)[: self.num_facilities].tolist()))

    @override
    def to_actions(self, facilities: Facilities) -> Tensor:
        self.check(facilities)
        return torch.tensor([facilities], dtype=torch.int64)
