"""Checks of the arguments of environments, with errors that name the right call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    InvalidSolutionError,
    format_indices,
)
from rl4co.envs.hooks import State


def number_kind(value: Tensor) -> str:
    """Which sort of numbers a tensor holds, for messages."""
    if value.dtype == torch.bool:
        return "boolean"
    if value.dtype.is_complex:
        return "complex"
    return "floating point" if value.dtype.is_floating_point else "integer"


def check_is_tensordict(instances: object) -> None:
    """Raises :class:`ConfigError` with the call that was probably meant."""
    if isinstance(instances, TensorDictBase):
        return
    remedy = "pass a TensorDict of instances, or batch_size=..."
    if isinstance(instances, int | Sequence) and not isinstance(instances, str):
        remedy = f"pass a TensorDict, or batch_size={instances}"
    elif isinstance(instances, Mapping):
        remedy = "pass TensorDict(instances, batch_size=[...])"
    raise ConfigError(
        f"expected instances in a TensorDict, got {type(instances).__name__}; {remedy}"
    )


def check_is_environment(env: object) -> None:
    """Raises :class:`ConfigError` for anything but an environment of the library.

    Objects that only pass on attributes of an environment (`__getattr__`) are none: overrides in
    them would have no effect on the environment's own methods.
    """
    from rl4co.envs.base import RL4COEnvBase

    if not isinstance(env, RL4COEnvBase):
        raise ConfigError(
            f"expected an environment (RL4COEnvBase) or its name, got {type(env).__name__}; "
            "derive from the environment instead of wrapping it, or pass the wrapped one"
        )


def check_action(problem: str, mask: Tensor, action: Tensor | None) -> None:
    """Raises unless there is one action per instance; looks at no value, so it costs little.

    Args:
        problem: Name of the environment.
        mask: Allowed actions `[*B, N]`.
        action: `[*B]`.
    """
    batch = mask.shape[:-1]
    if action is not None and number_kind(action) == "integer" and action.shape == batch:
        return
    got = "none" if action is None else f"{action.dtype} of shape {list(action.shape)}"
    raise InvalidActionError(
        f"expected an integer action of shape {list(batch)} for {problem}, got {got}; set "
        'td["action"] to one index per instance'
    )


def reject_masked(problem: str, state: State, action: Tensor) -> None:
    """Raises if an unfinished instance takes an action `[*B]` that its mask forbids."""
    check_action(problem, state["action_mask"], action)
    mask, index = state["action_mask"], action.unsqueeze(-1)  # [*B, N], [*B, 1]
    exists = (index >= 0) & (index < mask.shape[-1])
    inside = index.clamp(0, mask.shape[-1] - 1)
    allowed = exists & (mask.gather(-1, inside) | state["done"])  # [*B, 1]
    if not allowed.all():
        where = (~allowed).flatten().nonzero().flatten().tolist()
        raise InvalidActionError(
            f"expected actions that the mask allows, got forbidden ones in instances "
            f"{format_indices(where)} of {problem}; choose where action_mask is True"
        )


def check_actions(problem: str, mask: Tensor, actions: Tensor) -> None:
    """Raises unless there is one sequence of actions `[*B, T]` per instance."""
    batch = mask.shape[:-1]
    if number_kind(actions) != "integer" or actions.shape[:-1] != batch:
        raise ConfigError(
            f"expected integer actions of shape [*B, T] with batch {list(batch)} for "
            f"{problem}, got {actions.dtype} of shape {list(actions.shape)}; "
            "repeat the state with batchify for several solutions per instance"
        )


def reject_violations(violations: Mapping[str, Tensor]) -> None:
    """Raises :class:`InvalidSolutionError` for the first constraint that solutions violate.

    Args:
        violations: Constraint → `[*B]`, True where a solution violates it.
    """
    # One host synchronisation for all constraints.
    violated = torch.stack([flags.flatten() for flags in violations.values()])  # [C, B]
    if not violated.any():
        return
    for name, row in zip(violations, violated, strict=True):
        if row.any():
            raise InvalidSolutionError(name, row.nonzero().flatten().tolist(), len(row))
