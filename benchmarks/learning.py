"""Compare how fast both packages learn in the same wall-clock time on this machine.

Attention Model with the greedy-rollout baseline on TSP20, trained by each package through its
own public route, one after the other, each for the same training time. The greedy cost on the
same fixed instances is recorded on the way; the time of these evaluations does not count.

    python -m benchmarks.learning                  # 10 minutes each
    python -m benchmarks.learning --minutes 0.5 --interval 5 --results try
    python -m benchmarks.learning --render         # plot and README.md from the stored curves
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import quick, report
from benchmarks.cases import NEW, PUBLISHED
from benchmarks.compare import contender_facts
from benchmarks.published import PublishedVenvError, ensure_published, venv_path
from benchmarks.runner import Contender

WORKER = Path(__file__).with_name("learning_worker.py")
NAME = "learning_tsp20"
NUM_LOC = 20
INSTANCE_SEED = 1234
COLORS = {PUBLISHED: "#c44e52", NEW: "#1f6f8b"}

Point = dict[str, float]
Curve = dict[str, Any]  # {"points": [Point], "error": str | None}


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line of the learning comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, help="training time of each contender")
    add("--interval", type=float, default=20.0, help="seconds of training between evaluations")
    add("--instances", type=int, default=1024, help="test instances")
    add("--batch-size", type=int, default=512)
    add("--lr", type=float, default=1e-4)
    add("--train-data-size", type=int, default=100_000, help="instances per epoch")
    add("--val-data-size", type=int, default=10_000, help="validation and baseline test")
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=os.cpu_count() or 1)
    add("--python", type=Path, default=Path(sys.executable), help="interpreter with this package")
    add("--venv", help="virtual environment with the published package, see published.py")
    add("--results", type=Path, default=report.RESULTS, help="folder for the JSON file and plot")
    add("--render", action="store_true", help="only redraw from the stored curves")
    return quick.parse_arguments(
        parser,
        argv,
        minutes=0.05,
        interval=1.0,
        instances=16,
        batch_size=16,
        train_data_size=64,
        val_data_size=16,
    )


def command_line(arguments: argparse.Namespace) -> str:
    """The command to repeat a run, without the paths of this machine."""
    names = ["minutes", "batch_size", "lr", "train_data_size", "val_data_size", "seed", "threads"]
    options = [f"--{name.replace('_', '-')} {getattr(arguments, name)}" for name in names]
    return " ".join(["python -m benchmarks.learning", *options])


def save_instances(path: Path, count: int) -> None:
    """Write the fixed test coordinates, [count, 20, 2], uniform in the unit square."""
    import numpy as np
    import torch

    rng = torch.Generator().manual_seed(INSTANCE_SEED)
    np.savez(path, locs=torch.rand(count, NUM_LOC, 2, generator=rng).numpy())


def collect(lines: Iterable[str], on_point: Callable[[Point], None]) -> Curve:
    """Read the JSON lines of a worker until it ends."""
    curve: Curve = {"points": [], "error": None}
    for line in lines:
        message = json.loads(line)
        if "error" in message:
            curve["error"] = message["error"]
        else:
            curve["points"].append(message)
            on_point(message)
    return curve


def train(
    contender: Contender,
    arguments: argparse.Namespace,
    folder: Path,
    on_point: Callable[[Point], None],
) -> Curve:
    """Train one contender in its own process; a crash ends its curve with an error."""
    options = {
        "instances": folder / "instances.npz",
        "seconds": 60 * arguments.minutes,
        "interval": arguments.interval,
        "threads": arguments.threads,
        "seed": arguments.seed,
        "batch-size": arguments.batch_size,
        "lr": arguments.lr,
        "train-data-size": arguments.train_data_size,
        "val-data-size": arguments.val_data_size,
    }
    command = [str(contender.python), str(WORKER)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    log = folder / f"{contender.name}.log"
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=contender.environment(),
            cwd=folder,  # whatever a trainer writes disappears with the folder
        ) as process,
    ):
        assert process.stdout is not None
        curve = collect(process.stdout, on_point)
        code = process.wait()
    if code < 0:
        curve["error"] = f"killed by {signal.Signals(-code).name}"
    elif code > 0 and curve["error"] is None:
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        curve["error"] = f"exit code {code}: {tail[-1][:200] if tail else 'no message'}"
    if curve["error"]:
        curve["error"] = curve["error"].replace(str(contender.python.parent.parent), "<venv>")
    return curve


def run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Train both contenders, published first, and return what the results file holds."""
    published = ensure_published(venv_path(arguments.venv))
    contenders = {
        PUBLISHED: Contender(PUBLISHED, published, arguments.threads),
        NEW: Contender(NEW, arguments.python.expanduser().absolute(), arguments.threads),
    }
    meta = report.machine_facts(command_line(arguments), arguments.threads)
    meta |= contender_facts(contenders, console)
    meta["hooks"] = {}  # each trainer does what it does by default
    meta["instances"] = arguments.instances
    limit = 60 * arguments.minutes
    curves: dict[str, Curve] = {}
    columns = [TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()]
    with tempfile.TemporaryDirectory() as name, Progress(*columns, console=console) as progress:
        save_instances(Path(name) / "instances.npz", arguments.instances)
        for contender in contenders.values():
            task = progress.add_task(f"{contender.name}: starting", total=limit)

            def show(point: Point, task: Any = task, label: str = contender.name) -> None:
                text = f"{label}: step {point['step']:.0f}, cost {point['cost']:.4f}"
                progress.update(task, description=text, completed=min(point["seconds"], limit))

            curves[contender.name] = train(contender, arguments, Path(name), show)
            if curves[contender.name]["error"]:
                console.print(f"[red]{contender.name}: {curves[contender.name]['error']}")
    return {"meta": meta, "minutes": arguments.minutes, "contenders": curves}


