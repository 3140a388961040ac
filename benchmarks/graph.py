"""Graph problems: encoders and baselines of the Attention Model beside classical methods.

The paper's two tables: policies are trained to choose 10 of 100 (FLP: locations; MCP: sets with 200
items) and tested there, and where 20 of 200 are chosen. Gaps are averages of the instances' gaps to
the optimum (MCP: the best solution known). What is done is stored at once, so an interrupted run
goes on where it was.

    python -m benchmarks.graph                                 # 10 minutes per row
    python -m benchmarks.graph --data FOLDER                   # instances with known optima
    python -m benchmarks.graph --budget 0.2 --instances 4 --search-instances 1 --iterations 3 \\
        --problems flp --networks mlp --baselines rollout --results try
    python -m benchmarks.graph --render                        # README.md and plots
"""

from __future__ import annotations

import argparse
import json
import os
import time

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from benchmarks import quick, trainings
from rl4co.core.rng import derive_generator
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.models import GNNAttentionModel
from rl4co.tasks.methods import SEARCHES
from rl4co.tasks.search import search

NAME, PLOT = "graph", "graph_heatmaps.png"
SAMPLES = 64
#: Problem → networks of the paper.
NETWORKS = {"flp": ("mlp", "gcn", "gat"), "mcp": ("mlp", "sage", "gen")}
BASELINES = ("rollout", "mean", "exponential", "critic")
#: The paper's grid.
TOP_P = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
TEMPERATURES = (0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0)
#: Number of candidates → arguments of the generators; all choose a tenth.
SIZES: dict[int, dict[str, dict[str, int]]] = {
    100: {"flp": {"num_loc": 100, "to_choose": 10},
          "mcp": {"num_sets": 100, "num_items": 200, "n_sets_to_choose": 10}},
    200: {"flp": {"num_loc": 200, "to_choose": 20},
          "mcp": {"num_sets": 200, "num_items": 400, "n_sets_to_choose": 20}},
}  # fmt: skip
#: Problem and number of candidates → file with instances and references, and the key of these.
FILES = {
    ("flp", 100): ("flp100_k10.npz", "opt"),
    ("flp", 200): ("flp200_k20.npz", "opt"),
    ("mcp", 100): ("mcp100_m200_k10.npz", "best"),
    ("mcp", 200): ("mcp200_m400_k20.npz", "best"),
}
#: Column → how it is called in the record.
SCHEMES = ("greedy", "sampling best", "sampling mean", *SEARCHES)
TITLES = {"active_search": "AS", "eas_emb": "EAS-Emb", "eas_lay": "EAS-Lay"}


class TestSet(NamedTuple):
    """Instances with what is known about them.

    Attributes:
        env: Environment.
        instances: Batch `[B]`.
        reference: Values of the best solutions `[B]`, all positive.
    """

    env: RL4COEnvBase
    instances: TensorDictBase
    reference: Tensor

    def gap(self, rewards: Tensor) -> float:
        """Mean of the instances' gaps; of the first ones, if there are fewer rewards (or costs)."""
        best = self.reference[: len(rewards)]
        worse = rewards.abs().double() - best
        return float(((-worse if self.env.maximizes else worse) / best).mean())


def test_set(problem: str, size: int, arguments: argparse.Namespace) -> TestSet:
    """Instances of a file, or of the paper's test seed with the best that solvers find."""
    env = get_env(problem, generator_params=SIZES[size][problem])
    if arguments.data is not None:
        file, key = FILES[problem, size]
        with np.load(arguments.data / file, allow_pickle=False) as content:
            count = min(arguments.instances, len(content[key]))
            tensors = {
                name: torch.from_numpy(content[name][:count]) for name in env.instance_shapes
            }
            best = torch.from_numpy(content[key][:count])
        return TestSet(env, TensorDict(tensors, batch_size=[count]), best.double())
    instances = env.dataset(arguments.instances, phase="test").data
    found = env.solve(instances, solver="local_search", starts=60)
    exact = env.solve(
        instances, max_runtime=arguments.solver_seconds, num_procs=arguments.threads,
        initial=found.actions,
    )  # fmt: skip
    return TestSet(env, instances, exact.costs.abs().double())


# ---------------------------------------------------------------- rows


