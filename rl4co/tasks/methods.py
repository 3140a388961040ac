"""The registry of evaluation methods: which names there are, and what each one does.

`evaluate_policy`, `rl4co eval --method`, `rl4co benchmark` and `rl4co list methods` all read it.
The tables import nothing heavy, so the command line may. Registered decoding strategies
(`@DECODING.register`) are methods as well, alone or combined with starts and augmentation:
`NAME`, `multistart_NAME`, `NAME_augment`, `multistart_NAME_augment_dihedral_8`.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from rl4co.core.errors import UnknownNameError
from rl4co.core.registry import DECODING

if TYPE_CHECKING:
    from rl4co.decoding.strategies import DecodeType


@dataclasses.dataclass(frozen=True)
class EvalMethod:
    """How solutions are decoded; the best one of each instance counts.

    Args:
        decode_type: Decode type of the policy: a name, or a custom strategy.
        summary: One line for help texts.
        augment_fn: Symmetries under which each instance is solved; None: as it is.
        samples: Whether several solutions are sampled from the policy.
    """

    decode_type: DecodeType
    summary: str
    augment_fn: str | None = None
    samples: bool = False


@dataclasses.dataclass(frozen=True)
class SearchMethod:
    """A search that adapts the policy to each instance.

    Args:
        model: Class in `rl4co.models`.
        summary: One line for help texts.
    """

    model: str
    summary: str


@dataclasses.dataclass(frozen=True)
class SpecialMethod:
    """A search that only some policies support.

    Args:
        summary: One line for help texts.
    """

    summary: str


AnyMethod: TypeAlias = EvalMethod | SearchMethod | SpecialMethod

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

SEARCHES: Mapping[str, SearchMethod] = {
    "active_search": SearchMethod("ActiveSearch", "all weights learn on each instance"),
    "eas_emb": SearchMethod("EASEmb", "embeddings learn for each instance"),
    "eas_lay": SearchMethod("EASLay", "a layer learns for each instance"),
}

ANTS, IMPROVE, GLOP = "ants", "improve", "glop"
SPECIAL_METHODS: Mapping[str, SpecialMethod] = {
    ANTS: SpecialMethod("ant colony guided by the policy (DeepACO, GFACS)"),
    IMPROVE: SpecialMethod("steps of an improvement policy (DACT, N2S, NeuOpt)"),
    GLOP: SpecialMethod("partition by the policy, tours by a sub-solver (GLOP)"),
}

#: Ending of a method's name → symmetries; the longest one first.
_AUGMENTATIONS = {"_augment_dihedral_8": "dihedral8", "_augment": "symmetric"}
#: Decode types of the library that are no methods on their own, but can be augmented.
LIBRARY_TYPES = ("greedy", "sampling", "multistart_greedy", "multistart_sampling", "beam_search")


_TABLES: tuple[Mapping[str, AnyMethod], ...] = (METHODS, SPECIAL_METHODS, SEARCHES)


def method_names() -> dict[str, str]:
    """All evaluation methods with a line about each; imports nothing heavy."""
    summaries = {name: method.summary for table in _TABLES for name, method in table.items()}
    custom = {name: f"decoding strategy of {DECODING.location(name)}" for name in DECODING.names()}
    return {**custom, **summaries}


def find_method(name: str) -> AnyMethod:
    """The method called `name`; raises `UnknownNameError` for names that do not exist."""
    for table in _TABLES:
        if name in table:
            return table[name]
    endings = (ending for ending in _AUGMENTATIONS if name.endswith(ending))
    ending = next(endings, "")
    decode_type = name.removesuffix(ending)
    if decode_type in LIBRARY_TYPES or decode_type.removeprefix("multistart_") in DECODING:
        augment_fn = _AUGMENTATIONS.get(ending)
        return EvalMethod(decode_type, name, augment_fn, samples=decode_type == "sampling")
    raise UnknownNameError("evaluation method", name, method_names())


def is_random(name: str) -> bool:
    """Whether another seed gives other solutions."""
    method = find_method(name)
    if not isinstance(method, EvalMethod):
        return True
    if method.samples or method.augment_fn == "symmetric":
        return True
    decode_type = str(method.decode_type)
    if decode_type in LIBRARY_TYPES:
        return decode_type == "multistart_sampling"
    return bool(DECODING[decode_type.removeprefix("multistart_")].draws)
