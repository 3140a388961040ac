"""The hand-computed facts in every problem's `cases.py` hold."""

from __future__ import annotations

import importlib

from collections import Counter

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import InvalidInstanceError, InvalidSolutionError
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.cases import Case
from rl4co.envs.improvement import is_improvement

CASES: list[tuple[str, Case]] = [
    (name, case)
    for name in ENVS.names()
    for case in importlib.import_module(f"{ENVS.location(name)}.cases").CASES
]


def cases(outcome: str) -> pytest.MarkDecorator:
    """All cases that state a reward, a violation or a fault."""
    chosen = [pair for pair in CASES if getattr(pair[1], outcome) is not None]
    return pytest.mark.parametrize(
        ("name", "case"), chosen, ids=[f"{name}: {case.name}" for name, case in chosen]
    )


def build(name: str, case: Case) -> RL4COEnvBase:
    return ENVS[name](**case.env_params)


def as_instances(case: Case, copies: int) -> TensorDict:
    tensors = {key: torch.tensor(value) for key, value in case.instance.items()}
    return TensorDict(tensors, batch_size=[]).expand(copies)


@cases("reward")
def test_reward(name: str, case: Case):
    """The reward worked out by hand, alone and in a batch, and the check agrees."""
    env = build(name, case)
    for copies in (1, 3):
        td = env.reset(as_instances(case, copies))
        actions = torch.tensor(case.actions).expand(copies, -1)
        reward = env.get_reward(td, actions, check_solution=True)
        expected = torch.full((copies,), float(case.reward), dtype=reward.dtype)
        torch.testing.assert_close(reward, expected, rtol=1e-6, atol=1e-6)


@cases("reward")
def test_mask_allows_the_solution(name: str, case: Case):
    """Each action is allowed when its turn comes, and the last one ends the episode."""
    env = build(name, case)
    if is_improvement(env):
        pytest.skip("its solutions are not made of actions")
    td = env.reset(as_instances(case, 2))
    for step, action in enumerate(case.actions):
        assert td["action_mask"][:, action].all(), f"action {action} at step {step}"
        td = env.step(td.set("action", torch.full((2,), action)))["next"]
    assert td["done"].all()


@cases("violates")
def test_violation_is_named(name: str, case: Case):
    """The error carries the broken constraint and the instances."""
    env = build(name, case)
    td = env.reset(as_instances(case, 2))
    actions = torch.tensor(case.actions, dtype=torch.int64).expand(2, -1)
    with pytest.raises(InvalidSolutionError) as caught:
        env.get_reward(td, actions)
    assert caught.value.constraint == case.violates
    assert caught.value.instances == [0, 1]
    assert case.violates in str(caught.value)


@cases("faults")
def test_fault_is_named(name: str, case: Case):
    """The message carries the problem and the broken rule."""
    env = build(name, case)
    with pytest.raises(InvalidInstanceError) as caught:
        env.reset(as_instances(case, 2))
    assert case.faults in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ENVS.names())
def test_cases_cover_the_problem(name: str):
    """Two rewards or more, every constraint, every rule, and no name twice."""
    own = [case for problem, case in CASES if problem == name]
    repeated = [label for label, count in Counter(case.name for case in own).items() if count > 1]
    assert not repeated
    assert sum(case.reward is not None for case in own) >= 2

    env = ENVS[name]()
    instances = env.generator(2, rng=torch.Generator().manual_seed(0))
    td = env.reset(instances)
    if is_improvement(env):
        actions = td["rec_current"]
    else:
        actions = torch.zeros(2, env.step_bounds(dict(td.items()))[1], dtype=torch.int64)
    constraints = set(env._violations(dict(td.items()), actions))
    assert constraints <= {case.violates for case in own}
    for rule in env._instance_faults(dict(instances.items())):
        assert any(case.faults and case.faults in rule for case in own), rule
