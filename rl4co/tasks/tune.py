"""Hyperparameter search with Optuna: trials of `rl4co train`, in one process or several.

    tune(["experiment=quick", "model.optimizer_kwargs.lr=tag(log,interval(1e-4,1e-2))"], 20, "tune")

The search space is what Hydra calls a sweep: `choice(...)`, `range(...)`, `interval(...)` and lists
`a,b`; all other overrides are the same in every trial. Trials are kept in a journal, a file that
several processes may write; a search that was stopped goes on, and trials that a killed process
left behind are run again. A trial ends early if it is worse than the median of the others.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rl4co.core.errors import ConfigError, MissingDependencyError, RL4COError
from rl4co.data.io import atomic_write
from rl4co.tasks.benchmark.store import lock
from rl4co.tasks.train import explain, load_config, run
from rl4co.training.pruning import TrialPruning, current_trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

JOURNAL, BEST = "journal.log", "best.json"
#: What is searched for, if the configuration names no `optimized_metric`.
METRIC = "val/reward"
#: Attributes of trials and of the study.
_VALUES, _ERROR, _FIXED = "overrides", "error", "fixed"
_LOCK = ".lock"


@dataclasses.dataclass(frozen=True)
class Space:
    """Overrides of a search.

    Attributes:
        fixed: Those that all trials have.
        sweeps: Left side of an override → what it may be.
    """

    fixed: tuple[str, ...]
    sweeps: Mapping[str, Override]

    @classmethod
    def parse(cls, overrides: Sequence[str]) -> Space:
        """Divides overrides; raises if none of them is a sweep."""
        try:
            parsed = OverridesParser.create().parse_overrides(list(overrides))
        except HydraException as error:
            raise ConfigError(str(error).splitlines()[0]) from error
        sweeps = {_left_side(each): each for each in parsed if each.is_sweep_override()}
        if not sweeps:
            raise ConfigError(
                "expected an override with choice(...), range(...) or interval(...) to search, got "
                f"{' '.join(overrides) or 'none'}; for example "
                "model.optimizer_kwargs.lr=tag(log,interval(1e-5,1e-2))"
            )
        fixed = [each.input_line or "" for each in parsed if not each.is_sweep_override()]
        return cls(tuple(fixed), sweeps)

    def suggest(self, trial: Trial) -> list[str]:
        """Overrides of a trial."""
        return [f"{key}={_suggest(trial, key, sweep)}" for key, sweep in self.sweeps.items()]


def _left_side(override: Override) -> str:
    return (override.input_line or "").partition("=")[0]


def _suggest(trial: Trial, key: str, override: Override) -> int | float | str:
    sweep = override.value()
    if isinstance(sweep, IntervalSweep):
        low, high = sweep.start, sweep.end
        assert low is not None and high is not None
        log = "log" in sweep.tags
        if isinstance(low, int) and isinstance(high, int):
            return trial.suggest_int(key, low, high, log=log)
        return trial.suggest_float(key, low, high, log=log)
    if isinstance(sweep, RangeSweep) and isinstance(sweep.start, int):
        numbers = list(sweep.range())
        return trial.suggest_int(key, int(numbers[0]), int(numbers[-1]), step=int(sweep.step))
    return str(trial.suggest_categorical(key, list(override.sweep_string_iterator())))


# ---------------------------------------------------------------- studies


def open_study(
    folder: str | Path, space: Space | None = None, minimize: bool = False, seed: int = 0
) -> Study:
    """The study in a folder, which is created.

    Args:
        folder: The folder.
        space: Its overrides; None: those that it has.
        minimize: Whether less is better.
        seed: Seed of the sampler.

    Raises:
        MissingDependencyError: Optuna is not installed.
        ConfigError: The folder has a study with other overrides.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingDependencyError("optuna", "tune") from error
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    Path(folder).mkdir(parents=True, exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(Path(folder) / JOURNAL)))
    study = optuna.create_study(
        storage=storage,
        study_name="rl4co",
        direction="minimize" if minimize else "maximize",
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
        load_if_exists=True,
    )
    if space is not None:
        texts = [*space.fixed, *(each.input_line for each in space.sweeps.values())]
        fixed = study.user_attrs.get(_FIXED)
        if fixed not in (None, texts):
            raise ConfigError(
                f"expected the overrides of the search in {folder}, {' '.join(fixed)}, got "
                f"{' '.join(map(str, texts))}; use another folder"
            )
        if fixed is None:
            study.set_user_attr(_FIXED, texts)
    return study


def tune(
    overrides: Sequence[str],
    trials: int,
    folder: str | Path,
    *,
    minimize: bool = False,
    prune: bool = True,
    seed: int = 0,
    report: Callable[[str], None] = lambda text: None,
) -> Study:
    """Runs trials until there are as many as asked for, those of earlier and other runs included.

    Args:
        overrides: Overrides of `rl4co train`, at least one of them a sweep.
        trials: Trials in all.
        folder: Folder of the journal and of a folder for each trial.
        minimize: Whether less of the metric is better.
        prune: Whether trials that are worse than the median end early.
        seed: Seed of the sampler; another one for each of several processes.
        report: Called with a line about each trial.

    Returns:
        The study of Optuna.
    """
    space, folder = Space.parse(overrides), Path(folder)
    study = open_study(folder, space, minimize, seed)
    if not prune:
        from optuna.pruners import NopPruner

        study.pruner = NopPruner()
    recover(study, folder)
    while _count(study) < trials:
        with _next_trial(study, folder, trials) as trial:
            if trial is None:
                break
            report(_run_trial(study, trial, space, folder))
            write_best(study, folder)
    return study


