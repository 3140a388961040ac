"""Draws one solved instance of five problems side by side: the figure at the top of the README.

python examples/overview.py [--out docs/images/overview.png]
"""

from __future__ import annotations

import argparse

from pathlib import Path

import torch

from matplotlib.figure import Figure

from rl4co.envs import get_env

#: Title → environment, arguments of its generator, solver, options of the plot.
PANELS = {
    "TSP: a tour": ("tsp", {"num_loc": 60}, "local_search", {"numbers": False}),
    "CVRP: routes": ("cvrp", {"num_loc": 50}, "ils", {"numbers": False}),
    "Job shop: a schedule": ("jssp", {"num_jobs": 8, "num_machines": 6}, "dispatching", {}),
    "Decap placement: a chip": ("dpp", {}, "random_search", {}),
    "Facility location": ("flp", {"num_loc": 80, "to_choose": 6}, "local_search", {}),
}


def draw(path: Path, seed: int) -> None:
    """Solves one random instance per problem and saves the figure.

    Args:
        path: The PNG file.
        seed: Seed of the instances.
    """
    figure = Figure(figsize=(17, 3.7), layout="constrained")
    axes = figure.subplots(1, len(PANELS), width_ratios=[1, 1, 1.5, 1, 1])
    for ax, (title, (name, generator, solver, options)) in zip(axes, PANELS.items(), strict=True):
        torch.manual_seed(seed)
        env = get_env(name, generator_params=generator)
        td = env.reset(batch_size=1)
        actions, _ = env.solve(td, solver=solver)
        env.render(td, actions, ax=ax, **options)
        ax.set_title(title, fontsize=13)
        ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
        if legend := ax.get_legend():
            legend.remove()
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images/overview.png"))
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    draw(args.out, args.seed)


if __name__ == "__main__":
    main()
