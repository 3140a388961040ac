"""Decap placement with several ports: DevFormer against random search and the genetic algorithm.

The paper's table (both objectives), its figure (score against the number of decaps, trained with
20) and the score against the number of rewards that were computed. All methods meet the same
instances of the simulated chip, so scores compare with each other and not with those of the paper.
What is done is stored at once, so an interrupted run goes on where it was.

    python -m benchmarks.eda                      # 10 minutes per training, about two hours
    python -m benchmarks.eda --budget 0.05 --seeds 1 --instances 4 --results eda-results  # a look
    python -m benchmarks.eda --render             # README.md and plot from the results
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import statistics
import time

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from lightning.pytorch.callbacks import Callback
from torch import Tensor

from benchmarks import quick, trainings
from rl4co import kernels
from rl4co.core.registry import SOLVERS
from rl4co.envs import MDPPEnv
from rl4co.envs.base import State
from rl4co.envs.eda._chip import Chip
from rl4co.models import PPO, AttentionModel, DevFormer, DevFormerPolicy
from rl4co.models.rl.base import RL4COLitModule
from rl4co.tasks.evaluate import evaluate_policy
from rl4co.training.trainer import RL4COTrainer

PLOT = "eda.png"
OBJECTIVES = ("maxsum", "maxmin")
#: Decaps in the figure; policies are trained with the last number.
DECAPS = (5, 10, 15, 20)
BATCH_SIZE, TRAIN_SIZE = 64, 1024
#: Row → solver and its options; `shots` are rewards per instance.
SOLVERS_SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "random search x 100": ("random_search", {"shots": 100}),
    "genetic x 100": ("genetic", {"shots": 100}),
    "nearest cell": ("nearest_cell", {}),
    "greedy": ("greedy", {}),
}
#: Shots of the curves that show the score against the number of rewards.
CURVE_SHOTS = (20, 50, 100, 200, 500)


def _ppo(env: MDPPEnv, **settings: Any) -> RL4COLitModule:
    policy = DevFormerPolicy(env_name=env.name)
    return PPO(env, policy, mini_batch_size=BATCH_SIZE, entropy_lambda=0.01, **settings)


#: Instances on which policy and baseline are compared after an epoch: rewards are what is scarce.
ROLLOUT: dict[str, Any] = {"baseline": "rollout", "baseline_kwargs": {"dataset_size": 100}}


#: Row → model for an environment.
METHODS: dict[str, Callable[..., RL4COLitModule]] = {
    "DevFormer, critic": lambda env, **settings: DevFormer(env, baseline="critic", **settings),
    "DevFormer, PPO": _ppo,
    "DevFormer, rollout": lambda env, **settings: DevFormer(env, **ROLLOUT, **settings),
    "AM, rollout": lambda env, **settings: AttentionModel(env, **ROLLOUT, **settings),
}


class CountingEnv(MDPPEnv):
    """Counts the placements whose reward is asked for."""

    rewards = 0

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        self.rewards += actions.shape[:-1].numel()
        return super()._objective(state, actions)


class Best(Callback):
    """Keeps the weights of the epoch that is best on validation instances, as one would in use.

    REINFORCE without a term for entropy can still lose a good policy after thousands of batches.
    """

    def __init__(self, validate: Callable[[], float]) -> None:
        self.validate, self.score = validate, -math.inf
        self.weights: dict[str, Tensor] = {}

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Looks at the policy."""
        score = self.validate()
        if score > self.score:
            self.score, self.weights = score, copy.deepcopy(pl_module.policy.state_dict())


