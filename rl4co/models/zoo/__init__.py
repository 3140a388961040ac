"""Methods of the literature: one folder per method, imported on first use."""

from __future__ import annotations

from rl4co.core.lazy import lazy_attributes

__getattr__, __dir__ = lazy_attributes(__name__, eager=(), packages=(__name__,))
