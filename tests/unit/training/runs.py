"""Small runs for the tests of training; as a program, a run that waits at a step to be killed.

python runs.py KIND FOLDER STEP
"""

from __future__ import annotations

import os
import sys
import time

from pathlib import Path
from typing import Any

# Before torch is imported, as in the tests' own process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch

from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from rl4co.envs import TSPEnv
from rl4co.models import POMO, AttentionModel, AttentionModelPolicy
from rl4co.training import RL4COTrainer

POLICY = {"embed_dim": 16, "num_encoder_layers": 1, "num_heads": 2, "feedforward_hidden": 16}
SIZES = {"batch_size": 8, "train_data_size": 32, "val_data_size": 16, "test_data_size": 8}
NUM_BATCHES = 4


def make_model(kind: str = "am", num_loc: int = 6, **options: Any) -> Any:
    """A tiny model, always with the same initial weights."""
    torch.manual_seed(0)
    env = TSPEnv(generator_params={"num_loc": num_loc})
    settings = {**SIZES, "seed": 5, "optimizer_kwargs": {"lr": 1e-3}, **options}
    if "policy" not in settings:
        settings.setdefault("policy_kwargs", POLICY)
    if kind == "pomo":
        return POMO(env, **{"num_augment": 2, **settings})
    rollout = {
        "baseline": "rollout",
        "baseline_kwargs": {"dataset_size": 16, "n_epochs": 2, "bl_alpha": 0.5},
        "reward_scale": "norm",
        "lr_scheduler": "MultiStepLR",
        "lr_scheduler_kwargs": {"milestones": [1, 2], "gamma": 0.5},
    }
    return AttentionModel(env, **{**rollout, **settings})


def make_policy(**options: Any) -> AttentionModelPolicy:
    """A tiny policy."""
    return AttentionModelPolicy(env_name="tsp", **{**POLICY, **options})


def make_trainer(folder: str | Path, **options: Any) -> RL4COTrainer:
    """A quiet trainer on the CPU."""
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "precision": "32-true",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": False,
        "default_root_dir": str(folder),
    }
    if not any(isinstance(each, ModelCheckpoint) for each in options.get("callbacks", [])):
        quiet["enable_checkpointing"] = False
    return RL4COTrainer(**{"max_epochs": 3, **quiet, **options})


class WaitAtStep(Callback):
    """Announces that a step is reached and waits for the end.

    Args:
        step: Optimizer step.
        folder: Folder of the file that announces it.
    """

    def __init__(self, step: int, folder: Path) -> None:
        self.step, self.folder = step, folder

    def on_train_batch_end(self, trainer: Any, model: Any, *args: Any) -> None:
        if trainer.global_step == self.step:
            (self.folder / "reached").touch()
            time.sleep(300)


def checkpoints(folder: Path) -> ModelCheckpoint:
    """One file per two steps."""
    return ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=2, save_top_k=-1)


if __name__ == "__main__":
    kind, folder, step = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    trainer = make_trainer(folder, callbacks=[WaitAtStep(step, folder), checkpoints(folder)])
    trainer.fit(make_model(kind))
