"""How good policies for job shops get in a short training, next to rules and a solver.

Each policy is trained through the public route for the same time and tested on the paper's kind of
instances: greedily, and as the best of many samples. Gaps are those of mean makespans to CP-SAT's,
as in the paper, whose gaps stand beside ours.

    python -m benchmarks.scheduling                     # 20 minutes per policy
    python -m benchmarks.scheduling --budget 1 --policies hgnn --results try
    python -m benchmarks.scheduling --taillard FOLDER   # folder with `instances` and `bks.csv`
    python -m benchmarks.scheduling --render            # README.md from the stored results
"""

from __future__ import annotations

import argparse
import csv
import os

from pathlib import Path
from typing import Any

import torch

from benchmarks import quick, trainings
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.zoo.l2d import L2DModel

#: Test instances: environment, jobs, machines.
SETS = {"JSSP 6x6": ("jssp", 6, 6), "FJSP 10x5": ("fjsp", 10, 5)}
#: Policy → its training set and arguments of the policy. All train like POMO: 16 schedules of each
#: instance, whose mean is the baseline.
POLICIES: dict[str, dict[str, Any]] = {
    "gcn": {"set": ("jssp", 6, 6), "encoder": "gcn", "decoder": "mlp"},
    "hgnn": {"set": ("fjsp", 10, 5), "encoder": "hgnn", "decoder": "mlp"},
    "matnet-pointer": {"set": ("fjsp", 10, 5), "encoder": "matnet", "decoder": "pointer"},
    "matnet-pointer-jssp": {"set": ("jssp", 10, 10), "encoder": "matnet", "decoder": "pointer"},
}
NETWORK = {"embed_dim": 64, "num_encoder_layers": 2, "num_heads": 8}
#: Gaps that the paper reports, in percent.
PAPER = {
    ("JSSP 6x6", "MOR"): 29.2,
    ("JSSP 6x6", "MWKR"): 34.6,
    ("JSSP 6x6", "gcn, greedy"): 16.8,
    ("FJSP 10x5", "MOR"): 20.9,
    ("FJSP 10x5", "MWKR"): 19.4,
    ("FJSP 10x5", "hgnn, greedy"): 15.8,
    ("FJSP 10x5", "hgnn, x128"): 6.1,
    ("FJSP 10x5", "matnet-pointer, greedy"): 4.8,
    ("FJSP 10x5", "matnet-pointer, x128"): 1.8,
    ("Taillard 15x15", "MOR"): 45.0,
    ("Taillard 15x15", "MWKR"): 56.7,
    ("Taillard 15x15", "matnet-pointer-jssp, x128"): 14.2,
}
#: What the table in the README does not say by itself.
CAPTION = """\
Means over test instances that are drawn with seed 1234, and over ta01 to ta10. All policies, `gcn`
too, encode an instance once and are trained like POMO on the episodic reward: that of whole
schedules, of which the mean of several is the baseline. The policy for Taillard's instances was
trained on instances of 10 jobs and 10 machines."""
BEST, TAILLARD = "CP-SAT or best known", "Taillard 15x15"
COLUMNS = ["instances", "method", "steps", "makespan", "gap", "paper's gap"]


def make_env(kind: tuple[str, int, int], **options: Any) -> RL4COEnvBase:
    """An environment with instances of a size."""
    name, jobs, machines = kind
    return get_env(name, generator_params={"num_jobs": jobs, "num_machines": machines}, **options)


def train(policy: str, arguments: argparse.Namespace) -> tuple[L2DModel, int]:
    """A trained model and the number of its gradient steps."""
    settings = dict(POLICIES[policy])
    env = make_env(settings.pop("set"), seed=arguments.seed)
    torch.manual_seed(arguments.seed)
    model = L2DModel(
        env,
        baseline="shared",
        num_samples=arguments.train_samples,
        policy_kwargs={**NETWORK, **settings},
        reward_scale="scale",
        batch_size=arguments.batch_size,
        train_data_size=arguments.batch_size * 1000,
        val_data_size=16,
        test_data_size=16,
        optimizer_kwargs={"lr": arguments.lr},
        seed=arguments.seed,
    )
    return model, trainings.fit(model, trainings.Limit(arguments.budget))


@torch.inference_mode()
def makespans(model: L2DModel, instances: Any, samples: int) -> dict[str, torch.Tensor]:
    """Greedy schedules and the best of many: name → makespans `[B]`."""
    policy = model.policy.eval()
    found: dict[str, list[torch.Tensor]] = {"greedy": [], f"x{samples}": []}
    for part in instances.split(10):  # bounds the memory of many samples
        td = model.env.reset(part)
        rng = torch.Generator().manual_seed(0)
        how = {"decode_type": "sampling", "num_samples": samples, "select_best": True, "rng": rng}
        found["greedy"].append(-policy(td, model.env, decode_type="greedy")["reward"])
        found[f"x{samples}"].append(-policy(td, model.env, **how)["reward"])
    return {name: torch.cat(parts) for name, parts in found.items()}


def references(
    kind: tuple[str, int, int], instances: Any, arguments: argparse.Namespace
) -> dict[str, torch.Tensor]:
    """Makespans `[B]` of CP-SAT and of dispatching rules."""
    env = make_env(kind)
    limits = {"max_runtime": arguments.solver_seconds, "num_procs": arguments.threads}
    return {BEST: env.solve(instances, solver="cpsat", **limits)[1], **rules(env, instances)}