class Curve(Callback):
    """Tests the policy whenever the number of rewards has grown by half.

    Attributes:
        points: Rewards computed so far, and mean score.
    """

    def __init__(self, env: CountingEnv, test: Callable[[], float]) -> None:
        self.env, self.test, self.following = env, test, 512.0
        self.points: list[tuple[int, float]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Looks at the counter."""
        if self.env.rewards >= self.following:
            self.following = 1.5 * self.env.rewards
            self.points.append((self.env.rewards, self.test()))


def make_env(objective: str, decaps: int = DECAPS[-1], cls: type[MDPPEnv] = MDPPEnv) -> Any:
    """The environment."""
    return cls(reward_type=objective, max_decaps=decaps)


def make_instances(count: int, phase: str) -> Any:
    """The same instances for all."""
    return make_env(OBJECTIVES[0]).dataset(count, phase=phase).data


# ---------------------------------------------------------------- rows


def train_row(
    objective: str, method: str, seed: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Trains a policy and tests its best epoch with all numbers of decaps."""
    instances, test_env = make_instances(arguments.instances, "test"), make_env(objective)
    held_out = make_instances(BATCH_SIZE, "val")
    env = make_env(objective, cls=CountingEnv)
    torch.manual_seed(seed)
    model = METHODS[method](
        env, batch_size=BATCH_SIZE, train_data_size=TRAIN_SIZE, val_data_size=BATCH_SIZE,
        test_data_size=BATCH_SIZE, optimizer_kwargs={"lr": arguments.lr}, seed=seed,
    )  # fmt: skip

    def test(env: MDPPEnv = test_env, instances: Any = instances) -> float:
        was_training = model.policy.training
        found = evaluate_policy(env, model.policy.eval(), instances, method="greedy")
        model.policy.train(was_training)
        return float(found["rewards"].mean())

    limit, curve = trainings.Limit(minutes=arguments.budget), Curve(env, test)
    best = Best(lambda: test(instances=held_out))
    trainer = RL4COTrainer(
        max_epochs=1_000_000,  # the limit ends the training
        accelerator="cpu", precision="32-true", logger=False, callbacks=[limit, curve, best],
        enable_checkpointing=False, num_sanity_val_steps=0, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(model)
    points = [*curve.points, (env.rewards, test())]
    model.policy.load_state_dict(best.weights)
    return {
        "objective": objective, "method": method, "seed": seed, "minutes": limit.minutes,
        "steps": trainer.global_step, "rewards": env.rewards, "curve": points,
        "by_decaps": {count: test(make_env(objective, count)) for count in DECAPS},
    }  # fmt: skip


def solver_row(
    objective: str, method: str, seed: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Solves the test instances classically with all numbers of decaps."""
    instances = make_instances(arguments.instances, "test")
    solver, options = SOLVERS_SHOWN[method]
    seeded = "seed" in SOLVERS[solver].options

    def solve(decaps: int, **more: Any) -> float:
        env = make_env(objective, decaps)
        given = {**options, **more, **({"seed": seed} if seeded else {})}
        _, costs = env.solve(instances, solver=solver, max_runtime=math.inf, **given)
        return -float(costs.mean())

    curve = [
        (shots * arguments.instances, solve(DECAPS[-1], shots=shots))
        for shots in (CURVE_SHOTS if "shots" in options else ())
    ]
    by_decaps = {count: solve(count) for count in DECAPS}
    return {
        "objective": objective, "method": method, "seed": seed, "minutes": 0.0, "steps": 0,
        "rewards": 0, "curve": curve, "by_decaps": by_decaps,
    }  # fmt: skip


def run(arguments: argparse.Namespace, record: trainings.Record) -> None:
    """All rows that are not there yet: each method once, then more seeds of the best two."""
    for objective in OBJECTIVES:
        for method, (solver, _) in SOLVERS_SHOWN.items():
            seeds = arguments.seeds if "seed" in SOLVERS[solver].options else 1
            for seed in range(arguments.seed, arguments.seed + seeds):
                _add_row(record, solver_row, objective, method, seed, arguments)
        for method in arguments.methods:
            _add_row(record, train_row, objective, method, arguments.seed, arguments)
    best = best_methods(record.rows, arguments.methods)
    for objective in OBJECTIVES:
        for seed in range(arguments.seed + 1, arguments.seed + arguments.seeds):
            for method in best[:2]:
                _add_row(record, train_row, objective, method, seed, arguments)


def _add_row(
    record: trainings.Record, make: Callable[..., dict[str, Any]], objective: str, method: str,
    seed: int, arguments: argparse.Namespace,
) -> None:  # fmt: skip
    if not record.has(objective=objective, method=method, seed=seed):
        record.add(make(objective, method, seed, arguments))


def final_score(row: dict[str, Any]) -> float:
    """Score with all decaps; keys are strings once they have been stored."""
    return {int(count): score for count, score in row["by_decaps"].items()}[DECAPS[-1]]


def best_methods(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> list[str]:
    """Trained methods, the best first, by the sum of their scores with the first seed."""
    first = min((row["seed"] for row in rows), default=0)
    totals = dict.fromkeys(methods, 0.0)
    for row in rows:
        if row["method"] in totals and row["seed"] == first:
            totals[row["method"]] += final_score(row)
    return sorted(methods, key=totals.__getitem__, reverse=True)


# ---------------------------------------------------------------- speed


def published_formula(chip: Chip, cells: Tensor, port: int) -> Tensor:
    """The score of one placement as the published code has it.

    Double precision, an inverse, and the reduced matrix of all cells without a decap, of which one
    entry is looked at.
    """
    impedance, decap, weight = chip.tensors(torch.device("cpu"), torch.float64)
    others = torch.ones(chip.num_cells, dtype=torch.bool)
    others[cells] = False
    left = others.nonzero().flatten()
    loads = impedance[:, cells][:, :, cells] + torch.diag_embed(
        decap[:, None].expand(-1, len(cells))
    )
    across = impedance[:, left][:, :, cells]
    reduced = impedance[:, left][:, :, left] - across @ torch.linalg.inv(loads) @ across.mT
    place = int((left == port).nonzero())
    change = impedance[:, port, port].abs() - reduced[:, place, place].abs()
    return (change * weight).sum()


def measure_speed(repeats: int, placements: int = 512, looped: int = 4) -> dict[str, Any]:
    """Seconds of rewards, in turns, and of a training step of DevFormer with and without them.

    Args:
        repeats: Turns; the median counts.
        placements: Placements of 20 decaps at once.
        looped: Placements of the published formula, which is scaled up to all of them.
    """
    from rl4co.envs import DPPEnv

    env = DPPEnv()
    td = env.reset(env.generator(placements, rng=torch.Generator().manual_seed(0)))
    actions, _ = env.solve(td, solver="random")
    state = dict(td.items())

    def loop() -> None:
        for b in range(looped):
            score = published_formula(env.chip, actions[b], int(td["probe"][b]))
            assert abs(float(score - env.get_reward(td[b : b + 1], actions[b : b + 1]))) < 1e-4

    def plain() -> None:
        with kernels.disabled():
            env._objective(state, actions)

    step_env = make_env(OBJECTIVES[0])
    policy = DevFormerPolicy(env_name="mdpp")
    batch = step_env.reset(batch_size=BATCH_SIZE)
    some = policy(batch, step_env)["actions"]

    def train_step() -> None:
        policy(batch, step_env, calc_reward=False)["log_likelihood"].mean().backward()

    tasks: dict[str, tuple[Callable[[], Any], float]] = {
        "published formula, 512 placements": (loop, placements / looped),
        "batched solve, 512 placements": (plain, 1.0),
        "compiled, 512 placements": (lambda: env._objective(state, actions), 1.0),
        "DevFormer, training step of 64 without reward": (train_step, 1.0),
        "reward of that step": (lambda: step_env._objective(dict(batch.items()), some), 1.0),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeats + 1):
        for name, (task, scale) in tasks.items():
            start = time.perf_counter()
            task()
            if turn:  # the first turn compiles and converts
                seconds[name].append(scale * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in seconds.items()}


# ---------------------------------------------------------------- tables and plot

COLUMNS = ["", "minutes", "rewards", *OBJECTIVES]


def table_rows(result: dict[str, Any]) -> list[list[str]]:
    """Cells of the table: mean score, and its spread where there are several seeds."""
    rows = []
    for method in [*SOLVERS_SHOWN, *METHODS]:
        found = [row for row in result["rows"] if row["method"] == method]
        if not found:
            continue
        trained = method in METHODS
        facts = ["", ""]
        if trained:
            minutes = statistics.mean(row["minutes"] for row in found)
            facts = [f"{minutes:.1f}", f"{statistics.mean(row['rewards'] for row in found):,.0f}"]
        rows.append([method, *facts, *(_spread(found, objective) for objective in OBJECTIVES)])
    return rows


def _spread(rows: Sequence[dict[str, Any]], objective: str) -> str:
    scores = [final_score(row) for row in rows if row["objective"] == objective]
    if not scores:
        return ""
    text = f"{statistics.mean(scores):.3f}"
    return f"{text} ± {statistics.stdev(scores):.3f} ({len(scores)})" if len(scores) > 1 else text


def speed_text(result: dict[str, Any]) -> str:
    """Markdown on the speed of rewards."""
    speed = result.get("speed")
    if not speed:
        return ""
    seconds = list(speed.values())
    lines = [f"- {name}: {value:.3f} s" for name, value in speed.items()]
    ratios = f"{seconds[0] / seconds[1]:.0f} and {seconds[0] / seconds[2]:.0f}"
    return "\n".join([*lines, f"- published formula / batched solve and / compiled: {ratios}"])


def draw(result: dict[str, Any], path: Path) -> None:
    """For each objective: score against decaps above, score against rewards below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 7.4), layout="constrained")
    axes = figure.subplots(2, len(OBJECTIVES))
    colors = dict(
        zip([*SOLVERS_SHOWN, *METHODS],
            ("#8b94a5", "#7a5230", "#14a6b8", "#eda100", "#8e4ec6", "#2a9d5c", "#e4572e",
             "#1f6fb4"), strict=True)
    )  # fmt: skip
    for column, objective in enumerate(OBJECTIVES):
        rows = [row for row in result["rows"] if row["objective"] == objective]
        first = min((row["seed"] for row in rows), default=0)
        above, below = axes[0, column], axes[1, column]
        for row in (row for row in rows if row["seed"] == first):
            style = {"color": colors[row["method"]], "label": row["method"], "linewidth": 1.5,
                     "linestyle": "-" if row["method"] in METHODS else "--"}  # fmt: skip
            counts = sorted(int(count) for count in row["by_decaps"])
            scores = {int(count): score for count, score in row["by_decaps"].items()}
            above.plot(counts, [scores[count] for count in counts], marker="o", markersize=4,
                       **style)  # fmt: skip
            if row["curve"]:
                below.plot(*zip(*row["curve"], strict=True), marker="o", markersize=3, **style)
        above.set(title=f"{objective}: trained with {DECAPS[-1]} decaps", xlabel="decaps",
                  ylabel="score", xticks=DECAPS)  # fmt: skip
        below.set(title=f"{objective}: sample efficiency", xlabel="rewards computed in total",
                  ylabel="score", xscale="log")  # fmt: skip
        for ax in (above, below):
            ax.grid(color="#e5e7eb", linewidth=0.6)
            for side in ("top", "right"):
                ax.spines[side].set_visible(False)
    axes[0, -1].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=130)


