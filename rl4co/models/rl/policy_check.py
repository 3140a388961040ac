"""Whether a policy can read the states of an environment, checked before training begins."""

from __future__ import annotations

import torch

from torch import nn

from rl4co.core.errors import UnsupportedError
from rl4co.core.modes import evaluating
from rl4co.core.registry import EMBEDDINGS, ENVS
from rl4co.core.rng import derive_generator, forked_rng
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.constructive import ConstructivePolicy

#: Policies are not tried on larger instances; their first training step raises the same error.
_MAX_ACTIONS = 1000


def check_policy_reads_states(policy: nn.Module, env: RL4COEnvBase) -> None:
    """Raises if the embeddings of a policy read keys that the states of the environment lack.

    A policy made for another problem decodes one step of one instance. This uses no random stream
    of the caller's and leaves the policy as it is. Nothing is tried for custom environments and
    generators, or for data from files, whose instances may have further keys.

    Args:
        policy: Policy, of any kind; only constructive ones are checked.
        env: Environment.

    Raises:
        UnsupportedError: A key is missing; the message names both problems.
    """
    if not isinstance(policy, ConstructivePolicy) or not _made_for_another_problem(policy, env):
        return
    weight = next(policy.parameters(), None)
    device = torch.device("cpu") if weight is None else weight.device
    if device.type == "meta":
        return
    rng = derive_generator("policy check")
    with forked_rng(rng), evaluating(policy), torch.no_grad():
        td = env.reset(env.generator(1, rng=rng).to(env.device)).to(device)
        if "action_mask" not in td.keys() or td["action_mask"].shape[-1] > _MAX_ACTIONS:
            return
        try:
            policy(td, env, phase="test", decode_type="greedy", calc_reward=False, num_steps=1)
        except UnsupportedError as error:
            if isinstance(error.__cause__, KeyError):
                raise
        except Exception:
            # Not about keys; training raises it where it can be explained.
            pass


def _made_for_another_problem(policy: ConstructivePolicy, env: RL4COEnvBase) -> bool:
    """Whether policy and environment belong to two problems of the library, without custom data."""
    return (
        policy.env_name != env.name
        and policy.env_name in EMBEDDINGS
        and env.name in ENVS
        and type(env) is ENVS.get(env.name)
        and type(env.generator) is env.generator_cls
        and not any(env.data_files.values())
    )
