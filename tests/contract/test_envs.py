"""Guarantees of every environment of the registry, and rewards against independent NumPy code."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re

from pathlib import Path

import numpy as np
import pytest
import torch

from hypothesis import given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import rl4co.envs

from rl4co.core.errors import ConfigError
from rl4co.core.registry import ENVS
from rl4co.core.rng import derive_generator
from rl4co.envs import check_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.contract.behaviour import local_search_improves
from rl4co.envs.contract.evidence import Probe, record_episode
from rl4co.envs.improvement import is_improvement
from rl4co.envs.testing import constructive_names, make_sized_env

NAMES = ENVS.names()
BOOKKEEPING = {"action", "done", "reward", "terminated"}
# Small, and even for problems whose nodes come in pairs.
SIZE = 6


# ---------------------------------------------------------------- behaviour


@pytest.mark.parametrize("name", NAMES)
def test_environment_keeps_the_contract(name: str):
    """`check_env` finds no violation."""
    check_env(make_sized_env(name, SIZE))


@pytest.mark.parametrize("name", NAMES)
def test_a_step_compiles_as_one_graph(name: str):
    """Without breaks, which would synchronise with a GPU, and with the same result."""
    env = make_sized_env(name, SIZE, check_action=False)
    state = dict(env.reset(env.generator(3, rng=derive_generator(1))).items())
    torch.compiler.reset()  # environments share the code of `advance`
    step = torch.compile(env.advance, backend="eager", fullgraph=True)
    for _ in range(2):
        action = (
            env.random_action(state, derive_generator(2))
            if is_improvement(env)
            else state["action_mask"].long().argmax(-1)
        )
        expected, compiled = env.advance(state, action), step(state, action)
        assert set(expected) == set(compiled)
        assert all(torch.equal(expected[key], compiled[key]) for key in expected)
        state = expected


@pytest.mark.parametrize("name", constructive_names())
def test_local_search_keeps_the_contract(name: str):
    """Valid solutions of the same rows that are not worse, where there is a search."""
    probe = Probe.of(make_sized_env(name, SIZE), batch_size=3, num_rollouts=1, seed=0)
    assert not list(local_search_improves(probe))


@pytest.mark.parametrize("name", NAMES)
def test_name_is_the_registered_one(name: str):
    """Classes have the names under which they are registered, also in their text forms."""
    env = make_sized_env(name, SIZE)
    assert env.name == name
    assert type(env).__name__ in repr(env)
    assert type(env.generator).__name__ in repr(env)


# ---------------------------------------------------------------- independent rewards


def tsp_reward(instance: dict[str, NDArray], actions: NDArray) -> float:
    """Minus the length of a closed tour, leg by leg."""
    locs = instance["locs"].astype(np.float64)
    legs = zip(actions, [*actions[1:], actions[0]], strict=True)
    return -sum(float(np.hypot(*(locs[a] - locs[b]))) for a, b in legs)


def cvrp_reward(instance: dict[str, NDArray], actions: NDArray) -> float:
    """Minus the length of all routes, each walked from the depot and back to it."""
    depot, locs = instance["depot"].astype(np.float64), instance["locs"].astype(np.float64)
    length, here = 0.0, depot
    for action in [*actions, 0]:
        there = depot if action == 0 else locs[action - 1]
        length += float(np.hypot(*(there - here)))
        here = there
    return -length


NUMPY_REWARDS = {"tsp": tsp_reward, "cvrp": cvrp_reward}


@pytest.mark.parametrize("name", constructive_names())
@settings(max_examples=10)
@given(
    size=st.integers(min_value=1, max_value=9),
    batch=st.lists(st.integers(min_value=1, max_value=3), max_size=2),
    seed=st.integers(min_value=0, max_value=2**32),
)
def test_random_rollouts(name: str, size: int, batch: list[int], seed: int):
    """Random episodes end and are valid; independent code computes the same rewards."""
    try:
        env = make_sized_env(name, size)
    except ConfigError:
        reject()  # a size that the problem does not have, such as half a pair
    rng = derive_generator(seed)
    episode = record_episode(env, env.generator(batch, rng=rng), rng)
    assert episode.complete
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True)
    assert reward.shape == tuple(batch)
    assert (reward >= 0).all() if env.maximizes else (reward <= 0).all()
    if name not in NUMPY_REWARDS:
        return
    instances, actions = episode.instances.reshape(-1), episode.actions
    for b, solution in enumerate(actions.reshape(-1, actions.shape[-1]).numpy()):
        instance = {key: value.numpy() for key, value in instances[b].items()}
        expected = NUMPY_REWARDS[name](instance, solution)
        assert float(reward.flatten()[b]) == pytest.approx(expected, rel=1e-5, abs=1e-5)


# ---------------------------------------------------------------- documentation


def state_table(env_cls: type[RL4COEnvBase]) -> dict[str, tuple[str, list[str]]]:
    """The table under `State:` in a class docstring: key → (dtype, axes behind `*B`)."""
    text = inspect.cleandoc(env_cls.__doc__ or "")
    section = re.search(r"^State:\n((?:[ \t]+.*\n|\n)*)", text, re.MULTILINE)
    assert section, f"expected a section 'State:' in the docstring of {env_cls.__name__}"
    named = re.search(r"^ +That of the :class:`(\w+)`", section[1])
    bases = {cls.__name__: cls for cls in env_cls.__mro__}
    table = dict(state_table(bases[named[1]])) if named else {}
    for line in section[1].splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 4 and cells[0] != "key" and set(cells[0]) != {"-"}:
            axes = [axis.strip() for axis in cells[2].strip("[]").split(",")]
            assert axes[0] == "*B", f"expected a shape [*B, ...] for {cells[0]}, got {cells[2]}"
            table[cells[0]] = (cells[1], axes[1:])
    return table


def bind_axis(axis: str, size: int, sizes: dict[str, int]) -> bool:
    """Whether an axis (`2`, `N`, `N+1`, `N-1`) has a size, given those bound so far."""
    letter, offset = re.fullmatch(r"([A-Za-z_]\w*|\d+)(?:\s*([+-]\s*\d+))?", axis).groups()
    shift = int(re.sub(r"\s", "", offset)) if offset else 0
    base = int(letter) if letter.isdigit() else sizes.setdefault(letter, size - shift)
    return size == base + shift


@pytest.mark.parametrize("name", NAMES)
def test_state_table_is_true(name: str):
    """The docstring's table has the keys, dtypes and shapes of the real state."""
    env = make_sized_env(name, SIZE)
    td = env.reset(batch_size=[2, 3])
    table = state_table(type(env))
    assert set(table) == set(td.keys()) - BOOKKEEPING
    sizes: dict[str, int] = {}
    for key, (dtype, axes) in table.items():
        shape = td[key].shape[2:]
        assert str(td[key].dtype) == f"torch.{dtype}", key
        assert len(shape) == len(axes), f"{key}: {list(shape)} is not {axes}"
        assert all(bind_axis(a, n, sizes) for a, n in zip(axes, shape, strict=True)), (
            f"{key}: {list(shape)} is not {axes} with {sizes}"
        )


