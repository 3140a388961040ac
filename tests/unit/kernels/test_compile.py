"""The decorator of compiled functions: when they are compiled, where that is kept, the switch."""

from __future__ import annotations

import subprocess
import sys

from pathlib import Path

import numpy as np
import pytest

from rl4co import kernels
from rl4co.core.errors import MissingDependencyError
from rl4co.kernels import CompiledFunction, compiled

STEP = 2


@compiled
def double(x: float) -> float:
    return STEP * x


@compiled(fast_sums=True)
def total(values: np.ndarray) -> float:
    result = 0.0
    for value in values:
        result += double(value)
    return result


def total_of_ones(size: int) -> float:
    return total(np.ones(size))


def test_compiled_functions_call_each_other() -> None:
    assert total(np.arange(4.0)) == 12.0


@pytest.mark.skipif(not kernels.are_enabled(), reason="kernels are switched off")
def test_fast_sums_of_a_part_need_inlining() -> None:
    """Elsewhere a process that compiles and one that loads could differ in the last bits."""
    with pytest.raises(Exception, match="expected inline=True of total"):
        compiled(total_of_ones)(3)


def test_the_plain_function_runs_with_kernels_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """No dispatcher is asked for, so numba is not needed."""
    monkeypatch.setitem(sys.modules, "numba", None)
    function = CompiledFunction(lambda x: x + 1)
    with kernels.disabled():
        assert not kernels.are_enabled()
        assert function(1) == 2
    if kernels.are_enabled():
        with pytest.raises(MissingDependencyError, match="pip install 'numba'"):
            function(1)


def test_disabling_ends_with_the_block_also_after_an_error() -> None:
    before = kernels.are_enabled()
    with pytest.raises(ValueError, match="inside"), kernels.disabled():
        raise ValueError("inside")
    assert kernels.are_enabled() == before


#: Ants of the TSP have compiled loops.
ANTS = """
import sys
import torch
from rl4co.core.graphs import nearest_graph
from rl4co.decoding.edges import sample_by_edges
from rl4co.envs import get_env
env = get_env("tsp", generator_params={"num_loc": 8})
td = env.reset(batch_size=2)
graph, _ = nearest_graph(td["locs"], 4, has_hub=False)
rng = torch.Generator().manual_seed(0)
sample_by_edges(env, dict(td.items()), graph, torch.ones(2, graph.num_edges), 3, rng)
print("numba" in sys.modules)
"""


@pytest.mark.parametrize("switch", ["0", "1"])
def test_with_kernels_off_numba_is_not_imported(switch: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", ANTS],
        env={**__import__("os").environ, "RL4CO_KERNELS": switch},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == str(switch == "1")


def test_fingerprint_changes_with_what_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part in another file, or a constant, makes another key of the cache."""
    (tmp_path / "part.py").write_text(
        "from rl4co.kernels import compiled\n@compiled\ndef inner(x):\n    return x + 1\n"
    )
    (tmp_path / "whole.py").write_text(
        "from rl4co.kernels import compiled\nfrom part import inner\n"
        "SCALE = 3\n@compiled\ndef outer(x):\n    return SCALE * inner(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import whole  # type: ignore[import-not-found]

    first = whole.outer.fingerprint()
    monkeypatch.setattr(whole, "SCALE", 4)
    second = whole.outer.fingerprint()
    (tmp_path / "part.py").write_text(
        "from rl4co.kernels import compiled\n@compiled\ndef inner(x):\n    return x + 2\n"
    )
    third = whole.outer.fingerprint()
    assert len({first, second, third}) == 3
