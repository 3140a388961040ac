"""How learning is measured: the expected cost of a policy's solutions, after training and before.

Expected costs (of sampled solutions) are what training minimises, and those of an untrained policy
are nearly those of random solutions, whatever its seed. Greedy solutions of an untrained policy may
be good or bad by chance, and a share of their cost says little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.core.rng import derive_generator

#: Instances on which a policy is judged.
NUM_HELD_OUT = 256


@torch.no_grad()
def expected_cost(
    model: Any, decode_type: str = "sampling", num_instances: int = NUM_HELD_OUT, **options: Any
) -> float:
    """Mean cost of a policy's solutions of held-out instances, in evaluation mode.

    Args:
        model: With an environment and a policy.
        decode_type: How solutions are chosen; "multistart_sampling" for policies that are trained
            from all starts and never choose the first action themselves.
        num_instances: Number of held-out instances.
        options: Further settings of decoding.
    """
    env, policy = model.env, model.policy
    td = env.reset(env.generator(num_instances, rng=derive_generator("held out")))
    mode = policy.training
    settings = {"decode_type": decode_type, "rng": derive_generator("judge"), **options}
    reward = policy.eval()(td, env, phase="test", **settings)["reward"]
    policy.train(mode)
    return -float(reward.mean())


def cost_ratio(model: Any, train: Callable[[], Any], **options: Any) -> float:
    """Expected cost after training divided by that before; see :func:`expected_cost`."""
    before = expected_cost(model, **options)
    train()
    return expected_cost(model, **options) / before


def paired_t(differences: Tensor) -> float:
    """$\\bar d / (s_d / \\sqrt B)$ of differences `[B]`: how sure a gain of some instances is."""
    return float(differences.mean() / (differences.std() / len(differences) ** 0.5))


def choose_at_random_(*layers: nn.Linear) -> None:
    """Lets a policy start with equal chances of all actions: `layers` give the scores of actions.

    Small networks on problems with little to decide may be good by chance before they are trained.
    """
    for layer in layers:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)


def train_steps(model: Any, num_steps: int, batch_size: int, rate: float) -> None:
    """Trains on fresh instances, without a trainer and what it costs to start one."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(weights, rate)
    model.train()
    for step in range(num_steps):
        batch = model.env.generator(batch_size, rng=derive_generator("train", step))
        optimizer.zero_grad()
        model.shared_step(batch, step, "train")["loss"].backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
