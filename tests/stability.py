"""Learning and numerical tests on the roads of other processors, with other threads and seeds.

Libraries choose their kernels by the processor, and each rounds differently. A test that holds by
luck fails on one of these roads. `make stability` runs this; `--help` lists what can be left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
#: Name → environment variables of an older processor's road; "native" is that of this machine.
ROADS = {
    "sse": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "native": {},
}
#: Distance of a bound from the mean of what was measured, in standard deviations.
ENOUGH = 3.0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.stability")
    parser.add_argument("--roads", nargs="+", choices=ROADS, default=list(ROADS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--shifts", nargs="+", type=int, default=[0, 1], help="of all seeds")
    parser.add_argument("--marker", default="learning or numerical", help="which tests")
    parser.add_argument("--measured", type=Path, help="keep what learning tests measured here")
    parser.add_argument("pytest_arguments", nargs="*", help="after --, for pytest")
    return parser.parse_args()


def run_tests(
    road: str, threads: int, shift: int, arguments: argparse.Namespace, measured: Path
) -> list[str]:
    """Names of the tests that did not pass; "pytest" if it could not run them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        workers = max(1, (os.cpu_count() or 1) // threads)
        command = [
            sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider",
            "-n", str(workers) if workers > 1 else "0",
            "-m", arguments.marker, f"--seed-shift={shift}", f"--measured={measured}",
            f"--junit-xml={report}", *arguments.pytest_arguments,
        ]  # fmt: skip
        counts = dict.fromkeys(
            ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RL4CO_TEST_THREADS"),
            str(threads),
        )
        others = {name for variables in ROADS.values() for name in variables}
        inherited = {name: value for name, value in os.environ.items() if name not in others}
        result = subprocess.run(
            command,
            cwd=REPOSITORY,
            # Threads that wait do not take the time of others on a busy machine.
            env={**inherited, **counts, "OMP_WAIT_POLICY": "PASSIVE", **ROADS[road]},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            print(result.stdout)
        if result.returncode not in (0, 1):  # 1: some tests failed
            return ["pytest"]
        return [
            f"{case.get('classname')}::{case.get('name')}"
            for case in ElementTree.parse(report).iter("testcase")
            if any(found.tag in ("failure", "error") for found in case)
        ]


def deviations_off(found: list[float], bound: float, below: bool) -> float:
    """How many standard deviations the mean of what was found is away from its bound.

    What must be large (t-statistics, shares) varies by factors, so its logarithms are compared.
    """
    if not below and min(bound, *found) > 0:
        return deviations_off([-math.log(value) for value in found], -math.log(bound), True)
    mean = statistics.mean(found)
    deviation = statistics.stdev(found) if len(found) > 1 else 0.0
    room = bound - mean if below else mean - bound
    return room / deviation if deviation else math.copysign(math.inf, room)


def margin_table(measured: Path) -> Table:
    """What learning tests measured, against their bounds; the smallest margins first."""
    values: dict[tuple[str, str, float, bool], list[float]] = defaultdict(list)
    for line in measured.read_text().splitlines():
        entry = json.loads(line)
        key = (entry["test"], entry["what"], entry["bound"], entry["below"])
        values[key].append(entry["value"])
    table = Table(
        "test", "measured", "runs", "mean", "deviation", "worst", "bound", "deviations off"
    )
    table.columns[0].overflow = "fold"
    rows = []
    for (test, what, bound, below), found in values.items():
        worst = max(found) if below else min(found)
        deviation = statistics.stdev(found) if len(found) > 1 else 0.0
        cells = [f"{x:.3f}" for x in (statistics.mean(found), deviation, worst)]
        off = deviations_off(found, bound, below)
        relation = f"{'<' if below else '>'} {bound:g}"
        colour = "" if off >= ENOUGH else "[yellow]"
        rows.append(
            (off, [escape(test), what, str(len(found)), *cells, relation, f"{colour}{off:.1f}"])
        )
    for _, row in sorted(rows):
        table.add_row(*row)
    return table


def main() -> int:
    arguments = parse_arguments()
    console = Console(width=None if sys.stdout.isatty() else 200)
    failed: dict[str, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        measured = (arguments.measured or Path(folder) / "measured.jsonl").resolve()
        measured.touch()
        for shift in arguments.shifts:
            for road in arguments.roads:
                for threads in arguments.threads:
                    setting = f"{road}, threads {threads}, shift {shift}"
                    outcome = run_tests(road, threads, shift, arguments, measured)
                    for test in outcome:
                        failed[test].append(setting)
                    console.print(f"{setting}: {len(outcome) or 'no'} failures")
        console.print(margin_table(measured))
    if not failed:
        console.print("All tests passed under all settings.")
        return 0
    table = Table("failed", "under")
    for test, settings in failed.items():
        table.add_row(escape(test), "\n".join(settings))
    console.print(table)
    return 1


if __name__ == "__main__":
    sys.exit(main())