def recover(study: Study, folder: Path) -> None:
    """Queues trials again that processes left behind when they were killed."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        with ExitStack() as stack:
            try:
                stack.enter_context(_locked(_place(folder, trial.number)))
            except ConfigError:
                continue  # its process is running
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
            study.enqueue_trial(trial.params)


def _place(folder: Path, number: int) -> Path:
    return folder / f"trial-{number:04d}"


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Holds the lock of a trial's folder; raises ConfigError if another process does."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / _LOCK).open("a+b") as file:
        lock(file, f"expected a trial that no process runs, got {place.name}")
        yield


def _counted(study: Study) -> list[int]:
    """Numbers of the trials that count: all but those that a killed process left behind."""
    from optuna.trial import TrialState

    return [
        trial.number
        for trial in study.get_trials(deepcopy=False)
        if trial.state not in (TrialState.FAIL, TrialState.WAITING) or _ERROR in trial.user_attrs
    ]


def _count(study: Study) -> int:
    return len(_counted(study))


@contextmanager
def _next_trial(study: Study, folder: Path, trials: int) -> Iterator[Trial | None]:
    """A trial with its lock; None if other processes have started all of them meanwhile."""
    from optuna.trial import TrialState

    trial = study.ask()
    if trial.number not in sorted(_counted(study))[:trials]:
        study.tell(trial, state=TrialState.FAIL)
        yield None
        return
    with _locked(_place(folder, trial.number)):
        yield trial


def _run_trial(study: Study, trial: Trial, space: Space, folder: Path) -> str:
    """Trains as a trial says; returns a line about it."""
    from optuna.trial import TrialState

    values = space.suggest(trial)
    trial.set_user_attr(_VALUES, values)
    label = f"trial {trial.number}: {' '.join(values)}"
    token = current_trial.set(trial)
    try:
        callback = _train([*space.fixed, *values], _place(folder, trial.number))
    except (RL4COError, HydraException, OmegaConfBaseException) as error:
        text = str(error) if isinstance(error, RL4COError) else explain(error)
        trial.set_user_attr(_ERROR, text)
        study.tell(trial, state=TrialState.FAIL)
        return f"{label}: {text}"
    finally:
        current_trial.reset(token)
    if callback.pruned:
        study.tell(trial, state=TrialState.PRUNED)
        return f"{label}: {callback.values[-1]:.6g}, pruned"
    choose = min if study.direction.name == "MINIMIZE" else max
    best = choose(callback.values)
    study.tell(trial, best)
    return f"{label}: {best:.6g}"


def _train(overrides: Sequence[str], place: Path) -> TrialPruning:
    """Trains with overrides in a folder; returns the callback that saw all validations."""
    cfg = load_config(overrides)
    OmegaConf.set_struct(cfg, False)
    metric = cfg.get("optimized_metric") or METRIC
    cfg.test = False
    cfg.paths.output_dir = str(place)
    cfg.callbacks = cfg.get("callbacks") or {}
    cfg.callbacks.trial_pruning = {
        "_target_": "rl4co.training.pruning.TrialPruning",
        "metric": metric,
    }
    extras = {"enable_progress_bar": False, "enable_model_summary": False}
    cfg.trainer = OmegaConf.merge(cfg.trainer, extras)
    cfg.callbacks.pop("rich_progress_bar", None)
    cfg.callbacks.pop("model_summary", None)
    cfg.extras = {**(cfg.get("extras") or {}), "print_metrics": False}
    _, objects = run(cfg)
    callback = next(each for each in objects["callbacks"] if isinstance(each, TrialPruning))
    if not callback.values:
        raise ConfigError("expected a training with validations, got none; set trainer.max_epochs")
    return callback


def best_trials(study: Study) -> list[Any]:
    """Complete trials, the best one first."""
    from optuna.trial import TrialState

    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    sign = 1 if study.direction.name == "MINIMIZE" else -1
    return sorted(complete, key=lambda trial: sign * (trial.value or 0.0))


def best_command(study: Study) -> str | None:
    """The command that trains as the best trial did; None: there is none."""
    trials = best_trials(study)
    if not trials:
        return None
    swept = {each.partition("=")[0] for each in trials[0].user_attrs[_VALUES]}
    fixed = [each for each in study.user_attrs[_FIXED] if each.partition("=")[0] not in swept]
    return " ".join(["rl4co train", *fixed, *trials[0].user_attrs[_VALUES]])


def write_best(study: Study, folder: Path) -> None:
    """Writes the best trial so far."""
    trials = best_trials(study)
    if not trials:
        return
    best = {
        "number": trials[0].number,
        "value": trials[0].value,
        "overrides": trials[0].user_attrs[_VALUES],
        "command": best_command(study),
    }
    with atomic_write(folder / BEST) as file:
        file.write((json.dumps(best, indent=1) + "\n").encode())


def run_processes(arguments: Sequence[str], jobs: int) -> bool:
    """Runs `rl4co tune` in several processes on one journal; whether all succeeded.

    Args:
        arguments: Arguments of the command.
        jobs: How many processes; each has another seed of the sampler.
    """
    command = [sys.executable, "-m", "rl4co.cli", "tune", *arguments]
    processes = [subprocess.Popen([*command, "--seed", str(job)]) for job in range(jobs)]
    codes = [process.wait() for process in processes]  # of all, also after a failure
    return not any(codes)
