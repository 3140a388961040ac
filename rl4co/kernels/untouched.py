"""`is_untouched`: whether calling a module still does what its author wrote.

A kernel replaces the calls of some modules. It may do so only if nothing else was put in
their place: hooks, patches, subclasses, wrappers, parametrizations. This is the only place that
asks; modules that were changed run the reference implementation.
"""

from __future__ import annotations

import types

from typing import TypeVar

from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from rl4co.kernels.switch import are_enabled

C = TypeVar("C", bound=type[nn.Module])

#: Classes that kernels know → their methods as they were defined.
_STANDARD: dict[type[nn.Module], dict[str, object]] = {}


def standard(cls: C) -> C:
    """Class decorator: kernels know what this class computes; its subclasses are not included."""
    parents = [parent for parent in cls.__mro__ if parent not in (nn.Module, object)]
    names = {name for parent in parents for name, value in vars(parent).items() if _acts(value)}
    names.discard("__init_subclass__")  # makes classes, and is bound anew at every look
    _STANDARD[cls] = {name: getattr(cls, name) for name in (*names, "__call__", "_call_impl")}
    return cls


def _acts(value: object) -> bool:
    return isinstance(value, types.FunctionType | property | staticmethod | classmethod)


def is_untouched(module: nn.Module) -> bool:
    """Whether a module and all its parts are of standard classes without any change.

    False if there is a hook (of the module or global), a function replaced in the instance or in
    the class, a subclass, a parametrization, or a part that was wrapped or exchanged.
    """
    return not _has_any_global_hook() and all(is_standard(part) for part in module.modules())


def is_standard(module: nn.Module) -> bool:
    """Whether a module itself, apart from its parts, is of a standard class without any change."""
    methods = _STANDARD.get(type(module))
    return (
        methods is not None
        and not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
        and methods.keys().isdisjoint(vars(module))
        and all(getattr(type(module), name) is method for name, method in methods.items())
    )


def may_replace(module: nn.Module) -> bool:
    """Whether kernels are switched on and may do the work of this module."""
    return are_enabled() and is_untouched(module)


for _layer in (nn.Linear, nn.LayerNorm, nn.BatchNorm1d, nn.InstanceNorm1d, nn.ReLU, nn.Identity):
    standard(_layer)
for _container in (nn.Sequential, nn.ModuleList, nn.ModuleDict):
    standard(_container)
