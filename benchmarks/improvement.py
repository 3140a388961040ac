"""Improvement methods alone, and from solutions that another policy constructs.

Policies are trained first (or taken from the folder of an earlier run), each for the same time:
DACT, NeuOpt and POMO for the TSP, N2S and HAM for the PDP. Then test instances are improved step by
step, from random solutions and from constructed ones, greedy or the best of many, next to sampling
from the constructive policy alone, and next to both in one training that takes as long as that of
one. Gaps are to LKH (TSP) or OR-Tools (PDP); the primal integral is
the mean gap over the time that the slowest one takes, 100 % before there is a first solution.

    python -m benchmarks.improvement --minutes 25 --models FOLDER
    python -m benchmarks.improvement --minutes 0.2 --instances 4 --steps 10 --results try
    python -m benchmarks.improvement --render             # README.md from the stored results
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rich.console import Console
from tensordict import TensorDictBase
from torch import Tensor

from benchmarks import quick, report, trainings
from rl4co.core.registry import MODELS
from rl4co.core.rng import derive_generator
from rl4co.envs import get_env
from rl4co.envs.cost_curve import render_costs
from rl4co.models import ConstructAndImprove, load_pretrained
from rl4co.tasks.improve import improve
from rl4co.tasks.metrics import Incumbents, primal_integral

NAME = "improvement"
SOLVERS = {"tsp": "lkh", "pdp": "ortools"}
#: Steps after which the table shows gaps.
MARKS = (100, 500, 1000)
#: Smallest gap of the plots, in percent.
LEAST_GAP = 0.01


class Method(NamedTuple):
    """What is trained for a problem."""

    problem: str
    model: str
    title: str
    env: str
    env_params: Mapping[str, Any]
    settings: Mapping[str, Any]


#: For processors: smaller networks, batches and learning rates that move within minutes.
_QUICK = {
    "n_step": 4, "T_train": 24, "batch_size": 64, "train_data_size": 1280, "gamma": 0.99,
    "lr_policy": 4e-4, "lr_critic": 4e-4, "curriculum": "linear", "CL_scalar": 0.5,
}  # fmt: skip
#: Larger batches at a higher rate that falls: what DACT and N2S learn best from.
_CALM = {
    "batch_size": 160, "lr_policy": 1e-3, "lr_critic": 1e-3, "lr_scheduler_kwargs": {"gamma": 0.93},
}  # fmt: skip
_WIDTH_64 = {"policy_kwargs": {"embed_dim": 64, "num_encoder_layers": 2}}
METHODS: dict[str, Method] = {
    "dact": Method(
        "tsp", "dact", "DACT (Cauchy)", "tsp_kopt", {},
        {**_QUICK, **_CALM,
         "policy_kwargs": {"embed_dim": 32, "dropout": 0.0, "score": "cauchy"}},
    ),
    "neuopt": Method(
        "tsp", "neuopt", "NeuOpt", "tsp_kopt", {"k_max": 4}, {**_QUICK, **_WIDTH_64}
    ),
    "n2s": Method(
        "pdp", "n2s", "N2S", "pdp_ruin_repair", {},
        {**_QUICK, **_CALM, **_WIDTH_64, "CL_scalar": 0.33},
    ),
    "pomo": Method("tsp", "pomo", "POMO", "tsp", {}, {"batch_size": 64}),
    "ham": Method("pdp", "ham", "HAM", "pdp", {}, {"batch_size": 128, "baseline": "mean"}),
}  # fmt: skip
CONSTRUCTORS = {"tsp": "pomo", "pdp": "ham"}
#: How first solutions are constructed.
STARTS: dict[str, dict[str, Any]] = {
    "greedy": {"decode_type": "greedy"},
    "best": {"decode_type": "multistart_greedy", "select_best": True},
}


def make_env(method: Method, size: int) -> Any:
    """Environment of a method."""
    return get_env(method.env, generator_params={"num_loc": size}, **method.env_params)


def prepare(name: str, arguments: argparse.Namespace, console: Console) -> Any:
    """The policy of a method: from the folder of models, or trained and put there."""
    method, folder = METHODS[name], arguments.models / f"{name}-{arguments.size}"
    if folder.is_dir():
        return load_pretrained(folder)
    torch.manual_seed(arguments.seed)
    env = make_env(method, arguments.size)
    model = MODELS[method.model](env, seed=arguments.seed, **method.settings)
    steps = trainings.fit(model, trainings.Limit(minutes=arguments.minutes))
    console.print(f"{method.title}: {steps} updates in {arguments.minutes:g} minutes")
    return load_pretrained(model.policy.save_pretrained(folder))


def prepare_together(name: str, arguments: argparse.Namespace, console: Console) -> tuple[Any, Any]:
    """Constructive and improvement policy of one training in the time of one."""
    method, folder = METHODS[name], arguments.models / f"{name}-{arguments.size}-together"
    if not folder.is_dir():
        torch.manual_seed(arguments.seed)
        env, first = make_env(method, arguments.size), METHODS[CONSTRUCTORS[method.problem]]
        # Constructed solutions need no warm-up moves to be hard to improve.
        others = ("policy_kwargs", "curriculum", "CL_scalar")
        settings = {key: value for key, value in method.settings.items() if key not in others}
        model = ConstructAndImprove(
            env,
            MODELS[method.model](env, **method.settings).policy,
            MODELS[first.model](get_env(first.env), **first.settings).policy,
            seed=arguments.seed,
            **settings,
        )
        steps = trainings.fit(model, trainings.Limit(minutes=arguments.minutes))
        names = f"{first.title} and {method.title}"
        console.print(f"{names}: {steps} updates in {arguments.minutes:g} minutes")
        model.constructor.save_pretrained(folder / "constructor")
        model.policy.save_pretrained(folder / "policy")
    return load_pretrained(folder / "constructor"), load_pretrained(folder / "policy")


@torch.no_grad()
def sample(
    policy: Any, problem: str, size: int, instances: TensorDictBase, seconds: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Best costs `[T, B]` and seconds `[T]` of sampling solutions until the time is over."""
    env = get_env(problem, generator_params={"num_loc": size})
    td, started = env.reset(instances), time.perf_counter()
    costs: list[Tensor] = []
    times: list[float] = []
    while not times or times[-1] < seconds:
        rng = derive_generator(seed, "sampling", len(costs))
        options = {"decode_type": "sampling", "num_samples": 16, "select_best": True, "rng": rng}
        found = -policy(td, env, phase="test", **options)["reward"]
        costs.append(found if not costs else torch.minimum(costs[-1], found))
        times.append(time.perf_counter() - started)
    return torch.stack(costs), torch.tensor(times)


