"""Models: policies, RL algorithms and the zoo of methods, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from rl4co.models.policies.autoregressive import AutoregressiveDecoder as AutoregressiveDecoder
    from rl4co.models.policies.autoregressive import AutoregressiveEncoder as AutoregressiveEncoder
    from rl4co.models.policies.autoregressive import AutoregressivePolicy as AutoregressivePolicy
    from rl4co.models.policies.constructive import ConstructivePolicy as ConstructivePolicy
    from rl4co.models.policies.improvement import ImprovementDecoder as ImprovementDecoder
    from rl4co.models.policies.improvement import ImprovementEncoder as ImprovementEncoder
    from rl4co.models.policies.improvement import ImprovementPolicy as ImprovementPolicy
    from rl4co.models.policies.modules import ConstructiveDecoder as ConstructiveDecoder
    from rl4co.models.policies.modules import ConstructiveEncoder as ConstructiveEncoder
    from rl4co.models.policies.nonautoregressive import NARGNNEncoder as NARGNNEncoder
    from rl4co.models.policies.nonautoregressive import NARGNNPolicy as NARGNNPolicy
    from rl4co.models.policies.nonautoregressive import (
        NonAutoregressiveDecoder as NonAutoregressiveDecoder,
    )
    from rl4co.models.policies.nonautoregressive import (
        NonAutoregressiveEncoder as NonAutoregressiveEncoder,
    )
    from rl4co.models.policies.nonautoregressive import (
        NonAutoregressivePolicy as NonAutoregressivePolicy,
    )
    from rl4co.models.policies.pretrained import load_pretrained as load_pretrained
    from rl4co.models.rl.a2c import A2C as A2C
    from rl4co.models.rl.base import RL4COLitModule as RL4COLitModule
    from rl4co.models.rl.baselines import REINFORCEBaseline as REINFORCEBaseline
    from rl4co.models.rl.baselines import get_reinforce_baseline as get_reinforce_baseline
    from rl4co.models.rl.construct_improve import ConstructAndImprove as ConstructAndImprove
    from rl4co.models.rl.critic import CriticNetwork as CriticNetwork
    from rl4co.models.rl.n_step_ppo import n_step_PPO as n_step_PPO
    from rl4co.models.rl.ppo import PPO as PPO
    from rl4co.models.rl.reinforce import REINFORCE as REINFORCE
    from rl4co.models.rl.self_labeling import SelfLabeling as SelfLabeling
    from rl4co.models.rl.stepwise_ppo import StepwisePPO as StepwisePPO
    from rl4co.models.rl.transductive import TransductiveModel as TransductiveModel
    from rl4co.models.zoo import *

_BASES = {
    "ConstructiveEncoder": "rl4co.models.policies.modules",
    "ConstructiveDecoder": "rl4co.models.policies.modules",
    "ConstructivePolicy": "rl4co.models.policies.constructive",
    "AutoregressiveEncoder": "rl4co.models.policies.autoregressive",
    "AutoregressiveDecoder": "rl4co.models.policies.autoregressive",
    "AutoregressivePolicy": "rl4co.models.policies.autoregressive",
    "ImprovementEncoder": "rl4co.models.policies.improvement",
    "ImprovementDecoder": "rl4co.models.policies.improvement",
    "ImprovementPolicy": "rl4co.models.policies.improvement",
    "NonAutoregressiveEncoder": "rl4co.models.policies.nonautoregressive",
    "NonAutoregressiveDecoder": "rl4co.models.policies.nonautoregressive",
    "NonAutoregressivePolicy": "rl4co.models.policies.nonautoregressive",
    "NARGNNEncoder": "rl4co.models.policies.nonautoregressive",
    "NARGNNPolicy": "rl4co.models.policies.nonautoregressive",
    "load_pretrained": "rl4co.models.policies.pretrained",
    "RL4COLitModule": "rl4co.models.rl.base",
    "REINFORCE": "rl4co.models.rl.reinforce",
    "SelfLabeling": "rl4co.models.rl.self_labeling",
    "A2C": "rl4co.models.rl.a2c",
    "PPO": "rl4co.models.rl.ppo",
    "StepwisePPO": "rl4co.models.rl.stepwise_ppo",
    "n_step_PPO": "rl4co.models.rl.n_step_ppo",
    "ConstructAndImprove": "rl4co.models.rl.construct_improve",
    "REINFORCEBaseline": "rl4co.models.rl.baselines",
    "get_reinforce_baseline": "rl4co.models.rl.baselines",
    "CriticNetwork": "rl4co.models.rl.critic",
    "TransductiveModel": "rl4co.models.rl.transductive",
}

__getattr__, __dir__ = lazy_attributes(
    __name__, eager=(), packages=("rl4co.models.zoo",), modules=_BASES
)
