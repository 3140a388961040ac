"""A policy made for another problem: an error before training, unless it reads the states."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.errors import UnsupportedError
from rl4co.envs import CVRPEnv, get_env
from rl4co.models import POMO, REINFORCE, AttentionModelPolicy

SMALL = {"embed_dim": 16, "num_encoder_layers": 1, "num_heads": 2, "feedforward_hidden": 16}


def make_policy(env_name: str, **options: object) -> AttentionModelPolicy:
    return AttentionModelPolicy(env_name=env_name, **{**SMALL, **options})


def make_env(name: str, **options: object):
    return get_env(name, generator_params={"num_loc": 6}, **options)


@pytest.mark.parametrize(
    ("env_name", "policy_name"), [("tsp", "cvrp"), ("cvrp", "tsp"), ("cvrp", "cvrptw")]
)
def test_missing_keys_raise_in_the_constructor(env_name: str, policy_name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        POMO(make_env(env_name), make_policy(policy_name))
    assert env_name in str(caught.value) and policy_name in str(caught.value)


@pytest.mark.parametrize(
    ("env_name", "policy_name"), [("sdvrp", "cvrp"), ("spctsp", "pctsp"), ("tsp", "tsp")]
)
def test_policies_that_read_the_states_are_accepted(env_name: str, policy_name: str) -> None:
    REINFORCE(make_env(env_name), make_policy(policy_name), baseline="mean")


def test_custom_environments_and_data_from_files_are_not_tried() -> None:
    class CustomEnv(CVRPEnv):
        name = "cvrp"

    REINFORCE(CustomEnv(generator_params={"num_loc": 6}), make_policy("tsp"), baseline="mean")
    REINFORCE(make_env("tsp", train_file="x.npz"), make_policy("cvrp"), baseline="mean")


def test_the_check_leaves_random_streams_and_the_policy_alone() -> None:
    """Global and environment streams, weights, statistics and modes of all parts."""
    torch.manual_seed(0)
    env, policy = make_env("sdvrp", seed=5), make_policy("cvrp", normalization="batch")
    policy.encoder.eval()
    weights = {name: value.clone() for name, value in policy.state_dict().items()}
    modes = [module.training for module in policy.modules()]
    streams = torch.get_rng_state(), env.rng.get_state()
    REINFORCE(env, policy, baseline="mean")
    assert torch.equal(torch.get_rng_state(), streams[0])
    assert torch.equal(env.rng.get_state(), streams[1])
    assert [module.training for module in policy.modules()] == modes
    assert any(modes) and not all(modes)
    assert any("running_mean" in name for name in weights)
    for name, value in policy.state_dict().items():
        assert torch.equal(value, weights[name]), name
