"""Optimizers and learning-rate schedulers by name; bad settings raise an error before training."""

from __future__ import annotations

import inspect

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch

from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from rl4co.core.errors import ConfigError, UnknownNameError

OptimizerLike = str | type[Optimizer] | Callable[..., Optimizer]
SchedulerLike = str | type | Callable[..., Any]

INTERVALS = ("epoch", "step")


def optimizer_names() -> list[str]:
    """Names that :func:`create_optimizer` understands."""
    return sorted(_classes(torch.optim, Optimizer))


def scheduler_names() -> list[str]:
    """Names that :func:`create_scheduler` understands."""
    return sorted(_classes(lr_scheduler, LRScheduler))


def create_optimizer(
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
    optimizer: OptimizerLike,
    kwargs: Mapping[str, Any],
) -> Optimizer:
    """An optimizer from its name in `torch.optim`, its class or a factory.

    Args:
        parameters: Parameters, or groups of them with settings that win over `kwargs`.
        optimizer: Name, class or factory.
        kwargs: Its arguments.
    """
    factory = _find(torch.optim, optimizer, Optimizer, "optimizer")
    return cast(Optimizer, _build(factory, parameters, kwargs))


def create_scheduler(
    optimizer: Optimizer, scheduler: SchedulerLike, kwargs: Mapping[str, Any] | None
) -> Any:
    """A scheduler from its name in `torch.optim.lr_scheduler`, its class or a factory.

    MultiStepLR without arguments decays by 0.1 at epochs 80 and 95, as in the paper.
    """
    if kwargs is None:
        kwargs = {"milestones": [80, 95], "gamma": 0.1} if scheduler == "MultiStepLR" else {}
    factory = _find(lr_scheduler, scheduler, LRScheduler, "learning-rate scheduler")
    return _build(factory, optimizer, kwargs)


def check_optimization(
    optimizer: OptimizerLike,
    optimizer_kwargs: Mapping[str, Any],
    scheduler: SchedulerLike | None,
    scheduler_kwargs: Mapping[str, Any] | None,
    interval: str,
) -> None:
    """Raises for names, arguments and values that would fail when training starts.

    Names and classes are tried on a dummy parameter; factories are left alone.
    """
    if interval not in INTERVALS:
        raise UnknownNameError("lr_scheduler_interval", interval, INTERVALS)
    _find(torch.optim, optimizer, Optimizer, "optimizer")
    weights = [nn.Parameter(torch.zeros(1, 1))]
    trial: Optimizer = torch.optim.SGD(weights, lr=1.0)
    if isinstance(optimizer, str | type):
        trial = create_optimizer(weights, optimizer, optimizer_kwargs)
    if isinstance(scheduler, str | type):
        create_scheduler(trial, scheduler, scheduler_kwargs)
    elif scheduler is not None:
        _find(lr_scheduler, scheduler, LRScheduler, "learning-rate scheduler")


def _classes(module: Any, base: type) -> dict[str, type]:
    """Classes of a module by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and value is not base
    }


def _find(module: Any, choice: Any, base: type, kind: str) -> Callable[..., Any]:
    """The class or factory meant by a name, a class or a factory."""
    if isinstance(choice, str):
        classes = _classes(module, base)
        if choice not in classes:
            raise UnknownNameError(kind, choice, classes)
        return classes[choice]
    if not callable(choice) or (isinstance(choice, type) and not issubclass(choice, base)):
        raise ConfigError(
            f"expected a name of {module.__name__}, a class or a factory as {kind}, got {choice!r}"
        )
    return cast(Callable[..., Any], choice)


def _build(factory: Callable[..., Any], target: Any, kwargs: Mapping[str, Any]) -> Any:
    """Call a class or factory; the error for wrong arguments lists those that a class has."""
    if not isinstance(factory, type):
        return factory(target, **kwargs)
    try:
        return factory(target, **kwargs)
    except (TypeError, ValueError) as error:
        accepted = ", ".join(list(inspect.signature(factory).parameters)[1:])
        raise ConfigError(
            f"expected arguments of {factory.__name__} ({accepted}), got {dict(kwargs)}: {error}"
        ) from error
