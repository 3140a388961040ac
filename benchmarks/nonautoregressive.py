"""Non-autoregressive methods and their classical counterparts: quality and time.

    python -m benchmarks.nonautoregressive colony --weights gfacs_tsp200.npz --instances tsp200.npz
    python -m benchmarks.nonautoregressive temperature --weights W --instances tsp500.npz
    python -m benchmarks.nonautoregressive step                     # seconds of a training step
    python -m benchmarks.nonautoregressive deepaco --minutes 30     # mean ant on TSP100
    python -m benchmarks.nonautoregressive reviser --size 20 --minutes 60 --out revisers/20
    python -m benchmarks.nonautoregressive glop --size 1000 --batch-size 5  # partitions of CVRP1K
    python -m benchmarks.nonautoregressive scale --size 10000       # solvers of large instances

Each prints a table and, with `--results FOLDER`, stores it as JSON. Times are CPU time.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rich.console import Console
from rich.table import Table
from tensordict import TensorDict
from torch import Tensor

from benchmarks import quick
from benchmarks.trainings import Limit, fit
from rl4co.core.graphs import CandidateGraph
from rl4co.core.rng import derive_generator
from rl4co.decoding.ant_colony import AntColony, ColonyConfig, inverse_distances
from rl4co.envs import get_env
from rl4co.models import GFACS, GLOP, AttentionModel, DeepACO, make_reviser_policy
from rl4co.models.zoo import gfacs
from rl4co.models.zoo.deepaco import ant_rewards

Rows = list[dict[str, Any]]

#: Those of the paper.
TEMPERATURES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


class Contender(NamedTuple):
    """Edges that ants follow, and where they come from."""

    name: str
    graph: CandidateGraph
    heuristic: Tensor
    seconds: float


def read_state(options: argparse.Namespace) -> Any:
    """The first instances of a file of TSPs, after reset."""
    if options.instances is None and options.quick:
        return get_env("tsp", generator_params={"num_loc": options.size}).reset(batch_size=[2])
    locs = torch.from_numpy(np.load(options.instances, allow_pickle=False)["locs"])
    locs = locs[: options.count]
    return get_env("tsp").reset(TensorDict({"locs": locs}, batch_size=[len(locs)]))


def contenders(td: Any, options: argparse.Namespace) -> Iterator[Contender]:
    """A network's weights, if some are given, and inverse distances."""
    degree = options.k_sparse or td["locs"].shape[1] // 10
    if options.weights:
        policy = gfacs.load_original_weights(options.weights, "tsp", degree)
        began = time.process_time()
        with torch.no_grad():
            hidden = policy.edge_weights(td)
        yield Contender("net", hidden.graph, hidden.weights, time.process_time() - began)
    began = time.process_time()
    yield Contender("1/d", *inverse_distances(td, degree), time.process_time() - began)


def colony(options: argparse.Namespace) -> Rows:
    """Ants with a network's weights, ants with 1/d, and iterated local search."""
    env, td = get_env("tsp"), read_state(options)
    config = ColonyConfig(
        n_ants=options.ants, variant="balanced", guided_rounds=options.guided_rounds
    )
    rows: Rows = []
    for name, graph, heuristic, seconds in contenders(td, options):
        began = time.process_time()
        result = AntColony(env, td, graph, heuristic, config).run(options.iterations)
        seconds = (seconds + time.process_time() - began) / len(td)
        rows.append(
            {
                "method": f"ants, {name}",
                "mean ant": -float(result.mean_reward[:, 0].mean()),
                "first iteration": -float(result.curve[:, 0].mean()),
                "cost": -float(result.reward.double().mean()),
                "seconds": seconds,
            }
        )
    began = time.process_time()
    _, costs = env.solve(td, solver="ils", max_runtime=rows[0]["seconds"])
    seconds = (time.process_time() - began) / len(td)
    rows.append({"method": "ils", "cost": float(costs.double().mean()), "seconds": seconds})
    if options.best:
        best = float(np.load(options.best, allow_pickle=False)["cost"][: len(td)].mean())
        for row in rows:
            row["gap %"] = 100 * (row["cost"] / best - 1)
    return rows