# ---------------------------------------------------------------- command line


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    add("--budget", type=float, default=10.0, help="minutes of each training")
    add("--seeds", type=int, default=3, help="seeds of the solvers and of the best two methods")
    add("--instances", type=int, default=100, help="test instances")
    add("--lr", type=float, default=1e-4)
    add("--repeats", type=int, default=5, help="turns in which rewards are timed; 0: none")
    trainings.add_common_options(parser, os.cpu_count() or 1)
    return quick.parse_arguments(
        parser,
        argv,
        budget=0.01,
        seeds=1,
        instances=2,
        repeats=0,
        methods=list(METHODS)[:1],
    )


def main(argv: list[str] | None = None) -> None:
    """Train, solve, store, show."""
    arguments = parse_arguments(argv)
    if not arguments.render:
        torch.set_num_threads(arguments.threads)
        record = trainings.Record(
            "eda", arguments, ["budget", "seeds", "instances", "lr", "seed", "threads"]
        )
        if arguments.repeats and "speed" not in record.content:
            record.add(speed=measure_speed(arguments.repeats))
        run(arguments, record)
        trainings.show(record, "mean score", COLUMNS, table_rows)
    stored, below = arguments.results / "eda.json", ""
    if stored.exists():
        content = json.loads(stored.read_text(encoding="utf-8"))
        draw(content, arguments.results / PLOT)
        plot = f"![Score against decaps and against rewards](results/{PLOT})"
        below = "\n\n".join(part for part in (plot, speed_text(content)) if part)
    trainings.render("eda", arguments.results, COLUMNS, table_rows, below)


if __name__ == "__main__":
    main()
