"""How good a short training gets: POMO on several problems, next to a classical solver.

Each problem is trained through the public route for the same time, then tested on fixed instances:
greedy, from all starts, and from all starts under augmentation. A classical solver gets a time
limit per instance; gaps are averages of the instances' gaps to its solutions.

    python -m benchmarks.quality                       # 10 minutes per problem
    python -m benchmarks.quality --problems op pdp --minutes 1 --results try
    python -m benchmarks.quality --render              # README.md from the stored results
"""

from __future__ import annotations

import argparse
import os

from typing import Any

import torch

from benchmarks import quick, trainings
from rl4co.core.ops import unbatchify
from rl4co.data.augment import StateAugmentation
from rl4co.envs import get_env
from rl4co.models.zoo.pomo import POMO

#: Problem → arguments of its generator on top of the size.
PROBLEMS: dict[str, dict[str, Any]] = {
    "op": {},
    "pctsp": {},
    "pdp": {},
    "mtvrp": {"variant_preset": "all"},
}
NUM_LOC = 20
METHODS = ("greedy", "multi-start", "multi-start x 8 augmentations")


def train(problem: str, arguments: argparse.Namespace) -> tuple[POMO, int]:
    """A trained model and the number of its gradient steps."""
    params = {"num_loc": NUM_LOC, **PROBLEMS[problem]}
    env = get_env(problem, generator_params=params, seed=arguments.seed)
    torch.manual_seed(arguments.seed)
    model = POMO(
        env,
        policy_kwargs={"num_encoder_layers": 3},
        batch_size=arguments.batch_size,
        train_data_size=arguments.batch_size * 1000,
        val_data_size=64,
        test_data_size=64,
        optimizer_kwargs={"lr": arguments.lr},
        seed=arguments.seed,
    )
    return model, trainings.fit(model, trainings.Limit(arguments.minutes))


@torch.inference_mode()
def rewards(model: POMO, instances: Any) -> dict[str, torch.Tensor]:
    """Rewards `[B]` of each method on the same instances."""
    env, policy = model.env, model.policy.eval()
    td = env.reset(instances)
    starts = env.get_num_starts(td)
    augmented = StateAugmentation(num_augment=8, augment_fn="dihedral8")(td)
    single = policy(td, env, phase="test", decode_type="greedy")["reward"]
    several = policy(td, env, phase="test", decode_type="multistart_greedy")["reward"]
    most = policy(augmented, env, phase="test", decode_type="multistart_greedy")["reward"]
    best = unbatchify(several, starts).amax(1), unbatchify(most, (8, starts)).flatten(1).amax(1)
    return dict(zip(METHODS, (single, *best), strict=True))


def run(problem: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row: training, test and the solver's values."""
    untrained = get_env(problem, generator_params={"num_loc": NUM_LOC, **PROBLEMS[problem]})
    instances = untrained.dataset(arguments.instances, phase="test").data
    model, steps = train(problem, arguments)
    found = rewards(model, instances)
    _, costs = model.env.solve(
        instances, max_runtime=arguments.solver_seconds, num_procs=arguments.threads
    )
    reference = -costs  # [B]
    return {
        "problem": problem,
        "steps": steps,
        "solver": float(reference.mean()),
        "values": {name: float(value.mean()) for name, value in found.items()},
        "gaps": {
            name: float(((reference - value) / reference.abs()).mean())
            for name, value in found.items()
        },
    }


def table_rows(result: dict[str, Any]) -> list[list[str]]:
    """Cells of the table: value and gap of each method."""
    rows = []
    for row in result["rows"]:
        cells = [f"{row['values'][m]:.3f} ({100 * row['gaps'][m]:.1f} %)" for m in METHODS]
        name = f"{row['problem'].upper()} {NUM_LOC}"
        rows.append([name, str(row["steps"]), f"{row['solver']:.3f}", *cells])
    return rows


COLUMNS = ["", "gradient steps", "solver", *METHODS]


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    add("--minutes", type=float, default=10.0, help="training time of each problem")
    add("--instances", type=int, default=200, help="test instances")
    add("--solver-seconds", type=float, default=1.0, help="solver's time per instance")
    add("--batch-size", type=int, default=64)
    add("--lr", type=float, default=3e-4)
    trainings.add_common_options(parser, os.cpu_count() or 1)
    return quick.parse_arguments(
        parser,
        argv,
        minutes=0.01,
        instances=2,
        solver_seconds=1.0,
        batch_size=4,
        problems=list(PROBLEMS)[:1],
    )


def main(argv: list[str] | None = None) -> None:
    """Train, test, store, show."""
    arguments = parse_arguments(argv)
    if not arguments.render:
        torch.set_num_threads(arguments.threads)
        names = ["minutes", "instances", "solver_seconds", "batch_size", "lr", "seed", "threads"]
        record = trainings.Record("quality", arguments, names)
        for problem in arguments.problems:
            if not record.has(problem=problem):
                record.add(run(problem, arguments))
        trainings.show(record, "mean reward (gap to the solver)", COLUMNS, table_rows)
    trainings.render("quality", arguments.results, COLUMNS, table_rows)


if __name__ == "__main__":
    main()
