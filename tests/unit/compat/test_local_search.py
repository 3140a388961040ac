"""Overrides of the published `local_search(td, actions)`: one state for every solution."""

from __future__ import annotations

import pytest

from rl4co.envs import TSPEnv
from rl4co.models import DeepACO


class CountingEnv(TSPEnv):
    """Records the rows that its local search gets."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.rows = []

    def local_search(self, td, actions, **kwargs):
        self.rows.append((len(td), len(actions)))
        return actions


@pytest.mark.parametrize("training", [True, False], ids=["training", "ants"])
def test_states_and_actions_have_the_same_rows(training):
    env = CountingEnv(generator_params={"num_loc": 8})
    model = DeepACO(
        env, train_with_local_search=True, policy_kwargs={"n_ants": 4, "n_iterations": 2}
    )
    if training:
        model.shared_step(env.generator([3]), 0, "train")
    else:
        model.policy.eval()(env.reset(batch_size=[3]), env, phase="test")
    assert env.rows
    assert set(env.rows) == {(12, 12)}
