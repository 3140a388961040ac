"""Training from a configuration: `rl4co train experiment=...`, `python run.py experiment=...`.

cfg = load_config(["experiment=quick", "trainer.max_epochs=1"])
metrics, objects = run(cfg)
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import random
import sys

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from rl4co.core.errors import ConfigError, RL4COError, UnknownNameError
from rl4co.tasks.collect import OVERRIDES
from rl4co.tasks.instantiate import (
    build,
    extras,
    get_metric_value,
    get_pylogger,
    instantiate_callbacks,
    instantiate_env,
    instantiate_loggers,
    instantiate_model,
    is_rank_zero,
    log_hyperparameters,
    task_wrapper,
)

CONFIG_DIR = Path(__file__).resolve().parent.parent / "configs"
#: Tells processes that this one starts which seed was drawn.
_SEED_VARIABLE = "RL4CO_DRAWN_SEED"
#: Exit code of a run with an error that the user can fix.
USAGE_ERROR = 2
#: Exit codes of runs that were stopped by a signal, as shells have them.
TERMINATED, INTERRUPTED = 143, 130

log = get_pylogger(__name__)


@task_wrapper
def run(cfg: DictConfig) -> tuple[dict[str, float], dict[str, Any]]:
    """Trains and tests as a configuration says.

    Args:
        cfg: Composed configuration (see :func:`load_config`); not modified.

    Returns:
        Metrics by name (`train/...`, `val/...`, `test/...`) and the objects of the run: cfg, env,
        model, callbacks, logger, trainer.
    """
    cfg = prepare_config(cfg)
    log.info(f"Seed {seed_run(cfg.get('seed'))}")

    env = instantiate_env(cfg.env)
    model = instantiate_model(cfg.model, env)
    callbacks = instantiate_callbacks(cfg.get("callbacks"))
    strict = bool((cfg.get("extras") or {}).get("strict_loggers", False))
    loggers = instantiate_loggers(
        cfg.get("logger"), model, strict=strict, folder=cfg.paths.output_dir
    )
    trainer = build(cfg.trainer, callbacks=callbacks, logger=loggers or False)
    objects = {
        "cfg": cfg,
        "env": env,
        "model": model,
        "callbacks": callbacks,
        "logger": loggers,
        "trainer": trainer,
    }
    log_hyperparameters(objects)

    metrics: dict[str, float] = {}
    if cfg.get("train", True):
        resumed = cfg.get("ckpt_path")
        named = cfg.model.get("policy")
        start = resumed or (named if isinstance(named, str) else "scratch")
        log.info(f"Training {type(model).__name__} on {env.name} from {start}")
        trainer.fit(model, ckpt_path=resumed)
        metrics.update(_values(trainer))
        _log_best(trainer)
    if cfg.get("test", True):
        checkpoint = _test_checkpoint(cfg, trainer)
        log.info(f"Testing {checkpoint or 'the current weights'}")
        trainer.test(model, ckpt_path=checkpoint, verbose=False)
        metrics.update(_values(trainer))
    if (cfg.get("extras") or {}).get("print_metrics", True):
        _report(metrics)
    return metrics, objects


def load_config(
    overrides: Sequence[str] = (), config_dir: str | os.PathLike[str] | None = None
) -> DictConfig:
    """Composes a configuration outside the command line, for scripts, notebooks and tests.

    Args:
        overrides: As on the command line, e.g. `["experiment=quick", "trainer.max_epochs=1"]`.
        config_dir: Folder with custom configurations, searched after the packaged ones.
    """
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    chosen = list(overrides)
    if not any(override.startswith("paths.output_dir=") for override in chosen):
        # There is no Hydra application that would choose a folder.
        chosen.append(f"paths.output_dir=${{paths.log_dir}}/${{task_name}}/runs/{now}")
    if config_dir is not None:
        chosen.append(f"hydra.searchpath=['{Path(config_dir).resolve().as_uri()}']")
    with hydra.initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return hydra.compose("main", overrides=chosen)


def prepare_config(cfg: DictConfig) -> DictConfig:
    """The configuration with the shorthand `model_checkpoint` expanded.

    The progress bar of `callbacks=default` is left out if `trainer.enable_progress_bar` is false,
    the default schedule's arguments if another scheduler was chosen, which does not take them.
    """
    if cfg.get("experiment"):
        raise ConfigError(
            f"expected an experiment file whose first line is '# @package _global_', got one that "
            f"only sets experiment.{', experiment.'.join(map(str, cfg.experiment))}; add that line"
        )
    if cfg.get("compile"):
        raise ConfigError(
            "expected compile=false, got true; decoding is compiled by hand where that pays, and "
            "torch.compile would retrace it for every number of nodes"
        )
    cfg = cfg.copy()
    callbacks = cfg.get("callbacks") or DictConfig({})
    shorthand = cfg.get("model_checkpoint")
    if shorthand and "model_checkpoint" in callbacks:
        callbacks.model_checkpoint = OmegaConf.merge(callbacks.model_checkpoint, shorthand)
    if cfg.trainer.get("enable_progress_bar") is False and "rich_progress_bar" in callbacks:
        kept = [str(name) for name in callbacks if name != "rich_progress_bar"]
        cfg.callbacks = OmegaConf.masked_copy(callbacks, kept)
    _drop_inherited_schedule_(cfg)
    return cfg


def _drop_inherited_schedule_(cfg: DictConfig) -> None:
    """Removes the milestones of `model=default` from another scheduler's arguments, in place."""
    arguments = cfg.model.get("lr_scheduler_kwargs")
    default = OmegaConf.load(CONFIG_DIR / "model" / "default.yaml")
    if not arguments or cfg.model.get("lr_scheduler") == default.lr_scheduler:
        return
    if arguments.get("milestones") == default.lr_scheduler_kwargs.milestones:
        kept = [str(name) for name in arguments if name != "milestones"]
        cfg.model.lr_scheduler_kwargs = OmegaConf.masked_copy(arguments, kept)


