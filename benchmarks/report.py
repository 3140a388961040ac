"""Results files and the tables made of them.

One JSON file per case in `results/`, each the product of one run and with the facts of that run.
`README.md` shows them between markers and is rewritten from the files.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.cases import NEW, PUBLISHED, TITLES
from benchmarks.flops import am_step_flops
from benchmarks.runner import Summary, compare_values, summarize

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
README = FOLDER / "README.md"

Row = dict[str, Any]
Result = dict[str, Any]


def cpu_model() -> str:
    """Name of the processor, as the operating system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def source_commit() -> str | None:
    """Short hash of the commit that is checked out; None outside a clone."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=7", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def machine_facts(command: str, threads: int) -> dict[str, Any]:
    """Where, when and how a run was made; no paths of this machine."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": source_commit(),
        "command": command,
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": threads,
        "system": f"{platform.system()} {platform.release()}",
        "load_at_start": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write under a temporary name, then rename: a killed run leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def load_results(folder: Path) -> list[Result]:
    """Stored results of all cases, in the order of the tables."""
    paths = [folder / f"{name}.json" for name in TITLES]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def unit_of(value: float, metric: str) -> tuple[str, float]:
    """Unit for a value, and how many of that unit the stored unit (s or MiB) is worth."""
    if metric == "peak_mib":
        return ("GiB", 1 / 1024) if value >= 1024 else ("MiB", 1.0)
    return ("s", 1.0) if value >= 1 else ("ms", 1000.0)


def format_number(value: float) -> str:
    """Three significant digits, never in exponent form."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def format_value(value: float, metric: str) -> str:
    """A number with its unit."""
    unit, scale = unit_of(value, metric)
    return f"{format_number(value * scale)} {unit}"


def format_summary(summary: Summary, metric: str) -> str:
    """Median with its unit, and the extremes in the same unit."""
    _, scale = unit_of(summary.median, metric)
    low, high = format_number(summary.low * scale), format_number(summary.high * scale)
    return f"{format_value(summary.median, metric)} ({low}..{high})"


def format_outcome(outcome: dict[str, Any], metric: str) -> str:
    """A contender's cell: its times, or why there are none."""
    if "error" in outcome:
        return f"fails: {outcome['error']}"
    return format_summary(summarize(outcome["values"]), metric)


def format_ratio(row: Row) -> str:
    """How many times less the new package needs, or a dash."""
    published, new = row["contenders"][PUBLISHED], row["contenders"][NEW]
    if "error" in published or "error" in new:
        return "–"
    ratio = compare_values(published["values"], new["values"])
    return f"{ratio.median:.2f}× ({ratio.low:.2f}..{ratio.high:.2f})"


def format_both(row: Row, key: str, digits: str) -> str:
    """Median of a quantity that should be the same for both, twice if it is not."""
    cells = []
    for name in (PUBLISHED, NEW):
        values = [v for v in row["contenders"][name].get(key) or () if v]
        cells.append(format(statistics.median(values), digits) if values else "–")
    return cells[0] if cells[0] == cells[1] else " / ".join(cells)


def row_cells(row: Row) -> list[str]:
    """Cells of one row, the same for the terminal and for Markdown."""
    metric, outcomes = row["metric"], row["contenders"]
    return [
        row["case"]["label"],
        str(row["case"]["batch"] or "–"),
        format_both(row, "steps", ".4g"),
        format_both(row, "costs", ".3f"),
        format_outcome(outcomes[PUBLISHED], metric),
        format_outcome(outcomes[NEW], metric),
        format_ratio(row),
    ]


COLUMNS = ["", "batch", "steps", "mean cost", "published", "new", "published / new"]


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + " --- |" * len(header)
    return "\n".join([line(header), rule, *(line(cells) for cells in rows)])


def roofline_rows(result: Result) -> list[list[str]]:
    """Time of a training step against the time of its matrix products alone.

    The rate is the best one seen in the run, over large square products and the encoder's own. The
    last column takes the rate at which the encoder's shapes ran beside the row: what is left of it
    above one is not the fault of products.
    """
    rates = [rate for row in result["rows"] for rate in row.get("gemm", {}).values()]
    if not rates:
        return []
    peak = max(rates)
    table = []
    for row in result["rows"]:
        new, case = row["contenders"][NEW], row["case"]
        if "error" in new or not row.get("gemm"):
            continue
        flops = am_step_flops(
            case["problem"], case["size"], case["batch"], statistics.median(new["steps"])
        )
        ideal = flops.total / (peak * 1e9)
        ratios = []
        for name in (PUBLISHED, NEW):
            outcome = row["contenders"][name]
            failed = "error" in outcome
            ratios.append("–" if failed else f"{summarize(outcome['values']).median / ideal:.2f}×")
        own = flops.total / (row["gemm"]["encoder"] * 1e9)
        ratios.append(f"{summarize(new['values']).median / own:.2f}×")
        table.append(
            [
                case["label"],
                f"{flops.total / 1e9:.1f}",
                f"{row['gemm']['square']:.0f}",
                f"{row['gemm']['encoder']:.0f}",
                format_value(ideal, "seconds"),
                *ratios,
            ]
        )
    return table


ROOFLINE_COLUMNS = [
    "",
    "GFLOP per step",
    "GFLOP/s, square",
    "GFLOP/s, encoder shapes",
    "matrix products alone",
    "published / that",
    "new / that",
    "new / at the encoder's rate",
]


def facts_line(meta: dict[str, Any]) -> str:
    """One paragraph with the facts of a run."""
    hooks = ", ".join(f"{name}: {hook}" for name, hook in meta.get("hooks", {}).items())
    parts = [
        f"`{meta['command']}`",
        meta["date"],
        f"commit {meta.get('commit') or 'unknown'}",
        f"{meta['cpu']}, {meta['cores']} cores, {meta['threads']} threads",
        f"torch {meta.get('torch', 'unknown')}, Python {meta.get('python', 'unknown')}",
        f"rl4co published {meta['versions'][PUBLISHED]}, new {meta['versions'][NEW]}",
    ]
    if hooks:
        parts.append(f"set-up hook (allocator) {hooks}")
    if meta.get("quick"):
        parts.append("QUICK RUN, small batches: not a measurement")
    return " · ".join(parts)


def render_result(result: Result) -> str:
    """Markdown of one case: title, table, roofline where there is one, facts of the run."""
    table = markdown_table(COLUMNS, [row_cells(row) for row in result["rows"]])
    blocks = [f"### {TITLES[result['case']]}", table]
    roofline = roofline_rows(result)
    if roofline:
        blocks += ["Against the matrix products alone (roofline):"]
        blocks += [markdown_table(ROOFLINE_COLUMNS, roofline)]
    return "\n\n".join([*blocks, facts_line(result["meta"])])


def replace_section(text: str, name: str, content: str) -> str:
    """Put `content` between the two markers of a section.

    Raises:
        ValueError: the markers are missing or in the wrong order.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    start, stop = text.find(begin), text.find(end)
    if start < 0 or stop < start:
        raise ValueError(f"expected the markers {begin} and {end}, got a text without them")
    return f"{text[: start + len(begin)]}\n\n{content}\n\n{text[stop:]}"


def update_readme(name: str, content: str, path: Path | None = None) -> None:
    """Rewrite one section of the benchmarks' README."""
    path = path or README
    changed = replace_section(path.read_text(encoding="utf-8"), name, content)
    path.write_text(changed, encoding="utf-8")


def render_comparison(folder: Path) -> str:
    """Markdown of everything that is stored."""
    results = load_results(folder)
    return "\n\n".join(render_result(result) for result in results) or "No results yet."