def classical_rows(problem: str, sets: dict[int, TestSet]) -> list[dict[str, Any]]:
    """Uniform random, deterministic greedy and swap search, with seconds for all instances."""
    methods: dict[str, tuple[str, dict[str, int]]] = {
        "uniform random": ("random", {"samples": SAMPLES}),
        "deterministic greedy": ("greedy", {}),
        "swap search": ("local_search", {}),
        "swap search, 60 starts": ("local_search", {"starts": 60}),
    }
    rows = []
    for method, (solver, options) in methods.items():
        gaps: dict[str, Any] = {}
        for size, chosen in sets.items():
            started = time.perf_counter()
            found = chosen.env.solve(chosen.instances, solver=solver, **options)
            gaps[str(size)] = {"greedy": chosen.gap(found.costs)}
            if found.mean_costs is not None:
                gaps[str(size)] = {
                    "sampling best": chosen.gap(found.costs),
                    "sampling mean": chosen.gap(found.mean_costs),
                }
            gaps[str(size)]["seconds"] = time.perf_counter() - started
        rows.append({"problem": problem, "method": method, "gaps": gaps})
    return rows


def train(
    problem: str, network: str, baseline: str, arguments: argparse.Namespace
) -> tuple[GNNAttentionModel, int, float]:
    """A trained model, its gradient steps and minutes."""
    env = get_env(problem, generator_params=SIZES[100][problem], seed=arguments.seed)
    torch.manual_seed(arguments.seed)
    model = GNNAttentionModel(
        env,
        baseline=baseline,
        policy_kwargs={"network": network},
        # The t-test of the rollout baseline on as many instances as an epoch takes little of.
        baseline_kwargs={"dataset_size": 1000} if baseline == "rollout" else None,
        batch_size=arguments.batch_size,
        train_data_size=arguments.batch_size * 200,
        val_data_size=64,
        test_data_size=8,
        optimizer_kwargs={"lr": arguments.lr},
        seed=arguments.seed,
    )
    limit = trainings.Limit(minutes=arguments.budget)
    steps = trainings.fit(model, limit)
    model.policy.eval()
    return model, steps, limit.minutes


@torch.no_grad()
def sample(
    policy: Any, chosen: TestSet, seed: int, batch_size: int = 25, **settings: Any
) -> tuple[Tensor, Tensor]:
    """Best and mean rewards `[B]` of as many samples as the paper takes."""
    best, mean = [], []
    for first in range(0, len(chosen.instances), batch_size):
        td = chosen.env.reset(chosen.instances[first : first + batch_size])
        out = policy(
            td, chosen.env, phase="test", decode_type="sampling", num_samples=SAMPLES,
            rng=derive_generator(seed, first), **settings,
        )  # fmt: skip
        rewards = out["reward"].unflatten(0, (SAMPLES, -1))  # [S, B]
        best.append(rewards.amax(0))
        mean.append(rewards.mean(0))
    return torch.cat(best), torch.cat(mean)


def test(policy: Any, chosen: TestSet, arguments: argparse.Namespace) -> dict[str, float]:
    """Gaps of all schemes."""
    with torch.no_grad():
        td = chosen.env.reset(chosen.instances)
        greedy = policy(td, chosen.env, phase="test", decode_type="greedy")["reward"]
    best, mean = sample(policy, chosen, arguments.seed)
    gaps = {
        "greedy": chosen.gap(greedy),
        "sampling best": chosen.gap(best),
        "sampling mean": chosen.gap(mean),
    }
    few = chosen.instances[: arguments.search_instances]
    for method in SEARCHES:
        found = search(
            policy, chosen.env, few, method, iterations=arguments.iterations,
            seed=arguments.seed, progress=False, decode_type="sampling", num_solutions=SAMPLES,
        )  # fmt: skip
        gaps[method] = chosen.gap(found.rewards)
    return gaps


def heatmap(policy: Any, chosen: TestSet, arguments: argparse.Namespace) -> list[list[float]]:
    """Gaps of the best samples, by temperature (rows) and top-p (columns)."""
    few = chosen._replace(instances=chosen.instances[: arguments.heatmap_instances])
    return [
        [
            few.gap(sample(policy, few, arguments.seed, top_p=p, temperature=temperature)[0])
            for p in TOP_P
        ]
        for temperature in TEMPERATURES
    ]


def run_problem(problem: str, arguments: argparse.Namespace, record: trainings.Record) -> None:
    """All rows of a problem that are not there yet."""
    sets = {size: test_set(problem, size, arguments) for size in SIZES}
    if not record.has(problem=problem, method="deterministic greedy"):
        record.add(*classical_rows(problem, sets))
    for network in NETWORKS[problem]:
        for baseline in arguments.baselines:
            method = f"{network}, {baseline}"
            if network not in arguments.networks or record.has(problem=problem, method=method):
                continue
            model, steps, minutes = train(problem, network, baseline, arguments)
            gaps = {
                str(size): test(model.policy, chosen, arguments) for size, chosen in sets.items()
            }
            grid = heatmap(model.policy, sets[100], arguments)
            record.add(
                {
                    "problem": problem, "method": method, "steps": steps, "minutes": minutes,
                    "gaps": gaps, "heatmap": grid,
                }
            )  # fmt: skip


# ---------------------------------------------------------------- tables and plots

