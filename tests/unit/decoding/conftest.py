"""A policy of one line for the decode loop, tiny networks, and a guard on the caller's data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import AttentionModelPolicy

ENVIRONMENTS = {"tsp": TSPEnv, "cvrp": CVRPEnv}


@pytest.fixture
def make_env() -> Callable[..., Any]:
    """`make_env("tsp", 7)`: an environment with seven nodes (customers)."""

    def make(name: str, num_loc: int, **kwargs: Any) -> Any:
        return ENVIRONMENTS[name](generator_params={"num_loc": num_loc}, seed=7, **kwargs)

    return make


@pytest.fixture
def make_policy() -> Callable[..., AttentionModelPolicy]:
    """A small Attention Model with weights from a fixed seed, in evaluation mode."""

    def make(env_name: str, seed: int = 0, **kwargs: Any) -> AttentionModelPolicy:
        tiny = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return AttentionModelPolicy(env_name=env_name, **{**tiny, **kwargs}).eval()

    return make


@pytest.fixture
def table_logits() -> Callable[[Tensor], Callable[[dict[str, Tensor]], Tensor]]:
    """A policy that looks up its logits by the current node in a table `[B, N, N]`."""

    def make(table: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
        instance = torch.arange(len(table)).unsqueeze(-1)  # [B, 1]

        def logits(state: dict[str, Tensor]) -> Tensor:
            return table[instance, state["current_node"]]  # [B, S, N]

        return logits

    return make


@pytest.fixture
def unchanged() -> Callable[[TensorDictBase], Any]:
    """`with unchanged(td):` fails if the block changes a key, a value or a version of `td`."""

    @contextmanager
    def guard(td: TensorDictBase) -> Iterator[None]:
        before = {key: (value, value._version, value.clone()) for key, value in td.items()}
        yield
        assert set(td.keys()) == set(before)
        for key, (tensor, version, value) in before.items():
            assert td[key] is tensor, f"{key} was replaced"
            assert tensor._version == version, f"{key} was written to"
            assert torch.equal(tensor, value), f"{key} has other values"

    return guard