def rules(env: RL4COEnvBase, instances: Any) -> dict[str, torch.Tensor]:
    """Makespans `[B]` of dispatching rules."""
    return {
        rule.upper(): env.solve(instances, solver="dispatching", rule=rule)[1]
        for rule in ("mor", "mwkr")
    }


def as_rows(
    name: str, found: dict[str, torch.Tensor], policy: str = "", steps: int | None = None
) -> list[dict[str, Any]]:
    """Rows of the result for some methods."""
    return [
        {
            "set": name,
            "method": method,
            "policy": policy,
            "steps": steps,
            "makespan": float(value.mean()),
        }
        for method, value in found.items()
    ]


def taillard(folder: Path) -> tuple[Any, torch.Tensor]:
    """The first ten instances of Taillard (15 jobs, 15 machines) and their best known makespans."""
    names = [f"ta{number:02d}" for number in range(1, 11)]
    with (folder / "bks.csv").open(encoding="utf-8") as file:
        known = {row["instance"]: float(row["ub_2026"]) for row in csv.DictReader(file)}
    env = get_env("jssp")
    parts = [env.load_data(folder / "instances" / name) for name in names]
    return torch.cat(parts), torch.tensor([known[name] for name in names])


def run(arguments: argparse.Namespace, record: trainings.Record) -> None:
    """All rows that are not there yet: references, then trained policies."""
    tests: dict[str, tuple[tuple[str, int, int], Any]] = {}
    for name, kind in SETS.items():
        data: Any = make_env(kind).dataset(arguments.instances, phase="test")
        tests[name] = kind, data.data
        if arguments.references and not record.has(set=name, method=BEST):
            record.add(*as_rows(name, references(kind, data.data, arguments)))
    if arguments.taillard is not None:
        kind = POLICIES["matnet-pointer-jssp"]["set"]
        instances, best = taillard(arguments.taillard)
        tests[TAILLARD] = kind, instances
        if arguments.references and not record.has(set=TAILLARD, method=BEST):
            record.add(*as_rows(TAILLARD, {BEST: best, **rules(make_env(kind), instances)}))
    for policy in arguments.policies:
        chosen = {name: test for name, test in tests.items() if test[0] == POLICIES[policy]["set"]}
        if not chosen or all(record.has(set=name, policy=policy) for name in chosen):
            continue
        model, steps = train(policy, arguments)
        for name, (_, instances) in chosen.items():
            found = makespans(model, instances, arguments.samples)
            named = {f"{policy}, {method}": value for method, value in found.items()}
            record.add(*as_rows(name, named, policy, steps))


def table_rows(content: dict[str, Any]) -> list[list[str]]:
    """Cells of the table: makespans, and gaps of means beside the paper's."""
    best = {row["set"]: row["makespan"] for row in content["rows"] if row["method"] == BEST}
    order = [*SETS, TAILLARD]
    table = []
    # References first.
    for row in sorted(content["rows"], key=lambda row: (order.index(row["set"]), row["policy"])):
        name, method = row["set"], row["method"]
        gap = f"{100 * (row['makespan'] / best[name] - 1):.1f} %" if name in best else ""
        paper = f"{PAPER[name, method]:.1f} %" if (name, method) in PAPER else ""
        steps = "" if row["steps"] is None else str(row["steps"])
        table.append([name, method, steps, f"{row['makespan']:.2f}", gap, paper])
    return table


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--policies", nargs="*", choices=list(POLICIES), default=list(POLICIES))
    add("--budget", type=float, default=20.0, help="training time of each policy in minutes")
    add("--instances", type=int, default=100, help="test instances")
    add("--samples", type=int, default=128, help="samples of which the best counts")
    add("--solver-seconds", type=float, default=10.0, help="CP-SAT's time per instance")
    add("--batch-size", type=int, default=32)
    add("--train-samples", type=int, default=16, help="schedules per instance in training")
    add("--lr", type=float, default=5e-4)
    add("--references", action=argparse.BooleanOptionalAction, default=True, help="solver, rules")
    add("--taillard", type=Path, help="folder with Taillard's instances")
    trainings.add_common_options(parser, os.cpu_count() or 1)
    return quick.parse_arguments(
        parser,
        argv,
        budget=0.01,
        instances=2,
        samples=2,
        solver_seconds=0.5,
        batch_size=2,
        train_samples=2,
        policies=list(POLICIES)[:1],
    )


def main(argv: list[str] | None = None) -> None:
    """Solve, train, test, store, show."""
    arguments = parse_arguments(argv)
    if not arguments.render:
        torch.set_num_threads(arguments.threads)
        names = ["budget", "instances", "samples", "solver_seconds", "batch_size", "train_samples"]
        record = trainings.Record("scheduling", arguments, [*names, "lr", "seed", "threads"])
        run(arguments, record)
        trainings.show(record, "mean makespan (gap of means)", COLUMNS, table_rows)
    trainings.render("scheduling", arguments.results, COLUMNS, table_rows, CAPTION)


if __name__ == "__main__":
    main()
