"""Quiet trainers on the CPU, for tests that train with Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint

from rl4co.training import RL4COTrainer


def make_trainer(folder: Path, **options: Any) -> RL4COTrainer:
    """A trainer of one epoch that writes nothing but the checkpoints of a callback."""
    quiet: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "precision": "32-true", "logger": False,
        "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 1,
        "default_root_dir": str(folder), "num_sanity_val_steps": 0,
    }  # fmt: skip
    if not any(isinstance(each, ModelCheckpoint) for each in options.get("callbacks", [])):
        quiet["enable_checkpointing"] = False
    return RL4COTrainer(**{**quiet, **options})


def fit(model: Any, folder: Path, ckpt: Path | None = None, **options: Any) -> RL4COTrainer:
    """Trains a model, from a checkpoint if there is one, and returns the trainer."""
    trainer = make_trainer(folder, **options)
    trainer.fit(model, ckpt_path=ckpt)
    return trainer