def temperature(options: argparse.Namespace) -> Rows:
    """Costs of ants that see the heuristic at other temperatures, $\\eta^{1 / \\tau}$."""
    env, td = get_env("tsp"), read_state(options)
    rows: Rows = [{"tau": tau} for tau in TEMPERATURES]
    for name, graph, heuristic, _ in contenders(td, options):
        for row in rows:
            config = ColonyConfig(
                n_ants=options.ants, variant="balanced", guided_rounds=options.guided_rounds,
                beta=1 / row["tau"],
            )  # fmt: skip
            result = AntColony(env, td, graph, heuristic, config).run(options.iterations)
            row[f"ants, {name}"] = -float(result.reward.double().mean())
    return rows


def step(options: argparse.Namespace) -> Rows:
    """Seconds of a training step of GFACS and DeepACO, local search included."""
    rows: Rows = []
    sizes = (("tsp", 20),) if options.quick else (("tsp", 100), ("tsp", 200), ("cvrp", 100))
    for problem, size in sizes:
        env = get_env(problem, generator_params={"num_loc": size})
        for method in (DeepACO, GFACS):
            model = method(env, batch_size=20, train_data_size=20, seed=1)
            limit = Limit(steps=options.repeats + 1)
            fit(model, limit)
            rows.append(
                {
                    "method": method.__name__,
                    "problem": f"{problem}{size}",
                    "seconds": limit.seconds_per_step(warm_up=1),
                }
            )
    return rows


def train_deepaco(options: argparse.Namespace) -> Rows:
    """The mean ant on given instances (20 ants, no search), before and after training."""
    env = get_env("tsp", generator_params={"num_loc": options.size})
    model = DeepACO(
        env,
        policy_kwargs={"n_ants": 20},
        train_with_local_search=options.local_search,
        batch_size=options.batch_size,
        train_data_size=20 * options.batch_size,
        optimizer="AdamW",
        optimizer_kwargs={"lr": 1e-3},
        seed=options.seed,
    )
    instances = env.generator(100, rng=derive_generator("benchmark"))
    if options.instances:
        locs = torch.from_numpy(np.load(options.instances, allow_pickle=False)["locs"])
        instances = TensorDict({"locs": locs}, batch_size=[len(locs)])
    td = env.reset(instances)

    @torch.no_grad()
    def judge() -> tuple[float, float]:
        policy: Any = model.policy.eval()
        hidden = policy.edge_weights(td)
        actions = policy.sample(td, env, 20, hidden, derive_generator("ants"))
        cost = -ant_rewards(env, td, actions)  # [B, 20]
        return float(cost.mean()), float(cost.amin(1).mean())

    rows: Rows = [dict(zip(("mean ant", "best ant"), judge(), strict=True), minutes=0.0)]
    limit = Limit(options.minutes)
    steps = fit(model, limit)
    mean, best = judge()
    rows.append({"mean ant": mean, "best ant": best, "minutes": limit.minutes, "steps": steps})
    if options.out:
        model.policy.save_pretrained(options.out)  # type: ignore[operator]
    return rows


def train_reviser(options: argparse.Namespace) -> Rows:
    """A reviser on the SHPP, by the Attention Model with the shared mean of samples as baseline."""
    env = get_env("shpp", generator_params={"num_loc": options.size})
    policy = make_reviser_policy(embed_dim=64, num_encoder_layers=3)
    model = AttentionModel(
        env, policy, baseline="exponential", batch_size=options.batch_size,
        train_data_size=100 * options.batch_size, seed=options.seed,
    )  # fmt: skip
    td = env.reset(env.generator(256, rng=derive_generator("benchmark")))

    @torch.no_grad()
    def judge() -> float:
        return -float(policy.eval()(td, env, decode_type="greedy")["reward"].mean())

    rows: Rows = [{"size": options.size, "cost": judge(), "minutes": 0.0}]
    limit = Limit(options.minutes)
    steps = fit(model, limit)
    rows.append({"size": options.size, "cost": judge(), "minutes": limit.minutes, "steps": steps})
    if options.out:
        policy.save_pretrained(options.out)
    return rows


def glop_instances(count: int, size: int, capacity: float) -> TensorDict:
    """The first instances of GLOP's CVRP sets, by their recipe."""
    draw = np.random.RandomState(1234)
    depot, locs = draw.uniform(size=(100, 2)), draw.uniform(size=(100, size, 2))
    demand = draw.randint(1, 10, (100, size)) / capacity
    arrays = {"depot": depot, "locs": locs, "demand": demand}
    tensors = {key: torch.from_numpy(value[:count]).float() for key, value in arrays.items()}
    return TensorDict({**tensors, "capacity": torch.full((count, 1), capacity)}, [count])


