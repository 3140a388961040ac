"""Reinforcement-learning algorithms: one file each, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from rl4co.models.rl.a2c import A2C as A2C
    from rl4co.models.rl.base import RL4COLitModule as RL4COLitModule
    from rl4co.models.rl.construct_improve import ConstructAndImprove as ConstructAndImprove
    from rl4co.models.rl.n_step_ppo import n_step_PPO as n_step_PPO
    from rl4co.models.rl.ppo import PPO as PPO
    from rl4co.models.rl.reinforce import REINFORCE as REINFORCE
    from rl4co.models.rl.self_labeling import SelfLabeling as SelfLabeling
    from rl4co.models.rl.stepwise_ppo import StepwisePPO as StepwisePPO

_MODULES = {
    "RL4COLitModule": "rl4co.models.rl.base",
    "REINFORCE": "rl4co.models.rl.reinforce",
    "A2C": "rl4co.models.rl.a2c",
    "PPO": "rl4co.models.rl.ppo",
    "StepwisePPO": "rl4co.models.rl.stepwise_ppo",
    "SelfLabeling": "rl4co.models.rl.self_labeling",
    "n_step_PPO": "rl4co.models.rl.n_step_ppo",
    "ConstructAndImprove": "rl4co.models.rl.construct_improve",
}

__getattr__, __dir__ = lazy_attributes(__name__, eager=(), modules=_MODULES)
