"""Import paths of the published package: each one resolves, or says why not and what to use."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

from pathlib import Path

import pytest

from rl4co.compat import where
from rl4co.compat.finder import NoCounterpartError, homes, reason
from rl4co.compat.table import GONE, MISSING, MOVED

REPOSITORY = Path(__file__).resolve().parents[3]
LINES = (Path(__file__).parent / "names.txt").read_text(encoding="utf-8").splitlines()
NAMES = [line for line in LINES if not line.startswith("#")]


def resolve(name: str) -> object:
    """What `from <module> import <name>`, or `import <name>`, returns."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError:
        return importlib.import_module(name)


def test_every_published_name_resolves_or_says_why_not():
    """All of them, from the list; errors come from the table and name what to use."""
    unresolved, missing = [], []
    for name in NAMES:
        try:
            resolve(name)
        except NoCounterpartError:
            missing.append(name)
        except (ImportError, AttributeError) as error:
            unresolved.append(f"{name}: {error}")
    assert not unresolved, "expected a row of the table for each, got none for\n" + "\n".join(
        unresolved
    )
    assert all(reason(name) for name in missing)
    # What users import resolves; missing names are internals of single modules.
    assert len(missing) < len(NAMES) / 4, missing


def test_table_is_sound():
    """Homes exist, nothing is listed twice, and every row is needed."""
    for module, table in MOVED.items():
        names = [entry for listed in table.values() for entry in listed.split()]
        assert len(set(names)) == len(names), module
        for name, (home, renamed) in homes(module).items():
            assert hasattr(importlib.import_module(home), renamed), (module, name)
            assert reason(f"{module}.{name}") is None, (module, name)
    published = set(NAMES)
    modules = {name.rpartition(".")[0] for name in published} | published
    assert {*MOVED, *MISSING, *GONE} <= modules | {"rl4co.models.common"}


#: Statements, and what the last of them prints.
STATEMENTS = {
    "import rl4co.models.rl.reinforce.baselines as b; print(b.RolloutBaseline.__module__)": (
        "rl4co.models.rl.baselines"
    ),
    "from rl4co.models.common.constructive.autoregressive import AutoregressivePolicy as A; "
    "print(A.__module__)": "rl4co.models.policies.autoregressive",
    "from rl4co.models.nn import ops; print(ops.Normalization.__name__)": "Normalization",
    "from rl4co.envs import *; print(TSPEnv.name, OPGenerator.__name__)": "tsp OPGenerator",
    "from rl4co.models.zoo import *; print(L2DPolicy.__name__, POMO.__name__)": "L2DPolicy POMO",
}


def test_fresh_process_follows_the_table():
    """Every form of the import statement, with nothing imported before."""
    code = "\n".join(STATEMENTS)
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert run.stdout.splitlines() == list(STATEMENTS.values()), run.stderr


def test_pickles_of_either_name_load():
    """What is pickled names the home; what was pickled under a published path is found."""
    from rl4co.models.rl.reinforce.baselines import ExponentialBaseline

    home = pickle.dumps(ExponentialBaseline)
    assert b"rl4co.models.rl.baselines" in home
    published = b"crl4co.models.rl.reinforce.baselines\nExponentialBaseline\n."  # protocol 0
    assert pickle.loads(published) is pickle.loads(home) is ExponentialBaseline


def test_missing_names_raise_import_errors_with_a_remedy():
    """Of a module, of a name in a module that exists, and of a name in one that does not."""
    with pytest.raises(ImportError, match="it was not exported; use MDCPDPEnv"):
        importlib.import_module("rl4co.envs.routing.mpdp.env")
    with pytest.raises(ImportError, match="moe_kwargs"):
        from rl4co.models.nn.attention import PointerAttnMoE  # noqa: F401
    with pytest.raises(ImportError, match="TransitionBuffer"):
        from rl4co.models.rl.ppo.stepwise_ppo import make_replay_buffer  # noqa: F401
    with pytest.raises(ImportError, match="internal"):
        from rl4co.utils.ops import cartesian_to_polar  # noqa: F401
    with pytest.raises(ImportError, match="No module named"):
        importlib.import_module("rl4co.models.rl.ppo.no_such_module")
    with pytest.raises(ImportError, match="cannot import name"):
        from rl4co.models.nn.attention import no_such_name  # noqa: F401


def test_where_a_name_lives_now():
    """For moving code to the new paths."""
    assert where("rl4co.models.rl.ppo.ppo.PPO") == "rl4co.models.rl.ppo.PPO"
    assert where("rl4co.envs.TSPEnv") == "rl4co.envs.TSPEnv"
    with pytest.raises(NoCounterpartError, match="AntColony"):
        where("rl4co.models.zoo.deepaco.antsystem.AntSystem")
