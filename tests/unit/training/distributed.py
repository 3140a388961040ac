"""A program of two processes: trains one step with DDP, each process writes what it saw.

python distributed.py FOLDER
"""

from __future__ import annotations

import os
import sys

from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch

from lightning.pytorch.callbacks import Callback

from rl4co.envs import TSPEnv
from rl4co.models import POMO, AttentionModel
from rl4co.training import RL4COTrainer

#: Layer normalisation: batch statistics would be those of one process.
POLICY = {
    "embed_dim": 16,
    "num_encoder_layers": 1,
    "num_heads": 2,
    "feedforward_hidden": 16,
    "normalization": "layer",
    "train_decode_type": "greedy",
}
SIZES = {"batch_size": 6, "train_data_size": 24, "val_data_size": 20, "val_batch_size": 5}
CASES: dict[str, dict[str, Any]] = {
    "no": {"baseline": "no"},
    "mean": {"baseline": "mean"},
    "exponential": {"baseline": "exponential", "reward_scale": "norm"},
    "rollout": {"baseline": "rollout", "baseline_kwargs": {"dataset_size": 12, "bl_alpha": 0.5}},
    "critic": {"baseline": "critic", "baseline_kwargs": {"embed_dim": 16, "hidden_dim": 8}},
}


def make_model(case: str) -> Any:
    """The model of a case; the weights are the same in all processes."""
    torch.manual_seed(0)
    env = TSPEnv(generator_params={"num_loc": 6})
    sizes = {**SIZES, "test_data_size": 4, "seed": 5}
    if case == "pomo":
        # Its start embedding is never used: DDP has to allow for that.
        return POMO(env, policy_kwargs=POLICY, num_augment=1, **sizes)
    return AttentionModel(env, policy_kwargs=POLICY, **CASES[case], **sizes)


class Witness(Callback):
    """Keeps the training batches, the gradients after the first step and the validation data."""

    def __init__(self) -> None:
        self.batches: list[torch.Tensor] = []
        self.gradients: dict[str, torch.Tensor] = {}
        self.validation: list[torch.Tensor] = []

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        self.batches.append(batch["locs"].clone())

    def on_before_optimizer_step(self, trainer, model, optimizer):
        if not self.gradients:
            self.gradients = {
                name: parameter.grad.clone()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }

    def on_validation_batch_start(self, trainer, model, batch, batch_idx, dataloader_idx=0):
        if not trainer.sanity_checking:
            self.validation.append(batch["locs"].clone())


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for case in [*CASES, "pomo"]:
        witness = Witness()
        trainer = RL4COTrainer(
            epochs=1,
            accelerator="cpu",
            devices=2,
            precision="32-true",
            strategy="DDPStrategy" if case == "no" else "auto",
            callbacks=[witness],
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            logger=False,
            num_sanity_val_steps=0,
            default_root_dir=str(folder),
        )
        model = make_model(case)
        trainer.fit(model)
        seen = {
            "batches": witness.batches,
            "gradients": witness.gradients,
            "validation": witness.validation,
            "reward": float(trainer.callback_metrics["val/reward"]),
            "weights": {k: v for k, v in model.state_dict().items() if torch.is_tensor(v)},
        }
        torch.save(seen, folder / f"{case}-{trainer.global_rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
