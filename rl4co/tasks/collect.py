"""Collects the runs of a sweep: one table (Markdown and CSV) and a plot of their learning curves.

A run is a folder that `rl4co train` wrote: its overrides are in `.hydra/overrides.yaml`, its
metrics in the `metrics.csv` of the CSV logger. Folders of plain scripts with a `metrics.csv` are
runs, too.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import os
import re

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError
from rl4co.data.io import atomic_write
from rl4co.tasks.tables import csv_table, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS_FILE = "metrics.csv"
OVERRIDES = Path(".hydra") / "overrides.yaml"
#: Metrics that the table shows by default, where any run has them.
DEFAULT_METRICS = ("train/reward", "val/reward", "test/reward")
#: The metric of the plot by default.
DEFAULT_CURVE = "val/reward"
#: Overrides that say where a run is.
_PLACE = re.compile(r"(ckpt_path|paths|hydra)(\.|$)")
#: Letters in a line of the legend.
_LEGEND_WIDTH = 90


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """One run.

    Attributes:
        name: Its folder, relative to the collected one.
        settings: Its overrides.
        curves: Metric → pairs of step and value, in the order of steps.
        failed: Whether the run ended with an error.
    """

    name: str
    settings: Mapping[str, str]
    curves: Mapping[str, Sequence[tuple[int, float]]]
    failed: bool

    @property
    def status(self) -> str:
        """ "failed", "no metrics", "tested" or "trained"."""
        if self.failed:
            return "failed"
        if not self.curves:
            return "no metrics"
        is_tested = any(metric.startswith("test/") for metric in self.curves)
        return "tested" if is_tested else "trained"

    @property
    def steps(self) -> int | None:
        """Number of the last step with a metric of training or validation."""
        return max(
            (points[-1][0] for name, points in self.curves.items() if not name.startswith("test/")),
            default=None,
        )


def collect_runs(folder: str | os.PathLike[str]) -> list[RunRecord]:
    """All runs below a folder, in natural order of their names."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"expected a folder with runs, got no such folder: {root}")
    files: dict[Path, list[Path]] = {path.parent.parent: [] for path in root.rglob(str(OVERRIDES))}
    for file in root.rglob(METRICS_FILE):
        owner = next((parent for parent in file.parents if parent in files), file.parent)
        files.setdefault(owner, []).append(file)
    if not files:
        raise ConfigError(
            f"expected runs below {root}, got no {OVERRIDES} and no {METRICS_FILE}; pass the "
            "folder of a sweep, such as logs/train/multiruns/..."
        )
    places = sorted(files, key=lambda place: _natural(str(place)))
    return [
        _read_run(root, place, sorted(files[place], key=lambda p: _natural(str(p))))
        for place in places
    ]


def _read_run(root: Path, place: Path, files: Sequence[Path]) -> RunRecord:
    overrides = place / OVERRIDES
    settings: dict[str, str] = {}
    if overrides.is_file():
        from omegaconf import OmegaConf

        for entry in OmegaConf.load(overrides):
            key, _, value = str(entry).lstrip("+~").partition("=")
            settings[key] = value
    curves: dict[str, dict[int, float]] = {}
    for file in files:  # a resumed run has several, the later one counts
        for name, points in read_metrics(file).items():
            curves.setdefault(name, {}).update(points)
    return RunRecord(
        name=place.relative_to(root).as_posix() if place != root else root.resolve().name,
        settings=settings,
        curves={name: sorted(points.items()) for name, points in curves.items()},
        failed=(place / "error.log").is_file(),
    )


def read_metrics(file: Path) -> dict[str, dict[int, float]]:
    """The metrics in a file of the CSV logger: name → step → value; cells may be empty."""
    curves: dict[str, dict[int, float]] = {}
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                for name, cell in row.items():
                    if cell and name not in ("step", "epoch"):
                        curves.setdefault(name, {})[int(row["step"])] = float(cell)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise FileFormatError(
            f"expected metrics with a column 'step' in {file}, got: {error}"
        ) from error
    return curves


