"""`rl4co solve`: solves benchmark files and custom instances."""

from __future__ import annotations

import dataclasses
import os
import sys
import time

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl4co.cli._frame import DebugFlag, JsonFlag, app, reports_errors, warnings_in_lines
from rl4co.cli._interrupts import catch_interrupts
from rl4co.cli._options import (
    AllowClasses,
    BeamWidth,
    Device,
    NumStarts,
    Temperature,
    TopK,
    TopP,
)
from rl4co.cli._outcomes import report
from rl4co.cli._solve_method import SolveMethod, TimeSplit, read_reference
from rl4co.core.errors import ConfigError
from rl4co.core.imports import search_working_folder
from rl4co.tasks.methods import METHODS, SEARCHES

if TYPE_CHECKING:
    from rl4co.tasks.solve import Solved

_METHODS, _SEARCHES = ", ".join(METHODS), ", ".join(SEARCHES)


@app.command()
@reports_errors
def solve(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="TSPLIB, CVRPLIB, Solomon, OPLib, TSPPDLIB, JSON or CSV (routing), JSPLIB, "
            "Taillard or FJS (job shops) or pmed (p-median) files, also compressed (.gz), or "
            "folders of them; - is the standard input.",
        ),
    ],
    solver: Annotated[
        str | None, typer.Option(help="Classical solver; default: the best one for the problem.")
    ] = None,
    max_runtime: Annotated[
        float | None,
        typer.Option(
            help="Seconds per instance of a solver (default: 10) or a --search, including "
            "--improve and --polish. For a single file, loading libraries counts, up to half of it."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Trained model instead: name (see rl4co models), checkpoint, or folder by "
            "save_pretrained; auto: the pretrained model for the problem and size."
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help=f"How the model decodes: {_METHODS}.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Solutions of sampling.")] = None,
    num_augment: Annotated[int | None, typer.Option(help="Copies of the instance.")] = None,
    num_starts: NumStarts = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    beam_width: BeamWidth = None,
    search: Annotated[
        str | None, typer.Option(help=f"Adapt the model to the instance instead: {_SEARCHES}.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Iterations of the search (default: 200).")
    ] = None,
    improve: Annotated[
        str | None,
        typer.Option(
            help="Model that improves solutions (name, checkpoint or folder): those of --model, "
            "--solver or --initial if given, otherwise random ones."
        ),
    ] = None,
    improve_steps: Annotated[
        int | None, typer.Option(help="Steps of --improve (default: 1000, or as time allows).")
    ] = None,
    improve_seconds: Annotated[
        float | None, typer.Option(help="Seconds of --improve for each instance.")
    ] = None,
    improve_copies: Annotated[
        int | None, typer.Option(help="Copies of the instance that --improve works on.")
    ] = None,
    initial: Annotated[
        Path | None, typer.Option(help="Solution from a file instead, to polish or evaluate it.")
    ] = None,
    polish: Annotated[
        float | None, typer.Option(help="Seconds for a solver to improve the solution.")
    ] = None,
    polish_solver: Annotated[
        str | None,
        typer.Option(help="Default: the best that can start from a solution (pyvrp, lkh, cpsat)."),
    ] = None,
    lkh_executable: Annotated[
        Path | None,
        typer.Option(
            help="LKH-3 for the solver lkh, which solves more problems. Default: $RL4CO_LKH."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the solver or model, if stochastic.")
    ] = None,
    procs: Annotated[int, typer.Option(help="Files solved at the same time.")] = 1,
    device: Device = "auto",
    allow_class: AllowClasses = None,
    best_known: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE|FILE",
            help="Best-known value, CSV table of them, or solution; default: .sol or .opt.tour "
            "beside the file.",
        ),
    ] = None,
    column: Annotated[str | None, typer.Option(help="Column of the table with values.")] = None,
    rounding: Annotated[
        str | None, typer.Option(help="Rounding of distances: exact, nearest, ...")
    ] = None,
    vehicles: Annotated[
        int | None, typer.Option(help="Most routes of a solution; overrides the file.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Write the solution (.sol, .tour, .json); several files: a folder.",
        ),
    ] = None,
    render: Annotated[
        Path | None,
        typer.Option(help="Plot the solution (.png, .pdf, .svg); several files: a folder."),
    ] = None,
    animate: Annotated[
        Path | None,
        typer.Option(
            help="Animate the decisions of --model (.gif, .html); several files: a folder."
        ),
    ] = None,
    max_input_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Largest input, such as 8GiB; default: $RL4CO_MAX_INPUT, else 2GiB.",
        ),
    ] = None,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Solve files: value in their units, gap to the best-known value, routes or schedule."""
    began = time.perf_counter()
    if max_input_size is not None:
        from rl4co.data.size_limit import set_input_limit

        set_input_limit(max_input_size)
    decoding = {
        "samples": samples,
        "num_augment": num_augment,
        "num_starts": num_starts,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "beam_width": beam_width,
    }
    adapting = {"search": search, "iterations": iterations}
    seconds = TimeSplit.split(max_runtime, improve is not None, improve_seconds, polish)
    improving = {
        "improve": improve,
        "steps": improve_steps,
        "seconds": seconds.improve,
        "num_augment": improve_copies,
    }
    lkh = {} if lkh_executable is None else {"executable": str(lkh_executable)}
    solve_method = SolveMethod(
        solver, seconds.first, model, method, initial, decoding, adapting, improving, seed, lkh,
        search_working_folder(allow_class), animate is not None,
    )  # fmt: skip
    solve_method.check()
    if animate is not None and polish is not None:
        raise ConfigError("expected --animate or --polish, got both; leave out one of them")
    if polish_solver is not None and polish is None:
        raise ConfigError("--polish-solver requires --polish SECONDS")
    if lkh and "lkh" not in (solver, polish_solver):
        raise ConfigError("--lkh-executable requires --solver lkh or --polish-solver lkh")
    reading = {
        "column": column, "rounding": rounding, "vehicles": vehicles, **read_reference(best_known),
    }  # fmt: skip
    from rl4co.tasks.solve import Failed, list_files, solve_files

    instances = list_files(files)
    reference = reading.get("solution")
    output = _Output(out, render, animate, instances, [reference] if reference else [])
    if len(instances) > 1 and isinstance(reading.get("best_known"), float):
        raise ConfigError(
            f"expected a table as --best-known of {len(instances)} files, got one value; "
            "give a CSV file"
        )
    shown = not json_output and sys.stderr.isatty()
    # Only one progress bar at a time: a single file shows that of its improvement steps.
    steps_shown = shown and improve is not None and len(instances) == 1
    with warnings_in_lines(), catch_interrupts() as interrupt:
        output.check(reading)
        if max_runtime is not None and len(instances) == 1:
            max_runtime -= min(time.perf_counter() - began, max_runtime / 2)
            seconds = TimeSplit.split(max_runtime, improve is not None, improve_seconds, polish)
            solve_method = solve_method.within(seconds)
        outcomes = solve_files(
            instances,
            solve_method.approach(device, steps_shown),
            polish=None
            if seconds.polish is None
            else solve_method.by_solver(polish_solver, seconds.polish),
            then=output.write,
            num_procs=procs,
            progress=shown and not steps_shown,
            limit=max_runtime,
            stop=interrupt.stop,
            **reading,
        )
        if debug and len(outcomes) == 1 and isinstance(outcomes[0], Failed):
            raise outcomes[0].error
        code = report(outcomes, json_output)
    _leave(interrupt.exit_code or code, at_once=interrupt.stop.is_set())


def _leave(code: int, at_once: bool) -> None:
    """Ends the command.

    Args:
        code: Exit code.
        at_once: Whether to skip the orderly shutdown. It is also skipped if abandoned work still
            runs: threads in compiled code cannot be ended and would delay it.
    """
    from rl4co.tasks.limits import has_abandoned_work

    is_program = sys.stdout is sys.__stdout__  # not called by another one
    if is_program and (at_once or has_abandoned_work()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the orderly shutdown of torch takes half a second
    if code:
        raise typer.Exit(code)


# ---------------------------------------------------------------- output files


@dataclasses.dataclass(frozen=True)
class _Output:
    """Where solutions and plots are written.

    Args:
        out: File or folder of solutions; None: they are not written.
        render: File or folder of plots; None: they are not drawn.
        animate: File or folder of animations; None: there are none.
        files: Instances that are solved.
        references: Best-known solutions that are read.
    """

    out: Path | None
    render: Path | None
    animate: Path | None
    files: list[Path]
    references: list[Path]

    def check(self, reading: dict[str, Any]) -> None:
        """Raises if something cannot be written, before anything is solved."""
        targets = {"--out": self.out, "--render": self.render, "--animate": self.animate}
        for flag, target in targets.items():
            if target is None or len(self.files) == 1:
                continue
            if not _is_folder(target):
                raise ConfigError(
                    f"expected a folder as {flag} for {len(self.files)} files, got {target}"
                )
            if len({_name(file) for file in self.files}) < len(self.files):
                raise ConfigError(
                    f"expected files with different names for {flag}, got duplicates; "
                    "solve one folder after the other"
                )
        from rl4co.data.formats.write import check_target, require_writable
        from rl4co.tasks.solve import check_plot, read_instance

        if self.out is not None and len(self.files) == 1:
            instance = read_instance(self.files[0], **reading)
            target = _target(self.out, self.files[0], instance.suffixes[0])
            check_target(target, instance)
            _reject_input(target, [*self.files, *self.references])
        elif self.out is not None:
            require_writable(self.out / "solution.sol")
        if self.render is not None:
            check_plot(_target(self.render, self.files[0], ".png"))
        if self.animate is not None:
            from rl4co.serve.animation import check_animation

            check_animation(_target(self.animate, self.files[0], ".html"))

    def write(self, solved: Solved) -> None:
        """Writes a solution, its plot and its animation."""
        from rl4co.data.formats import write_solution
        from rl4co.tasks.solve import save_plot

        if self.out is not None:
            target = _target(self.out, solved.file, solved.instance.suffixes[0])
            _reject_input(target, [*self.files, *self.references])
            write_solution(target, solved.instance, solved.solution)
        if self.render is not None:
            save_plot(solved, _target(self.render, solved.file, ".png"))
        if self.animate is not None:
            from rl4co.serve.animation import save_animation

            save_animation(solved, _target(self.animate, solved.file, ".html"))


def _target(place: Path, file: Path, suffix: str) -> Path:
    """The file to write: the place itself, or a file in this folder."""
    return place / f"{_name(file)}{suffix}" if _is_folder(place) else place


def _reject_input(target: Path, files: list[Path]) -> None:
    """Raises if a solution would overwrite an instance or a best-known solution."""
    if any(file.exists() and target.exists() and target.samefile(file) for file in files):
        raise ConfigError(
            f"expected an output file that is no input, got --out {target}, which is read; "
            "give another file or folder"
        )


def _name(file: Path) -> str:
    from rl4co.data.formats.content import name_of

    return name_of(file)


def _is_folder(path: Path) -> bool:
    return path.is_dir() or not path.suffix
