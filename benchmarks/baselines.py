"""Mind your baseline: methods compared after the same number of gradient steps.

Each method is trained with as many gradient steps as the slowest of them makes in the budget, then
all are tested on the same instances with the same decoding schemes. Gaps are averages of the
instances' gaps to LKH (TSP) or PyVRP (CVRP). What is done is stored at once, so an interrupted run
goes on where it was.

    python -m benchmarks.baselines                            # 15 minutes per method and problem
    python -m benchmarks.baselines --budget 240 --problems tsp
    python -m benchmarks.baselines --render                   # README.md and plot from the results
"""

from __future__ import annotations

import argparse
import json
import os
import time

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks import report
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.models import A2C, AMPPO, POMO, AttentionModel, AttentionModelPolicy, PolyNet, SymNCO
from rl4co.models.rl.base import RL4COLitModule
from rl4co.tasks.evaluate import evaluate_policy
from rl4co.training.trainer import RL4COTrainer

NUM_LOC = 20
FILE, PLOT = "baselines.json", "baselines.png"
#: Steps that are timed before the number of all steps is chosen; the first of them are warm-up.
TRIAL_STEPS, WARM_UP = 12, 4
#: Column → arguments of `evaluate_policy`.
SCHEMES: dict[str, dict[str, Any]] = {
    "greedy": {"method": "greedy"},
    "sampling x 128": {"method": "sampling", "samples": 128},
    "multi-start": {"method": "multistart_greedy"},
    "augmentation x 8": {"method": "augment_dihedral_8"},
    "multi-start x 8": {"method": "multistart_greedy_augment_dihedral_8"},
}


def _a2c(env: RL4COEnvBase, **settings: Any) -> RL4COLitModule:
    return A2C(env, AttentionModelPolicy(env_name=env.name), **settings)


#: Row → model for an environment, and instances per step: as many solutions for all but PolyNet.
METHODS: dict[str, tuple[Callable[..., RL4COLitModule], dict[str, Any]]] = {
    "A2C": (_a2c, {"batch_size": 512}),
    "AM": (AttentionModel, {"batch_size": 512, "baseline": "rollout"}),
    "POMO": (POMO, {"batch_size": 26, "policy_kwargs": {"num_encoder_layers": 3}}),
    "SymNCO": (SymNCO, {"batch_size": 128, "num_augment": 4}),
    "AM-PPO": (AMPPO, {"batch_size": 512}),
    "PolyNet": (PolyNet, {"batch_size": 32, "k": 16, "val_num_solutions": 16}),
}


class Limit(Callback):
    """Ends the training after a number of gradient steps, and notes when each step ended."""

    def __init__(self, steps: int) -> None:
        self.steps, self.ends = steps, [time.perf_counter()]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Looks at the clock."""
        self.ends.append(time.perf_counter())
        trainer.should_stop = len(self.ends) > self.steps


def build(method: str, problem: str, arguments: argparse.Namespace) -> RL4COLitModule:
    """An untrained model."""
    env = get_env(problem, generator_params={"num_loc": NUM_LOC}, seed=arguments.seed)
    torch.manual_seed(arguments.seed)
    make, settings = METHODS[method]
    return make(
        env,
        train_data_size=settings["batch_size"] * 500,
        val_data_size=256,
        test_data_size=8,
        optimizer_kwargs={"lr": arguments.lr},
        seed=arguments.seed,
        **settings,
    )


def train(model: RL4COLitModule, steps: int) -> Limit:
    """Trains for a number of steps; returns the clock."""
    limit = Limit(steps)
    trainer = RL4COTrainer(
        max_epochs=1_000_000,  # the callback ends the training
        accelerator="cpu",
        precision="32-true",
        logger=False,
        callbacks=[limit],
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
    )
    trainer.fit(model)
    return limit


def time_steps(problem: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds per gradient step of each method, the mean after the warm-up."""
    seconds = {}
    for method in arguments.methods:
        ends = train(build(method, problem, arguments), TRIAL_STEPS).ends
        seconds[method] = (ends[-1] - ends[WARM_UP]) / (len(ends) - 1 - WARM_UP)
    return seconds


def test(model: RL4COLitModule, instances: Any, optimal: Tensor) -> dict[str, dict[str, float]]:
    """Mean cost and mean gap of each decoding scheme."""
    model.policy.eval()
    found = {}
    for name, settings in SCHEMES.items():
        cost = -evaluate_policy(model.env, model.policy, instances, **settings)["rewards"]  # [B]
        gap = ((cost - optimal) / optimal).mean()
        found[name] = {"cost": float(cost.mean()), "gap": float(gap)}
    return found


