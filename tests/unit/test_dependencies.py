"""The lower bounds of the dependencies are releases that have the features used here."""

from __future__ import annotations

import importlib
import inspect
import re
import sys

from pathlib import Path

import lightning
import pytest
import torch

from rl4co.core.errors import MissingDependencyError

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"

#: Package → the release that brought a feature the library cannot do without.
NEEDED = {"torch": (2, 6), "lightning": (2, 6), "pyvrp": (0, 14), "gymnasium": (1, 1)}


@pytest.mark.parametrize("package", NEEDED)
def test_lower_bound_has_the_feature(package: str):
    """`pip install` may not pick a release that fails at the first checkpoint."""
    found = re.search(rf'^.*"{package}>=(\d+)\.(\d+)', PYPROJECT.read_text(), re.MULTILINE)
    assert found, f"expected a lower bound of {package}"
    assert tuple(map(int, found.groups())) >= NEEDED[package]


def test_features_are_there():
    """Those named in the table; newer releases may rename them."""
    assert callable(torch.serialization.get_unsafe_globals_in_checkpoint)
    assert "weights_only" in inspect.signature(lightning.Trainer.fit).parameters


def test_without_gymnasium_the_command_is_named(monkeypatch: pytest.MonkeyPatch):
    """The module needs it when it is imported, so that is when it says so."""
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "rl4co.envs.gymnasium", raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'rl4co\[gymnasium\]'"):
        importlib.import_module("rl4co.envs.gymnasium")
