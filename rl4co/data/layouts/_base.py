"""What the layouts of all kinds of files have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rl4co.core.registry import LAYOUTS


class Layout:
    """How instances and solutions of a problem look in files. Keeps nothing on the object.

    Attributes:
        includes: Problems whose instances are instances of this one as well.
        env_options: Arguments with which the environment admits solutions that use up a limit of a
            published instance.
    """

    includes: ClassVar[tuple[str, ...]] = ()
    env_options: ClassVar[Mapping[str, Any]] = {}


def includes(problem: str, other: str) -> bool:
    """Whether instances of another problem are instances of this one."""
    layout = LAYOUTS.get(problem)
    return layout is not None and other in layout.includes