def run(problem: str, arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Curves of all methods on one problem."""
    size = arguments.size
    env = get_env(problem, generator_params={"num_loc": size})
    instances = env.dataset(arguments.instances, phase="test").data
    solver = {"solver": SOLVERS[problem], "num_procs": arguments.threads}
    _, best = env.solve(instances, max_runtime=arguments.solver_seconds, **solver)
    first = prepare(CONSTRUCTORS[problem], arguments, console)
    title = METHODS[CONSTRUCTORS[problem]].title
    curves: dict[str, Any] = {}
    for name, method in METHODS.items():
        if method.problem != problem or name in CONSTRUCTORS.values():
            continue
        policy, own = prepare(name, arguments, console), make_env(method, size)
        runs: dict[str, tuple[Any, Any]] = {method.title: (policy, "random")}
        for start in STARTS:
            constructed = functools.partial(first, **STARTS[start])
            runs[f"{title} ({start}) + {method.title}"] = (policy, constructed)
        if name in arguments.together:
            constructor, improver = prepare_together(name, arguments, console)
            constructed = functools.partial(constructor, **STARTS["best"])
            runs[f"{title} (best) + {method.title}, trained together"] = (improver, constructed)
        for label, (improver, initial) in runs.items():
            options = {"initial": initial, "seed": arguments.seed, "progress": arguments.progress}
            improve(improver, own, instances, 1, **options)  # first calls take longer
            result = improve(improver, own, instances, arguments.steps, **options)
            curves[label] = curve(result.incumbents, result.times, best)
            console.print(f"{problem}: {label} {curves[label]['gaps'][-1]:.3%}", highlight=False)
    longest = max(entry["times"][-1] for entry in curves.values())
    costs, times = sample(first, problem, size, instances, longest, arguments.seed)
    curves[f"{title} (sampling)"] = curve(costs, times, best)
    for entry in curves.values():
        entry["primal_integral"] = mean_integral(entry.pop("costs"), entry["times"], best, longest)
    return {"problem": problem, "reference": float(best.mean()), "curves": curves}


def curve(incumbents: Tensor, times: Tensor, best: Tensor) -> dict[str, Any]:
    """Mean gaps after each step, and when."""
    gaps = ((incumbents - best) / best).mean(1)
    return {"gaps": gaps.tolist(), "times": times.tolist(), "costs": incumbents}


def mean_integral(costs: Tensor, times: list[float], best: Tensor, horizon: float) -> float:
    """Mean primal integral of the instances, in percent."""
    integrals = [
        primal_integral(
            Incumbents.of_points(zip(times, costs[:, b].tolist(), strict=True)),
            float(best[b]),
            horizon,
        )
        for b in range(costs.shape[1])
    ]
    return sum(integrals) / len(integrals)


def markdown(result: dict[str, Any]) -> str:
    """The section of the README."""
    meta, settings, blocks = result["meta"], result["settings"], []
    marks = [step for step in MARKS if step <= settings["steps"]] or [settings["steps"]]
    for row in result["rows"]:
        header = ["", "start", *(f"after {step}" for step in marks), "seconds", "primal integral"]
        table = []
        for name, entry in row["curves"].items():
            gaps = entry["gaps"]
            shown = [f"{100 * gaps[step]:.2f} %" if step < len(gaps) else "" for step in marks]
            if "sampling" in name:
                shown = ["", *[""] * (len(marks) - 2), f"{100 * gaps[-1]:.2f} %"][-len(marks) :]
            table.append(
                [name, f"{100 * gaps[0]:.2f} %", *shown, f"{entry['times'][-1]:.1f}",
                 f"{entry['primal_integral']:.2f} %"]
            )  # fmt: skip
        problem = f"{row['problem'].upper()}{settings['size']}"
        has_joint = any("together" in name for name in row["curves"])
        text = (
            f"Mean gap to {SOLVERS[row['problem']]} of {settings['instances']} instances after "
            f"some steps; policies trained for {settings['minutes']:g} minutes each"
            f"{', or two together in that time' if has_joint else ''}."
        )
        blocks += [f"### Construction and improvement: {problem}", text,
                   report.markdown_table(header, table),
                   f"![Gap against time](results/{NAME}-{row['problem']}.png)"]  # fmt: skip
    facts = f"`{meta['command']}` · {meta['date']} · {meta['cpu']}, {meta['threads']} threads"
    return "\n\n".join([*blocks, facts])


def draw(result: dict[str, Any], folder: Path) -> None:
    """Gaps against steps and against seconds, one plot for each problem."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    for row in result["rows"]:
        figure = Figure(figsize=(13.0, 4.0), layout="constrained")
        FigureCanvasAgg(figure)
        by_step, by_time = figure.subplots(1, 2)
        gaps = {
            name: [max(100 * gap, LEAST_GAP) for gap in entry["gaps"]]
            for name, entry in row["curves"].items()
        }
        moves = {name: values for name, values in gaps.items() if "sampling" not in name}
        render_costs(moves, ax=by_step)
        clocks = {name: entry["times"] for name, entry in row["curves"].items()}
        render_costs(gaps, times=clocks, ax=by_time)
        for ax in (by_step, by_time):
            ax.set(xscale="log", yscale="log", ylabel="gap in %")
            ax.get_legend().remove()
        # One for both, beside them: inside it would hide the first steps.
        lines = by_time.get_legend_handles_labels()
        figure.legend(*lines, loc="outside right center", frameon=False, fontsize=8)
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{NAME}-{row['problem']}.png", dpi=150)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--problems", nargs="+", choices=list(SOLVERS), default=list(SOLVERS))
    add("--size", type=int, default=20, help="nodes of an instance")
    add("--together", nargs="*", choices=["dact", "neuopt", "n2s"], default=["neuopt", "n2s"],
        help="methods that are also trained in one run with the constructive policy")  # fmt: skip
    add("--minutes", type=float, default=25.0, help="training of each policy")
    add("--instances", type=int, default=100)
    add("--steps", type=int, default=1000)
    add("--solver-seconds", type=float, default=5.0, help="solver's time per instance")
    add("--models", type=Path, default=None, help="folder of policies (default: in --results)")
    add("--progress", action="store_true", help="show progress bars")
    trainings.add_common_options(parser, os.cpu_count() or 1)
    arguments = quick.parse_arguments(
        parser,
        argv,
        problems=["tsp"],
        together=[],
        size=8,
        minutes=0.01,
        instances=2,
        steps=3,
        solver_seconds=0.1,
    )
    if arguments.models is None:
        arguments.models = arguments.results / f"{NAME}-models"
    return arguments


def main(argv: list[str] | None = None) -> None:
    """Train, improve, store, draw, show."""
    arguments = parse_arguments(argv)
    console, path = Console(), arguments.results / f"{NAME}.json"
    if not arguments.render:
        torch.set_num_threads(arguments.threads)
        names = ["size", "minutes", "instances", "steps", "solver_seconds", "seed", "threads"]
        record = trainings.Record(NAME, arguments, names)
        settings = {name: getattr(arguments, name) for name in names}
        for problem in arguments.problems:
            if not record.has(problem=problem):
                record.add(run(problem, arguments, console), settings=settings)
    result = json.loads(path.read_text(encoding="utf-8"))
    draw(result, arguments.results)
    text = markdown(result)
    console.print(text, markup=False)
    if arguments.results == report.RESULTS:
        report.update_readme(NAME, text)


if __name__ == "__main__":
    main()
