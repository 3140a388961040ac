"""One number of a card: the mean value of one decoding on instances of the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl4co.core.registry import ENVS
from rl4co.data.generate import generate_env_data
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.improvement import ImprovementPolicy
from rl4co.tasks.cards.plan import SEED, card_sets, training_set
from rl4co.tasks.evaluate import evaluate_policy
from rl4co.tasks.methods import IMPROVE

#: Instances of the number that is measured again.
CHECK_INSTANCES = 128
#: Steps of an improvement policy for it.
_STEPS = 20


def describe_check(card: Mapping[str, Any]) -> dict[str, Any]:
    """What is measured again: greedy solutions, or a few steps of improvement."""
    source = training_set(card, card_sets(card, CHECK_INSTANCES)).source
    improves = card["kind"] == "improve"
    return {
        "env": source.env,
        "params": dict(source.params),
        "instances": CHECK_INSTANCES,
        "seed": SEED,
        "method": IMPROVE if improves else "greedy",
        "options": {"steps": _STEPS} if improves else {},
    }


def measure_check(policy: Any, check: Mapping[str, Any]) -> float:
    """Mean value of the solutions: cost, or reward where more is better.

    Args:
        policy: The policy.
        check: What :func:`describe_check` returns.
    """
    env: RL4COEnvBase = ENVS[check["env"]](generator_params=dict(check["params"]))
    instances = generate_env_data(
        check["env"], check["instances"], seed=check["seed"], generator_params=check["params"]
    )
    used = policy.environment(None) if isinstance(policy, ImprovementPolicy) else env
    out = evaluate_policy(
        used, policy, instances, check["method"], batch_size=64, **check["options"]
    )
    reward = float(out["avg_reward"])
    return reward if env.maximizes else -reward
