"""Fixtures of the tests of training."""

from __future__ import annotations

import importlib.util

from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def runs() -> ModuleType:
    """The module with small runs, which is also a program of its own."""
    path = Path(__file__).with_name("runs.py")
    spec = importlib.util.spec_from_file_location("training_runs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
