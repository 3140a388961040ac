"""Options that several commands have, and what their values mean."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rl4co.core.errors import ConfigError
from rl4co.tasks.methods import METHODS

Parameters = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="KEY=VALUE", help="Argument of the generator."),
]
NumLoc = Annotated[int | None, typer.Option(help="Nodes (customers, cities) per instance.")]

Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ... or auto.")]
Method = Annotated[
    str, typer.Option("--method", "-m", help=f"How to decode: {', '.join(METHODS)}.")
]
BatchSize = Annotated[int | None, typer.Option(help="Default: chosen.")]
Samples = Annotated[int, typer.Option(help="Solutions per instance of sampling.")]
NumAugment = Annotated[int, typer.Option(help="Copies of an instance.")]
NumStarts = Annotated[int | None, typer.Option(help="Starts; default: all.")]
Temperature = Annotated[float | None, typer.Option(help="Softmax temperature.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus of sampling.")]
TopK = Annotated[int | None, typer.Option(help="Actions to sample from.")]
BeamWidth = Annotated[int | None, typer.Option(help="Width of beam_search.")]


def generator_params(num_loc: int | None, param: list[str] | None) -> dict[str, Any]:
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
