"""Everything that exists only for code written against the published package (RL4CO 0.7).

* `table.py` lists where each published name lives now, or what to use instead; `finder.py` makes
  Python's import statement follow it.
* `baselines.py`, `embeddings.py` and others adapt objects of users. The library passes such an
  object to :func:`rl4co.core.adapters.adapt` where it enters, and imports nothing from here.
* The remaining modules define published classes and functions that the library has in another form.

Public paths that have a file (`rl4co.utils.ops`, say) are not in the table. Type checkers see files
only: for them, write the path that :func:`where` returns.
"""

from __future__ import annotations

from rl4co.compat.finder import install, where
from rl4co.core.adapters import register_adapter

__all__ = ["install", "register_adapters", "where"]

#: Kind of object → the function that adapts it ("module:function", imported on first use).
ADAPTERS = {
    "ant_colony_settings": "rl4co.compat.settings:adapt_colony_settings",
    "baseline": "rl4co.compat.baselines:adapt_baseline",
    "context_class": "rl4co.compat.embeddings:check_context_class",
    "context_embedding": "rl4co.compat.embeddings:adapt_context",
    "dynamic_embedding": "rl4co.compat.embeddings:adapt_dynamic",
    "environment": "rl4co.compat.environments:adapt",
    "generator": "rl4co.compat.generators:adapt_generator",
    "hint: decoding setting": "rl4co.compat.settings:DECODING_SETTINGS",
    "decoder": "rl4co.compat.decoders:adapt",
    "base: decoder": "rl4co.compat.decoders:add_methods",
    "strategy": "rl4co.compat.strategies:adapt",
}


def register_adapters() -> None:
    """Registers the adapters of this package; see :mod:`rl4co.core.adapters`."""
    for kind, location in ADAPTERS.items():
        register_adapter(kind, location)
