"""Import path of the trainer."""

from __future__ import annotations

from rl4co.training.trainer import RL4COTrainer

__all__ = ["RL4COTrainer"]
