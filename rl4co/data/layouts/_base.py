"""Base class of the layouts of all kinds of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rl4co.core.registry import LAYOUTS


class Layout:
    """The form of instances and solutions of a problem in files; without state.

    Attributes:
        includes: Problems whose instances are instances of this one as well.
        env_options: Arguments with which the environment admits solutions that use up a limit of a
            benchmark instance.
    """

    includes: ClassVar[tuple[str, ...]] = ()
    env_options: ClassVar[Mapping[str, Any]] = {}


def includes(problem: str, other: str) -> bool:
    """Whether instances of another problem are instances of this one."""
    layout = LAYOUTS.get(problem)
    return layout is not None and other in layout.includes
