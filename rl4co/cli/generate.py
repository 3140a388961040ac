"""`rl4co generate`: writes random instances."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Annotated

import typer

from rl4co.cli._frame import DebugFlag, JsonFlag, app, reports_errors, show
from rl4co.cli._options import NumLoc, Parameters, generator_params
from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.registry import ENVS


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
        env, size, seed=chosen, generator_params=generator_params(num_loc, param)
    )
    save_tensordict_to_npz(instances, path)
    shapes = {key: list(value.shape) for key, value in instances.items()}
    if json_output:
        print(json.dumps({"file": str(path), "env": env, "seed": chosen, "shapes": shapes}))
        return
    rows = [(key, " × ".join(map(str, shape))) for key, shape in shapes.items()]
    show(f"{path} (seed {chosen})", ("key", "shape"), rows)