def test_state_table_reader():
    """Keys, dtypes and axes are read; offsets tie axes to letters bound elsewhere."""

    class Documented:
        """Something.

        State:
            | key | dtype | shape | meaning |
            |---|---|---|---|
            | `locs` | float32 | `[*B, N, 2]` | coordinates |
            | `i` | int64 | `[*B, 1]` | steps |

        Reward:
            | not | a | `[*B]` | row |
        """

    assert state_table(Documented) == {"locs": ("float32", ["N", "2"]), "i": ("int64", ["1"])}
    sizes: dict[str, int] = {}
    assert bind_axis("N+1", 6, sizes)
    assert sizes == {"N": 5}
    assert bind_axis("N", 5, sizes)
    assert bind_axis("N - 1", 4, sizes)
    assert not bind_axis("N", 6, sizes)
    assert not bind_axis("2", 3, sizes)


@pytest.mark.parametrize("name", NAMES)
def test_docstring_has_all_sections(name: str):
    """Every problem documents the same sections."""
    text = inspect.cleandoc(ENVS[name].__doc__ or "")
    for section in ("State:", "Constraints:", "Finish condition:", "Reward:"):
        assert re.search(rf"^{section}$", text, re.MULTILINE), section


# ---------------------------------------------------------------- folders


#: Problems of this package; plug-ins may have other files.
BUILT_IN = [name for name in NAMES if ENVS.source(name) is not None]


@pytest.mark.parametrize("name", BUILT_IN)
def test_folder_has_the_same_files(name: str):
    """Dynamics and facts each have their file."""
    folder = Path(importlib.import_module(ENVS.location(name)).__file__).parent
    assert folder.name == name
    for file in ("env.py", "cases.py"):
        assert (folder / file).is_file(), file


@pytest.mark.parametrize("name", BUILT_IN)
def test_classes_are_importable(name: str):
    """Environment and generator come from `rl4co.envs`, from their area and from their folder."""
    env_cls = ENVS[name]
    area = importlib.import_module(ENVS.location(name).rpartition(".")[0])
    for cls in (env_cls, env_cls.generator_cls):
        assert getattr(rl4co.envs, cls.__name__) is cls
        assert getattr(area, cls.__name__) is cls
        assert cls.__name__ in dir(rl4co.envs)
    assert rl4co.envs.ENV_REGISTRY[name] is env_cls
    assert isinstance(rl4co.envs.get_env(name), env_cls)


@pytest.mark.parametrize("name", NAMES)
def test_environment_can_be_copied_and_pickled(name: str):
    """Copies continue the random stream of the environment."""
    env = make_sized_env(name, SIZE, seed=11)
    env.generate(2)
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = env.generate(3)
    for twin in copies:
        drawn = twin.generate(3)
        assert all(torch.equal(drawn[key], expected[key]) for key in expected.keys())
        assert twin.reset(batch_size=2).batch_size == (2,)
