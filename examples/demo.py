"""Trains a small model on the travelling salesman problem and compares it with classical methods.

    make demo                                  (about three minutes on two cores)
    python examples/demo.py --seconds 30       (for the impatient)

First a model that comes with the library plans a tour of Europe's capitals. Then an Attention Model
learns by POMO, from nothing but the lengths of its own tours. The results are a table on the
terminal and three plots: `demo/capitals.png`, `demo/tours.png` and `demo/learning_curve.png`.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings

from pathlib import Path
from typing import Any

import torch

from lightning.pytorch import Callback
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from rl4co.core.errors import MissingDependencyError
from rl4co.data.formats import read_instance
from rl4co.envs import TSPEnv, TSPGenerator
from rl4co.models import POMO, AttentionModelPolicy
from rl4co.tasks.approaches import ByModel
from rl4co.tasks.eval import evaluate_policy
from rl4co.tasks.solve import plot
from rl4co.utils import RL4COTrainer

STEPS_PER_EPOCH = 10
BATCH_SIZE = 64
#: Share of the time after which the learning rate is divided by ten.
DECAY_AT = 0.75
NEAREST, LKH = "nearest neighbour", "optimal (LKH)"
CAPITALS = Path(__file__).with_name("capitals.csv")

console = Console()


def solve_capitals(path: Path) -> None:
    """Plans a tour through the cities of a file with a pretrained model, and draws it."""
    instance = read_instance(CAPITALS)
    solve = ByModel.load("pomo-tsp50", "multistart_greedy_augment_dihedral_8")
    start = time.perf_counter()
    answer = solve(instance)
    seconds, length = time.perf_counter() - start, instance.objective(answer.solution)
    console.print(
        f"{instance.size} capitals: a tour of {length:,.0f} km in {seconds:.2f} s by pomo-tsp50",
        highlight=False,
    )
    plot(instance, answer.solution, f"{instance.size} capitals, {length:,.0f} km").savefig(path)


class LearningCurve(Callback):
    """Ends training when its time is over; shows and records the progress until then.

    Args:
        seconds: Time to train.
        env: Environment.
        instances: Instances on which the policy is tested after each epoch.
        optimum: Mean length of their best tours, if known.
    """

    def __init__(self, seconds: float, env: TSPEnv, instances: Any, optimum: float | None) -> None:
        self.seconds, self.env, self.instances, self.optimum = seconds, env, instances, optimum
        self.points: list[tuple[float, float]] = []
        self.trained = 0.0
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
            TextColumn("{task.fields[news]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def on_train_start(self, trainer: Any, model: Any) -> None:
        self.bar.start()
        self.task = self.bar.add_task("training", total=self.seconds, news="")
        self.measure(model)
        self.resumed = time.perf_counter()

    def on_train_batch_end(self, trainer: Any, model: Any, *args: Any) -> None:
        now = time.perf_counter()
        self.trained += now - self.resumed  # the tests in between do not count
        self.resumed = now
        self.bar.update(self.task, completed=min(self.trained, self.seconds))
        if self.trained > DECAY_AT * self.seconds:
            for group in trainer.optimizers[0].param_groups:
                group["lr"] = 0.1 * group.setdefault("first_lr", group["lr"])
        trainer.should_stop = self.trained >= self.seconds

    def on_train_epoch_end(self, trainer: Any, model: Any) -> None:
        self.measure(model)
        self.resumed = time.perf_counter()

    def on_train_end(self, trainer: Any, model: Any) -> None:
        self.bar.stop()

    def measure(self, model: Any) -> None:
        result = evaluate_policy(self.env, model.policy, self.instances, "greedy")
        length = -float(result["avg_reward"])
        last = int(self.points[-1][0] / 15) if self.points else -1
        self.points.append((self.trained, length))
        news = f"tour length {length:.3f}"
        if self.optimum:
            news += f", {100 * (length / self.optimum - 1):.1f} % above the best"
        self.bar.update(self.task, news=news)
        if not console.is_terminal and int(self.trained / 15) > last:
            console.print(f"{self.trained:4.0f} s: {news}", highlight=False)


def train(
    env: TSPEnv, seconds: float, instances: Any, optimum: float | None
) -> tuple[AttentionModelPolicy, LearningCurve]:
    """A policy trained for so many seconds, and how it came about."""
    policy = AttentionModelPolicy(env_name=env.name, num_encoder_layers=3, normalization="instance")
    model = POMO(
        env,
        policy,
        batch_size=BATCH_SIZE,
        train_data_size=STEPS_PER_EPOCH * BATCH_SIZE,
        val_data_size=1,
        optimizer_kwargs={"lr": 1e-3},
    )
    curve = LearningCurve(seconds, env, instances, optimum)
    trainer = RL4COTrainer(
        max_epochs=100_000,
        accelerator="cpu",
        devices=1,
        precision="32-true",
        callbacks=[curve],
        logger=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model)
    return policy, curve


def optimal_tours(env: TSPEnv, instances: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Tours and lengths by LKH, if it is installed."""
    try:
        return env.solve(instances, solver="lkh", num_procs=2, progress=False)
    except MissingDependencyError as error:
        console.print(f"no optimal tours: {error}", style="yellow")
        return None


