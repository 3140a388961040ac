"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rl4co.core.errors import ConfigError
from rl4co.tasks.methods import METHODS, SEARCHES, SPECIAL_METHODS

Parameters = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="KEY=VALUE", help="Argument of the generator."),
]
NumLoc = Annotated[int | None, typer.Option(help="Nodes (customers, cities) per instance.")]

Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ... or auto.")]
_METHODS = ", ".join([*METHODS, *SPECIAL_METHODS, *SEARCHES])
Method = Annotated[
    str,
    typer.Option(
        "--method", "-m", help=f"How to solve: {_METHODS}, or a registered decoding strategy."
    ),
]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="Further option of the method."),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Module to import first, for what it registers (environments, decoding strategies).",
    ),
]
AllowClasses = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-class",
        metavar="MODULE.CLASS",
        help="Custom class of a saved policy or checkpoint; its code is imported.",
    ),
]
BatchSize = Annotated[int | None, typer.Option(help="Default: chosen automatically.")]
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
    return values | key_values("--param", param)


def key_values(flag: str, entries: list[str] | None) -> dict[str, Any]:
    """The values of a repeated option `KEY=VALUE`, as in YAML."""
    if not entries:
        return {}
    from omegaconf import OmegaConf

    for entry in entries:
        key, equals, _ = entry.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"expected {flag} KEY=VALUE, got {entry!r}")
    values = OmegaConf.to_container(OmegaConf.from_dotlist(entries))
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}
