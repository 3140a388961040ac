"""Active search, EAS and evaluation on graph problems: sampling in place of starts."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.errors import UnsupportedError
from rl4co.envs import FLPEnv, MCPEnv
from rl4co.kernels import disabled
from rl4co.models import ActiveSearch, AttentionModel, AttentionModelPolicy, EASEmb, EASLay
from rl4co.tasks.evaluate import evaluate_policy

TINY = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1, "feedforward_hidden": 16}
SIZES = {
    "flp": {"num_loc": 12, "to_choose": 3},
    "mcp": {"num_items": 30, "num_sets": 12, "min_size": 2, "max_size": 6, "n_sets_to_choose": 3},
}


def make(name: str):
    env = {"flp": FLPEnv, "mcp": MCPEnv}[name](generator_params=SIZES[name])
    torch.manual_seed(0)
    policy = AttentionModelPolicy(env_name=name, normalization="instance", **TINY)
    return env, policy, env.generator(2, rng=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("method", [ActiveSearch, EASEmb, EASLay])
@pytest.mark.parametrize("name", ["flp", "mcp"])
def test_searches_sample_whole_solutions(name: str, method: type):
    """Whole solutions are sampled, nothing is augmented by default, and incumbents get better."""
    env, policy, instances = make(name)
    model = method(
        env, policy, dataset=instances, batch_size=2, max_iters=25, decode_type="sampling",
        num_solutions=16, seed=3,
    )  # fmt: skip
    assert model.augment_size == 1
    result = model.search()
    history = result.history  # [2, iterations]
    assert (history.diff(dim=-1) >= 0).all()
    # One of 220 solutions is the best: 16 samples hardly have it for both instances.
    assert float(history[:, -1].mean()) > float(history[:, 0].mean())
    assert (
        -result.rewards >= env.solve(instances, solver="local_search", starts=20).costs - 1e-4
    ).all()
    td = env.reset(instances)
    rewards = env.get_reward(td, result.actions, check_solution=True)
    torch.testing.assert_close(rewards, result.rewards)


def test_augmentation_is_an_option_of_coordinates():
    """For the Euclidean problem alone."""
    env, policy, instances = make("flp")
    model = EASLay(env, policy, dataset=instances, max_iters=1, augment_size=4,
                   decode_type="sampling", num_solutions=4)  # fmt: skip
    assert model.search().rewards.isfinite().all()
    result = evaluate_policy(env, policy, instances, "augment_dihedral_8")
    assert result["rewards"].shape == (2,)
    matrices = instances.select("cost_matrix", "to_choose", strict=False).set(
        "cost_matrix", instances["orig_distances"]
    )
    with pytest.raises(UnsupportedError, match="coordinates"):
        evaluate_policy(env, policy, matrices, "augment_dihedral_8")
    env, policy, instances = make("mcp")
    with pytest.raises(UnsupportedError, match=r"(?s)augment|coordinates"):
        evaluate_policy(env, policy, instances, "augment_dihedral_8")
    with pytest.raises(UnsupportedError):
        EASLay(env, policy, dataset=instances, max_iters=1, augment_size=4).search()


@pytest.mark.parametrize("name", ["flp", "mcp"])
def test_sampling_with_top_p_and_temperature(name: str):
    """Little randomness gives the greedy solution; more samples are never worse."""
    env, policy, instances = make(name)
    greedy = evaluate_policy(env, policy, instances, "greedy")["rewards"]
    cold = evaluate_policy(env, policy, instances, "sampling", samples=4, temperature=0.001)
    torch.testing.assert_close(cold["rewards"], greedy)
    narrow = evaluate_policy(env, policy, instances, "sampling", samples=4, top_p=1e-6)
    torch.testing.assert_close(narrow["rewards"], greedy)


@pytest.mark.parametrize("baseline", ["rollout", "mean", "exponential", "critic"])
@pytest.mark.parametrize("name", ["flp", "mcp"])
def test_baselines(name: str, baseline: str):
    """A training step with each of the paper's baselines reaches the policy's weights."""
    env, policy, instances = make(name)
    model = AttentionModel(env, policy, baseline=baseline, seed=0)
    model.train().shared_step(instances, 0, "train")["loss"].backward()
    moved = [p.grad is not None and bool((p.grad != 0).any()) for p in policy.parameters()]
    assert sum(moved) > 0.9 * len(moved)


@pytest.mark.parametrize("method", [EASEmb, EASLay])
@pytest.mark.parametrize("name", ["flp", "mcp"])
def test_search_with_and_without_kernels(name: str, method: type):
    """Changes of keys and values at each step, by rank one or written out, lead the same way."""
    env, policy, instances = make(name)
    for key, value in instances.items():
        if value.is_floating_point():
            instances[key] = value.double()
    options = {"decode_type": "sampling", "num_solutions": 4, "max_iters": 2, "seed": 3}
    fast = method(env, policy.double(), dataset=instances, **options).search()
    with disabled():
        plain = method(env, policy, dataset=instances, **options).search()
    assert torch.equal(fast.actions, plain.actions)
