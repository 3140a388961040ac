"""`rl4co solve`: solves benchmark files and people's own instances."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rl4co.cli._frame import (
    USAGE_ERROR,
    DebugFlag,
    JsonFlag,
    app,
    print_error,
    reports_errors,
    say,
    show,
    warnings_in_lines,
)
from rl4co.cli._interrupts import catch_interrupts
from rl4co.cli._options import (
    BeamWidth,
    Device,
    NumStarts,
    Temperature,
    TopK,
    TopP,
)
from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.tasks.methods import METHODS, SEARCHES

if TYPE_CHECKING:
    from rl4co.data.formats import Published
    from rl4co.tasks.solve import Approach, BySolver, Outcome, Solved

#: Exit code if some of several files failed.
SOME_FAILED = 1

_METHODS, _SEARCHES = ", ".join(METHODS), ", ".join(SEARCHES)


@app.command()
@reports_errors
def solve(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="TSPLIB, CVRPLIB, Solomon, OPLib, TSPPDLIB, JSON or CSV (routing), JSPLIB, "
            "Taillard or FJS (job shops), pmed (p-median), packed (.gz) or not, or folders of "
            "them; - is the standard input.",
        ),
    ],
    solver: Annotated[
        str | None, typer.Option(help="Classical solver; default: the best one for the problem.")
    ] = None,
    max_runtime: Annotated[
        float | None,
        typer.Option(
            help="Seconds per instance for everything: solver (default: 10) or search, --improve, "
            "--polish."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Trained model instead: checkpoint, or folder by save_pretrained."),
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
        Path | None,
        typer.Option(
            help="Model that improves solutions (checkpoint or folder): those of --model, --solver "
            "or --initial if given, otherwise random ones."
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
        Path | None, typer.Option(help="Solution from a file instead, to polish or price it.")
    ] = None,
    polish: Annotated[
        float | None, typer.Option(help="Seconds for a solver to improve the solution.")
    ] = None,
    polish_solver: Annotated[
        str | None,
        typer.Option(help="Default: the best that can begin with a solution (pyvrp, lkh, cpsat)."),
    ] = None,
    lkh_executable: Annotated[
        Path | None,
        typer.Option(help="LKH-3 for the solver lkh; it knows more problems. Default: $RL4CO_LKH."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of solver or model, if any.")] = None,
    procs: Annotated[int, typer.Option(help="Files solved at the same time.")] = 1,
    device: Device = "auto",
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
        int | None, typer.Option(help="Most routes of a solution, whatever the file says.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write the solution (.sol, .tour, .json); several: a folder."
        ),
    ] = None,
    render: Annotated[
        Path | None, typer.Option(help="Draw the solution (.png, .pdf, .svg); several: a folder.")
    ] = None,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Solve files: value in their own units, gap to the best-known one, routes or schedule."""
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
    shares = _Shares.of(max_runtime, improve is not None, improve_seconds, polish)
    improving = {
        "improve": improve,
        "steps": improve_steps,
        "seconds": shares.improve,
        "num_augment": improve_copies,
    }
    lkh = {} if lkh_executable is None else {"executable": str(lkh_executable)}
    way = _Way(
        solver, shares.first, model, method, initial, decoding, adapting, improving, seed, lkh
    )
    way.check()
    if polish_solver is not None and polish is None:
        raise ConfigError("expected --polish SECONDS with --polish-solver, got none")
    if lkh and "lkh" not in (solver, polish_solver):
        raise ConfigError(
            "expected --solver lkh or --polish-solver lkh with --lkh-executable, got neither"
        )
    reading = {
        "column": column, "rounding": rounding, "vehicles": vehicles, **_reference(best_known),
    }  # fmt: skip
    from rl4co.tasks.solve import Failed, list_files, solve_files

    instances = list_files(files)
    output = _Output(out, render, instances)
    if len(instances) > 1 and isinstance(reading.get("best_known"), float):
        raise ConfigError(
            f"expected a table as --best-known of {len(instances)} files, got one value; "
            "give a CSV file"
        )
    shown = not json_output and sys.stderr.isatty()
    # Two progress bars would be in each other's way: one file has that of its steps.
    steps_shown = shown and improve is not None and len(instances) == 1
    with warnings_in_lines(), catch_interrupts() as interrupt:
        output.check(reading)
        outcomes = solve_files(
            instances,
            way.approach(device, steps_shown),
            polish=None if shares.polish is None else way.by_solver(polish_solver, shares.polish),
            then=output.write,
            num_procs=procs,
            progress=shown and not steps_shown,
            limit=max_runtime,
            stop=interrupt.stop,
            **reading,
        )
        if debug and len(outcomes) == 1 and isinstance(outcomes[0], Failed):
            raise outcomes[0].error
        code = _report(outcomes, json_output)
    _leave(interrupt.exit_code or code, at_once=interrupt.stop.is_set())