def seed_run(seed: int | None) -> int:
    """Seeds Python, NumPy and torch; all randomness of training is derived from that.

    Args:
        seed: The seed; None draws one, the same for all processes that this one will start.

    Returns:
        The seed that is used.
    """
    seed = _fresh_seed() if seed is None else seed
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    return seed


def _fresh_seed() -> int:
    if is_rank_zero():
        seed = random.SystemRandom().getrandbits(31)
        os.environ[_SEED_VARIABLE] = str(seed)
        return seed
    if _SEED_VARIABLE not in os.environ:
        raise ConfigError("expected a seed for a run in several processes, got none; set seed=...")
    return int(os.environ[_SEED_VARIABLE])


def main(resume: Path | None = None) -> None:
    """Entry point of the command line: composes the configuration from `sys.argv` and runs it.

    A folder `configs` with a `main.yaml` beside the script that runs takes the place of the
    packaged one. Errors that the user can fix end in a short message and exit code 2;
    `HYDRA_FULL_ERROR=1` shows their tracebacks.

    Args:
        resume: Folder of an interrupted run to continue.
    """
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    # Configurations may refer to it (`paths.root_dir`).
    os.environ.setdefault("PROJECT_ROOT", str(Path(sys.argv[0]).resolve().parent))
    start = hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="main")
    try:
        if resume is not None:
            sys.argv[1:1] = overrides_to_resume(resume)
        with _errors_pass_through():
            start(_application)()
    except (RL4COError, HydraException, OmegaConfBaseException, OSError) as error:
        if wants_traceback:
            raise
        _print_error(explain(error))
        sys.exit(USAGE_ERROR)
    except KeyboardInterrupt:
        _print_error("stopped by Ctrl-C")
        sys.exit(INTERRUPTED)
    except SystemExit as error:
        stopped = _explain_exit(error)
        if stopped is None:
            raise
        signal_name, checkpoint = stopped
        _print_error(f"stopped by {signal_name}; go on with ckpt_path={checkpoint}")
        sys.exit(INTERRUPTED if signal_name == "Ctrl-C" else TERMINATED)


def overrides_to_resume(folder: Path) -> list[str]:
    """Arguments of the command line that continue an interrupted run in its folder.

    Args:
        folder: Folder of the run, with `.hydra` and `checkpoints`.

    Raises:
        FileNotFoundError: It is no folder of a run, or the run has no checkpoint.
    """
    overrides, checkpoint = folder / OVERRIDES, folder / "checkpoints" / "last.ckpt"
    for file in (overrides, checkpoint):
        if not file.is_file():
            raise FileNotFoundError(
                f"expected the folder of a run that can be continued, got {folder} without "
                f"{file.relative_to(folder)}; `rl4co train` prints the folder of a run"
            )
    kept = [str(each) for each in OmegaConf.load(overrides) if "ckpt_path=" not in str(each)]
    return [*kept, f"ckpt_path='{checkpoint}'", f"hydra.run.dir='{folder}'"]


