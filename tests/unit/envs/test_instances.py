"""Tensors that are no instances: rejected by name by `reset`, whatever is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import InvalidInstanceError
from rl4co.core.registry import ENVS
from rl4co.envs import RL4COEnvBase, get_env
from rl4co.envs.arguments import number_kind
from rl4co.envs.instances import LARGEST

OTHER_DTYPES = (torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)


@pytest.mark.parametrize("name", ENVS.names())
def test_tensors_of_another_kind_are_rejected(name: str):
    """Of another dtype or shape, or with numbers that are none."""
    env = get_env(name)
    td = env.generate(2)
    accepted = [
        f"{key}: {what}"
        for key in td.keys()
        for what, value in wrong_tensors(td[key], key in env.unlimited_keys)
        if not is_rejected(env, td.clone(recurse=False).set(key, value))
        and not (key in env.integer_keys and number_kind(value) == "integer")
    ]
    assert not accepted


def is_rejected(env: RL4COEnvBase, td: TensorDictBase) -> bool:
    """Whether `reset` rejects instances; any other error is passed on."""
    try:
        env.reset(td)
    except InvalidInstanceError as error:
        return str(error).startswith(f"expected {env.name} ")
    return False


def wrong_tensors(value: Tensor, unlimited: bool) -> Iterator[tuple[str, Tensor]]:
    """Values that are no tensor `[B, ...]` of an instance, with its name."""
    for dtype in OTHER_DTYPES:
        both_real = dtype.is_floating_point and value.is_floating_point()
        if dtype != value.dtype and not both_real:
            yield str(dtype), value.to(dtype)
    yield "another axis", value.unsqueeze(1)
    if value.dim() > 1:
        yield "nothing", value[..., :0]
    if value.is_floating_point():
        for number in (torch.nan, -torch.inf) if unlimited else (torch.nan, torch.inf, 1e30):
            one = value.clone()
            one.view(-1)[-1] = number
            yield f"{number} once", one
            yield f"{number} everywhere", torch.full_like(value, number)


@pytest.mark.parametrize("name", ["mtsp", "mdcpdp", "ffsp"])
def test_numbers_whose_sums_overflow_are_rejected(name: str):
    """Far below infinity, where rewards would be NaN; the limit itself has finite rewards."""
    env = get_env(name)
    td = env.generate(2)
    key = "run_time" if name == "ffsp" else "locs"
    for number in (2 * LARGEST, 1e18):
        td[key][1] = int(number) if name == "ffsp" else number
        with pytest.raises(
            InvalidInstanceError, match=rf"{key} is at most 1e\+15.*\(instances 1\)"
        ):
            env.reset(td)
    td[key][1] = 10**12 - 1 if name == "ffsp" else torch.rand(td[key][1].shape) * LARGEST
    state = env.reset(td)
    actions = []
    while not state["done"].all():
        actions.append(state["action_mask"].long().argmax(-1))
        state = env.step(state.set("action", actions[-1]))["next"]
    assert env.get_reward(env.reset(td), torch.stack(actions, -1)).isfinite().all()
