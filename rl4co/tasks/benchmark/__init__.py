"""Benchmarks: methods × instances → one table and a few plots, in steps that can be interrupted.

spec = parse_spec({"methods": ["insertion", "pyvrp:1s"], "instances": ["tsp:50:size=10"]})
report = run_benchmark(spec, "results")
write_report(report, "results")
"""

from __future__ import annotations

from rl4co.tasks.benchmark.files import write_report
from rl4co.tasks.benchmark.parse import load_spec, parse_spec
from rl4co.tasks.benchmark.plots import draw_plots
from rl4co.tasks.benchmark.report import Report
from rl4co.tasks.benchmark.run import run_benchmark
from rl4co.tasks.benchmark.spec import (
    BenchmarkSpec,
    DataSource,
    FileSource,
    GeneratedSource,
    ModelMethod,
    PassMark,
    Recipe,
    SolverMethod,
    TrainedMethod,
)

__all__ = [
    "BenchmarkSpec",
    "DataSource",
    "FileSource",
    "GeneratedSource",
    "ModelMethod",
    "PassMark",
    "Recipe",
    "Report",
    "SolverMethod",
    "TrainedMethod",
    "draw_plots",
    "load_spec",
    "parse_spec",
    "run_benchmark",
    "write_report",
]
