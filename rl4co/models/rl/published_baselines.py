"""Baselines written for the published package: `eval`, `setup` and `epoch_callback` as they were.

A class that overrides these gets, when it is made (:func:`adapt_baseline`), what the library calls.
What cannot be adapted is refused then.

| published | what the library calls |
|---|---|
| `eval(td, reward, env)` → value and loss | `forward` |
| `setup(policy, env, batch_size, device, dataset_size)` | the same, with those that it takes |
| `epoch_callback(policy, env, batch_size, device, epoch, dataset_size)` | with a context as well |
| `wrap_dataset(dataset, env, batch_size, device)` | the same, with the instances of one batch |
| `unwrap_batch(batch)` → batch and values | the same |
"""

from __future__ import annotations

import functools
import inspect

from collections.abc import Callable
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import UnsupportedError
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.baseline_records import BaselineOutput, EpochContext

#: What `setup` may ask for, behind the policy and the environment.
_SETUP_OPTIONS = ("batch_size", "device", "dataset_size")


def adapt_baseline(cls: type) -> None:
    """Gives a baseline in the published style what the library calls; refuses what cannot be.

    Args:
        cls: A baseline, right after it is made.
    """
    own = vars(cls)
    if "eval" in own:
        if "forward" in own:
            raise UnsupportedError(
                f"expected either forward or the published eval in {cls.__name__}, got both; "
                "write forward alone"
            )
        _refuse_call(cls, "eval", 3, "forward(td, reward, env)")
        setattr(cls, "forward", forward_by_eval)  # noqa: B010
    elif "forward" in own and getattr(cls, "eval_is_published", False):
        raise UnsupportedError(
            f"expected eval in {cls.__name__}, which derives from a baseline in the published "
            "style, got forward; write eval"
        )
    if "setup" in own:
        options = accepted(own["setup"], dict.fromkeys(_SETUP_OPTIONS))
        _refuse_call(cls, "setup", 2, "setup(policy, env)", **options)
    if "epoch_callback" in own:
        setattr(cls, "epoch_callback", either_way(own["epoch_callback"]))  # noqa: B010
    setattr(cls, "eval_is_published", cls.forward is forward_by_eval)  # type: ignore[attr-defined] # noqa: B010


def _refuse_call(cls: type, name: str, count: int, instead: str, **options: Any) -> None:
    """Raises unless a method can be called with so many arguments and these options."""
    signature = inspect.signature(getattr(cls, name))
    try:
        signature.bind(None, *[None] * count, **options)
    except TypeError as error:
        raise UnsupportedError(
            f"expected a published {name} in {cls.__name__}, got {name}{signature} ({error}); "
            f"write {instead}"
        ) from None


def accepted(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that a function takes by name."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}


# ---------------------------------------------------------------- eval


def forward_by_eval(
    baseline: Any, td: TensorDictBase, reward: Tensor, env: RL4COEnvBase
) -> BaselineOutput:
    """`forward` by the published `eval`, which may return plain numbers."""
    value, loss = baseline.eval(td, reward, env)
    return BaselineOutput(*(torch.as_tensor(each, device=reward.device) for each in (value, loss)))


def forward_behind(baseline: Any) -> Callable[..., BaselineOutput]:
    """The nearest `forward` of the classes above that does not ask `eval` in its turn."""
    own = (vars(cls)["forward"] for cls in type(baseline).__mro__ if "forward" in vars(cls))
    return functools.partial(next(each for each in own if each is not forward_by_eval), baseline)


# ---------------------------------------------------------------- epoch_callback


def either_way(callback: Callable[..., Any]) -> Callable[..., dict[str, float]]:
    """An `epoch_callback` that is called with a context or with the published arguments.

    Args:
        callback: Takes an :class:`EpochContext`, or the published arguments; what `super()` finds
            may be of the other kind.
    """
    wants_context = _takes_context(callback)

    @functools.wraps(callback)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        given = args[0] if len(args) == 1 and not kwargs else None
        if wants_context:
            context = given if isinstance(given, EpochContext) else _context(*args, **kwargs)
            return callback(self, context)
        if isinstance(given, EpochContext):
            args, kwargs = (given.policy,), _published_arguments(given)
            kwargs = accepted(callback, kwargs)
        return callback(self, *args, **kwargs) or {}

    return wrapper


def _takes_context(callback: Callable[..., Any]) -> bool:
    """Whether a callback has one argument besides `self`."""
    parameters = list(inspect.signature(callback).parameters.values())
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len(parameters) == 2 and all(each.kind in by_position for each in parameters)


def _context(
    policy: nn.Module,
    env: RL4COEnvBase,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    epoch: int | None = None,
    dataset_size: int | None = None,
) -> EpochContext:
    """The published arguments as a context."""
    return EpochContext(
        policy, env, epoch or 0, batch_size, 0, torch.device(device), dataset_size=dataset_size
    )


def _published_arguments(context: EpochContext) -> dict[str, Any]:
    names = ("env", "batch_size", "device", "epoch", "dataset_size")
    return {name: getattr(context, name) for name in names}
