"""Errors: one grammar, built-in base classes, and the facts a program needs as attributes."""

from __future__ import annotations

import pytest

from rl4co.core import errors
from rl4co.core.errors import (
    EnvCheckError,
    InvalidSolutionError,
    MissingDependencyError,
    RL4COError,
    UnknownNameError,
    format_indices,
)


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("UnknownNameError", LookupError),
        ("UnknownArgumentError", TypeError),
        ("RegistryError", RuntimeError),
        ("ConfigError", ValueError),
        ("InvalidInstanceError", ValueError),
        ("InvalidSolutionError", ValueError),
        ("InvalidActionError", ValueError),
        ("EnvCheckError", AssertionError),
        ("UnsupportedError", NotImplementedError),
        ("FileFormatError", ValueError),
        ("WriteError", OSError),
        ("MissingDependencyError", ImportError),
    ],
)
def test_errors_have_two_parents(name: str, builtin: type[Exception]):
    """The library's base class, and the built-in one that a caller would guess."""
    error = getattr(errors, name)
    assert issubclass(error, RL4COError)
    assert issubclass(error, builtin)


def test_unknown_name_suggests_the_nearest():
    """A close name is suggested, and all are listed, sorted."""
    error = UnknownNameError("colour", "gren", ["red", "green", "blue"])
    assert str(error) == "no colour 'gren'; did you mean 'green'? known: blue, green, red"
    assert (error.kind, error.name, error.known) == ("colour", "gren", ["blue", "green", "red"])


def test_unknown_name_without_a_near_one():
    """Nothing is suggested that is not close; an empty set is called empty."""
    assert str(UnknownNameError("colour", "xyz", ["red"])) == "no colour 'xyz'; known: red"
    assert str(UnknownNameError("colour", 3, [])) == "no colour 3; known: (none)"


def test_invalid_solution_counts_and_lists_instances():
    """The message cuts long lists, the attribute keeps them whole."""
    error = InvalidSolutionError("rule", range(10), batch=32)
    assert "'rule', got 10 of 32" in str(error)
    assert "(instances 0, 1, 2, 3, 4, 5, 6, 7, ... 2 more)" in str(error)
    assert error.constraint == "rule"
    assert error.instances == list(range(10))


def test_env_check_numbers_its_findings():
    """One finding is singular."""
    one, two = EnvCheckError("MyEnv", ["a is b"]), EnvCheckError("MyEnv", ["a is b", "c is d"])
    assert str(one).splitlines()[0].endswith("got 1 finding:")
    assert str(two).splitlines()[1:] == ["  1. a is b", "  2. c is d"]
    assert two.findings == ["a is b", "c is d"]


def test_missing_dependency_gives_the_install_line():
    """The extra if there is one, else the package."""
    assert "pip install 'rl4co[solvers]'" in str(MissingDependencyError("pyvrp", "solvers"))
    assert str(MissingDependencyError("x")) == "x is not installed; run: pip install 'x'"


@pytest.mark.parametrize(
    ("count", "limit", "text"),
    [(0, 8, ""), (2, 8, "0, 1"), (3, 3, "0, 1, 2"), (4, 3, "0, 1, 2, ... 1 more")],
)
def test_format_indices(count: int, limit: int, text: str):
    """Cut only where something is left out."""
    assert format_indices(range(count), limit) == text
