"""From a composed configuration to objects, and the helpers around a run.

Everything built here receives plain Python values (`dict`, `list`, `str` ...), never OmegaConf
containers: those do not belong in checkpoints.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import sys
import traceback
import warnings

from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import hydra

from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from rl4co.core.arguments import reject_unknown_arguments
from rl4co.core.errors import ConfigError, MissingDependencyError, RL4COError
from rl4co.core.imports import import_modules

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule
    from lightning.pytorch.loggers import Logger

    from rl4co.envs.base import RL4COEnvBase
    from rl4co.models.rl.base import RL4COLitModule

Task = Callable[[DictConfig], tuple[dict[str, Any], dict[str, Any]]]
T = TypeVar("T", bound=Task)

#: Targets that look a component up by its `name`; classes have a name already.
_BY_NAME = ("rl4co.envs.get_env", "rl4co.make_env", "rl4co.make_model")


# ---------------------------------------------------------------- logging


def is_rank_zero() -> bool:
    """Whether this is the first process of a distributed run (or the only one)."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"))


def get_pylogger(name: str = __name__) -> logging.Logger:
    """A logger that is silent in all but the first process of a distributed run."""
    logger = logging.getLogger(name)
    if _first_process_only not in logger.filters:
        logger.addFilter(_first_process_only)
    return logger


def _first_process_only(record: logging.LogRecord) -> bool:
    return is_rank_zero()


log = get_pylogger(__name__)


# ---------------------------------------------------------------- objects


def build(cfg: DictConfig, *args: Any, **kwargs: Any) -> Any:
    """Calls a configuration's `_target_` with its values and the given objects.

    Unlike a plain `hydra.utils.instantiate`, errors of the target are not wrapped, and a key that
    the target does not accept raises an error with the nearest name.
    """
    if "_target_" not in cfg:
        raise ConfigError(f"expected a configuration with _target_, got the keys {list(cfg)}")
    call = hydra.utils.instantiate(cfg, _partial_=True, _convert_="all")
    reject_unknown_arguments(call.func, cfg["_target_"], {**call.keywords, **kwargs})
    return call(*args, **kwargs)


def instantiate_env(cfg: DictConfig) -> RL4COEnvBase:
    """The environment of a configuration.

    `name` is what other groups read as `${env.name}`; it is passed on only to targets that look an
    environment up by it.
    """
    if "name" in cfg and cfg.get("_target_") not in _BY_NAME:
        cfg = _without(cfg, "name")
    env: RL4COEnvBase = build(cfg)
    return env


def instantiate_model(cfg: DictConfig, env: RL4COEnvBase) -> RL4COLitModule:
    """The model of a configuration, whose `policy` may name a trained one to start from.

    Args:
        cfg: Configuration of the model; a text as `policy` is the name, folder or checkpoint of a
            policy, see :func:`~rl4co.models.rl.saved_policies.load_policy`.
        env: Environment.
    """
    policy = cfg.get("policy")
    # Loaded here, since checkpoints of the model have to be independent of that file.
    if isinstance(policy, str):
        from rl4co.models.rl.saved_policies import load_policy

        return cast("RL4COLitModule", build(cfg, env, policy=load_policy(policy)[0]))
    return cast("RL4COLitModule", build(cfg, env))


def instantiate_callbacks(cfg: DictConfig | None) -> list[Callback]:
    """The callbacks of a configuration: one for each entry with a `_target_`."""
    return [build(entry) for entry in _entries(cfg, "callbacks").values()]


def instantiate_loggers(
    cfg: DictConfig | None,
    model: LightningModule | None = None,
    *,
    strict: bool = False,
    folder: str | os.PathLike[str] | None = None,
) -> list[Logger]:
    """The loggers of a configuration: one for each entry with a `_target_`.

    An entry without one has settings of a logger that was not chosen: an experiment may describe
    its logger although the command line chooses another. It is left out with a warning. An entry
    with `log_gradients: true` also watches the model's gradients, if the logger can.

    Args:
        cfg: Configuration; None gives no loggers.
        model: Model to watch.
        strict: Whether a logger whose package is not installed is an error. Otherwise there is a
            warning, and a CSV file takes its place, so no metrics are lost.
        folder: Folder of that file; None: the logger's `save_dir`, or the working folder.
    """
    loggers: list[Logger] = []
    for name, entry in _entries(_chosen_loggers(cfg), "logger").items():
        watch = bool(entry.get("log_gradients", False))
        try:
            logger: Logger = build(_without(entry, "log_gradients"))
        except (ImportError, InstantiationException) as error:
            if not isinstance(error, ImportError) and _exists(entry["_target_"]):
                raise
            place = str(folder or entry.get("save_dir") or ".")
            package = _LOGGER_PACKAGES.get(entry["_target_"].rpartition(".")[2], name)
            if strict:
                raise MissingDependencyError(package) from error
            log.warning(
                f"{name} is not installed (pip install '{package}'); metrics go to a CSV file in "
                f"{place} instead. Choose another logger, or set extras.strict_loggers=true to "
                "stop here."
            )
            logger = build(_csv_logger(place))
        if watch and model is not None and hasattr(logger, "watch"):
            logger.watch(model)
        loggers.append(logger)
    return loggers


#: Class of a logger → what to install for it, where the name of the logger is another one.
_LOGGER_PACKAGES = {
    "CometLogger": "comet-ml",
    "NeptuneLogger": "lightning<2.6 neptune",
}


