"""Kernels on against off: whole training steps and inference, alternating in one process.

A kernel stays if some row here gains at least 1.15 by it (see `rl4co/kernels/README.md`).

    python -m benchmarks.kernels                     # all rows, some minutes
    python -m benchmarks.kernels --rows "am tsp 50" --repeats 9
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time

from collections.abc import Callable

import torch

from rich.console import Console
from rich.table import Table

from benchmarks import quick
from rl4co import kernels
from rl4co.envs import get_env
from rl4co.models import POMO, AttentionModel, MatNet

#: Row → (method, problem, nodes, instances, what is timed).
ROWS: dict[str, tuple[type, str, int, int, str]] = {
    **{
        f"am {problem} {size}": (AttentionModel, problem, size, 512, "train")
        for problem in ("tsp", "cvrp")
        for size in (20, 50)
    },
    **{
        f"pomo {problem} {size}": (POMO, problem, size, 64, "train")
        for problem in ("tsp", "cvrp")
        for size in (20, 50)
    },
    "matnet atsp 20": (MatNet, "atsp", 20, 64, "train"),
    "greedy tsp 50": (AttentionModel, "tsp", 50, 512, "greedy"),
    "greedy cvrp 50": (AttentionModel, "cvrp", 50, 512, "greedy"),
    "multi-start tsp 50": (POMO, "tsp", 50, 64, "multistart_greedy"),
    "one instance, tsp 50": (AttentionModel, "tsp", 50, 1, "greedy"),
    "one instance, cvrp 50": (AttentionModel, "cvrp", 50, 1, "greedy"),
}


def make_step(method: type, problem: str, size: int, batch: int, kind: str) -> Callable[[], None]:
    """What is timed: a training step, or solving a batch."""
    torch.manual_seed(0)
    env = get_env(problem, generator_params={"num_loc": size}, check_solution=False)
    options = {"baseline": "mean"} if method is AttentionModel else {}
    model = method(env, **options)
    policy = model.policy
    instances = env.generator(batch, rng=torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(policy.parameters(), 1e-4)

    def train() -> None:
        policy.train()
        decode_type = "sampling" if method is AttentionModel else "multistart_sampling"
        out = policy(env.reset(instances), env, phase="train", decode_type=decode_type)
        advantage = out["reward"] - out["reward"].mean()
        optimizer.zero_grad()
        (-advantage * out["log_likelihood"]).mean().backward()
        optimizer.step()

    def solve() -> None:
        policy.eval()
        with torch.no_grad():
            policy(env.reset(instances), env, phase="test", decode_type=kind)

    return train if kind == "train" else solve


def measure(step: Callable[[], None], repeats: int) -> dict[str, float]:
    """Median seconds of a step, kernels alternately on and off."""
    seconds: dict[str, list[float]] = {"on": [], "off": []}
    for repeat in range(repeats + 1):
        for switch, times in seconds.items():
            with contextlib.nullcontext() if switch == "on" else kernels.disabled():
                begin = time.perf_counter()
                step()
                if repeat:  # the first round compiles and fills the memory
                    times.append(time.perf_counter() - begin)
    return {switch: statistics.median(times) for switch, times in seconds.items()}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = quick.parse_arguments(parser, argv, repeats=1, rows=["one instance, tsp 50"])
    torch.set_num_threads(arguments.threads)
    table = Table("row", "on", "off", "off / on")
    for name in arguments.rows:
        found = measure(make_step(*ROWS[name]), arguments.repeats)
        cells = [f"{1e3 * found[switch]:.1f} ms" for switch in ("on", "off")]
        table.add_row(name, *cells, f"{found['off'] / found['on']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
