"""At the door of a policy: what a state must be like, and what is converted before decoding."""

from __future__ import annotations

import functools

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from rl4co.core.errors import ConfigError, RL4COError, UnsupportedError
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State

#: Precisions in which the environments' tolerances hold.
_PRECISE = (torch.float32, torch.float64)

F = TypeVar("F", bound=Callable[..., Any])


def spares_autograd(method: F) -> F:
    """Decorator: without gradients, no call inside the method does any bookkeeping for them.

    A step of one instance takes about a fifth less that way. What comes out is copied, because a
    tensor of the inference mode could not be used with gradients afterwards.
    """

    @functools.wraps(method)
    def wrapper(self: nn.Module, td: TensorDictBase, *args: Any, **kwargs: Any) -> Any:
        # Autocast keeps converted weights for the whole region, which may go on with gradients.
        if torch.is_grad_enabled() or _casts(next(iter(td.values())).device.type):
            return method(self, td, *args, **kwargs)
        with torch.inference_mode():
            out = method(self, td, *args, **kwargs)
        return tree_map_only(Tensor, Tensor.clone, out)

    return wrapper  # type: ignore[return-value]


def knows_its_problem(method: F) -> F:
    """Decorator: a state that lacks a key is refused in words.

    Of another problem, with both names; of an author's environment, with the key to add. One that
    fails because keys do not fit together is told which.
    """

    @functools.wraps(method)
    def wrapper(self: Any, td: Any, env: Any = None, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, td, env, *args, **kwargs)
        except KeyError as error:
            name = env if isinstance(env, str) else getattr(env, "name", self.env_name)
            if name == self.env_name:
                _refuse_missing_key(self, env, error)
                raise
            raise UnsupportedError(
                f"expected a state of {self.env_name}, which this {type(self).__name__} was made "
                f"for, got one of {name} (missing: {error.args[0]}); use a policy built with "
                f"env_name={name!r}"
            ) from error
        except (RuntimeError, IndexError) as error:
            if not isinstance(error, RL4COError):  # which says enough
                _refuse_misfits(self._environment(env), td, error)
            raise

    return wrapper  # type: ignore[return-value]


def _refuse_missing_key(policy: Any, env: Any, error: KeyError) -> None:
    """Raises for a key that an environment of the user's own does not have; embeddings read it."""
    if not isinstance(env, RL4COEnvBase) or type(env) is ENVS.get(env.name):
        return
    raise UnsupportedError(
        f"expected {error.args[0]!r} in the states of {type(env).__name__}, which the embeddings "
        f"of {env.name!r} in this {type(policy).__name__} read, got none; return it from _reset "
        "and _step (or _init_state), or pass init_embedding, context_embedding and "
        "dynamic_embedding of your own"
    ) from error


def _refuse_misfits(env: RL4COEnvBase, td: TensorDictBase, error: Exception) -> None:
    """Raises if keys of a state do not have as many nodes as its mask: it was written into."""
    if not env.steps_by_hooks or "action_mask" not in td.keys():
        return
    specs = {key: tuple(spec.shape) for key, spec in env.observation_spec.items()}
    declared, num_nodes = specs["action_mask"][-1], td["action_mask"].shape[-1]
    for key, shape in specs.items():
        if declared not in shape or key not in td.keys():
            continue
        expected = tuple(num_nodes if size == declared else size for size in shape)
        found = tuple(td[key].shape[td.batch_dims :])
        if found != expected:
            raise ConfigError(
                f"expected {key!r} of shape {list(expected)} for the {num_nodes} actions of the "
                f"mask, got {list(found)}; do not write into a state of {env.name}, give the "
                f"instance ({', '.join(env.instance_shapes)}) to env.reset(td)"
            ) from error


def _casts(device_type: str) -> bool:
    """Whether autocast is on for a kind of device."""
    available = torch.amp.is_autocast_available(device_type)
    return available and torch.is_autocast_enabled(device_type)


def in_own_precision(method: F) -> F:
    """Decorator: a network with weights in half precision computes in it, whatever it is given.

    States and rewards stay as they are: capacities and lengths need more digits than that.
    """

    @functools.wraps(method)
    def wrapper(self: nn.Module, td: TensorDictBase, *args: Any, **kwargs: Any) -> Any:
        weight = next(self.parameters(), None)
        if weight is None or weight.dtype in _PRECISE or _casts(weight.device.type):
            return method(self, td, *args, **kwargs)
        # Weights need no conversion, so there is nothing to keep.
        with torch.autocast(weight.device.type, dtype=weight.dtype, cache_enabled=False):
            return method(self, td, *args, **kwargs)

    return wrapper  # type: ignore[return-value]


def match_precision(td: TensorDictBase, network: nn.Module) -> TensorDictBase:
    """The state in the precision of a network's weights; `td` itself if it is in that already.

    Instances in float64 are solved by a float32 policy this way (and scored in float64, see
    :class:`rl4co.models.policies.constructive.ConstructivePolicy`).
    """
    weight = next(network.parameters(), None)
    if weight is None or weight.dtype not in _PRECISE:
        return td
    others = {
        key: value.to(weight.dtype)
        for key, value in td.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != weight.dtype
    }
    return td.copy().update(others) if others else td


def remaining_steps(
    env: RL4COEnvBase, state: State, multistart: bool, calc_reward: bool
) -> int | None:
    """Most steps that partially built solutions can still take; None for fresh ones.

    Raises for what makes no sense with steps behind it: a start, or the reward of a remainder. A
    fresh state has no `action`, so it costs no look at the device.
    """
    if "action" not in state or not bool(state["i"].any()):
        return None
    if bool(state["done"].all()):
        raise ConfigError(
            f"expected {env.name} instances with something left to decide, got finished ones only"
        )
    if multistart:
        raise ConfigError(
            f"expected a {env.name} state right after reset for multi-start, got one with steps "
            "behind it; starts are first actions, so use greedy, sampling or beam_search"
        )
    if calc_reward:
        raise ConfigError(
            f"expected calc_reward=False for {env.name} solutions that are partially built, got "
            "True; the actions returned are those from here on, and only a whole solution has a "
            "reward: env.get_reward(td, torch.cat([earlier_actions, out['actions']], -1))"
        )
    return env.steps_left(state)[1]


def forget_static_dynamics_(decoder: Any, state: State) -> None:
    """Removes a dynamic embedding that returns zeros, as published policies have for "none".

    Without it, training replays all steps at once. The decoder is changed in place.

    Args:
        decoder: A decoder, with or without `dynamic_embedding`.
        state: Axes `[B, Q]`.
    """
    dynamic = getattr(decoder, "dynamic_embedding", None)
    if dynamic is None or next(dynamic.parameters(), None) is not None:
        return
    changes = dynamic(state)
    if any(isinstance(change, Tensor) for change in changes):
        return
    if any(change != 0 for change in changes):
        raise ConfigError(
            "expected changes [B, Q, N, D] of keys and values, or zeros for none, from "
            f"{type(dynamic).__name__}, got {changes}"
        )
    decoder.dynamic_embedding = None