def _exists(target: str) -> bool:
    """Whether the module of a `_target_` can be imported and has it."""
    try:
        hydra.utils.get_object(target)
    except (ImportError, AttributeError):
        return False
    return True


def _chosen_loggers(cfg: DictConfig | None) -> DictConfig | None:
    """The group without the settings of loggers that were not chosen."""
    if not isinstance(cfg, DictConfig):
        return cfg
    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    chosen = str(choices.get("logger")).removesuffix(".yaml")
    unused = [
        str(name)
        for name, entry in cfg.items()
        if isinstance(entry, DictConfig) and "_target_" not in entry and name != chosen
    ]
    for name in unused:
        log.warning(
            f"logger.{name} has settings, but is not among the loggers of this run; choose it with "
            f"logger={name}"
        )
    return _without(cfg, *unused) if unused else cfg


def _csv_logger(save_dir: str) -> DictConfig:
    target = "lightning.pytorch.loggers.CSVLogger"
    return OmegaConf.create({"_target_": target, "save_dir": save_dir, "name": "csv"})


def _without(cfg: DictConfig, *dropped: str) -> DictConfig:
    """A copy without some keys; references to other parts of the configuration are resolved."""
    values = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(values, dict)
    return OmegaConf.create({key: value for key, value in values.items() if key not in dropped})


def _entries(cfg: DictConfig | None, group: str) -> dict[str, DictConfig]:
    """The parts of a group that describe an object."""
    if not cfg:
        return {}
    if not isinstance(cfg, DictConfig):
        raise ConfigError(f"expected a mapping under {group}, got {type(cfg).__name__}")
    entries = {}
    for key, entry in cfg.items():
        name = str(key)
        if not isinstance(entry, DictConfig):
            continue
        if "_target_" not in entry:
            raise ConfigError(
                f"expected {group}.{name} with _target_, got the keys {list(entry)}; is "
                f"{group}={name} missing?"
            )
        entries[name] = entry
    return entries


# ---------------------------------------------------------------- around a run


def task_wrapper(task: T) -> T:
    """Decorator of a task `cfg → (metrics, objects)`: logs its output folder, closes loggers.

    The traceback of an error that is not one of ours is kept in `error.log` of the output folder.
    """

    @functools.wraps(task)
    def wrapped(cfg: DictConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        folder = Path(cfg.paths.output_dir)
        try:
            return task(cfg)
        except RL4COError:
            raise
        except Exception:
            with contextlib.suppress(OSError):  # the folder itself may be the problem
                (folder / "error.log").write_text(traceback.format_exc(), encoding="utf-8")
            raise
        finally:
            log.info(f"Output folder: {folder}")
            close_loggers()

    return wrapped  # type: ignore[return-value]


def close_loggers() -> None:
    """Closes services that would carry over into the next run of a sweep."""
    # Only if something imported it: importing wandb takes seconds.
    wandb = sys.modules.get("wandb")
    if wandb is not None and getattr(wandb, "run", None) is not None:
        wandb.finish()


def extras(cfg: DictConfig) -> None:
    """Applies `cfg.extras` before a run: imports modules, hides warnings, prints the configuration.

    Modules may be in the working folder.
    """
    settings = cfg.get("extras") or {}
    import_modules(settings.get("imports"))
    if settings.get("ignore_warnings"):
        warnings.filterwarnings("ignore")
    if settings.get("print_config") and is_rank_zero():
        print_config_tree(cfg)


def print_config_tree(cfg: DictConfig, resolve: bool = True) -> None:
    """Prints a configuration as coloured YAML."""
    from rich.syntax import Syntax

    from rl4co.core.console import Console

    text = OmegaConf.to_yaml(cfg, resolve=resolve)
    Console().print(Syntax(text, "yaml", background_color="default"))


def log_hyperparameters(objects: Mapping[str, Any]) -> None:
    """Sends the configuration and the number of parameters to all loggers of the trainer."""
    cfg, model, trainer = objects["cfg"], objects["model"], objects["trainer"]
    if not trainer.loggers:
        return
    chosen = ("env", "model", "trainer", "callbacks", "extras", "tags", "ckpt_path", "seed")
    values = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(values, dict)
    values = {key: value for key, value in values.items() if key in chosen}
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    total, trainable = sum(n for n, _ in sizes), sum(n for n, learns in sizes if learns)
    counts = {"total": total, "trainable": trainable, "non_trainable": total - trainable}
    values |= {f"model/params/{name}": count for name, count in counts.items()}
    for logger in trainer.loggers:
        logger.log_hyperparams(values)


def get_metric_value(metrics: Mapping[str, Any], name: str | None) -> float | None:
    """The metric of a hyperparameter search, or None without one."""
    if not name:
        return None
    if name not in metrics:
        raise ConfigError(
            f"expected optimized_metric among {', '.join(sorted(metrics))}, got {name!r}"
        )
    return float(metrics[name])


def show_versions() -> None:
    """Prints the versions of relevant packages, for bug reports."""
    from rl4co.core.console import Console

    packages = (
        "rl4co", "torch", "tensordict", "torchrl", "lightning", "hydra-core", "omegaconf", "numpy",
        "numba", "matplotlib", "pyvrp", "ortools", "elkai",
    )  # fmt: skip
    rows = {name: _version(name) for name in packages}
    rows.update({"Python": platform.python_version(), "platform": platform.platform()})
    width = max(map(len, rows))
    console = Console(soft_wrap=True, highlight=False)
    for name, version in rows.items():
        console.print(f"{name:>{width}} : {version}", markup=False)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
