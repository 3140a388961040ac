"""Active search: the loss recomputed, all weights learn, normalisation keeps its statistics."""

from __future__ import annotations

import pytest
import torch

from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import ActiveSearch, AttentionModelPolicy

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}


@pytest.fixture(params=["tsp", "cvrp"])
def env(request):
    return {"tsp": TSPEnv, "cvrp": CVRPEnv}[request.param](generator_params={"num_loc": 6})


def make(env, number=1, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        policy = AttentionModelPolicy(env_name=env.name, **TINY)
    data = env.generator(number, rng=torch.Generator().manual_seed(3))
    return ActiveSearch(env, policy, data, **{"augment_size": 2, "seed": 5, **kwargs}), data


def test_defaults_are_those_of_the_paper(env):
    model, _ = make(env, augment_size=None)
    assert model.max_iters == 200
    assert model.augment_size == 8
    assert model.batch_size == 1
    assert model.optimizer_kwargs == {"lr": 2.6e-4, "weight_decay": 1e-6}


def test_loss_by_hand(env):
    """REINFORCE with the mean of each copy's solutions as baseline, from the policy's own output.

    The likelihoods come from the plain policy, evaluated on the copies one by one.
    """
    model, data = make(env)
    td = env.reset(data)
    search = model.start_search(td)
    found = search.sample(None, torch.Generator().manual_seed(2))
    copies = search.copies.td
    count = search.copies.num_solutions
    actions = found.actions.view(2, count, -1)
    expected = 0.0
    for k in range(2):
        with torch.no_grad():
            likelihood = model.policy.eval()(
                copies[k : k + 1], env, actions=actions[k], decode_type="multistart_sampling"
            )["log_likelihood"]
        rewards = [float(env.get_reward(td, actions[k, s : s + 1])) for s in range(count)]
        mean = sum(rewards) / count
        for s in range(count):
            expected -= (rewards[s] - mean) * float(likelihood[s]) / (2 * count)
    assert float(found.loss.detach()) == pytest.approx(expected, abs=1e-4)
    torch.testing.assert_close(
        found.rewards[0], env.get_reward(td.expand(2 * count), found.actions[0])
    )


def test_all_weights_learn(env):
    """Encoder and decoder; statistics of batch normalisation stay as they were trained."""
    model, data = make(env)
    search = model.start_search(env.reset(data))
    statistics = {name: value.clone() for name, value in search.adapted.named_buffers()}
    search.sample(None, torch.Generator().manual_seed(2)).loss.backward()
    without = [name for name, p in search.adapted.named_parameters() if p.grad is None]
    zero = [
        name
        for name, p in search.adapted.named_parameters()
        if p.grad is not None and not bool((p.grad != 0).any())
    ]
    # The first node of a tour is forced; a bias of keys shifts all scores of a softmax alike.
    assert all("W_placeholder" in name for name in without + zero)
    assert not search.adapted.training
    assert all(torch.equal(value, statistics[n]) for n, value in search.adapted.named_buffers())
    assert all(p.grad is None for p in model.policy.parameters())


def test_instances_of_a_batch_are_searched_one_by_one(env):
    model, _ = make(env, 3, batch_size=3, max_iters=2)
    sizes = []
    start = model.start_search
    model.start_search = lambda td: sizes.append(td.batch_size[0]) or start(td)
    result = model.search()
    assert sizes == [1, 1, 1]
    assert result.iterations.tolist() == [2, 2, 2]


def test_incumbents_are_not_looked_at(env):
    """Bello's search has no imitation."""
    model, data = make(env)
    search = model.start_search(env.reset(data))
    first = search.sample(None, torch.Generator().manual_seed(2))
    again = search.sample(first.actions[:, 0], torch.Generator().manual_seed(2))
    assert torch.equal(first.actions, again.actions)
    assert torch.equal(first.loss, again.loss)
