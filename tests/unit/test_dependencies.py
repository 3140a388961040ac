"""The lower bounds of the dependencies are releases that have the features used here."""

from __future__ import annotations

import inspect
import re

from pathlib import Path

import lightning
import pytest
import torch

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"

#: Package → the release that brought a feature the library cannot do without.
NEEDED = {"torch": (2, 6), "lightning": (2, 6), "pyvrp": (0, 14)}


@pytest.mark.parametrize("package", NEEDED)
def test_lower_bound_has_the_feature(package: str):
    """`pip install` may not pick a release that fails at the first checkpoint."""
    found = re.search(rf'^\s*"{package}>=(\d+)\.(\d+)', PYPROJECT.read_text(), re.MULTILINE)
    assert found, f"expected a lower bound of {package}"
    assert tuple(map(int, found.groups())) >= NEEDED[package]


def test_features_are_there():
    """Those named in the table; newer releases may rename them."""
    assert callable(torch.serialization.get_unsafe_globals_in_checkpoint)
    assert "weights_only" in inspect.signature(lightning.Trainer.fit).parameters
