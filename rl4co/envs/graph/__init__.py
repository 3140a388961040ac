"""Graph problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from rl4co.envs.graph.flp import *
    from rl4co.envs.graph.mcp import *

__getattr__, __dir__ = lazy_attributes(__name__, eager=(), packages=(__name__,))
