"""What `rl4co solve` prints: one solution, a table of several files, or JSON."""

from __future__ import annotations

import json

from typing import TYPE_CHECKING, Any

from rl4co.cli._frame import USAGE_ERROR, print_error, say, show

if TYPE_CHECKING:
    from rl4co.tasks.solve import Outcome, Solved

#: Exit code if some of several files failed.
SOME_FAILED = 1


def report(outcomes: list[Outcome], json_output: bool) -> int:
    """Prints the outcomes; returns the exit code."""
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
        facts["gap"] = _percent(solved.gap) or "undefined for a best-known value of 0"
    if solved.lower_bound is not None:
        optimality = f", so the {kind} is optimal" if solved.is_optimal else ""
        facts["lower bound"] = f"{format_value(instance, solved.lower_bound)}{optimality}"
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
    """One line for each file, with the error if it failed."""
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
