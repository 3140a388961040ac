"""Recipes: from an experiment with changes to a trained policy in a folder.

The key of a recipe is a digest of its resolved configuration, without what cannot change a result
(folders, loggers, devices), so equal trainings of several tables are made once:

    models/<key>/{config.json, model.safetensors}      the policy, as `save_pretrained` writes it
    models/<key>/training.json                         recipe, learning curve, machine; written last
    models/<key>/last.ckpt                             while it trains; resumed from

A number of steps stretches the schedule: the epochs, the instances of each, and the milestones of
the learning rate follow from it, so the run is an ordinary one and can be resumed exactly.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
import logging
import sys
import warnings

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.data.io import atomic_write
from rl4co.tasks.benchmark.machine import machine_facts
from rl4co.tasks.benchmark.spec import Recipe
from rl4co.tasks.benchmark.store import lock
from rl4co.tasks.train import CONFIG_DIR, explain, load_config, prepare_config, run

MODELS, TRAINING, CHECKPOINT = "models", "training.json", "last.ckpt"
WEIGHTS = "model.safetensors"
#: Letters of a key in the name of a folder.
_KEY_LENGTH = 12
#: Most epochs of a stretched schedule, and the least steps of one.
MOST_EPOCHS, STEPS_PER_EPOCH = 100, 50
#: When the learning rate falls, as shares of all epochs.
MILESTONES = (0.8, 0.95)

#: Argument of models that accept another architecture to start from.
_BASE = "base_model_checkpoint_path"

#: Parts of a configuration that cannot change a result, or are replaced here.
_PASSIVE = {
    "": ("paths", "logger", "extras", "hydra", "tags", "mode", "task_name", "model_checkpoint",
         "train", "test", "ckpt_path", "optimized_metric", "seed"),
    "env": ("data_dir",),
    "trainer": ("default_root_dir", "accelerator", "devices", "strategy", "num_nodes",
                "matmul_precision", "enable_progress_bar", "enable_model_summary"),
    "callbacks": ("model_checkpoint", "last_checkpoint", "model_summary", "rich_progress_bar",
                  "learning_rate_monitor", "speed_monitor", "learning_curve", "start_weights"),
}  # fmt: skip


# ---------------------------------------------------------------- configurations


def compose(recipe: Recipe) -> DictConfig:
    """The configuration of a training, with its schedule stretched to the steps of the recipe.

    Raises:
        ConfigError: The experiment does not exist, or an override does not fit it.
    """
    groups = {key: value for key, value in recipe.overrides.items() if (CONFIG_DIR / key).is_dir()}
    chosen = [f"experiment={recipe.experiment}", *(f"{k}={v}" for k, v in groups.items())]
    try:
        cfg = _base(tuple(chosen)).copy()
        OmegaConf.set_struct(cfg, False)
        for key, value in recipe.overrides.items():
            if key not in groups:
                # An empty mapping replaces what is there.
                OmegaConf.update(cfg, key, value, merge=value != {})
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"{recipe.experiment}: {explain(error)}") from error
    cfg.seed, cfg.test = recipe.seed, False
    if recipe.steps is not None:
        _stretch_(cfg, recipe.steps, recipe.epochs)
    return prepare_config(cfg)


@functools.cache
def _base(overrides: tuple[str, ...]) -> DictConfig:
    return load_config([*overrides, "paths.root_dir=.", "paths.output_dir=."])


def key_of(recipe: Recipe) -> str:
    """Digest of everything that can change the trained weights, apart from the machine."""
    return _key(json.dumps(dataclasses.asdict(recipe), sort_keys=True, default=list))


@functools.cache
def _key(text: str) -> str:
    recipe = recipe_from(json.loads(text))
    values = OmegaConf.to_container(compose(recipe), resolve=True)
    assert isinstance(values, dict)
    parts = {"": values, **{name: values.get(name) or {} for name in _PASSIVE if name}}
    for name, dropped in _PASSIVE.items():
        for key in dropped:
            parts[name].pop(key, None)
    start = None if recipe.start is None else key_of(recipe.start)
    content = json.dumps([values, recipe.seed, start], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def recipe_from(record: Mapping[str, Any]) -> Recipe:
    """A recipe from its record in JSON."""
    values = dict(record)
    if values.get("start") is not None:
        values["start"] = recipe_from(values["start"])
    return Recipe(**values)


def _stretch_(cfg: DictConfig, steps: int, epochs: int | None) -> None:
    """Divides the steps into epochs and moves the milestones of the learning rate, in place."""
    if cfg.model.get("batch_size") is None:
        raise ConfigError(
            "expected model.batch_size in the experiment of a recipe with steps, got none; leave "
            "out `steps` and override the schedule of the experiment"
        )
    epochs = epochs or max(1, min(MOST_EPOCHS, steps // STEPS_PER_EPOCH))
    cfg.trainer.max_epochs = epochs
    cfg.model.train_data_size = cfg.model.batch_size * max(1, round(steps / epochs))
    schedule = cfg.model.get("lr_scheduler_kwargs")
    if schedule and "milestones" in schedule:
        shares = [max(1, round(share * epochs)) for share in MILESTONES]
        cfg.model.lr_scheduler_kwargs.milestones = sorted(set(shares))


def count_steps(cfg: DictConfig) -> int:
    """Training batches of a configuration."""
    per_epoch = -(-cfg.model.train_data_size // cfg.model.batch_size)
    return int(cfg.trainer.max_epochs * per_epoch)


# ---------------------------------------------------------------- trainings


def folder_of(recipe: Recipe, root: Path) -> Path:
    """The folder of a trained policy."""
    return root / MODELS / key_of(recipe)[:_KEY_LENGTH]


def is_trained(recipe: Recipe, root: Path) -> bool:
    """Whether the training of a recipe is complete."""
    return (folder_of(recipe, root) / TRAINING).is_file()


def read_training(folder: Path) -> dict[str, Any]:
    """The record of a complete training.

    Raises:
        FileFormatError: It is damaged, or the weights are not those that it names.
    """
    try:
        record = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
        if record["weights"] != weights_digest(folder):
            raise ValueError("its digest is not that of the weights")
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise FileFormatError(
            f"expected the record of a training in {folder / TRAINING}, got: {error}; remove the "
            "folder to train again"
        ) from error
    return dict(record)


def weights_digest(folder: Path) -> str:
    """Digest of the weights in a folder."""
    return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()


def train(recipe: Recipe, root: Path) -> Path:
    """Trains a recipe, unless that is done; a training that was interrupted goes on.

    Args:
        recipe: The recipe; the one that it starts from is trained first.
        root: Folder that contains the folder `models`.

    Returns:
        The folder of the policy.
    """
    folder = folder_of(recipe, root)
    if is_trained(recipe, root):
        read_training(folder)
        return folder
    start = None if recipe.start is None else train(recipe.start, root)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if is_trained(recipe, root):  # by another process, meanwhile
            return folder
        cfg = _for_folder(compose(recipe), folder, start)
        with _quiet():
            metrics, objects = run(cfg)
        policy = objects["model"].policy
        if not hasattr(policy, "save_pretrained"):  # a critic around it, which only training needs
            policy = policy.policy
        policy.save_pretrained(folder)
        curve = next(c for c in objects["callbacks"] if hasattr(c, "history")).history
        record = {
            "key": key_of(recipe),
            "recipe": dataclasses.asdict(recipe),
            "steps": count_steps(cfg),
            "seconds": curve[-1]["seconds"] if curve else 0.0,
            "metrics": metrics,
            "curve": curve,
            "weights": weights_digest(folder),
            "machine": machine_facts(),
        }
        with atomic_write(folder / TRAINING) as file:
            file.write((json.dumps(record, indent=1) + "\n").encode())
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return folder


def _for_folder(cfg: DictConfig, folder: Path, start: Path | None) -> DictConfig:
    """The configuration with the callbacks of a resumable training in a folder."""
    kept = {
        str(name): entry
        for name, entry in (cfg.get("callbacks") or {}).items()
        if name not in _PASSIVE["callbacks"]
    }
    own: dict[str, Any] = {
        "last_checkpoint": {
            "_target_": "lightning.pytorch.callbacks.ModelCheckpoint",
            "dirpath": str(folder),
            "filename": CHECKPOINT.removesuffix(".ckpt"),
            "enable_version_counter": False,
        },
        "learning_curve": {"_target_": "rl4co.training.callbacks.LearningCurve"},
    }
    changes: dict[str, Any] = {}
    if start is not None and _BASE in cfg.model:  # PolyNet adds layers to the policy
        changes["model"] = {_BASE: str(start)}
    elif start is not None:
        target = "rl4co.training.callbacks.StartWeights"
        own["start_weights"] = {"_target_": target, "folder": str(start)}
    checkpoint = folder / CHECKPOINT
    changes |= {
        "callbacks": {**kept, **own},
        "logger": None,
        "ckpt_path": str(checkpoint) if checkpoint.exists() else None,
        "extras": {"print_metrics": False},
        "paths": {"output_dir": str(folder)},
        # Progress bars are printed to stdout.
        "trainer": {"enable_progress_bar": sys.stdout.isatty(), "enable_model_summary": False},
    }
    cfg = cfg.copy()
    OmegaConf.set_struct(cfg, False)
    cfg.callbacks = {}
    return OmegaConf.merge(cfg, changes)  # type: ignore[return-value]


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides remarks of Lightning and TorchRL on ordinary trainings."""
    importlib.import_module("rl4co.training.trainer")  # Lightning sets its level when imported
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "torchrl")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises if another process trains in the folder."""
    path = folder / ".lock"
    with path.open("a+b") as file:
        lock(
            file,
            f"expected a recipe that no other process trains, got {folder.name}, which one is "
            "training now; wait for it, or use another folder",
        )
        yield
