"""Benchmark files: instances in their original units, published solutions, exact costs.

`read_instance(path)` reads TSPLIB, CVRPLIB, Solomon, OPLib, TSPPDLIB, Li and Lim, JSON and CSV; the
result knows its environment, its rounding rule and its best-known value.
"""

from __future__ import annotations

from rl4co.data.formats.distances import ROUNDINGS, EdgeCosts
from rl4co.data.formats.folders import find_instances
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.read import read_best_known, read_instance
from rl4co.data.formats.solutions import Solution, read_solution
from rl4co.data.formats.write import write_solution

__all__ = [
    "ROUNDINGS",
    "BenchmarkInstance",
    "EdgeCosts",
    "Solution",
    "find_instances",
    "read_best_known",
    "read_instance",
    "read_solution",
    "write_solution",
]
