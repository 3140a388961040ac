"""A program of two processes: trains PPO and StepwisePPO with DDP, each process writes what it saw.

python ppo_distributed.py FOLDER
"""

from __future__ import annotations

import os
import sys

from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch

from lightning.pytorch.callbacks import Callback

sys.path.insert(0, str(Path(__file__).parent))

from stepwise import TinyStepwisePolicy

from rl4co.envs import DenseRewardTSPEnv, TSPEnv
from rl4co.models import AMPPO, StepwisePPO
from rl4co.training import RL4COTrainer

#: Layer normalisation and greedy decoding: a process computes what the joint batch would give.
POLICY = {
    "embed_dim": 16, "num_encoder_layers": 1, "num_heads": 2, "feedforward_hidden": 16,
    "normalization": "layer", "train_decode_type": "greedy",
}  # fmt: skip
SIZES = {"val_data_size": 4, "test_data_size": 4, "seed": 5}


def make_model(case: str) -> Any:
    """The model of a case; the weights are the same in all processes."""
    torch.manual_seed(0)
    if case == "whole":
        env = TSPEnv(generator_params={"num_loc": 5})
        sizes = {"batch_size": 6, "train_data_size": 12, "mini_batch_size": 1.0}
        return AMPPO(env, policy_kwargs=POLICY, **sizes, **SIZES)
    if case == "uneven":
        # Shards of 7 and 8: the last batches have 1 and 2 rows, hence 1 and 2 mini-batches.
        env = TSPEnv(generator_params={"num_loc": 5})
        sizes = {"batch_size": 6, "train_data_size": 15, "mini_batch_size": 1}
        return AMPPO(env, policy_kwargs=POLICY, **sizes, **SIZES)
    env = DenseRewardTSPEnv(generator_params={"num_loc": 5})
    sizes = {"batch_size": 6, "train_data_size": 15, "mini_batch_size": 7, "update_timestep": 2}
    return StepwisePPO(env, TinyStepwisePolicy(), reward_scale="scale", **sizes, **SIZES)


class Witness(Callback):
    """Keeps the first batch, the gradients of the first update, and a checkpoint after a batch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batch: torch.Tensor | None = None
        self.gradients: dict[str, torch.Tensor] = {}

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        if self.batch is None:
            self.batch = batch["locs"].clone()

    def on_before_optimizer_step(self, trainer, model, optimizer):
        if not self.gradients:
            self.gradients = {
                name: weight.grad.clone()
                for name, weight in model.named_parameters()
                if weight.grad is not None
            }

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        if trainer.current_epoch == 0 and batch_idx == 0:
            trainer.save_checkpoint(self.path)


def train(case: str, folder: Path, resume: bool) -> None:
    """A run of two epochs, from its first batch or resumed after it."""
    path = folder / f"{case}.ckpt"
    witness = Witness(folder / "again.ckpt" if resume else path)
    trainer = RL4COTrainer(
        epochs=2, accelerator="cpu", devices=2, precision="32-true", callbacks=[witness],
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        logger=False, num_sanity_val_steps=0, default_root_dir=str(folder),
    )  # fmt: skip
    model = make_model(case)
    trainer.fit(model, ckpt_path=path if resume else None)
    seen = {
        "batch": witness.batch,
        "gradients": witness.gradients,
        "weights": model.state_dict(),
        "steps": trainer.global_step,
    }
    name = f"{case}-resumed" if resume else case
    torch.save(seen, folder / f"{name}-{trainer.global_rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in ("whole", "uneven", "stepwise"):
        train(each, Path(sys.argv[1]), resume=False)
    train("stepwise", Path(sys.argv[1]), resume=True)
