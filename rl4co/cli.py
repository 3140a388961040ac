"""The command line: `rl4co train | eval | generate | list`.

Nothing heavy is imported here: `rl4co --help` and `rl4co list` need no large library, and the other
commands import torch when they start to work.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import sys

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rl4co.core.errors import ConfigError, RL4COError, UnknownNameError
from rl4co.core.registry import ENVS
from rl4co.tasks.catalogue import CATALOGUE
from rl4co.tasks.methods import METHODS

if TYPE_CHECKING:
    from rl4co.envs.base import RL4COEnvBase

USAGE_ERROR = 2

F = TypeVar("F", bound=Callable[..., None])

app = typer.Typer(
    name="rl4co",
    help="Reinforcement learning for combinatorial optimization.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, errors included.")]
DebugFlag = Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="KEY=VALUE", help="Argument of the generator."),
]
NumLoc = Annotated[int | None, typer.Option(help="Nodes (customers, cities) per instance.")]


def main() -> None:
    """Entry point of the command `rl4co`."""
    app(prog_name="rl4co")


# ---------------------------------------------------------------- frame


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"rl4co {sys.modules['rl4co'].__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Reinforcement learning for combinatorial optimization."""


def reports_errors(command: F) -> F:
    """Decorator of commands: errors that the user can mend become one line and exit code 2.

    The command has the parameters `json_output` and `debug`.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (RL4COError, OSError) as error:
            if kwargs.get("debug"):
                raise
            if kwargs.get("json_output"):
                kind = type(error).__name__
                print(json.dumps({"error": {"type": kind, "message": str(error)}}))
            else:
                _stderr().print(str(error), style="red", markup=False, highlight=False)
            raise typer.Exit(USAGE_ERROR) from error

    return wrapped  # type: ignore[return-value]


def _stderr() -> Any:
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True)


def _show(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Prints a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        *columns, title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for row in rows:
        table.add_row(*row)
    Console().print(table)


# ---------------------------------------------------------------- train


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def train(context: typer.Context) -> None:
    """Train a model: [bold]rl4co train experiment=quick[/bold] (all arguments go to Hydra)."""
    import rl4co.tasks.train as task

    # Distributed training starts the program again by its first argument, without the subcommand.
    sys.argv = [task.__file__, *context.args]
    task.main()


# ---------------------------------------------------------------- eval


def _method_help() -> str:
    return "How to decode: " + ", ".join(METHODS) + "."


@app.command("eval")
@reports_errors
def evaluate(
    checkpoint: Annotated[
        Path, typer.Argument(help="Lightning checkpoint, or folder written by save_pretrained.")
    ],
    method: Annotated[str, typer.Option("--method", "-m", help=_method_help())] = "greedy",
    env: Annotated[str | None, typer.Option(help="Environment; default: the model's own.")] = None,
    num_loc: NumLoc = None,
    param: Parameters = None,
    data: Annotated[Path | None, typer.Option(help="Instances (.npz) to solve.")] = None,
    size: Annotated[int, typer.Option(help="Test instances to generate without --data.")] = 1000,
    batch_size: Annotated[int | None, typer.Option(help="Default: chosen.")] = None,
    samples: Annotated[int, typer.Option(help="Solutions per instance of sampling.")] = 1280,
    num_augment: Annotated[int, typer.Option(help="Copies of an instance.")] = 8,
    num_starts: Annotated[int | None, typer.Option(help="Starts; default: all.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Softmax temperature.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus of sampling.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Actions to sample from.")] = None,
    beam_width: Annotated[int | None, typer.Option(help="Width of beam_search.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of sampling and random symmetries.")] = 1234,
    solver: Annotated[
        str | None, typer.Option(help="Classical solver to compare with, e.g. lkh.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ... or auto.")] = "auto",
    save: Annotated[Path | None, typer.Option(help="Write rewards and actions (.npz).")] = None,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Score a saved model on test instances or on a file."""
    if method not in METHODS:
        raise UnknownNameError("evaluation method", method, METHODS)
    if data is not None and (num_loc is not None or param):
        raise ConfigError("expected --data or --num-loc and --param, got both; give one of them")
    from rl4co.tasks.evaluate import as_instances, evaluate_policy

    policy, environment = _load(checkpoint, _device(device), env, num_loc, param)
    instances = as_instances(environment, size if data is None else data)
    result = evaluate_policy(
        environment,
        policy,
        instances,
        method,
        batch_size=batch_size,
        samples=samples,
        num_augment=num_augment,
        num_starts=num_starts,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        beam_width=beam_width,
        seed=seed,
        progress=not json_output and sys.stderr.isatty(),
        save_path=save,
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
        _, costs = environment.solve(instances, solver=solver)
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
    _show(str(checkpoint), ("", "value"), rows)


def _text(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _load(
    path: Path, device: str, env_name: str | None, num_loc: int | None, param: list[str] | None
) -> tuple[Any, RL4COEnvBase]:
    """The policy of a checkpoint or folder, and the environment to evaluate it on."""
    own_env: Any = None
    if path.is_dir():
        from rl4co.models.policies.pretrained import load_pretrained

        policy = load_pretrained(path, device)
    elif path.is_file():
        from rl4co.models.rl.base import RL4COLitModule

        model = RL4COLitModule.load_from_checkpoint(path, map_location=device)
        policy, own_env = model.policy.to(device), model.env
    else:
        raise FileNotFoundError(
            f"expected a checkpoint file or a folder written by save_pretrained, got no such "
            f"path: {path}"
        )
    params = _parameters(num_loc, param)
    if own_env is not None and not params and env_name in (None, own_env.name):
        return policy, own_env
    name = env_name or (own_env.name if own_env is not None else policy.env_name)
    return policy, ENVS[name](generator_params=params)


def _device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # unknown name, or not in this build
        raise ConfigError(f"expected a device that torch can use, got {name!r}: {error}") from error
    return name


def _parameters(num_loc: int | None, param: list[str] | None) -> dict[str, Any]:
    """Arguments of a generator from `--num-loc` and `--param KEY=VALUE` (values as in YAML)."""
    values: dict[str, Any] = {} if num_loc is None else {"num_loc": num_loc}
    if param:
        from omegaconf import OmegaConf

        for entry in param:
            key, equals, _ = entry.partition("=")
            if not equals or not key.isidentifier():
                raise ConfigError(f"expected --param KEY=VALUE, got {entry!r}")
        given = OmegaConf.to_container(OmegaConf.from_dotlist(param))
        assert isinstance(given, dict)
        values |= {str(key): value for key, value in given.items()}
    return values


# ---------------------------------------------------------------- generate


@app.command()
@reports_errors
def generate(
    env: Annotated[str, typer.Argument(help="Name of the environment (see: rl4co list envs).")],
    size: Annotated[int, typer.Option(help="Number of instances.")] = 10_000,
    num_loc: NumLoc = None,
    param: Parameters = None,
    phase: Annotated[
        str | None,
        typer.Option(help="val or test: the paper's seed of that set (default: test)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Any other seed.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File; default: data/ENV/ENV..._seed....npz.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Write random instances to an .npz file."""
    if seed is not None and phase is not None:
        raise ConfigError("expected --seed or --phase, got both; give one of them")
    if size < 1:
        raise ConfigError(f"expected --size of at least 1, got {size}")
    ENVS.location(env)  # raises for names that do not exist, before torch is imported
    from rl4co.data.generate import generate_env_data
    from rl4co.data.io import save_tensordict_to_npz
    from rl4co.envs.base import PHASE_SEEDS

    if phase is not None and phase not in PHASE_SEEDS:
        raise UnknownNameError("phase with a seed of its own", phase, PHASE_SEEDS)
    chosen = PHASE_SEEDS[phase or "test"] if seed is None else seed
    label = "" if seed is not None else f"_{phase or 'test'}"
    nodes = "" if num_loc is None else num_loc
    path = out or Path("data") / env / f"{env}{nodes}{label}_seed{chosen}.npz"
    path = path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"expected a file that does not exist yet, got {path}; use --overwrite"
        )
    instances = generate_env_data(
        env, size, seed=chosen, generator_params=_parameters(num_loc, param)
    )
    save_tensordict_to_npz(instances, path)
    shapes = {key: list(value.shape) for key, value in instances.items()}
    if json_output:
        print(json.dumps({"file": str(path), "env": env, "seed": chosen, "shapes": shapes}))
        return
    rows = [(key, " × ".join(map(str, shape))) for key, shape in shapes.items()]
    _show(f"{path} (seed {chosen})", ("key", "shape"), rows)


# ---------------------------------------------------------------- list


@app.command("list")
@reports_errors
def list_names(
    kind: Annotated[str | None, typer.Argument(help="What to list; default: everything.")] = None,
    pattern: Annotated[
        str | None, typer.Argument(help="Part of the name, or a pattern such as '*tsp*'.")
    ] = None,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """List environments, models, experiments and all other names."""
    if kind is not None and kind not in CATALOGUE:
        raise UnknownNameError("kind of name", kind, CATALOGUE)
    found = {
        each: {
            name: text for name, text in sorted(CATALOGUE[each]().items()) if _fits(name, pattern)
        }
        for each in ([kind] if kind else CATALOGUE)
    }
    if json_output:
        print(json.dumps({each: _records(names) for each, names in found.items()}))
        return
    for each, names in found.items():
        if names:
            _show(each, ("name", "what it is"), list(names.items()))
    if not any(found.values()):
        _stderr().print(f"nothing matches {pattern!r}", highlight=False)


def _records(names: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "description": text} for name, text in names.items()]


def _fits(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    has_wildcard = any(sign in pattern for sign in "*?[")
    return fnmatch.fnmatchcase(name, pattern if has_wildcard else f"*{pattern}*")


if __name__ == "__main__":
    main()