def _leave(code: int, at_once: bool) -> None:
    """Ends the command.

    Args:
        code: Exit code.
        at_once: Whether somebody waits for the end. So it is if there is work that nobody waits for
            any more: threads in compiled code cannot be ended, and do not survive an orderly end.
    """
    from rl4co.tasks.limits import has_abandoned_work

    is_program = sys.stdout is sys.__stdout__  # and not called by another one
    if is_program and (at_once or has_abandoned_work()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # an orderly end takes torch half a second
    if code:
        raise typer.Exit(code)


# ---------------------------------------------------------------- choices


class _Shares(NamedTuple):
    """Seconds per instance of the stages; None: not limited, or not wanted."""

    first: float | None
    improve: float | None
    polish: float | None

    @classmethod
    def of(
        cls, total: float | None, improves: bool, improve: float | None, polish: float | None
    ) -> _Shares:
        """The shares of all stages in the total.

        Later stages have the seconds that they were given, or half of all if they were given none,
        but leave the first one half.
        """
        if total is None:
            return cls(None, improve, polish)
        if not total > 0:
            raise ConfigError(f"expected a positive number of seconds, got {total:g}")
        if improves and improve is None:
            improve = total / 2
        later = (improve or 0.0) + (polish or 0.0)
        scale = min(1.0, total / 2 / later) if later > 0 else 1.0
        improve, polish = (None if share is None else scale * share for share in (improve, polish))
        return cls(total - (improve or 0.0) - (polish or 0.0), improve, polish)


@dataclasses.dataclass(frozen=True)
class _Way:
    """How solutions are to be found: options, None where they are not given."""

    solver: str | None
    max_runtime: float | None
    model: Path | None
    method: str | None
    initial: Path | None
    decoding: dict[str, Any]
    adapting: dict[str, Any]
    improving: dict[str, Any]
    seed: int | None
    lkh: dict[str, Any]  # options of this solver

    def check(self) -> None:
        """Raises for options that exclude each other, or that would have no effect."""
        ways = {"--solver": self.solver, "--model": self.model, "--initial": self.initial}
        chosen = [flag for flag, value in ways.items() if value is not None]
        if len(chosen) > 1:
            raise ConfigError(f"expected one of {', '.join(ways)}, got {' and '.join(chosen)}")
        if self.method is not None and self.method not in METHODS:
            raise UnknownNameError("evaluation method", self.method, METHODS)
        decoding = {"method": self.method, **self.decoding, **self.adapting}
        flag = next((key for key, value in decoding.items() if value is not None), None)
        if self.model is None and flag is not None:
            raise ConfigError(
                f"expected --model with --{flag.replace('_', '-')}, got none; solvers do not decode"
            )
        name = self.adapting["search"]
        if self.max_runtime is not None and chosen not in ([], ["--solver"]) and name is None:
            raise ConfigError(
                f"expected --max-runtime only for a solver or a --search, got it with {chosen[0]}; "
                "--polish SECONDS improves a solution"
            )
        self._check_search(name)
        if self.improving["improve"] is not None and not chosen and self.max_runtime is not None:
            raise ConfigError(
                "expected --max-runtime for a solver, got it with --improve alone; use "
                "--improve-seconds"
            )
        for option in ("steps", "seconds", "num_augment"):
            if self.improving["improve"] is None and self.improving[option] is not None:
                flag = "copies" if option == "num_augment" else option
                raise ConfigError(f"expected --improve MODEL with --improve-{flag}, got none")

    def _check_search(self, name: str | None) -> None:
        if name is None:
            if self.adapting["iterations"] is not None:
                raise ConfigError("expected --search with --iterations, got none")
            return
        if name not in SEARCHES:
            raise UnknownNameError("search method", name, SEARCHES)
        decoding = {"method": self.method, **self.decoding, "num_augment": None}
        flag = next((key for key, value in decoding.items() if value is not None), None)
        if flag is not None:
            raise ConfigError(
                f"expected --search or --{flag.replace('_', '-')}, got both; a search samples "
                "from the model as it is being adapted"
            )

    def approach(self, device: str, progress: bool) -> Approach:
        """What finds solutions, and improves them.

        Args:
            device: Device of models.
            progress: Whether to show the steps of improving.
        """
        if self.improving["improve"] is None:
            return self._first(device)
        from rl4co.tasks.load import find_device
        from rl4co.tasks.solve import ByImprovement

        chosen = (self.solver, self.model, self.initial)
        start = None if all(way is None for way in chosen) else self._first(device)
        settings = {**self.improving, "seed": self.seed, "progress": progress}
        given = {key: value for key, value in settings.items() if value is not None}
        return ByImprovement.load(given.pop("improve"), start, find_device(device), given)

    def _first(self, device: str) -> Approach:
        """What finds first solutions."""
        from rl4co.tasks.load import find_device
        from rl4co.tasks.solve import ByFile, ByModel, BySearch

        if self.initial is not None:
            return ByFile(self.initial)
        if self.model is not None and self.adapting["search"] is not None:
            settings = {
                "iterations": self.adapting["iterations"],
                "augment_size": self.decoding["num_augment"],
                "max_runtime": self.max_runtime,
                "seed": self.seed,
            }
            given = {key: value for key, value in settings.items() if value is not None}
            return BySearch.load(self.model, self.adapting["search"], find_device(device), given)
        if self.model is not None:
            settings = {**self.decoding, "seed": self.seed}
            given = {key: value for key, value in settings.items() if value is not None}
            return ByModel.load(self.model, self.method or "greedy", find_device(device), given)
        return self.by_solver(self.solver, 10.0 if self.max_runtime is None else self.max_runtime)

    def by_solver(self, solver: str | None, seconds: float) -> BySolver:
        """A solver and its options."""
        from rl4co.tasks.solve import BySolver

        return BySolver(solver, seconds, self.seed, self.lkh if solver == "lkh" else {})


def _reference(best_known: str | None) -> dict[str, Any]:
    """Arguments of `read_instance`: a number is a value, a .csv a table, others are solutions."""
    if best_known is None:
        return {}
    try:
        return {"best_known": float(best_known)}
    except ValueError:
        is_table = Path(best_known).suffix.lower() == ".csv"
        return {"best_known" if is_table else "solution": Path(best_known)}


# ---------------------------------------------------------------- files that are written


@dataclasses.dataclass(frozen=True)
class _Output:
    """Where solutions and pictures go.

    Args:
        out: File or folder of solutions; None: nowhere.
        render: File or folder of pictures; None: nowhere.
        files: Instances that are solved.
    """

    out: Path | None
    render: Path | None
    files: list[Path]

    def check(self, reading: dict[str, Any]) -> None:
        """Raises if something cannot be written, before time is spent on solving."""
        for flag, place in (("--out", self.out), ("--render", self.render)):
            if place is None or len(self.files) == 1:
                continue
            if not _is_folder(place):
                raise ConfigError(
                    f"expected a folder as {flag} for {len(self.files)} files, got {place}"
                )
            if len({_name(file) for file in self.files}) < len(self.files):
                raise ConfigError(
                    f"expected files with different names for {flag}, got some of the same name; "
                    "solve one folder after the other"
                )
        from rl4co.data.formats.write import check_target, require_writable
        from rl4co.tasks.solve import check_picture, read_instance

        if self.out is not None and len(self.files) == 1:
            instance = read_instance(self.files[0], **reading)
            check_target(self._solution_file(self.out, self.files[0], instance), instance)
        elif self.out is not None:
            require_writable(self.out / "solution.sol")
        if self.render is not None:
            check_picture(self._picture_file(self.render, self.files[0]))

    def write(self, solved: Solved) -> None:
        """Writes what is wanted of a solution."""
        from rl4co.data.formats import write_solution
        from rl4co.tasks.solve import save_picture

        if self.out is not None:
            target = self._solution_file(self.out, solved.file, solved.instance)
            write_solution(target, solved.instance, solved.solution)
        if self.render is not None:
            save_picture(solved, self._picture_file(self.render, solved.file))

    def _solution_file(self, place: Path, file: Path, instance: Published) -> Path:
        return place / f"{_name(file)}{instance.suffixes[0]}" if _is_folder(place) else place

    def _picture_file(self, place: Path, file: Path) -> Path:
        return place / f"{_name(file)}.png" if _is_folder(place) else place


def _name(file: Path) -> str:
    from rl4co.data.formats.content import name_of

    return name_of(file)


def _is_folder(path: Path) -> bool:
    return path.is_dir() or not path.suffix


# ---------------------------------------------------------------- what is printed


def _report(outcomes: list[Outcome], json_output: bool) -> int:
    """Prints what came of the files; gives the exit code."""
    from rl4co.tasks.solve import Failed, Solved

    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    if failed and len(outcomes) == 1:
        print_error(failed[0].error, json_output)
        return USAGE_ERROR
    if json_output:
        print(json.dumps({"results": [_record(outcome) for outcome in outcomes]}))
    elif isinstance(outcomes[0], Solved) and len(outcomes) == 1:
        _show_solution(outcomes[0])
    else:
        _show_table(outcomes)
    return SOME_FAILED if failed else 0


def _show_solution(solved: Solved) -> None:
    from rl4co.tasks.solve import format_value

    instance = solved.instance
    kind = instance.value_name
    facts = {kind: format_value(instance, solved.value)}
    if solved.start_value is not None:
        facts[f"{kind} before"] = format_value(instance, solved.start_value)
    if instance.best_known is not None:
        facts["best known"] = format_value(instance, instance.best_known)
        facts["gap"] = _percent(solved.gap) or "none to a best-known value of 0"
    if solved.lower_bound is not None:
        remark = f", so the {kind} is optimal" if solved.is_optimal else ""
        facts["lower bound"] = f"{format_value(instance, solved.lower_bound)}{remark}"
    facts |= instance.facts(solved.solution)
    remark = ", interrupted" if solved.interrupted else ""
    facts |= {"found by": solved.solver, "time": f"{solved.seconds:.2f} s{remark}"}
    show(
        f"{instance.name} ({instance.problem}, {instance.size_text})", ("", "value"), facts.items()
    )
    for remark in solved.remarks:
        say(f"Remark: {remark}.")
    for line in instance.lines(solved.solution):
        say(line)


def _show_table(outcomes: list[Outcome]) -> None:
    """One line for each file; a failed one says why."""
    from rich.text import Text

    from rl4co.tasks.solve import Failed, format_value

    columns = ("file", "problem", "size", "before", "value", "best known", "gap", "seconds", "by")
    names = [outcome.file.name for outcome in outcomes]
    unique = len(set(names)) == len(names)
    rows: list[tuple[Any, ...]] = []
    for outcome in outcomes:
        file = outcome.file.name if unique else str(outcome.file)
        if isinstance(outcome, Failed):
            rows.append((file, *[""] * 7, Text(str(outcome.error), style="red")))
            continue
        instance = outcome.instance
        values = (outcome.start_value, outcome.value, instance.best_known)
        before, value, best = ("" if x is None else format_value(instance, x) for x in values)
        facts = (instance.problem, str(instance.size), before, value, best)
        solver = f"{outcome.solver}, interrupted" if outcome.interrupted else outcome.solver
        rows.append((file, *facts, _percent(outcome.gap), f"{outcome.seconds:.1f}", solver))
    used = [k for k, column in enumerate(zip(*rows, strict=True)) if any(map(str, column))]
    show(
        f"{len(rows)} files",
        tuple(columns[k] for k in used),
        [tuple(row[k] for k in used) for row in rows],
    )
    for outcome in outcomes:
        for remark in () if isinstance(outcome, Failed) else outcome.remarks:
            say(f"Remark on {outcome.file.name if unique else outcome.file}: {remark}.")


def _percent(gap: float | None) -> str:
    return "" if gap is None else f"{100 * gap:.2f} %"


def _record(outcome: Outcome) -> dict[str, Any]:
    from rl4co.tasks.solve import Failed

    if isinstance(outcome, Failed):
        error = {"type": type(outcome.error).__name__, "message": str(outcome.error)}
        return {"file": str(outcome.file), "error": error}
    instance = outcome.instance
    return {
        "file": str(outcome.file),
        "name": instance.name,
        "problem": instance.problem,
        "solver": outcome.solver,
        "seconds": outcome.seconds,
        "objective": outcome.value,
        "objective_before": outcome.start_value,
        "best_known": instance.best_known,
        "gap": outcome.gap,
        "lower_bound": outcome.lower_bound,
        "optimal": outcome.is_optimal,
        "interrupted": outcome.interrupted,
        "remarks": outcome.remarks,
        **instance.record(outcome.solution),
    }
