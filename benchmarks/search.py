"""What searches find that adapt the policy to the instance, next to sampling as many solutions.

The policy is the original Attention Model for 50 nodes (Kool et al., 2019). Active search, EAS-Emb
and EAS-Lay sample solutions of the same eight symmetric copies of each instance as plain sampling
does, as many in each iteration. Gaps are averages of the instances' gaps to LKH (TSP) or PyVRP
(CVRP).

    python -m benchmarks.search --reference FOLDER     # FOLDER/weights/tsp_50.npz, cvrp_50.npz
    python -m benchmarks.search --reference FOLDER --instances 2 --iterations 5 --results try
    python -m benchmarks.search --render               # README.md from the stored results
"""

from __future__ import annotations

import argparse
import json
import os

from pathlib import Path
from typing import Any

import torch

from rich.console import Console
from tensordict import TensorDictBase
from torch import Tensor

from benchmarks import quick, report, trainings
from rl4co.core.rng import derive_generator
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.models import AttentionModelPolicy, EASLay, load_original_weights
from rl4co.tasks.methods import SEARCHES
from rl4co.tasks.search import search

NAME = "search"
NUM_LOC = 50
SOLVERS = {"tsp": "lkh", "cvrp": "pyvrp"}
SAMPLING = "sampling"
TITLES = {
    SAMPLING: "sampling",
    "active_search": "active search",
    "eas_emb": "EAS-Emb",
    "eas_lay": "EAS-Lay",
}
COLORS = {
    SAMPLING: "#888888",
    "active_search": "#0072b2",
    "eas_emb": "#e69f00",
    "eas_lay": "#009e73",
}


@torch.no_grad()
def sample(
    policy: AttentionModelPolicy,
    env: RL4COEnvBase,
    instances: TensorDictBase,
    arguments: argparse.Namespace,
) -> Tensor:
    """Best rewards `[B, iterations]` of sampling the same copies without learning."""
    # A search that never begins knows how to copy instances.
    model = EASLay(env, policy, instances, seed=arguments.seed, **options(arguments))
    history = []
    for first in range(0, len(instances), arguments.batch_size):
        copies = model.copies(env.reset(instances[first : first + arguments.batch_size]))
        found = [
            copies.solve(policy, rng=derive_generator(arguments.seed, first, step)).rewards
            for step in range(arguments.iterations)
        ]
        best = torch.stack([rewards.flatten(1).amax(1) for rewards in found], 1)  # [B, I]
        history.append(best.cummax(1).values)
    return torch.cat(history)


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Settings that all methods share."""
    return {"decode_type": "sampling", "num_solutions": arguments.solutions}


def run(problem: str, arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Curves of all methods on one problem."""
    env = get_env(problem, generator_params={"num_loc": NUM_LOC})
    if arguments.reference is None:  # a quick run: an untrained policy will do
        policy = AttentionModelPolicy(env_name=problem, embed_dim=16, num_heads=2).eval()
    else:
        weights = arguments.reference / "weights" / f"{problem}_{NUM_LOC}.npz"
        policy = load_original_weights(weights, problem)
    instances = env.dataset(arguments.instances, phase="test").data
    _, costs = env.solve(
        instances,
        max_runtime=arguments.solver_seconds,
        num_procs=arguments.threads,
        solver=SOLVERS[problem],
    )
    with torch.no_grad():
        greedy = policy(env.reset(instances), env, phase="test")["reward"]
    curves = {}
    for method in arguments.methods:
        if method == SAMPLING:
            history = sample(policy, env, instances, arguments)
        else:
            history = search(
                policy, env, instances, method, iterations=arguments.iterations,
                batch_size=arguments.batch_size, seed=arguments.seed, progress=arguments.progress,
                **options(arguments),
            ).history  # fmt: skip
        curves[method] = gaps(history, costs)
        console.print(f"{problem}: {TITLES[method]} {curves[method][-1]:.3%}", highlight=False)
    return {
        "problem": problem,
        "solver": float(costs.mean()),
        "greedy": gaps(greedy.unsqueeze(1), costs)[0],
        "curves": curves,
    }


def gaps(rewards: Tensor, costs: Tensor) -> list[float]:
    """Mean gap after each iteration: `[B, I], [B]` → I numbers."""
    costs = costs.unsqueeze(1)
    return [float(gap) for gap in ((-rewards - costs) / costs).mean(0)]


