"""Registries: discovery by folder name, lazy import, plug-ins, and rejected names."""

from __future__ import annotations

import subprocess
import sys
import threading

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from rl4co.core import registry as registry_module
from rl4co.core.errors import RegistryError, UnknownNameError
from rl4co.core.registry import EMBEDDINGS, ENVS, Registry

MODULE = """
from {package} import REGISTRY

@REGISTRY.register("{name}")
class Thing:
    '''From {name}.'''
"""


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package `things` with its registry and the modules alpha, beta, _private and wrong."""
    package = "things_" + tmp_path.name.replace("-", "_")
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from rl4co.core.registry import Registry\n"
        f"REGISTRY = Registry('thing', ('{package}',), 'tests.things')\n"
    )
    for name in ("alpha", "beta"):
        (folder / f"{name}.py").write_text(MODULE.format(package=package, name=name))
    (folder / "_private.py").write_text("raise RuntimeError('must not be imported')")
    (folder / "wrong.py").write_text(MODULE.format(package=package, name="right"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__(package)
    for module in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[module]


class EntryPoint:
    """What `importlib.metadata` gives for a plug-in."""

    def __init__(self, name: str, value: str, loaded: object) -> None:
        self.name, self.value, self.loaded = name, value, loaded

    def load(self) -> object:
        return self.loaded


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> EntryPoint:
    """A third-party package that brings a thing called gamma."""
    point = EntryPoint("gamma", "third_party.things:Gamma", type("Gamma", (), {}))
    groups = {"tests.things": [point]}
    monkeypatch.setattr(registry_module, "entry_points", lambda group: groups.get(group, []))
    return point


def test_names_are_found_without_importing(things):
    """Folder and file names are the names; private modules are none."""
    assert things.REGISTRY.names() == ["alpha", "beta", "wrong"]
    assert not any(name.startswith(f"{things.__name__}.") for name in sys.modules)


def test_only_the_one_asked_for_is_imported(things):
    """Looking up alpha leaves beta alone; the same object comes back every time."""
    alpha = things.REGISTRY["alpha"]
    assert alpha.__doc__ == "From alpha."
    assert things.REGISTRY["alpha"] is alpha
    assert f"{things.__name__}.alpha" in sys.modules
    assert f"{things.__name__}.beta" not in sys.modules


def test_threads_get_no_half_defined_component(things, tmp_path):
    """A component stands in the registry before its module is whole: others wait for the rest."""
    things.registered, things.may_go_on = threading.Event(), threading.Event()
    text = MODULE.format(package=things.__name__, name="slow") + (
        f"from {things.__name__} import registered, may_go_on\n"
        "registered.set()\n"
        "assert may_go_on.wait(60)\n"
        "Thing.rest = True\n"
    )
    (tmp_path / things.__name__ / "slow.py").write_text(text)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: things.REGISTRY["slow"].rest)
        assert things.registered.wait(60)
        second = pool.submit(lambda: things.REGISTRY["slow"].rest)
        wait([second], timeout=0.2)  # time to go wrong
        things.may_go_on.set()
        assert first.result() and second.result()


def test_registry_is_a_mapping(things):
    """Membership, length, iteration and `get` with a default."""
    registry = things.REGISTRY
    assert "alpha" in registry
    assert "omega" not in registry
    assert len(registry) == 3
    assert list(registry) == ["alpha", "beta", "wrong"]
    assert registry.get("alpha") is registry["alpha"]
    assert registry.get("omega") is None
    assert registry.get("omega", "nothing") == "nothing"


def test_unknown_name_gets_a_suggestion(things):
    """The nearest name, and all of them."""
    with pytest.raises(UnknownNameError, match=r"no thing 'alhpa'; did you mean 'alpha'\? known:"):
        things.REGISTRY["alhpa"]
    with pytest.raises(UnknownNameError, match="no thing 'omega'; known: alpha, beta, wrong"):
        things.REGISTRY.location("omega")


def test_duplicate_is_rejected(things):
    """Another definition under a taken name is an error, not a silent replacement."""
    things.REGISTRY["alpha"]
    with pytest.raises(RegistryError, match="expected one thing named 'alpha'"):

        @things.REGISTRY.register("alpha")
        class Other:
            pass


def test_same_definition_may_run_twice(things):
    """As when a module is reloaded in a notebook: the newer object counts."""

    def define() -> type:
        @things.REGISTRY.register("delta")
        class Delta:
            pass

        return Delta

    first, second = define(), define()
    assert first is not second
    assert things.REGISTRY["delta"] is second


def test_module_must_register_its_own_name(things):
    """The module `wrong` registers something else."""
    with pytest.raises(RegistryError, match="'wrong'"):
        things.REGISTRY["wrong"]


def test_location(things, plugin):
    """Where a component is defined, before it is imported."""
    assert things.REGISTRY.location("beta") == f"{things.__name__}.beta"
    assert things.REGISTRY.location("gamma") == "third_party.things:Gamma"
    things.REGISTRY.register("local")(EntryPoint)
    assert things.REGISTRY.location("local") == EntryPoint.__module__


def test_plugins_are_found_by_entry_point(things, plugin):
    """Names and components of third-party packages, loaded when asked for."""
    registry = things.REGISTRY
    assert "gamma" in registry
    assert registry.names() == ["alpha", "beta", "gamma", "wrong"]
    assert registry["gamma"] is plugin.loaded and registry.plugins() == [plugin.loaded]
    other = Registry("thing", (things.__name__,), "tests.other")
    assert "gamma" not in other and other.plugins() == []


def test_plugin_that_registers_itself(things, plugin):
    """A plug-in may use the decorator as well; that is no duplicate."""
    registry = things.REGISTRY
    plugin.load = lambda: registry.register("gamma")(plugin.loaded)
    assert registry["gamma"] is plugin.loaded


def test_own_modules_win_over_plugins(things, plugin):
    """A plug-in cannot replace what the library ships."""
    plugin.name = "alpha"
    assert things.REGISTRY["alpha"].__doc__ == "From alpha."


def test_environments_of_plugins_work_everywhere(monkeypatch):
    """`get_env` builds an environment that comes by entry point."""
    from rl4co.envs import TSPEnv, get_env

    class PluginEnv(TSPEnv):
        name = "plugin_tsp"

    point = EntryPoint("plugin_tsp", "third_party:PluginEnv", PluginEnv)
    monkeypatch.setattr(
        registry_module, "entry_points", lambda group: [point] if group == "rl4co.envs" else []
    )
    monkeypatch.setattr(ENVS, "_entries", dict(ENVS.items()))
    assert "plugin_tsp" in ENVS.names()
    assert "plugin_tsp" not in EMBEDDINGS
    assert isinstance(get_env("plugin_tsp"), PluginEnv)


def test_source(things, plugin):
    """The file of a module or of a package, before it is imported; plug-ins have none here."""
    folder = Path(things.__file__).parent
    (folder / "nested").mkdir()
    (folder / "nested" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    assert things.REGISTRY.source("beta") == folder / "beta.py"
    assert things.REGISTRY.source("nested") == folder / "nested" / "__init__.py"
    assert things.REGISTRY.source("gamma") is None
    assert not any(name.startswith(f"{things.__name__}.") for name in sys.modules)


@pytest.mark.parametrize("registry", ["ENVS", "MODELS", "EMBEDDINGS", "SOLVERS", "FORMULATIONS"])
def test_listing_loads_nothing_heavy(registry: str):
    """Neither the components nor their packages: that of the embeddings would bring torch."""
    script = (
        f"import sys\nfrom rl4co.core.registry import {registry} as registry\n"
        "assert registry.names() and registry.names()[0] in registry\n"
        "assert all(registry.source(name).is_file() for name in registry.names())\n"
        "assert not {'torch', 'lightning', 'numpy', *registry.packages} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