def differing_settings(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Overrides that differ between runs, and the short name of each: its last part, if unique.

    Folders and checkpoints are left out: they say where a run is, not what it is.
    """
    names = [
        name
        for name in dict.fromkeys(name for run in runs for name in run.settings)
        if len({run.settings.get(name) for run in runs}) > 1 and not _PLACE.match(name)
    ]
    last = [name.rpartition(".")[2] for name in names]
    return {
        name: short if last.count(short) == 1 else name
        for name, short in zip(names, last, strict=True)
    }


def table_of_runs(
    runs: Sequence[RunRecord], metrics: Sequence[str] | None = None
) -> list[dict[str, str | int | float | None]]:
    """One record per run: differing overrides, status, steps, and last (and best) metrics.

    Args:
        runs: The runs.
        metrics: Names of metrics; None: :data:`DEFAULT_METRICS`.
    """
    curves = {name for run in runs for name in run.curves}
    for name in metrics or ():
        if name not in curves:
            raise UnknownNameError("metric", name, curves)
    shown = [name for name in metrics or DEFAULT_METRICS if name in curves]
    settings = differing_settings(runs)
    records = []
    for run in runs:
        record: dict[str, str | int | float | None] = {"run": run.name}
        record |= {short: run.settings.get(name, "") for name, short in settings.items()}
        record |= {"status": run.status, "steps": run.steps}
        for name in shown:
            values = [value for _, value in run.curves.get(name, ())]
            record[name] = values[-1] if values else None
            if name.startswith("val/") and name.endswith("reward"):
                finite = [value for value in values if not math.isnan(value)]
                record[f"best {name}"] = max(finite, default=None)
        records.append(record)
    return records


def plot_curves(runs: Sequence[RunRecord], metric: str = DEFAULT_CURVE) -> Figure | None:
    """Learning curves; runs that differ in nothing but the seed share a colour.

    Args:
        runs: The runs.
        metric: What is plotted against the step; None is returned if no run has it.
    """
    from matplotlib.figure import Figure

    curves = [(run, run.curves[metric]) for run in runs if metric in run.curves]
    if not curves:
        return None
    settings = differing_settings(runs)
    names = [name for name in settings if name != "seed"]
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    ax = figure.subplots()
    colors: dict[str, str] = {}
    for run, points in curves:
        label = ", ".join(f"{settings[name]}={run.settings.get(name, '')}" for name in names)
        label = label or (run.name if "seed" not in settings else metric)
        is_first = label not in colors
        color = colors.setdefault(label, f"C{len(colors)}")
        steps, values = zip(*points, strict=True)
        ax.plot(
            steps, values, color=color, linewidth=1.5, marker="o", markersize=3,
            label=label if is_first else None,
        )  # fmt: skip
    ax.set(xlabel="training step", ylabel=metric)
    ax.grid(color="#d9dde4", linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)
    longest = max(map(len, colors))
    figure.legend(
        loc="outside lower left", ncols=max(1, _LEGEND_WIDTH // longest), frameon=False, fontsize=9
    )
    return figure


def write_collection(
    runs: Sequence[RunRecord],
    folder: str | os.PathLike[str],
    metrics: Sequence[str] | None = None,
) -> list[Path]:
    """Writes `runs.md`, `runs.csv` and, if there is a curve, `runs.png`; returns the files.

    Args:
        runs: The runs.
        folder: Where to write.
        metrics: Metrics of the table, see :func:`table_of_runs`; the first one is plotted.
    """
    place = Path(folder)
    records = table_of_runs(runs, metrics)
    cells = [[format_cell(value) for value in record.values()] for record in records]
    texts = {
        "runs.md": "\n".join([*markdown_table(list(records[0]), cells), ""]),
        "runs.csv": csv_table(records),
    }
    for name, text in texts.items():
        with atomic_write(place / name) as file:
            file.write(text.encode())
    written = [place / name for name in texts]
    figure = plot_curves(runs, metrics[0] if metrics else DEFAULT_CURVE)
    if figure is not None:
        figure.savefig(place / "runs.png", dpi=150)
        written.append(place / "runs.png")
    return written


def format_cell(value: str | int | float | None) -> str:
    """A value as text; numbers with four digits after the point."""
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts run 2 before run 10."""
    words = re.findall(r"\d+|\D+", text)
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]
