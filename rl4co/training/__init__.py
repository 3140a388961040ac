"""Training: the trainer, callbacks, checkpoints and exact resuming; imported on first use."""

from __future__ import annotations

from rl4co.core.lazy import lazy_attributes

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