def checkpoints(iterations: int) -> list[int]:
    """Iterations that the table shows: 1, 10, a quarter, half and all of them."""
    chosen = {1, 10, iterations // 4, iterations // 2, iterations}
    return sorted(step for step in chosen if 1 <= step <= iterations)


def markdown(result: dict[str, Any]) -> str:
    """The section of the README."""
    meta, settings, blocks = result["meta"], result["settings"], []
    for row in result["rows"]:
        steps = checkpoints(settings["iterations"])
        header = ["", *(f"after {step}" for step in steps)]
        table = [
            [TITLES[name], *(f"{100 * curve[step - 1]:.3f} %" for step in steps)]
            for name, curve in row["curves"].items()
        ]
        title = f"### Search: {row['problem'].upper()}{NUM_LOC}, {settings['instances']} instances"
        text = (
            f"Mean gap to {SOLVERS[row['problem']]} after some iterations of "
            f"{settings['copies']} x {settings['solutions']} solutions each; greedy decoding has "
            f"{100 * row['greedy']:.3f} %."
        )
        blocks += [title, text, report.markdown_table(header, table)]
    blocks.append(f"![Gap against iterations](results/{NAME}.png)")
    command = f"{meta['command']} --reference FOLDER"
    facts = f"`{command}` · {meta['date']} · {meta['cpu']}, {meta['threads']} threads"
    return "\n\n".join([*blocks, facts])


def draw(result: dict[str, Any], path: Path) -> None:
    """Plot the gaps against iterations, one panel for each problem."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    rows = result["rows"]
    figure = Figure(figsize=(5.2 * len(rows), 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    for index, row in enumerate(rows):
        axes = figure.add_subplot(1, len(rows), index + 1)
        for name, curve in row["curves"].items():
            steps = range(1, len(curve) + 1)
            axes.plot(steps, curve, color=COLORS[name], label=TITLES[name])
        axes.set_title(f"{row['problem'].upper()}{NUM_LOC}", loc="left")
        axes.set_xscale("log")
        axes.set_xlabel("iterations")
        axes.set_ylabel(f"mean gap to {SOLVERS[row['problem']]}")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=2))
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--reference", type=Path, help="folder with the original weights")
    add("--problems", nargs="+", choices=list(SOLVERS), default=list(SOLVERS))
    add("--methods", nargs="+", choices=list(TITLES), default=[SAMPLING, *SEARCHES])
    add("--instances", type=int, default=20, help="test instances of each problem")
    add("--iterations", type=int, default=100)
    add("--solutions", type=int, default=NUM_LOC, help="solutions of a copy in an iteration")
    add("--batch-size", type=int, default=4, help="instances at the same time")
    add("--solver-seconds", type=float, default=10.0, help="solver's time per instance")
    add("--seed", type=int, default=1234)
    add("--threads", type=int, default=os.cpu_count() or 1)
    add("--progress", action="store_true", help="show progress bars")
    add("--results", type=Path, default=report.RESULTS, help="folder for the JSON file")
    add("--render", action="store_true", help="only rewrite README.md from the stored results")
    arguments = quick.parse_arguments(
        parser,
        argv,
        problems=["tsp"],
        instances=2,
        iterations=2,
        solutions=4,
        solver_seconds=0.5,
    )
    if arguments.reference is None and not (arguments.render or arguments.quick):
        parser.error("expected --reference FOLDER with the original weights, got none")
    return arguments


def main(argv: list[str] | None = None) -> None:
    """Search, store, draw, show."""
    arguments = parse_arguments(argv)
    console, path = Console(), arguments.results / f"{NAME}.json"
    if not arguments.render:
        torch.set_num_threads(arguments.threads)
        names = ["instances", "iterations", "solutions", "batch_size", "solver_seconds", "seed",
                 "threads"]  # fmt: skip
        record = trainings.Record(NAME, arguments, names)
        keys = ("instances", "iterations", "solutions")
        facts = {name: getattr(arguments, name) for name in keys}
        for problem in arguments.problems:
            if not record.has(problem=problem):
                record.add(run(problem, arguments, console), settings={**facts, "copies": 8})
    result = json.loads(path.read_text(encoding="utf-8"))
    draw(result, arguments.results / f"{NAME}.png")
    text = markdown(result)
    console.print(text, markup=False)
    if arguments.results == report.RESULTS:
        report.update_readme(NAME, text)


if __name__ == "__main__":
    main()
