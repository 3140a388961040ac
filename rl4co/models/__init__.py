"""Models: policies, RL algorithms and the zoo of methods, imported on first use."""

from __future__ import annotations

from rl4co.core.lazy import lazy_attributes

_BASES = {
    "ConstructiveEncoder": "rl4co.models.policies.modules",
    "ConstructiveDecoder": "rl4co.models.policies.modules",
    "ConstructivePolicy": "rl4co.models.policies.constructive",
    "AutoregressiveEncoder": "rl4co.models.policies.autoregressive",
    "AutoregressiveDecoder": "rl4co.models.policies.autoregressive",
    "AutoregressivePolicy": "rl4co.models.policies.autoregressive",
    "NonAutoregressiveEncoder": "rl4co.models.policies.nonautoregressive",
    "NonAutoregressiveDecoder": "rl4co.models.policies.nonautoregressive",
    "NonAutoregressivePolicy": "rl4co.models.policies.nonautoregressive",
    "NARGNNEncoder": "rl4co.models.policies.nonautoregressive",
    "NARGNNPolicy": "rl4co.models.policies.nonautoregressive",
    "load_pretrained": "rl4co.models.policies.pretrained",
    "RL4COLitModule": "rl4co.models.rl.base",
    "REINFORCE": "rl4co.models.rl.reinforce",
    "A2C": "rl4co.models.rl.a2c",
    "PPO": "rl4co.models.rl.ppo",
    "StepwisePPO": "rl4co.models.rl.stepwise_ppo",
    "REINFORCEBaseline": "rl4co.models.rl.baselines",
    "get_reinforce_baseline": "rl4co.models.rl.baselines",
    "CriticNetwork": "rl4co.models.rl.critic",
    "TransductiveModel": "rl4co.models.rl.transductive",
}

__getattr__, __dir__ = lazy_attributes(
    __name__, eager=(), packages=("rl4co.models.zoo",), modules=_BASES
)