def config_folder() -> Path:
    """The configurations of a run: `configs` beside the script, or those of the package."""
    beside = Path(sys.argv[0]).resolve().parent / "configs"
    return beside if (beside / "main.yaml").is_file() else CONFIG_DIR


def _application(cfg: DictConfig) -> float | None:
    extras(cfg)
    metrics, _ = run(cfg)
    return get_metric_value(metrics, cfg.get("optimized_metric"))


# ---------------------------------------------------------------- internals


def _values(trainer: Any) -> dict[str, float]:
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def _test_checkpoint(cfg: DictConfig, trainer: Any) -> str | None:
    """Weights to test: the best of this run, or those asked for; None: the current ones."""
    if not cfg.get("train", True):
        return cfg.get("ckpt_path")
    return getattr(trainer.checkpoint_callback, "best_model_path", None) or None


def _log_best(trainer: Any) -> None:
    """Logs the best validation of a training and its checkpoint, beside the last validation."""
    checkpoint = trainer.checkpoint_callback
    score = getattr(checkpoint, "best_model_score", None)
    if score is None:
        return
    last = trainer.callback_metrics.get(checkpoint.monitor)
    beside = "" if last is None else f", last {float(last):.4f}"
    log.info(
        f"Best {checkpoint.monitor} {float(score):.4f}{beside}; "
        f"its weights are in {checkpoint.best_model_path}"
    )


def _report(metrics: dict[str, float]) -> None:
    """Prints the metrics of a run as a table."""
    if not metrics or not is_rank_zero():
        return
    from rich.table import Table

    from rl4co.core.console import Console

    table = Table("metric", "value")
    for name in sorted(metrics):
        # Lightning adds `..._step` (the last batch only) and `..._epoch` (a second copy).
        if not name.endswith(("_step", "_epoch")):
            table.add_row(name, f"{metrics[name]:.4f}")
    Console().print(table)


@contextlib.contextmanager
def _errors_pass_through() -> Iterator[None]:
    """Keeps Hydra from printing errors itself, so that all of them are reported in one way."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before


def _explain_exit(error: SystemExit) -> tuple[str, str] | None:
    """The signal that stopped a run, and the checkpoint to go on from; None for other exits."""
    from rl4co.training.interrupts import TrainingInterrupted

    if isinstance(error, TrainingInterrupted):
        return error.signal_name, str(error.checkpoint or "...")
    if isinstance(error.__context__, KeyboardInterrupt):  # Lightning exits with 1
        return "Ctrl-C", "..."
    # Lightning ends a distributed training by this after SIGTERM; Python takes it for a success.
    return ("SIGTERM", "...") if error.code is None else None


def explain(error: BaseException) -> str:
    """Message of the innermost error that is the library's or the user's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RL4COError):
            return str(cause)
        if isinstance(cause, MissingConfigException) and "/" in (cause.missing_cfg_file or ""):
            return _explain_choice(str(cause.missing_cfg_file), cause.options or ())
        if isinstance(cause, ConfigKeyError | ConfigAttributeError):
            return _explain_key(cause)
        if isinstance(cause, OSError) and cause.errno in _NOT_WRITABLE:
            space = "free some space or " if cause.errno == errno.ENOSPC else ""
            return (
                f"expected a folder that can be written to, got {cause.filename or 'another'} "
                f"({cause.strerror}); {space}choose another one with paths.log_dir=..."
            )
        cause = cause.__cause__
    return str(error)


def _explain_choice(missing: str, options: Sequence[str]) -> str:
    """Names of the existing files of a group, in the folders below it as well."""
    group, _, name = missing.partition("/")
    files = (CONFIG_DIR / group).rglob("*.yaml")
    names = {path.relative_to(CONFIG_DIR / group).with_suffix("").as_posix() for path in files}
    return str(UnknownNameError(f"{group} configuration", name, names.union(options)))


def _explain_key(error: OmegaConfBaseException) -> str:
    """Names of the existing keys beside an unknown one."""
    parent, _, name = str(error.full_key).rpartition(".")
    keys = [str(key) for key in error.parent_node or () if key != "hydra"]
    error_text = UnknownNameError(f"setting of {parent or 'the configuration'}", name, keys)
    return f"{error_text}; to add one write +{error.full_key}=..."


#: Reasons of the system; the library's own errors on missing files have no number.
_NOT_WRITABLE = {
    errno.EACCES,
    errno.ENOENT,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOSPC,
}


def _print_error(message: str) -> None:
    from rl4co.core.console import Console

    Console(stderr=True, soft_wrap=True).print(message, style="red", markup=False, highlight=False)


if __name__ == "__main__":
    main()
