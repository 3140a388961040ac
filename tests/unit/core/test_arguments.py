"""Objects that remember their constructor's arguments, and what counts as plain data."""

from __future__ import annotations

import copy
import enum
import pickle

from pathlib import Path

import numpy as np
import pytest
import torch

from omegaconf import OmegaConf
from torch import nn

from rl4co.core.arguments import (
    NotPlainError,
    RecordsArguments,
    plain,
    reject_unknown_arguments,
)
from rl4co.core.errors import UnknownArgumentError, UnknownNameError
from rl4co.core.registry import ENVS, MODELS
from rl4co.envs import CVRPEnv, TSPGenerator
from rl4co.models import AttentionModel, AttentionModelPolicy

TINY = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1}


class Base(RecordsArguments):
    def __init__(self, a: int, b: int = 2, *, c: int = 3) -> None:
        self.total = a + b + c


class Forwards(Base):
    def __init__(self, *args: int, d: int = 4, **kwargs: int) -> None:
        super().__init__(*args, **kwargs)


class Inherits(Forwards):
    """No constructor of its own."""


class Replaces(Base):
    def __init__(self, e: int, **kwargs: int) -> None:
        super().__init__(e, **kwargs)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: Base(1), {"a": 1}),
        (lambda: Base(1, c=5), {"a": 1, "c": 5}),
        (lambda: Forwards(1, 5, c=6, d=7), {"a": 1, "b": 5, "c": 6, "d": 7}),
        (lambda: Forwards(a=1, c=6), {"a": 1, "c": 6}),
        (lambda: Inherits(1, 5), {"a": 1, "b": 5}),
        (lambda: Replaces(1, c=9), {"e": 1, "c": 9}),
    ],
)
def test_arguments_are_recorded_by_name(made, expected):
    """Positional ones too, also through `*args`; defaults are not, so they may change."""
    thing = made()
    assert thing._init_arguments == expected
    assert type(thing)(**thing._init_arguments).total == thing.total


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_keep_the_record(copied):
    assert copied(Forwards(1, c=2))._init_arguments == {"a": 1, "c": 2}


def test_wrong_calls_raise_in_the_constructor():
    """With its name in the message."""
    with pytest.raises(TypeError, match=r"Base.__init__\(\) missing 1 required positional"):
        Forwards(c=1)
    with pytest.raises(TypeError, match=r"Base.__init__\(\) takes"):
        Base(1, 2, 3)


class Pops(Base):
    """As code for the published package does."""

    def __init__(self, a: int, **kwargs: int) -> None:
        self.taken = kwargs.pop("taken", 0)
        super().__init__(a, **kwargs)


class Part(RecordsArguments):
    def __init__(self, size: int = 1) -> None:
        self.size = size


class Whole(RecordsArguments):
    def __init__(self, part_kwargs: dict, **kwargs: int) -> None:
        self.part = Part(**part_kwargs)
        self.rest = kwargs


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Base(1, bb=2), r"no argument of Base 'bb'; did you mean 'b'\? known: a, b, c$"),
        (lambda: Forwards(1, dd=2), r"of Forwards 'dd'; did you mean 'd'\? known: a, b, c, d$"),
        (lambda: Inherits(1, dd=2), r"of Inherits 'dd'; did you mean 'd'\? known: a, b, c, d$"),
        (lambda: Pops(1, take=3), r"no argument of Pops 'take'; known: a, b, c$"),
        (lambda: Whole({"sise": 3}), r"no argument of Part 'sise'; did you mean 'size'\?"),
        (lambda: Whole({"sise": 3}, other=1), r"no argument of Part 'sise'"),
    ],
)
def test_unknown_arguments_get_a_suggestion(made, message):
    """The known ones are those of all constructors that the arguments are passed on to."""
    with pytest.raises(UnknownArgumentError, match=message) as caught:
        made()
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, UnknownNameError)


def test_a_constructor_may_take_arguments_that_its_signature_does_not_name():
    """Only who is handed an argument in the end knows whether it is one too many."""
    thing = Pops(1, taken=5, c=2)
    assert (thing.taken, thing.total) == (5, 5)
    assert Whole({"size": 2}, anything=1).rest == {"anything": 1}


class Keeps(Base):
    """Uses its `**kwargs` in a way that its signature does not show."""

    def __init__(self, a: int, **kwargs: int) -> None:
        self.extras = {name: kwargs.pop(name) for name in list(kwargs) if name.startswith("x")}
        super().__init__(a, **kwargs)


def test_a_constructor_that_handles_kwargs_itself_is_trusted():
    assert Keeps(1, xy=2).extras == {"xy": 2}
    with pytest.raises(TypeError, match="zy"):
        Keeps(1, zy=2)