def point_at(points: list[Point], seconds: float) -> Point | None:
    """Last point not later than `seconds`."""
    earlier = [point for point in points if point["seconds"] <= seconds]
    return earlier[-1] if earlier else None


def time_to_reach(points: list[Point], cost: float) -> float | None:
    """Training time of the first point with this cost or a lower one."""
    return next((point["seconds"] for point in points if point["cost"] <= cost), None)


def curve_cells(name: str, curve: Curve, minutes: float) -> list[str]:
    """Row of a contender: cost at quarters of the time, best cost, steps, error."""
    points = curve["points"]
    cells = [name]
    for share in (0.25, 0.5):
        point = point_at(points, 60 * minutes * share)
        cells.append(f"{point['cost']:.4f}" if point else "–")
    cells.append(f"{points[-1]['cost']:.4f}" if points else "–")
    cells.append(f"{min(point['cost'] for point in points):.4f}" if points else "–")
    cells.append(f"{points[-1]['step']:.0f}" if points else "–")
    cells.append(f"fails: {curve['error']}" if curve["error"] else "")
    return cells


def render_markdown(result: dict[str, Any]) -> str:
    """Section of the README: table, plot, facts."""
    minutes, curves = result["minutes"], result["contenders"]
    header = ["", f"cost after {minutes / 4:g} min", f"{minutes / 2:g} min", "end"]
    header += ["best", "training steps", ""]
    rows = [curve_cells(name, curves[name], minutes) for name in (PUBLISHED, NEW)]
    blocks = [
        f"### Learning: TSP{NUM_LOC}, {minutes:g} minutes of training each",
        report.markdown_table(header, rows),
    ]
    old, new = curves[PUBLISHED]["points"], curves[NEW]["points"]
    if old and new:
        needed = time_to_reach(new, old[-1]["cost"])
        blocks.append(
            f"The new package reaches the published one's last cost ({old[-1]['cost']:.4f} after "
            f"{old[-1]['seconds']:.0f} s) "
            + (f"after {needed:.0f} s." if needed is not None else "not within the time.")
        )
    blocks.append(f"![Greedy cost against training time](results/{NAME}.png)")
    blocks.append(
        f"Mean greedy cost on {result['meta']['instances']} fixed instances (lower is better); "
        'float32 for both, and `matmul_precision="highest"` for both, because the published '
        "trainer's default lets some CPUs run products in bfloat16, which is slower there."
    )
    return "\n\n".join([*blocks, report.facts_line(result["meta"])])


def upper_limit(curves: dict[str, Curve], minutes: float) -> float | None:
    """Top of the cost axis: what both have after 3 % of the time.

    The untrained policy is so much worse that it would flatten everything of interest.
    """
    points = [point for curve in curves.values() for point in curve["points"]]
    late = [point["cost"] for point in points if point["seconds"] >= 60 * minutes * 0.03]
    return 1.02 * max(late) if late else None


def draw(result: dict[str, Any], path: Path) -> None:
    """Plot both curves against training time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name in (PUBLISHED, NEW):
        points = result["contenders"][name]["points"]
        if not points:
            continue
        minutes = [point["seconds"] / 60 for point in points]
        costs = [point["cost"] for point in points]
        version = result["meta"]["versions"][name]
        label = f"{name} ({version}), {points[-1]['step']:.0f} steps"
        axes.plot(minutes, costs, color=COLORS[name], marker="o", markersize=3, label=label)
        offset = (4, 8 if name == PUBLISHED else -8)
        text = f"{costs[-1]:.3f}"
        axes.annotate(
            text,
            (minutes[-1], costs[-1]),
            xytext=offset,
            textcoords="offset points",
            color=COLORS[name],
            va="center",
        )
    axes.set_xlabel("training time in minutes (evaluation not counted)")
    axes.set_ylabel("mean greedy cost")
    axes.set_title(f"Attention Model on TSP{NUM_LOC}: same time, same machine", loc="left")
    axes.margins(x=0.08)
    axes.set_ylim(top=upper_limit(result["contenders"], result["minutes"]))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main(argv: list[str] | None = None) -> None:
    """Run, store, draw, rewrite the README."""
    arguments = parse_arguments(argv)
    folder: Path = arguments.results
    path = folder / f"{NAME}.json"
    console = Console()
    if arguments.render:
        result = json.loads(path.read_text(encoding="utf-8"))
    else:
        try:
            result = run(arguments, console)
        except PublishedVenvError as error:
            raise SystemExit(f"error: {error}") from error
        report.write_json(path, result)
    draw(result, folder / f"{NAME}.png")
    text = render_markdown(result)
    console.print(text, markup=False)
    if folder == report.RESULTS:
        report.update_readme("learning", text)


if __name__ == "__main__":
    main()