def compare(
    env: TSPEnv, policy: Any, instances: Any
) -> tuple[list[tuple[str, float, float]], dict]:
    """Rows (method, mean length, seconds) and the tours of each method."""
    rows, tours = [], {}

    def add(name: str, solve: Any) -> None:
        start = time.perf_counter()
        found = solve()
        if found is not None:
            actions, lengths = found
            rows.append((name, float(lengths.mean()), time.perf_counter() - start))
            tours[name] = (actions, lengths)

    def by_policy(method: str) -> tuple[torch.Tensor, torch.Tensor]:
        result = evaluate_policy(env, policy, instances, method)
        return result["actions"], -result["rewards"]

    add("random tour", lambda: env.solve(instances, solver="random"))
    add(NEAREST, lambda: env.solve(instances, solver="nearest_neighbor"))
    add("model, greedy", lambda: by_policy("greedy"))
    add("model, all starts", lambda: by_policy("multistart_greedy"))
    add("model, all starts × 8", lambda: by_policy("multistart_greedy_augment_dihedral_8"))
    add(LKH, lambda: optimal_tours(env, instances))
    return rows, tours


def print_table(rows: list[tuple[str, float, float]], num: int, num_loc: int) -> None:
    table = Table(title=f"{num} random instances with {num_loc} cities", title_justify="left")
    table.add_column("method")
    for name in ("mean length", "gap to best", "seconds"):
        table.add_column(name, justify="right")
    best = min(length for _, length, _ in rows)
    for name, length, seconds in rows:
        gap = f"{100 * (length / best - 1):.2f} %"
        bold = "bold" if name.startswith("model") else None
        table.add_row(name, f"{length:.3f}", gap, f"{seconds:.2f}", style=bold)
    console.print(table)


def in_common_order(tours: torch.Tensor) -> torch.Tensor:
    """The same closed tours, from city 0 on and in one direction, so that equal ones look equal."""
    start = tours.argmin(-1, keepdim=True)  # [B, 1]
    steps = torch.arange(tours.shape[-1])  # [N]
    forward = tours.gather(-1, (start + steps) % tours.shape[-1])
    backward = tours.gather(-1, (start - steps) % tours.shape[-1])
    return torch.where(forward[:, 1:2] < backward[:, 1:2], forward, backward)


def draw_tours(env: TSPEnv, instances: Any, tours: dict, path: Path, columns: int = 4) -> None:
    """The tours of the model above, the optimal ones below, for a few instances."""
    from matplotlib.figure import Figure

    names = [name for name in ("model, greedy", "model, all starts × 8", LKH) if name in tours]
    figure = Figure(figsize=(3.0 * columns, 3.3 * len(names)), layout="constrained")
    grid = figure.subplots(len(names), columns, squeeze=False)
    td = env.reset(instances)
    for row, name in zip(grid, names, strict=True):
        actions, lengths = tours[name]
        actions = in_common_order(actions)
        for index, ax in enumerate(row):
            best = min(float(tours[other][1][index]) for other in names)
            gap = 100 * (float(lengths[index]) / best - 1)
            title = f"{name}: {lengths[index]:.3f}" + (f" (+{gap:.1f} %)" if gap > 0.05 else "")
            env.render(td, actions, index=index, ax=ax, numbers=False, title="")
            ax.set_title(title, fontsize=10.5)
            ax.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), xticks=[], yticks=[])
    figure.savefig(path, dpi=120)


def draw_curve(points: list[tuple[float, float]], levels: dict[str, float], path: Path) -> None:
    """Mean tour length while training, between the classical methods on the same instances."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    ax = figure.subplots()
    seconds, lengths = zip(*points, strict=True)
    ax.plot(seconds, lengths, color="#1f6fb4", linewidth=2)
    middle = 2 * len(seconds) // 3
    ax.annotate(
        "model, greedy", (seconds[middle], lengths[middle]), (0, 10), textcoords="offset points",
        ha="center", color="#1f6fb4", weight="bold",
    )  # fmt: skip
    for (name, level), color in zip(levels.items(), ("#6b7485", "#e4572e"), strict=False):
        ax.axhline(level, color=color, linestyle="--", linewidth=1.2)
        offset = 4 if name == NEAREST else -13
        ax.annotate(
            name, (0.99, level), (0, offset), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", color=color,
        )  # fmt: skip
    ax.set(xlabel="seconds of training", ylabel="mean tour length", xlim=(0, seconds[-1]))
    # The first, random tours are twice as long and would squeeze the rest.
    ax.set_ylim(0.96 * min(*levels.values(), *lengths), 1.25 * levels[NEAREST])
    ax.grid(axis="y", color="#d9dde4", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="time to train")
    parser.add_argument("--num-loc", type=int, default=20, help="cities per instance")
    parser.add_argument("--instances", type=int, default=256, help="test instances")
    parser.add_argument("--seed", type=int, default=1234, help="seed of the run")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the plots")
    args = parser.parse_args()

    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)

    solve_capitals(args.out / "capitals.png")
    env = TSPEnv(TSPGenerator(num_loc=args.num_loc))
    validation = env.dataset(200, phase="val").data
    test = env.dataset(args.instances, phase="test").data
    levels = {NEAREST: float(env.solve(validation, solver="nearest_neighbor")[1].mean())}
    reference = optimal_tours(env, validation)
    if reference is not None:
        levels[LKH] = float(reference[1].mean())

    policy, curve = train(env, args.seconds, validation, levels.get(LKH))
    rows, tours = compare(env, policy, test)
    print_table(rows, args.instances, args.num_loc)
    draw_tours(env, test, tours, args.out / "tours.png")
    draw_curve(curve.points, levels, args.out / "learning_curve.png")
    plots = ("capitals", "tours", "learning_curve")
    console.print("plots:", *(f"{args.out}/{name}.png" for name in plots), highlight=False)


if __name__ == "__main__":
    main()
