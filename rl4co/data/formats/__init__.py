"""Benchmark files: instances in their original units, published solutions, exact costs.

`read_instance(path)` reads routing problems (TSPLIB, CVRPLIB, Solomon, OPLib, TSPPDLIB, Li and Lim,
JSON and CSV), job shops (JSPLIB, Taillard, FJS) and p-median problems (pmed); the result knows its
environment, its rounding rule and its best-known value.
"""

from __future__ import annotations

from rl4co.data.formats.benchmark import Benchmark
from rl4co.data.formats.best_known import read_best_known
from rl4co.data.formats.distances import ROUNDINGS, EdgeCosts
from rl4co.data.formats.folders import find_instances
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.pmed import BenchmarkMedian
from rl4co.data.formats.read import read_instance, read_instances
from rl4co.data.formats.schedules import BenchmarkShop
from rl4co.data.formats.solutions import Solution, read_solution
from rl4co.data.formats.write import write_solution

__all__ = [
    "ROUNDINGS",
    "Benchmark",
    "BenchmarkInstance",
    "BenchmarkMedian",
    "BenchmarkShop",
    "EdgeCosts",
    "Solution",
    "find_instances",
    "read_best_known",
    "read_instance",
    "read_instances",
    "read_solution",
    "write_solution",
]
