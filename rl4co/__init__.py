"""RL4CO: reinforcement learning for combinatorial optimization.

Importing this package loads neither torch nor Lightning; the helpers import what they need.
"""

from __future__ import annotations

from typing import Any

from rl4co.compat import install as _install_import_paths
from rl4co.compat import register_adapters as _register_adapters

__version__ = "1.0.0.dev0"

__all__ = ["__version__", "list_envs", "list_models", "make_model"]

_install_import_paths()
_register_adapters()


def make_model(name: str, env: Any, **kwargs: Any) -> Any:
    """The model called `name` (see :func:`list_models`) on `env`."""
    from rl4co.core.registry import MODELS

    return MODELS[name](env, **kwargs)


def list_envs() -> list[str]:
    """Names of all environments."""
    from rl4co.core.registry import ENVS

    return ENVS.names()


def list_models() -> list[str]:
    """Names of all models."""
    from rl4co.core.registry import MODELS

    return MODELS.names()
