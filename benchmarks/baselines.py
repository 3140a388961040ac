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

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torch import Tensor

from benchmarks import quick, trainings
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.models import A2C, AMPPO, POMO, AttentionModel, AttentionModelPolicy, PolyNet, SymNCO
from rl4co.models.rl.base import RL4COLitModule
from rl4co.tasks.evaluate import evaluate_policy

NUM_LOC = 20
PLOT = "baselines.png"
#: Steps that are timed before the number of all steps is chosen; the first of them are warm-up.
TRIAL_STEPS, WARM_UP = 24, 8
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


#: Row → model for an environment, and its settings: every gradient step sees about 256 solutions.
METHODS: dict[str, tuple[Callable[..., RL4COLitModule], dict[str, Any]]] = {
    "A2C": (_a2c, {"batch_size": 256}),
    "AM": (AttentionModel, {"batch_size": 256, "baseline": "rollout"}),
    "POMO": (POMO, {"batch_size": 13, "policy_kwargs": {"num_encoder_layers": 3}}),
    "SymNCO": (SymNCO, {"batch_size": 64, "num_augment": 4}),
    "AM-PPO": (AMPPO, {"batch_size": 1024, "mini_batch_size": 256}),
    "PolyNet": (PolyNet, {"batch_size": 16, "k": 16, "val_num_solutions": 16}),
}


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


def time_steps(problem: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds per gradient step of each method, the mean after the warm-up."""
    seconds = {}
    for method in arguments.methods:
        limit = trainings.Limit(steps=TRIAL_STEPS)
        trainings.fit(build(method, problem, arguments), limit)
        seconds[method] = limit.seconds_per_step(WARM_UP)
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


def run_problem(problem: str, arguments: argparse.Namespace, record: trainings.Record) -> None:
    """All rows of a problem that are not there yet."""
    missing = [
        method for method in arguments.methods if not record.has(problem=problem, method=method)
    ]
    if not missing:
        return
    plan = record.content.get("steps", {})
    if problem not in plan:
        seconds = time_steps(problem, arguments)
        record.load()  # another process may have planned the other problem meanwhile
        steps = int(60 * arguments.budget / max(seconds.values()))
        plan = {**record.content.get("steps", {}), problem: steps}
        record.add(steps=plan)
    env = get_env(problem, generator_params={"num_loc": NUM_LOC})
    instances = env.dataset(arguments.instances, phase="test").data
    _, optimal = env.solve(
        instances, max_runtime=arguments.solver_seconds, num_procs=arguments.threads
    )
    for method in missing:
        model = build(method, problem, arguments)
        limit = trainings.Limit(steps=plan[problem])
        trainings.fit(model, limit)
        record.add(
            {
                "problem": problem,
                "method": method,
                "batch": model.batch_size,
                "minutes": limit.minutes,
                "optimal": float(optimal.mean()),
                "schemes": test(model, instances, optimal),
            }
        )


# ---------------------------------------------------------------- tables and plot

COLUMNS = ["", "steps", "batch", "minutes", *SCHEMES]


def table_rows(result: dict[str, Any]) -> list[list[str]]:
    """Cells of the table: cost and gap of each decoding scheme."""
    order = [(problem, method) for problem in ("tsp", "cvrp") for method in METHODS]
    rows = []
    for row in sorted(result["rows"], key=lambda row: order.index((row["problem"], row["method"]))):
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
        for show in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
            show(lambda gap, _: f"{gap:g}" if f"{gap:e}"[0] in "1235" else "")
        ax.set_xticks(range(len(rows)), [row["method"] for row in rows])
        ax.set_title(f"{problem.upper()} {NUM_LOC}, {result['steps'][problem]} gradient steps")
        ax.set_ylabel("gap to the solver (%)")
        ax.grid(axis="y", which="both", color="#e5e7eb", linewidth=0.6)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        if column == len(problems) - 1:
            ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=130)


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
    trainings.add_common_options(parser, os.cpu_count() or 1)
    return quick.parse_arguments(
        parser,
        argv,
        budget=0.01,
        instances=2,
        solver_seconds=0.05,
        problems=["tsp"],
        methods=["POMO"],
    )


def main(argv: list[str] | None = None) -> None:
    """Train, test, store, show."""
    arguments = parse_arguments(argv)
    if not arguments.render:
        torch.set_num_threads(arguments.threads)
        names = ["budget", "instances", "solver_seconds", "lr", "seed", "threads"]
        record = trainings.Record("baselines", arguments, names)
        for problem in arguments.problems:
            run_problem(problem, arguments, record)
        trainings.show(record, "mean cost (gap to the solver)", COLUMNS, table_rows)
    stored = arguments.results / "baselines.json"
    if stored.exists():
        draw(json.loads(stored.read_text(encoding="utf-8")), arguments.results / PLOT)
    plot = f"![Gap of each method and decoding scheme](results/{PLOT})"
    trainings.render("baselines", arguments.results, COLUMNS, table_rows, plot)


if __name__ == "__main__":
    main()
