"""Clear errors for policy calls: states of other problems, NaN, actions of probability zero."""

from __future__ import annotations

import contextlib

from collections.abc import Iterator
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, NotFiniteError, RL4COError, UnsupportedError
from rl4co.core.registry import ENVS
from rl4co.decoding.rollout import DecodingTask, Rollout, check_for_dead_ends
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import RL4COEnvBase


@contextlib.contextmanager
def explained_errors(policy: Any, td: TensorDictBase, env: RL4COEnvBase) -> Iterator[None]:
    """Explains errors that come from a state which does not fit the policy.

    A missing key is explained with the names of both problems, or with the key to add to a custom
    environment; other errors with the key whose shape does not fit the mask.
    """
    try:
        yield
    except KeyError as error:
        if env.name == policy.env_name:
            _explain_missing_key(policy, td, env, error)
            raise
        raise UnsupportedError(
            f"expected a state of {policy.env_name}, which this {type(policy).__name__} was made "
            f"for, got one of {env.name} (missing: {error.args[0]}); use a policy built with "
            f"env_name={env.name!r}"
        ) from error
    except (RuntimeError, IndexError) as error:
        if not isinstance(error, RL4COError):  # these explain themselves
            _explain_shapes(env, td, error)
        raise


def _explain_missing_key(policy: Any, td: TensorDictBase, env: Any, error: KeyError) -> None:
    """Raises for a key that is missing in a custom environment, or in a state of another one."""
    name = error.args[0]
    if type(env) is not ENVS.get(env.name):
        raise UnsupportedError(
            f"expected {name!r} in the states of {type(env).__name__}, which the embeddings of "
            f"{env.name!r} in this {type(policy).__name__} read, got none; return it from "
            "_init_state (or _reset and _step), or pass a custom init_embedding, context_embedding "
            "and dynamic_embedding"
        ) from error
    missing = [key for key in env.observation_spec.keys() if key not in td.keys()]
    if missing:
        raise UnsupportedError(
            f"expected {', '.join(map(repr, missing))} in the states of {env.name}, got none; pass "
            "td = env.reset(...) of this environment, or its env to the policy"
        ) from error


def _explain_shapes(env: RL4COEnvBase, td: TensorDictBase, error: Exception) -> None:
    """Raises if keys of a state do not have as many nodes as its mask: it was written into."""
    if not env.steps_by_hooks or "action_mask" not in td.keys():
        return
    specs = {key: tuple(spec.shape) for key, spec in env.observation_spec.items()}
    declared, num_nodes = specs["action_mask"][-1], td["action_mask"].shape[-1]
    for key, shape in specs.items():
        if declared not in shape or key not in td.keys():
            continue
        expected = tuple(num_nodes if size == declared else size for size in shape)
        actual = tuple(td[key].shape[td.batch_dims :])
        if actual != expected:
            raise ConfigError(
                f"expected {key!r} of shape {list(expected)} for the {num_nodes} actions of the "
                f"mask, got {list(actual)}; do not write into a state of {env.name}, pass the "
                f"instance ({', '.join(env.instance_shapes)}) to env.reset(td)"
            ) from error


def check_finite(
    policy: Any, task: DecodingTask, rollout: Rollout, strategy: DecodingStrategy
) -> None:
    """Raises for NaN in a rollout, and for actions of probability zero; one look at the device.

    Args:
        policy: For the message.
        task: What was decoded.
        rollout: The result.
        strategy: Known actions that its top-k or top-p exclude may have probability zero.
    """
    values = rollout.first_logits if rollout.log_probs is None else rollout.log_probs
    if values is None or bool(values.isfinite().all()):
        return
    reject_nan(policy, task, values, rollout.actions)
    may_be_impossible = strategy.has_actions and strategy.truncates
    if rollout.log_probs is not None and not may_be_impossible:
        raise NotFiniteError(
            "expected actions of a positive probability, got minus infinity as log-probability; "
            "the mask forbids some of these actions where they are taken"
        )


def reject_nan(
    policy: Any, task: DecodingTask, values: Tensor, actions: Tensor | None = None
) -> None:
    """Raises if there are NaN: for a state without allowed actions if there is one.

    Args:
        policy: For the message.
        task: What was decoded.
        values: Where to look.
        actions: Actions `[B, S, T]` that were taken, if any.
    """
    if not bool(values.isnan().any()):
        return
    if actions is None:
        actions = task.state["action_mask"][..., :0].long()  # [B, S, 0]
    check_for_dead_ends(task.env, task.state, actions)
    raise NotFiniteError(
        f"expected numbers from {type(policy).__name__}, got NaN; lower the learning rate, "
        "clip gradients or use a higher precision"
    )
