"""Training: the trainer, callbacks, checkpoints and exact resuming; imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from rl4co.training.callbacks import LearningCurve as LearningCurve
    from rl4co.training.callbacks import RL4COProgressBar as RL4COProgressBar
    from rl4co.training.callbacks import SpeedMonitor as SpeedMonitor
    from rl4co.training.checkpoint import AtomicCheckpointIO as AtomicCheckpointIO
    from rl4co.training.memory import tune_allocator as tune_allocator
    from rl4co.training.reptile import ReptileCallback as ReptileCallback
    from rl4co.training.resume import ExactResume as ExactResume
    from rl4co.training.trainer import RL4COTrainer as RL4COTrainer

_LAZY = {
    "RL4COTrainer": "rl4co.training.trainer",
    "AtomicCheckpointIO": "rl4co.training.checkpoint",
    "ExactResume": "rl4co.training.resume",
    "LearningCurve": "rl4co.training.callbacks",
    "RL4COProgressBar": "rl4co.training.callbacks",
    "ReptileCallback": "rl4co.training.reptile",
    "SpeedMonitor": "rl4co.training.callbacks",
    "tune_allocator": "rl4co.training.memory",
}

__getattr__, __dir__ = lazy_attributes(__name__, eager=(), modules=_LAZY)
