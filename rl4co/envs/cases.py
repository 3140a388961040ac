"""`Case`: one fact about a problem, as data. Each problem's own are in its folder's `cases.py`.

A case is a tiny instance together with what must happen to it: a solution's reward worked out by
hand, a solution that violates a constraint, or an instance that is rejected. The contract tests
read the cases of every registered problem, so a new problem brings its tests inside its own folder.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping, Sequence
from typing import Any

from rl4co.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Case:
    """An instance and the one thing that must happen to it.

    Exactly one of `reward`, `violates` and `faults` is given.

    Args:
        name: What the case shows, unique within the problem.
        instance: Key → nested lists of one instance (no batch axis). Floats become float32,
            integers int64.
        actions: A solution.
        reward: Its reward; the solution must also be one that the mask allows step by step.
        violates: The constraint that the solution breaks, as the environment calls it.
        faults: Part of the message with which the instance itself is rejected.
        env_params: Arguments of the environment, where the case is about one of them.
    """

    name: str
    instance: Mapping[str, Any]
    actions: Sequence[int] | None = None
    reward: float | None = None
    violates: str | None = None
    faults: str | None = None
    env_params: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        outcomes = [x for x in (self.reward, self.violates, self.faults) if x is not None]
        if len(outcomes) != 1:
            raise ConfigError(
                f"expected one of reward, violates, faults for case {self.name!r}, got {outcomes}"
            )
        if (self.actions is None) != (self.faults is not None):
            raise ConfigError(
                f"expected actions for case {self.name!r} unless the instance is rejected, "
                f"got actions={self.actions!r}, faults={self.faults!r}"
            )
