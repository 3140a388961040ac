"""Instances that leave the decode loop before the others."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.errors import InvalidActionError
from rl4co.decoding.live import LiveInstances
from rl4co.decoding.rollout import all_finished
from rl4co.envs import TSPEnv


def make_state(done: list[list[bool]]) -> dict[str, torch.Tensor]:
    """Solutions whose only allowed action is the number of their instance."""
    batch, solutions = len(done), len(done[0])
    mask = torch.eye(batch, dtype=torch.bool)
    return {
        "done": torch.tensor(done).unsqueeze(-1),
        "action_mask": mask.unsqueeze(1).expand(-1, solutions, -1),
        "number": torch.arange(batch * solutions).view(batch, solutions),
    }


def test_by_hand():
    """Of four instances the second is dropped, then the first; both are filled up."""
    state = make_state([[False, True], [True, True], [False, False], [False, False]])
    live, seen = LiveInstances(state), []
    values = [state["number"]]
    state = live.drop_finished(state, 1, lambda rows: seen.append(rows.tolist()))
    assert live.rows.tolist() == [0, 2, 3]
    assert state["action_mask"].stride(1) == 0, "what is shared stays shared"
    values.append(state["number"])
    state["done"] = torch.tensor([[True, True], [True, False], [False, True]]).unsqueeze(-1)
    state = live.drop_finished(state, 2, lambda rows: seen.append(rows.tolist()))
    assert live.rows.tolist() == [2, 3]
    assert seen == [[0, 2, 3], [1, 2]], "positions among those before"
    values.append(state["number"])
    whole = torch.stack(live.restore(values, live.padding)).tolist()
    assert whole == [
        [[0, 1], [2, 3], [4, 5], [6, 7]],
        [[0, 1], [1, 1], [4, 5], [6, 7]],
        [[0, 0], [1, 1], [4, 5], [6, 7]],
    ]


def test_one_of_many_is_not_worth_it():
    state = make_state([[index == 3] for index in range(20)])
    live = LiveInstances(state)
    assert live.drop_finished(state, 0, pytest.fail) is state
    assert live.restore([state["number"]], live.padding)[0] is state["number"]


def test_errors_name_the_instance_in_the_batch():
    """Not its position among those that are left."""
    state = make_state([[False], [False]])
    state["action_mask"] = torch.tensor([[[True, False]], [[False, False]]])
    with pytest.raises(InvalidActionError, match="instances 7"):
        all_finished(TSPEnv(), state, torch.tensor([4, 7]))
