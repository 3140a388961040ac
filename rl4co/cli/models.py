"""`rl4co models`: lists, shows, verifies and adds pretrained models."""

from __future__ import annotations

import json
import os

from pathlib import Path
from typing import Annotated, Any

import typer

from rl4co.cli._frame import DebugFlag, JsonFlag, app, reports_errors, say, show, stderr
from rl4co.cli._options import Parameters, generator_params
from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError
from rl4co.pretrained import TEXT_FILE, VARIABLE, ModelSource, pretrained_models

models_app = typer.Typer(
    help="Trained models by name: list, show, verify, add.", invoke_without_command=True
)
app.add_typer(models_app, name="models")

Name = Annotated[str, typer.Argument(help="Name of a pretrained model.")]


@models_app.callback()
@reports_errors
def list_models(
    context: typer.Context, json_output: JsonFlag = False, debug: DebugFlag = False
) -> None:
    """List pretrained models, or [bold]show[/bold], [bold]verify[/bold], [bold]add[/bold] one."""
    if context.invoked_subcommand is not None:
        return
    models = pretrained_models()
    if json_output:
        print(json.dumps([_record(source) for source in models.values()]))
        return
    columns = ("name", "problem", "trained on", "parameters", "MB", "from")
    show("pretrained models", columns, [_row(source) for source in models.values()])
    if not models:
        stderr().print(
            f"no pretrained models; rl4co models add SOURCE NAME --to FOLDER adds one, {VARIABLE} "
            "names the folder to search",
            highlight=False,
        )


@models_app.command("show")
@reports_errors
def show_model(name: Name, json_output: JsonFlag = False, debug: DebugFlag = False) -> None:
    """Show the card of a model."""
    source = _find(name)
    if json_output:
        print(json.dumps(_record(source)))
        return
    text = source.path / TEXT_FILE
    if text.is_file():
        from rich.markdown import Markdown

        from rl4co.core.console import Console

        Console().print(Markdown(text.read_text(encoding="utf-8")))
    else:
        rows = [(key, json.dumps(value)) for key, value in source.card().items()]
        show(name, ("", "value"), rows)
    say(f"{source.path}")


@models_app.command()
@reports_errors
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Models; default: all.")
    ] = None,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Compare the files of models with the digests of their index; exit code 1 on a difference."""
    models = pretrained_models()
    chosen = [_find(name) for name in names] if names else list(models.values())
    states = {str(source): _state(source) for source in chosen}
    if json_output:
        print(json.dumps(states))
    else:
        show("digests", ("name", "files"), list(states.items()))
    if any(state not in ("as released", "no index") for state in states.values()):
        raise typer.Exit(1)


@models_app.command()
@reports_errors
def add(
    source: Annotated[str, typer.Argument(help="Checkpoint, or folder by save_pretrained.")],
    name: Annotated[str, typer.Argument(help="New name: method-problemSIZE[-tag].")],
    to: Annotated[
        Path | None, typer.Option(help=f"Folder of models; default: ${VARIABLE}.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="How it was trained, for the card.")] = None,
    hours: Annotated[float | None, typer.Option(help="Core-hours of the training.")] = None,
    commit: Annotated[str | None, typer.Option(help="Commit of the training code.")] = None,
    start: Annotated[str | None, typer.Option(help="Model that the training began from.")] = None,
    param: Parameters = None,
    dtype: Annotated[str, typer.Option(help="Precision of the weights in the file.")] = "float16",
    replace: Annotated[bool, typer.Option("--replace", help="Replace a model.")] = False,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Add a checkpoint or policy folder to a folder of pretrained models."""
    folder = to or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if folder is None:
        raise ConfigError(f"expected --to FOLDER or the environment variable {VARIABLE}, got none")
    facts = {"recipe": recipe, "hours": hours, "commit": commit, "start": start}
    from rl4co.tasks.release import add_model

    model = add_model(
        source,
        name,
        folder,
        generator_params=generator_params(None, param) or None,
        training={key: value for key, value in facts.items() if value is not None},
        dtype=dtype,  # type: ignore[arg-type]
        replace=replace,
    )
    if json_output:
        print(json.dumps(_record(model)))
    else:
        size = sum(record.bytes for record in model.files.values())
        say(f"{model.path}: {size / 1e6:.2f} MB")


@models_app.command()
@reports_errors
def card(
    name: Name,
    quick: Annotated[
        bool, typer.Option("--quick", help="16 instances of the training's size, uniform.")
    ] = False,
    instances: Annotated[
        int | None, typer.Option(help="Instances of each set (default: 128).")
    ] = None,
    sizes: Annotated[str | None, typer.Option(help="Sizes, such as 20,50,100,200.")] = None,
    distributions: Annotated[
        str | None, typer.Option(help="Distributions of locations, such as uniform,cluster.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Solutions of sampling.")] = 128,
    files: Annotated[
        list[str] | None, typer.Option(help="Folder or pattern of benchmark files.")
    ] = None,
    seconds_per_node: Annotated[
        float | None, typer.Option(help="Time of reference solvers that do not stop themselves.")
    ] = None,
    cache: Annotated[
        Path, typer.Option(help="Folder of results: the same command continues with them.")
    ] = Path("cards"),
    procs: Annotated[int, typer.Option(help="Instances that solvers solve at once.")] = 1,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Measure a model and write its card.json and CARD.md."""
    from rl4co.tasks.cards.measure import CardOptions, measure_card
    from rl4co.tasks.cards.plan import DISTRIBUTIONS, SIZES
    from rl4co.tasks.cards.text import card_text
    from rl4co.tasks.release import write_card

    source = _find(name)
    trained = source.card().get("size")
    kinds = DISTRIBUTIONS[:1] if quick else DISTRIBUTIONS
    few = (trained,) if quick and isinstance(trained, int) else SIZES
    options = CardOptions(
        instances=instances or (16 if quick else 128),
        sizes=_numbers(sizes) if sizes else few,
        distributions=distributions.split(",") if distributions else kinds,
        samples=samples,
        files=files or (),
        seconds_per_node=seconds_per_node,
        cache=cache,
        num_procs=procs,
        progress=False if json_output else None,
    )
    content = measure_card(source, options)
    write_card(source.path, content)
    (source.path / TEXT_FILE).write_text(card_text(content), encoding="utf-8")
    if json_output:
        print(json.dumps(content))
    else:
        say(f"{source.path / TEXT_FILE}")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"expected --sizes such as 20,50, got {text!r}") from error


def _find(name: str) -> ModelSource:
    models = pretrained_models()
    if name not in models:
        raise UnknownNameError("pretrained model", name, models)
    return models[name]


def _state(source: ModelSource) -> str:
    if not source.files:
        return "no index"
    try:
        source.verify()
    except (FileFormatError, FileNotFoundError) as error:
        return str(error)
    return "as released"


def _record(source: ModelSource) -> dict[str, Any]:
    files = {file: record._asdict() for file, record in source.files.items()}
    place = {"path": str(source.path), "from": source.origin, "files": files}
    return {**source.card(), "name": source.name, **place}


def _row(source: ModelSource) -> tuple[str, ...]:
    card = source.card()
    size = sum(path.stat().st_size for path in source.path.iterdir() if path.is_file())
    values = [source.problem, card.get("size"), card.get("parameters")]
    texts = ["" if value is None else str(value) for value in values]
    return (str(source), *texts, f"{size / 1e6:.1f}", source.origin)