def run_problem(problem: str, arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    """All rows of a problem that are not there yet."""
    missing = [
        method
        for method in arguments.methods
        if not any(row["problem"] == problem and row["method"] == method for row in result["rows"])
    ]
    if not missing:
        return
    plan = result["steps"]
    if problem not in plan:
        seconds = time_steps(problem, arguments)
        plan[problem] = int(60 * arguments.budget / max(seconds.values()))
    env = get_env(problem, generator_params={"num_loc": NUM_LOC})
    instances = env.dataset(arguments.instances, phase="test").data
    _, optimal = env.solve(
        instances, max_runtime=arguments.solver_seconds, num_procs=arguments.threads
    )
    for method in missing:
        model = build(method, problem, arguments)
        clock = train(model, plan[problem])
        result["rows"].append(
            {
                "problem": problem,
                "method": method,
                "batch": model.batch_size,
                "minutes": (clock.ends[-1] - clock.ends[0]) / 60,
                "optimal": float(optimal.mean()),
                "schemes": test(model, instances, optimal),
            }
        )
        report.write_json(arguments.results / FILE, result)


# ---------------------------------------------------------------- tables and plot

COLUMNS = ["", "steps", "batch", "minutes", *SCHEMES]


def table_rows(result: dict[str, Any]) -> list[list[str]]:
    """Cells of the table: cost and gap of each decoding scheme."""
    rows = []
    for row in result["rows"]:
        cells = [
            f"{row['schemes'][name]['cost']:.3f} ({100 * row['schemes'][name]['gap']:.2f} %)"
            for name in SCHEMES
        ]
        name = f"{row['problem'].upper()} {NUM_LOC}, {row['method']}"
        facts = [str(result["steps"][row["problem"]]), str(row["batch"]), f"{row['minutes']:.1f}"]
        rows.append([name, *facts, *cells])
    return rows


def draw(result: dict[str, Any], path: Path) -> None:
    """One panel per problem: the gap of each method, a mark for each decoding scheme."""
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys(row["problem"] for row in result["rows"]))
    figure = Figure(figsize=(5.2 * len(problems), 3.8), layout="constrained")
    markers, colors = "osD^v", ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00")
    for column, problem in enumerate(problems):
        ax = figure.add_subplot(1, len(problems), column + 1)
        rows = [row for row in result["rows"] if row["problem"] == problem]
        for scheme, marker, color in zip(SCHEMES, markers, colors, strict=True):
            gaps = [100 * row["schemes"][scheme]["gap"] for row in rows]
            ax.plot(range(len(rows)), gaps, marker, color=color, label=scheme, markersize=7)
        ax.set_yscale("log")
        ax.set_xticks(range(len(rows)), [row["method"] for row in rows])
        ax.set_title(f"{problem.upper()} {NUM_LOC}, {result['steps'][problem]} gradient steps")
        ax.set_ylabel("gap to the solver (%)")
        ax.grid(axis="y", which="both", color="#e5e7eb", linewidth=0.6)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        if column == len(problems) - 1:
            ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=130)


def markdown(folder: Path) -> str:
    """The section of the README."""
    path = folder / FILE
    if not path.exists():
        return "No results yet."
    result = json.loads(path.read_text(encoding="utf-8"))
    meta = result["meta"]
    facts = f"`{meta['command']}` · {meta['date']} · {meta['cpu']}, {meta['threads']} threads"
    picture = f"![Gap of each method and decoding scheme](results/{PLOT})"
    return "\n\n".join([report.markdown_table(COLUMNS, table_rows(result)), picture, facts])


# ---------------------------------------------------------------- command line


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--problems", nargs="+", choices=["tsp", "cvrp"], default=["tsp", "cvrp"])
    add("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    add("--budget", type=float, default=15.0, help="minutes of the slowest method")
    add("--instances", type=int, default=500, help="test instances")
    add("--solver-seconds", type=float, default=1.0, help="solver's time per instance")
    add("--lr", type=float, default=3e-4)
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=os.cpu_count() or 1)
    add("--results", type=Path, default=report.RESULTS, help="folder for the JSON file and plot")
    add("--render", action="store_true", help="only rewrite README.md from the stored results")
    return parser.parse_args(argv)


def open_result(arguments: argparse.Namespace) -> dict[str, Any]:
    """What an earlier run with the same settings left, or a new result."""
    names = ["budget", "instances", "solver_seconds", "lr", "seed", "threads"]
    options = [f"--{name.replace('_', '-')} {getattr(arguments, name)}" for name in names]
    command = " ".join(["python -m benchmarks.baselines", *options])
    path = arguments.results / FILE
    if path.exists():
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if stored["meta"]["command"] == command:
            return stored
    return {"meta": report.machine_facts(command, arguments.threads), "steps": {}, "rows": []}


def main(argv: list[str] | None = None) -> None:
    """Train, test, store, show."""
    arguments = parse_arguments(argv)
    if not arguments.render:
        torch.set_num_threads(arguments.threads)
        result = open_result(arguments)
        for problem in arguments.problems:
            run_problem(problem, arguments, result)
        draw(result, arguments.results / PLOT)
        table = Table(*COLUMNS, title="mean cost (gap to the solver)")
        for cells in table_rows(result):
            table.add_row(*cells)
        Console().print(table)
    if arguments.results == report.RESULTS:
        report.update_readme("baselines", markdown(arguments.results))


if __name__ == "__main__":
    main()
