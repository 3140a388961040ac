"""`rl4co tune`: searches hyperparameters."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Annotated

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

#: Trials in the table.
_SHOWN = 10


@app.command()
@reports_errors
def tune(
    overrides: Annotated[
        list[str], typer.Argument(help="Overrides of `rl4co train`, some of them sweeps.")
    ],
    trials: Annotated[int, typer.Option(min=1, help="Trials in all.")] = 20,
    out: Annotated[Path, typer.Option(help="Folder of journal and trials.")] = Path("tune"),
    minimize: Annotated[bool, typer.Option("--minimize", help="Less is better.")] = False,
    prune: Annotated[bool, typer.Option(help="End trials below the median early.")] = True,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that share the journal.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler.")] = 0,
    json_output: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Search hyperparameters: [bold]rl4co tune experiment=quick model.batch_size=32,64[/bold].

    Optuna proposes values for all overrides that are sweeps, `key=choice(a,b)`, `key=range(1,9)`,
    `key=interval(0.1,0.9)` or `key=tag(log,interval(1e-5,1e-2))`; the goal is the best
    `optimized_metric` (default: val/reward). Run the same command again to go on.
    """
    from rl4co.tasks.tune import (
        Space,
        best_command,
        best_trials,
        open_study,
        recover,
        run_processes,
        write_best,
    )
    from rl4co.tasks.tune import tune as run_trials

    console = stderr()
    space = Space.parse(overrides)
    if jobs > 1:
        recover(open_study(out, space, minimize), out)
        words = [*overrides, "--trials", str(trials), "--out", str(out)]
        words += ["--minimize"] * minimize + ["--no-prune"] * (not prune)
        failed = not run_processes(words, jobs)
        study = open_study(out, space, minimize)
        write_best(study, out)
    else:
        failed = False
        with warnings_in_lines():
            study = run_trials(
                overrides, trials, out, minimize=minimize, prune=prune, seed=seed,
                report=lambda text: console.print(text, markup=False, highlight=False),
            )  # fmt: skip
    best = best_trials(study)
    if json_output:
        content = [{"number": t.number, "value": t.value, **t.user_attrs} for t in best]
        print(json.dumps(content, indent=1))
    else:
        rows = [(str(t.number), f"{t.value:.6g}", " ".join(t.user_attrs["overrides"]))
                for t in best[:_SHOWN]]  # fmt: skip
        show("Best trials", ("trial", "value", "overrides"), rows)
        console.print(best_command(study) or "no complete trial", markup=False, highlight=False)
    if failed:
        raise typer.Exit(1)
