"""Reinforcement-learning algorithms: one file each, imported on first use."""

from __future__ import annotations

from rl4co.core.lazy import lazy_attributes

_MODULES = {
    "RL4COLitModule": "rl4co.models.rl.base",
    "REINFORCE": "rl4co.models.rl.reinforce",
    "A2C": "rl4co.models.rl.a2c",
    "PPO": "rl4co.models.rl.ppo",
    "StepwisePPO": "rl4co.models.rl.stepwise_ppo",
    "n_step_PPO": "rl4co.models.rl.n_step_ppo",
}

__getattr__, __dir__ = lazy_attributes(__name__, eager=(), modules=_MODULES)
