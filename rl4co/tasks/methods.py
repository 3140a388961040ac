"""The methods of evaluation by name, as data; imports nothing heavy, so the command line may."""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl4co.decoding.strategies import DecodeType


@dataclasses.dataclass(frozen=True)
class EvalMethod:
    """How solutions are decoded; the best one of each instance counts.

    Args:
        decode_type: Decode type of the policy: a name, or a strategy of one's own.
        summary: One line for help texts.
        augment_fn: Symmetries under which each instance is solved; None: as it is.
        samples: Whether several solutions are drawn from the policy.
    """

    decode_type: DecodeType
    summary: str
    augment_fn: str | None = None
    samples: bool = False


METHODS: Mapping[str, EvalMethod] = {
    "greedy": EvalMethod("greedy", "the most likely action at each step"),
    "sampling": EvalMethod("sampling", "best of many samples of the policy", samples=True),
    "multistart_greedy": EvalMethod("multistart_greedy", "greedy from every start"),
    "augment_dihedral_8": EvalMethod(
        "greedy", "greedy under the 8 symmetries of the square", augment_fn="dihedral8"
    ),
    "augment": EvalMethod(
        "greedy", "greedy under random rotations and reflections", augment_fn="symmetric"
    ),
    "multistart_greedy_augment_dihedral_8": EvalMethod(
        "multistart_greedy",
        "greedy from every start under the 8 symmetries of the square",
        augment_fn="dihedral8",
    ),
    "multistart_greedy_augment": EvalMethod(
        "multistart_greedy",
        "greedy from every start under random rotations and reflections",
        augment_fn="symmetric",
    ),
    "beam_search": EvalMethod("beam_search", "best of the most likely solutions"),
}


@dataclasses.dataclass(frozen=True)
class SearchMethod:
    """A search that adapts the policy to each instance.

    Args:
        model: Class in `rl4co.models`.
        summary: One line for help texts.
    """

    model: str
    summary: str


SEARCHES: Mapping[str, SearchMethod] = {
    "active_search": SearchMethod("ActiveSearch", "all weights learn on each instance"),
    "eas_emb": SearchMethod("EASEmb", "embeddings learn for each instance"),
    "eas_lay": SearchMethod("EASLay", "a layer learns for each instance"),
}
