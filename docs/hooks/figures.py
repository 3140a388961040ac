"""Draws the figures of the gallery: one solution per problem, and its construction as an animation.

python docs/hooks/figures.py FOLDER NAME...
"""

from __future__ import annotations

import io
import sys

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from matplotlib.figure import Figure
from PIL import Image

from rl4co.core.registry import ENVS
from rl4co.envs import get_env
from rl4co.envs.improvement import is_improvement

#: Arguments of the generators whose instances are drawn; other problems: the defaults.
INSTANCES: dict[str, dict[str, Any]] = {
    "cvrp": {"num_loc": 30},
    "ffsp": {"num_job": 8},
    "flp": {"num_loc": 60, "to_choose": 6},
    "jssp": {"num_jobs": 6, "num_machines": 5},
    "mcp": {"num_items": 60, "num_sets": 30, "n_sets_to_choose": 5},
    "mtvrp": {"num_loc": 24, "variant_preset": "vrptw"},
    "tsp": {"num_loc": 30},
}
MOST_FRAMES = 24
FRAME_MILLISECONDS, LAST_MILLISECONDS = 260, 2600
#: Width of a frame in inches, at `DPI` dots each.
WIDTH, DPI = 5.2, 84


def example(name: str) -> str:
    """The code that solves and draws an instance of a problem."""
    arguments = f", generator_params={INSTANCES[name]}" if name in INSTANCES else ""
    lines = ["from rl4co.envs import get_env", ""]
    lines += [f'env = get_env("{name}", seed=1{arguments})'.replace("'", '"')]
    if is_improvement(ENVS[name]):
        lines += [
            "td = env.reset(batch_size=1)  # a random solution",
            "for _ in range(500):",
            '    td["action"] = env.random_action(td)',
            '    after = env.step(td)["next"]',
            '    if after["cost_current"] < td["cost_current"]:  # keep what improves',
            "        td = after",
            "figure = env.render(td)",
        ]
    else:
        lines += [
            "td = env.reset(batch_size=1)",
            "actions, costs = env.solve(td, max_runtime=1.0)  # by a classical solver",
            "figure = env.render(td, actions)",
        ]
    return "\n".join([*lines, f'figure.savefig("{name}.png")', ""])


def moments(name: str) -> Iterator[tuple[Any, ...]]:
    """Arguments of `env.render` from the first frame to the last."""
    env = get_env(name, seed=1, generator_params=INSTANCES.get(name, {}))
    td = env.reset(batch_size=1)
    if is_improvement(ENVS[name]):
        for _ in range(500):
            td["action"] = env.random_action(td)
            after = env.step(td)["next"]
            if after["cost_current"] < td["cost_current"]:
                yield env, td
                td = after
        yield env, td
        return
    actions, _ = env.solve(td, max_runtime=1.0)
    yield env, td
    for step in range(actions.shape[-1]):
        yield env, td, actions[:, : step + 1]


def thinned(items: list[Any]) -> list[Any]:
    """At most `MOST_FRAMES` of the items, evenly spread, the first and the last among them."""
    last = len(items) - 1
    count = min(MOST_FRAMES, len(items))
    return [items[round(last * k / max(count - 1, 1))] for k in range(count)]


def draw_small(path: Path, env: Any, *solution: Any) -> None:
    """Writes the solution without texts, for the wall of all problems.

    Args:
        path: The file.
        env: The environment.
        solution: Arguments of `env.render`.
    """
    figure = Figure(figsize=(4, 3), dpi=100)
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    env.render(*solution, ax=axes)
    axes.set(title="", xlabel="", ylabel="", xticks=[], yticks=[])
    if legend := axes.get_legend():
        legend.remove()
    figure.savefig(path)


def draw(name: str, folder: Path) -> None:
    """Writes `NAME.png`, the solution, `NAME-small.png`, and `NAME.webp`, the animation.

    Args:
        name: Name of the environment.
        folder: Where to write them.
    """
    torch.manual_seed(1)
    steps = list(moments(name))
    env, *solution = steps[-1]
    still = env.render(*solution)
    still.savefig(folder / f"{name}.png", dpi=110)
    width, height = still.get_size_inches()
    board = Figure(figsize=(1, 1)).add_subplot()
    env.render(*solution, ax=board)
    draw_small(folder / f"{name}-small.png", env, *solution)
    ratio = 0.9 if board.get_aspect() == 1 else min(max(height / width, 0.55), 0.9)
    frames = []
    for _, *state in thinned(steps):
        figure = Figure(figsize=(WIDTH, WIDTH * ratio), dpi=DPI)
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        env.render(*state, ax=axes)
        axes.title.set_fontsize(9)
        if len(state) == 2:  # the clock of a schedule does not jump
            axes.set(xlim=board.get_xlim(), ylim=board.get_ylim())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        frames.append(Image.open(buffer).convert("RGB"))
    durations = [FRAME_MILLISECONDS] * (len(frames) - 1) + [LAST_MILLISECONDS]
    frames[0].save(
        folder / f"{name}.webp",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        quality=60,
        method=4,
    )


if __name__ == "__main__":
    for each in sys.argv[2:]:
        draw(each, Path(sys.argv[1]))