COLUMNS = ["", "steps", *(TITLES.get(scheme, scheme) for scheme in SCHEMES)]


def table_rows(result: dict[str, Any]) -> list[list[str]]:
    """Gaps in percent: the main table, then out of distribution."""
    rows = []
    for size, wanted in ((100, 10), (200, 20)):
        for row in sorted(result["rows"], key=lambda row: list(NETWORKS).index(row["problem"])):
            gaps = row["gaps"][str(size)]
            # Rounded first: there is no minus zero then.
            cells = [f"{round(100 * gaps[s], 2) + 0.0:.2f} %" if s in gaps else "" for s in SCHEMES]
            name = f"{row['problem'].upper()} {size}/{wanted}, {row['method']}"
            rows.append([name, str(row.get("steps", "")), *cells])
    return rows


def draw(result: dict[str, Any], path: Path) -> None:
    """Gaps of the best samples against top-p and temperature, a panel for each trained policy."""
    from matplotlib.figure import Figure

    trained = [row for row in result["rows"] if "heatmap" in row]
    problems = [name for name in NETWORKS if any(row["problem"] == name for row in trained)]
    by_problem = [[row for row in trained if row["problem"] == name] for name in problems]
    if not trained:
        return
    width = max(map(len, by_problem))
    figure = Figure(figsize=(3.1 * width, 3.6 * len(problems)), layout="constrained")
    for line, rows in enumerate(by_problem):
        for column, row in enumerate(rows):
            ax = figure.add_subplot(len(problems), width, line * width + column + 1)
            grid = 100 * np.array(row["heatmap"])  # [temperatures, top-p]
            image = ax.imshow(grid, cmap="viridis_r", aspect="auto", origin="lower")
            y, x = np.unravel_index(grid.argmin(), grid.shape)
            ax.plot(x, y, "*", color="#e4572e", markersize=11, markeredgecolor="white")
            ax.set_xticks(range(len(TOP_P)), [f"{p:g}" for p in TOP_P], fontsize=6, rotation=60)
            ax.set_yticks(range(len(TEMPERATURES)), [f"{t:g}" for t in TEMPERATURES], fontsize=6)
            ax.set_title(
                f"{row['problem'].upper()}, {row['method']}: {grid.min():.2f} %", fontsize=8
            )
            ax.set_xlabel("top-p", fontsize=7)
            if column == 0:
                ax.set_ylabel("temperature", fontsize=7)
            bar = figure.colorbar(image, ax=ax, shrink=0.8)
            bar.ax.tick_params(labelsize=6)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)


# ---------------------------------------------------------------- command line


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    every = list(dict.fromkeys(name for names in NETWORKS.values() for name in names))
    add("--data", type=Path, help="folder of instances with known optima (flp100_k10.npz, ...)")
    add("--problems", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    add("--networks", nargs="+", choices=every, default=["mlp", "gcn", "sage"])
    add("--baselines", nargs="+", choices=BASELINES, default=["rollout", "critic"])
    add("--budget", type=float, default=10.0, help="minutes of training for each row")
    add("--batch-size", type=int, default=256)
    add("--lr", type=float, default=1e-4)
    add("--instances", type=int, default=50, help="test instances of each size")
    add("--search-instances", type=int, default=10, help="of these, for active search and EAS")
    add("--heatmap-instances", type=int, default=10, help="of these, for the grid of samplings")
    add("--iterations", type=int, default=100, help="iterations of active search and EAS")
    add("--solver-seconds", type=float, default=30.0, help="solver's time without --data")
    trainings.add_common_options(parser, os.cpu_count() or 1)
    return quick.parse_arguments(
        parser,
        argv,
        budget=0.01,
        batch_size=4,
        instances=2,
        search_instances=1,
        heatmap_instances=1,
        iterations=1,
        solver_seconds=0.5,
        problems=["flp"],
        networks=["mlp"],
        baselines=["mean"],
    )


def main(argv: list[str] | None = None) -> None:
    """Train, test, store, show."""
    arguments = parse_arguments(argv)
    if not arguments.render:
        torch.set_num_threads(arguments.threads)
        names = ["budget", "batch_size", "lr", "instances", "search_instances",
                 "heatmap_instances", "iterations", "seed", "threads"]  # fmt: skip
        record = trainings.Record(NAME, arguments, names)
        for problem in arguments.problems:
            run_problem(problem, arguments, record)
        trainings.show(record, "mean gap to the best solution", COLUMNS, table_rows)
    stored = arguments.results / f"{NAME}.json"
    if stored.exists():
        draw(json.loads(stored.read_text(encoding="utf-8")), arguments.results / PLOT)
    plot = f"![Gaps by top-p and temperature](results/{PLOT})"
    trainings.render(NAME, arguments.results, COLUMNS, table_rows, plot)


if __name__ == "__main__":
    main()
