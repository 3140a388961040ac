"""Import paths of the published package (0.7) that lead somewhere else here.

`table.py` says where each published name lives now, or why there is none and what to use;
`finder.py` makes Python's import statement follow the table; `adapters/` has what is written only
for code in the published style. Nothing of the library itself imports from this package.

Paths that have a file of their own (`rl4co.utils.ops`, say) are not in the table. Type checkers see
files only: for them, write the path that :func:`where` names.
"""

from __future__ import annotations

from rl4co.compat.finder import install, where
from rl4co.core.adapters import register_adapter

__all__ = ["install", "register_adapters", "where"]

#: Kind of object → the function that adapts it ("module:function", imported on first use).
ADAPTERS = {
    "baseline": "rl4co.compat.baselines:adapt_baseline",
    "context_embedding": "rl4co.compat.embeddings:adapt_context",
    "dynamic_embedding": "rl4co.compat.embeddings:adapt_dynamic",
    "environment": "rl4co.compat.environments:adapt",
    "hint: decoding setting": "rl4co.compat.settings:DECODING_SETTINGS",
}


def register_adapters() -> None:
    """Registers the adapters of this package; see :mod:`rl4co.core.adapters`."""
    for kind, location in ADAPTERS.items():
        register_adapter(kind, location)
