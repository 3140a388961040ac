"""Baselines written for the published package, with its `eval`, `setup` and `epoch_callback`.

:func:`adapt_baseline` gives a class that overrides these the methods that the library calls, and
puts :class:`PublishedBaseline` between the class and its base, where `super()` finds the published
methods.

| published | what the library calls |
|---|---|
| `eval(td, reward, env)` → value and loss | `forward` |
| `setup(policy, env, batch_size, device, dataset_size)` | the same, with those that it accepts |
| `epoch_callback(policy, env, batch_size, device, epoch, dataset_size)` | the same |
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

#: Keyword arguments of `setup` and of `epoch_callback`, which a method need not accept.
_SETUP_OPTIONS = ("batch_size", "device", "dataset_size")
_EPOCH_OPTIONS = ("env", "batch_size", "device", "epoch", "dataset_size")


class PublishedBaseline:
    """The published methods in terms of the library's, for calls by `super()`."""

    def forward(self, td: TensorDictBase, reward: Tensor, env: RL4COEnvBase) -> BaselineOutput:
        """Values and loss of `eval`, which may return plain numbers."""
        value, loss = (torch.as_tensor(x, device=reward.device) for x in self.eval(td, reward, env))
        return BaselineOutput(value, loss)

    def eval(self, *args: Any, **kwargs: Any) -> Any:
        """Values and loss of the base class; without arguments, torch's `eval()`."""
        base: Any = super()
        return base.forward(*args, **kwargs) if args or kwargs else base.eval()

    def epoch_callback(self, policy: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The base class's callback with a context, made of the published arguments if need be."""
        if not isinstance(policy, EpochContext):
            policy = _make_context(policy, *args, **kwargs)
        base: Any = super()
        metrics: dict[str, float] = base.epoch_callback(policy)
        return metrics


def _make_context(
    policy: nn.Module,
    env: RL4COEnvBase,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    epoch: int | None = None,
    dataset_size: int | None = None,
) -> EpochContext:
    return EpochContext(
        policy, env, epoch or 0, batch_size, 0, torch.device(device), dataset_size=dataset_size
    )


def adapt_baseline(cls: type) -> type:
    """Gives a baseline in the published style what the library calls.

    Args:
        cls: A baseline, right after it is created; it is changed in place.

    Raises:
        UnsupportedError: A published method has other arguments, or stands beside `forward`.
    """
    methods = vars(cls)
    if "eval" in methods:
        if "forward" in methods:
            raise UnsupportedError(
                f"expected either forward or the published eval in {cls.__name__}, got both; "
                "write forward alone"
            )
        _check_signature(cls, "eval", 3, "forward(td, reward, env)")
    if "setup" in methods:
        options = _accepted(methods["setup"], dict.fromkeys(_SETUP_OPTIONS))
        _check_signature(cls, "setup", 2, "setup(policy, env, **options)", **options)
        setattr(cls, "setup", _setup(methods["setup"]))  # noqa: B010
    is_published = "epoch_callback" in methods and not _has_one_argument(cls, "epoch_callback")
    if is_published:
        setattr(cls, "epoch_callback", _epoch_callback(methods["epoch_callback"]))  # noqa: B010
    if (is_published or "eval" in methods) and not issubclass(cls, PublishedBaseline):
        first = next(i for i, base in enumerate(cls.__bases__) if issubclass(base, nn.Module))
        cls.__bases__ = (*cls.__bases__[:first], PublishedBaseline, *cls.__bases__[first:])
    return cls


def _check_signature(cls: type, name: str, count: int, instead: str, **options: Any) -> None:
    """Raises unless a method accepts so many positional arguments and these options."""
    signature = inspect.signature(getattr(cls, name))
    try:
        signature.bind(None, *[None] * count, **options)
    except TypeError as error:
        raise UnsupportedError(
            f"expected a published {name} in {cls.__name__}, got {name}{signature} ({error}); "
            f"write {instead}"
        ) from None


def _has_one_argument(cls: type, name: str) -> bool:
    """Whether a method has one positional argument besides `self`, and no others."""
    parameters = list(inspect.signature(getattr(cls, name)).parameters.values())
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len(parameters) == 2 and all(each.kind in by_position for each in parameters)


def _accepted(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that a function accepts by name."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}


def _setup(method: Callable[..., None]) -> Callable[..., None]:
    """A `setup` that accepts all options."""

    @functools.wraps(method)
    def setup(self: Any, policy: nn.Module, env: RL4COEnvBase, *args: Any, **options: Any) -> None:
        method(self, policy, env, *args, **_accepted(method, options))

    return setup


def _epoch_callback(method: Callable[..., Any]) -> Callable[..., dict[str, float]]:
    """A published `epoch_callback` that accepts a context as well."""

    @functools.wraps(method)
    def epoch_callback(self: Any, policy: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        if isinstance(policy, EpochContext):
            kwargs = _accepted(method, {name: getattr(policy, name) for name in _EPOCH_OPTIONS})
            policy = policy.policy
        return method(self, policy, *args, **kwargs) or {}

    return epoch_callback
