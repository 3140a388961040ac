"""The mask is derived from the state: a subclass may narrow it without breaking the episode."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.registry import ENVS
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.improvement import is_improvement


def keep_one_action(mask: torch.Tensor) -> torch.Tensor:
    """The allowed action of the highest index only."""
    last = mask.shape[-1] - 1 - mask.flip(-1).int().argmax(-1, keepdim=True)  # [*B, 1]
    return torch.zeros_like(mask).scatter(-1, last, mask.any(-1, keepdim=True))


@pytest.mark.parametrize("problem", sorted(ENVS.names()))
def test_narrowing_the_mask_leaves_no_dead_end(
    problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allowing one action per step completes a valid solution."""
    env = get_env(problem)
    if is_improvement(env):
        pytest.skip("no mask of actions")
    derive = type(env)._action_mask

    def narrowed(self: RL4COEnvBase, state: State) -> torch.Tensor:
        return keep_one_action(derive(self, state))

    monkeypatch.setattr(type(env), "_action_mask", narrowed)
    torch.manual_seed(0)
    initial = td = env.reset(batch_size=3)
    actions = []
    for _ in range(env.step_bounds(dict(td.items()))[1]):
        if td["done"].all():
            break
        assert (td["action_mask"].sum(-1) == 1).all()
        td = env.step(td.set("action", td["action_mask"].int().argmax(-1)))["next"]
        actions.append(td["action"])
    assert td["done"].all()
    env.check_solution_validity(initial, torch.stack(actions, -1))
