"""Lazy packages: names read from source, objects imported on first use."""

from __future__ import annotations

import importlib
import math
import sys

from pathlib import Path

import pytest

from rl4co.core.errors import RegistryError
from rl4co.core.lazy import declared_names, exported_names, lazy_attributes, resolve


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package with the sub-packages `one` (First) and `two` (Second), and a plain module."""
    name = "lazy_" + tmp_path.name.replace("-", "_")
    folder = tmp_path / name
    for sub, export in (("one", "First"), ("two", "Second")):
        (folder / sub).mkdir(parents=True)
        (folder / sub / "__init__.py").write_text(
            f"'''Purpose.'''\nclass {export}: pass\n__all__ = ['{export}']\n"
        )
    (folder / "plain.py").write_text("VALUE = 3\n__all__ = ['VALUE']\n")
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in [m for m in sys.modules if m.split(".")[0] == name]:
        del sys.modules[module]


def test_declared_names_are_read_not_run(tmp_path: Path):
    """The source is parsed; what it does stays undone."""
    file = tmp_path / "module.py"
    file.write_text("raise RuntimeError\n__all__ = ['A', 'B']\n")
    assert declared_names(file) == ["A", "B"]
    file.write_text("A = 1\n")
    assert declared_names(file) == []


def test_exported_names_of_sub_packages(package: str):
    """Sub-packages export, plain modules do not, and nothing is imported."""
    assert exported_names(package) == {"First": f"{package}.one", "Second": f"{package}.two"}
    assert f"{package}.one" not in sys.modules


def test_name_in_two_sub_packages_is_rejected(package: str, tmp_path: Path):
    """Otherwise the order of folders would decide."""
    (tmp_path / package / "two" / "__init__.py").write_text("__all__ = ['First']\n")
    with pytest.raises(RegistryError, match="'First'"):
        exported_names(package)


def test_attributes_are_resolved_on_first_use(package: str):
    """Discovered and explicitly mapped names; explicit ones win."""
    getattribute, directory = lazy_attributes(
        "facade", eager=["here"], packages=[package], modules={"VALUE": f"{package}.plain"}
    )
    assert f"{package}.two" not in sys.modules
    assert getattribute("Second").__module__ == f"{package}.two"
    assert f"{package}.one" not in sys.modules
    assert getattribute("VALUE") == 3
    assert directory() == ["First", "Second", "VALUE", "here"]


def test_unknown_attributes_raise_as_usual(package: str):
    """So that `hasattr` and the import system keep working."""
    getattribute, _ = lazy_attributes("facade", eager=[], packages=[package])
    with pytest.raises(AttributeError, match="module 'facade' has no attribute 'Third'"):
        getattribute("Third")
    with pytest.raises(AttributeError, match="__path__"):
        getattribute("__path__")


def test_explicit_names_need_no_discovery():
    """A facade whose packages are broken still gives what is mapped."""
    getattribute, _ = lazy_attributes(
        "facade", eager=[], packages=["no_such_package"], modules={"sqrt": "math"}
    )
    assert getattribute("sqrt")(9.0) == 3.0


def test_resolve():
    """One object of one module."""
    assert resolve("math", "pi") == math.pi


@pytest.mark.parametrize(
    ("module", "name"),
    [("rl4co.envs", "CVRPEnv"), ("rl4co.envs.routing", "TSPEnv"), ("rl4co.models", "POMO")],
)
def test_public_packages_list_their_names(module: str, name: str):
    """Completion in a shell works, and an unknown name is no attribute."""
    package = importlib.import_module(module)
    assert name in dir(package)
    assert hasattr(package, "NoSuchName") is False