def train_glop(options: argparse.Namespace) -> Rows:
    """Partitions of the CVRP, learned with insertion as sub-solver; sweep and ILS beside them."""
    env = get_env(
        "cvrpmvc", generator_params={"num_loc": options.size, "capacity": options.capacity}
    )
    model = GLOP(
        env, policy_kwargs={"n_samples": 20}, batch_size=options.batch_size,
        train_data_size=20 * options.batch_size, optimizer="AdamW",
        optimizer_kwargs={"lr": 3e-4}, seed=options.seed,
    )  # fmt: skip
    limit = Limit(options.minutes)
    steps = fit(model, limit)
    instances = glop_instances(options.count, options.size, options.capacity)
    cvrp = get_env("cvrp")
    rows: Rows = []
    policy = model.policy.eval()
    solvers: list[tuple[str, str, dict[str, Any]]] = [
        ("GLOP, insertion", "glop", {"policy": policy, "subprob_solver": "insertion"}),
        ("GLOP, ILS", "glop", {"policy": policy, "subprob_solver": "ils"}),
        ("sweep, insertion", "glop", {"subprob_solver": "insertion"}),
        ("sweep, ILS", "glop", {"subprob_solver": "ils"}),
        ("ils, 3 s", "ils", {"max_runtime": 3.0}),
    ]
    for name, solver, settings in solvers:
        began = time.process_time()
        _, costs = cvrp.solve(instances, solver=solver, **settings)
        seconds = (time.process_time() - began) / options.count
        rows.append({"method": name, "cost": float(costs.mean()), "seconds": seconds})
    rows[0] |= {"minutes": limit.minutes, "steps": steps}
    if options.out:
        policy.save_pretrained(options.out)  # type: ignore[operator]
    return rows


def scale(options: argparse.Namespace) -> Rows:
    """Solvers of large instances: cost, time, and memory so far of the process or its workers."""
    rows: Rows = []
    for problem in ("tsp", "cvrp"):
        extra = {} if problem == "tsp" else {"capacity": options.capacity}
        env = get_env(problem, generator_params={"num_loc": options.size, **extra}, seed=1)
        instances = env.generate(1)
        for solver in ("random_insertion", "insertion", "sweep", "glop", "ils"):
            began = time.perf_counter()
            _, costs = env.solve(instances, solver=solver, max_runtime=options.seconds)
            usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            peak = max(usage.ru_maxrss for usage in usages) / 2**20
            rows.append(
                {
                    "problem": problem,
                    "solver": solver,
                    "cost": float(costs),
                    "seconds": time.perf_counter() - began,
                    "peak GB": peak,
                }
            )
    return rows


COMMANDS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "colony": colony,
    "temperature": temperature,
    "step": step,
    "deepaco": train_deepaco,
    "reviser": train_reviser,
    "glop": train_glop,
    "scale": scale,
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    add = parser.add_argument
    add("--instances", type=Path, help="npz file with locs")
    add("--weights", type=Path, help="original GFACS weights (colony)")
    add("--best", type=Path, help="npz file with best-known costs (colony)")
    add("--count", type=int, default=16, help="instances")
    add("--k-sparse", type=int)
    add("--ants", type=int, default=100)
    add("--iterations", type=int, default=10)
    add("--guided-rounds", type=int, default=5)
    add("--repeats", type=int, default=5, help="training steps (step)")
    add("--size", type=int, default=100, help="nodes or customers")
    add("--capacity", type=float, default=200.0)
    add("--minutes", type=float, default=30.0, help="length of a training")
    add("--seconds", type=float, default=30.0, help="time limit of solvers (scale)")
    add("--batch-size", type=int, default=20)
    add("--local-search", action="store_true", help="train with local search (deepaco)")
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=1)
    add("--out", type=Path, help="folder for the trained policy")
    add("--results", type=Path, help="folder for the JSON file")
    return quick.parse_arguments(
        parser, arguments, count=2, ants=4, iterations=2, guided_rounds=1, repeats=1, size=20,
        minutes=0.01, seconds=0.05, batch_size=2,
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> Rows:
    """Runs a command and prints its table."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    rows = COMMANDS[options.command](options)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=options.command)
    for row in rows:
        cells = (row.get(key, "") for key in columns)
        table.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in cells))
    Console().print(table)
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        path = options.results / f"nonautoregressive_{options.command}.json"
        path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return rows


if __name__ == "__main__":
    main()
