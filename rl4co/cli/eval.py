"""`rl4co eval`: scores a saved model."""

from __future__ import annotations

import json
import sys

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl4co.cli._frame import (
    DebugFlag,
    JsonFlag,
    app,
    reports_errors,
    show,
    stderr,
    warnings_in_lines,
)
from rl4co.cli._options import (
    AllowClasses,
    BatchSize,
    BeamWidth,
    Device,
    Imports,
    Method,
    MethodOptions,
    NumAugment,
    NumLoc,
    NumStarts,
    Parameters,
    Samples,
    Temperature,
    TopK,
    TopP,
    generator_params,
    key_values,
)
from rl4co.core.errors import ConfigError
from rl4co.core.imports import import_modules, search_working_folder
from rl4co.core.registry import ENVS
from rl4co.pretrained import AUTO, ModelSource, find_model, nearest_model
from rl4co.tasks.methods import find_method

if TYPE_CHECKING:
    from rl4co.envs.base import RL4COEnvBase


@app.command("eval")
@reports_errors
def evaluate(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="Pretrained model (see rl4co models), checkpoint, or folder by save_pretrained; "
            "auto: the pretrained model for --env and --num-loc."
        ),
    ],
    method: Method = "greedy",
    env: Annotated[
        str | None, typer.Option(help="Environment; default: that of the model.")
    ] = None,
    num_loc: NumLoc = None,
    param: Parameters = None,
    data: Annotated[Path | None, typer.Option(help="Instances (.npz) to solve.")] = None,
    size: Annotated[int, typer.Option(help="Test instances to generate without --data.")] = 1000,
    batch_size: BatchSize = None,
    samples: Samples = 1280,
    num_augment: NumAugment = 8,
    num_starts: NumStarts = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    beam_width: BeamWidth = None,
    option: MethodOptions = None,
    imports: Imports = None,
    allow_class: AllowClasses = None,
    seed: Annotated[int, typer.Option(help="Seed of sampling and random symmetries.")] = 1234,
    solver: Annotated[
        str | None, typer.Option(help="Classical solver to compare with, e.g. lkh.")
    ] = None,
    max_runtime: Annotated[
        float | None, typer.Option(help="Seconds per instance of the solver (default: 10).")
    ] = None,
    device: Device = "auto",
    save: Annotated[Path | None, typer.Option(help="Write rewards and actions (.npz).")] = None,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Score a saved model on test instances or on a file."""
    import_modules(imports)
    find_method(method)  # raises for unknown names before anything is loaded
    if data is not None and (num_loc is not None or param):
        raise ConfigError("expected --data or --num-loc and --param, got both; give one of them")
    if max_runtime is not None and solver is None:
        raise ConfigError("expected --solver with --max-runtime, got none; models are not timed")
    if max_runtime is not None and not max_runtime > 0:
        raise ConfigError(f"expected a positive number of seconds, got {max_runtime:g}")
    from rl4co.tasks.evaluate import as_instances, evaluate_policy
    from rl4co.tasks.load import find_device

    place = find_device(device)
    source = _choose(checkpoint, env, num_loc)
    policy, environment = _load(source, place, env, num_loc, param, allow_class)
    instances = as_instances(environment, size if data is None else data)
    settings = {
        "batch_size": batch_size,
        "samples": samples,
        "num_augment": num_augment,
        "num_starts": num_starts,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "beam_width": beam_width,
        "seed": seed,
        **key_values("--option", option),
    }
    result = evaluate_policy(
        environment,
        policy,
        instances,
        method,
        progress=not json_output and sys.stderr.isatty(),
        save_path=save,
        **settings,
    )
    rewards = result["rewards"]
    summary: dict[str, Any] = {
        "env": environment.name,
        "instances": len(rewards),
        "method": method,
        "avg_reward": float(result["avg_reward"]),
        "std_reward": float(rewards.std(correction=0)),
        "inference_time": result["inference_time"],
    }
    if solver is not None:
        _, costs = environment.solve(instances, max_runtime or 10.0, solver=solver)
        gaps = (-rewards - costs.cpu()) / costs.cpu().abs()
        summary |= {
            "solver": solver,
            "solver_reward": -float(costs.mean()),
            "gap": float(gaps.mean()),
        }
    if json_output:
        print(json.dumps(summary))
        return
    shown = {**summary, "inference_time": f"{summary['inference_time']:.2f} s"}
    if "gap" in shown:
        shown["gap"] = f"{100 * summary['gap']:.2f} %"
    rows = [(key.replace("_", " "), _text(value)) for key, value in shown.items()]
    show(str(source), ("", "value"), rows)


def _text(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _choose(text: str, env_name: str | None, num_loc: int | None) -> ModelSource:
    """The model of a name or path, or the nearest pretrained one, which is printed."""
    if text != AUTO:
        with warnings_in_lines():
            return find_model(text)
    if env_name is None:
        raise ConfigError("expected --env PROBLEM with the model auto, got none")
    source = nearest_model(env_name, num_loc)
    stderr().print(f"model: {source} of {source.origin}", highlight=False)
    return source


def _load(
    path: ModelSource,
    device: str,
    env_name: str | None,
    num_loc: int | None,
    param: list[str] | None,
    allow_class: list[str] | None,
) -> tuple[Any, RL4COEnvBase]:
    """The policy of a model, and the environment to evaluate it on."""
    from rl4co.tasks.load import load_policy

    classes = search_working_folder(allow_class)
    policy, saved_env = load_policy(path, device, classes)
    params = generator_params(num_loc, param)
    if saved_env is not None and not params and env_name in (None, saved_env.name):
        return policy, saved_env
    name = env_name or (saved_env.name if saved_env is not None else policy.env_name)
    settings = getattr(policy, "env_params", {}) if name == policy.env_name else {}
    return policy, ENVS[name](generator_params=params, **settings)
