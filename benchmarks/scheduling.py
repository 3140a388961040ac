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
import json
import os

from pathlib import Path
from typing import Any

import torch

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.quality import TimeLimit
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.zoo.l2d import L2DModel
from rl4co.training.trainer import RL4COTrainer

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
    trainer = RL4COTrainer(
        max_epochs=1_000_000,  # the callback ends the training
        accelerator="cpu",
        precision="32-true",
        logger=False,
        callbacks=[TimeLimit(60 * arguments.budget)],
        enable_checkpointing=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model)
    return model, trainer.global_step


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
    """Makespans `[B]` of dispatching rules and CP-SAT."""
    env = make_env(kind)
    found = {
        rule.upper(): env.solve(instances, solver="dispatching", rule=rule)[1]
        for rule in ("mor", "mwkr")
    }
    limits = {"max_runtime": arguments.solver_seconds, "num_procs": arguments.threads}
    found["CP-SAT"] = env.solve(instances, solver="cpsat", **limits)[1]
    return found


def as_rows(
    name: str, found: dict[str, torch.Tensor], best: torch.Tensor, steps: int | None = None
) -> list[dict[str, Any]]:
    """Rows of the result for some methods."""
    return [
        {
            "set": name,
            "method": method,
            "steps": steps,
            "makespan": float(value.mean()),
            "gap": 100 * (float(value.mean() / best.mean()) - 1),
            "paper": PAPER.get((name, method)),
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


def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows: references, then trained policies."""
    tests: dict[str, tuple[tuple[str, int, int], Any, torch.Tensor]] = {}
    rows = []
    for name, kind in SETS.items():
        data: Any = make_env(kind).dataset(arguments.instances, phase="test")
        instances = data.data
        found = references(kind, instances, arguments)
        tests[name] = kind, instances, found["CP-SAT"]
        rows += as_rows(name, found, found["CP-SAT"])
    if arguments.taillard is not None:
        kind = POLICIES["matnet-pointer-jssp"]["set"]
        instances, best = taillard(arguments.taillard)
        tests["Taillard 15x15"] = kind, instances, best
        env = make_env(kind)
        rules = {
            rule.upper(): env.solve(instances, solver="dispatching", rule=rule)[1]
            for rule in ("mor", "mwkr")
        }
        rows += as_rows("Taillard 15x15", {"best known": best, **rules}, best)
    for policy in arguments.policies:
        chosen = {name: test for name, test in tests.items() if test[0] == POLICIES[policy]["set"]}
        if not chosen:
            continue
        model, steps = train(policy, arguments)
        for name, (_, instances, best) in chosen.items():
            found = makespans(model, instances, arguments.samples)
            named = {f"{policy}, {method}": value for method, value in found.items()}
            rows += as_rows(name, named, best, steps)
    order = [*SETS, "Taillard 15x15"]
    return sorted(rows, key=lambda row: order.index(row["set"]))


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    paper = "" if row["paper"] is None else f"{row['paper']:.1f} %"
    steps = "" if row["steps"] is None else str(row["steps"])
    return [
        *(row["set"], row["method"], steps),
        *(f"{row['makespan']:.2f}", f"{row['gap']:.1f} %", paper),
    ]


def markdown(folder: Path) -> str:
    """The section of the README."""
    path = folder / "scheduling.json"
    if not path.exists():
        return "No results yet."
    result = json.loads(path.read_text(encoding="utf-8"))
    meta = result["meta"]
    facts = f"`{meta['command']}` · {meta['date']} · {meta['cpu']}, {meta['threads']} threads"
    table = report.markdown_table(COLUMNS, [cells(row) for row in result["rows"]])
    return "\n\n".join([table, facts])


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    add("--budget", type=float, default=20.0, help="training time of each policy in minutes")
    add("--instances", type=int, default=100, help="test instances")
    add("--samples", type=int, default=128, help="samples of which the best counts")
    add("--solver-seconds", type=float, default=10.0, help="CP-SAT's time per instance")
    add("--batch-size", type=int, default=32)
    add("--train-samples", type=int, default=16, help="schedules per instance in training")
    add("--lr", type=float, default=5e-4)
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=os.cpu_count() or 1)
    add("--taillard", type=Path, help="folder with Taillard's instances")
    add("--results", type=Path, default=report.RESULTS, help="folder for the JSON file")
    add("--render", action="store_true", help="only rewrite README.md from the stored results")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Solve, train, test, store, show."""
    arguments = parse_arguments(argv)
    if not arguments.render:
        torch.set_num_threads(arguments.threads)
        names = ["budget", "instances", "samples", "solver_seconds", "batch_size", "train_samples"]
        names += ["lr", "seed", "threads"]
        options = [f"--{name.replace('_', '-')} {getattr(arguments, name)}" for name in names]
        command = " ".join(["python -m benchmarks.scheduling", *options])
        meta = report.machine_facts(command, arguments.threads)
        result: dict[str, Any] = {"meta": meta, "rows": run(arguments)}
        report.write_json(arguments.results / "scheduling.json", result)
        table = Table(*COLUMNS, title="mean makespan (gap of means to CP-SAT)")
        for row in result["rows"]:
            table.add_row(*cells(row))
        Console().print(table)
    if arguments.results == report.RESULTS:
        report.update_readme("scheduling", markdown(arguments.results))


if __name__ == "__main__":
    main()