def test_constructors_are_not_wrapped():
    """What runs is the function that the author wrote."""
    assert vars(Base)["__init__"].__code__.co_name == "__init__"
    assert not hasattr(TSPGenerator.__init__, "__wrapped__")
    assert not hasattr(AttentionModel.__init__, "__wrapped__")


@pytest.mark.parametrize("registry", [ENVS, MODELS], ids=["environments", "models"])
def test_every_class_of_the_library_rejects_unknown_arguments(registry):
    """Before any other argument is used."""
    classes = [registry[name] for name in registry.names()]
    generators = [cls.generator_cls for cls in classes if hasattr(cls, "generator_cls")]
    for cls in (*classes, *generators):
        with pytest.raises(UnknownArgumentError, match="unheard_of"):
            cls(**({"env": None} if registry is MODELS else {}), unheard_of=1)


def test_unknown_arguments_of_any_function():
    reject_unknown_arguments(dict, "dict", ["anything"])
    reject_unknown_arguments(Pops, "Pops", ["anything"])
    with pytest.raises(UnknownArgumentError, match="no argument of Linear 'biass'; did you"):
        reject_unknown_arguments(nn.Linear, "Linear", ["in_features", "biass"])


def test_environments_generators_policies_and_algorithms_record():
    """One mechanism for all four."""
    generator = TSPGenerator(5, loc_distribution="cluster")
    assert generator._init_arguments == {"num_loc": 5, "loc_distribution": "cluster"}
    env = CVRPEnv(None, {"num_loc": 5}, capacity_tolerance=0.0, seed=3)
    assert env._init_arguments == {
        "generator": None,
        "generator_params": {"num_loc": 5},
        "capacity_tolerance": 0.0,
        "seed": 3,
    }
    policy = AttentionModelPolicy(env_name="cvrp", **TINY)
    assert policy._init_arguments == {"env_name": "cvrp", **TINY}
    model = AttentionModel(env, policy, "mean", batch_size=4)
    assert model._init_arguments == {
        "env": env,
        "policy": policy,
        "baseline": "mean",
        "batch_size": 4,
    }
    assert all(isinstance(each, RecordsArguments) for each in (generator, env, policy, model))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: TSPGenerator(numloc=3), "no argument of TSPGenerator 'numloc'; .* 'num_loc'"),
        (lambda: CVRPEnv(chek_solution=1), "no argument of CVRPEnv '.*mean 'check_solution'"),
        (lambda: AttentionModelPolicy(embed_dims=3), "AttentionModelPolicy '.*mean 'embed_dim'"),
        (lambda: AttentionModel(CVRPEnv(), batch_sise=1), "AttentionModel '.*mean 'batch_size'"),
        (
            lambda: AttentionModel(CVRPEnv(), policy_kwargs={"num_head": 1}),
            "AttentionModelPolicy 'num_head'; did you mean 'num_heads'",
        ),
        (
            lambda: AttentionModel(CVRPEnv(), baseline="mean", baseline_kwargs={"bta": 1}),
            "no argument of MeanBaseline 'bta'; known: \\(none\\)",
        ),
        (
            lambda: AttentionModel(CVRPEnv(), baseline="exponential", baseline_kwargs={"bta": 1}),
            "no argument of ExponentialBaseline 'bta'; did you mean 'beta'",
        ),
    ],
)
def test_parts_of_the_library_suggest_arguments(made, message):
    """Environments, generators, policies, algorithms and baselines."""
    with pytest.raises(UnknownArgumentError, match=message):
        made()


class Word(str, enum.Enum):
    HELLO = "hello"


def test_plain_values():
    """Configurations, tuples, paths, enumerations and numpy's numbers become plain."""
    config = OmegaConf.create({"a": [1, {"b": 2.5}], "c": None})
    assert plain(config) == {"a": [1, {"b": 2.5}], "c": None}
    converted = plain(
        {
            "t": (1, "x"),
            "p": Path("a") / "b",
            "f": np.float64(0.5),
            "g": np.float32(0.5),
            "i": np.int64(3),
            "q": True,
            "w": Word.HELLO,
        }
    )
    expected = {"t": [1, "x"], "p": "a/b", "f": 0.5, "g": 0.5, "i": 3, "q": True, "w": "hello"}
    assert converted == expected
    assert all(type(value) in (bool, int, float, str, list) for value in converted.values())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (nn.Linear(1, 1), "^Linear$"),
        (nn.Linear, "the class Linear"),
        ({1: 2}, "keys that are not strings"),
        (b"bytes", "bytes"),
        (lambda: None, "function"),
        (torch.zeros(1), "Tensor"),
        ({"a": {"b": [torch.relu]}}, r"\{a: \{b: builtin"),
    ],
)
def test_objects_are_not_plain(value, reason):
    """The reason says what, and under which keys."""
    with pytest.raises(NotPlainError, match=reason):
        plain(value)
