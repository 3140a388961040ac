"""Pointer Network: additive attention and LSTM by hand, the memory of the decode loop, learning."""

from __future__ import annotations

import itertools
import math

from typing import Any

import pytest
import torch

from torch import nn

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.rng import derive_generator
from rl4co.envs import CVRPEnv, SHPPEnv, TSPEnv
from rl4co.models import PointerNetwork, PointerNetworkPolicy
from rl4co.models.nn import additive_attention
from rl4co.models.nn.additive_attention import AdditiveAttention
from rl4co.models.zoo.ptrnet import PointerNetworkCritic
from tests.learning import cost_ratio, train_steps
from tests.numerics import assert_same_gradients

TINY = {"embed_dim": 8, "hidden_dim": 6}


@pytest.fixture
def env() -> TSPEnv:
    return TSPEnv(generator_params={"num_loc": 5}, seed=3)


@pytest.fixture
def policy() -> PointerNetworkPolicy:
    torch.manual_seed(0)
    return PointerNetworkPolicy(**TINY)


# ---------------------------------------------------------------- additive attention


def plain_scores(attention: AdditiveAttention, query: torch.Tensor, nodes: torch.Tensor):
    """$v^\\top \\tanh(W_q q + b_q + W_r r + b_r)$, pair by pair."""
    q, r = attention.project_query, attention.project_reference
    rows = [
        [
            torch.stack(
                [
                    attention.v @ torch.tanh(q.weight @ x + q.bias + r.weight @ y + r.bias)
                    for y in nodes[b]
                ]
            )
            for x in query[b]
        ]
        for b in range(len(query))
    ]
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize("block", [1, 40, 10**6], ids=["one pair", "some", "all"])
def test_additive_scores_and_gradients(monkeypatch, block):
    """Values and all gradients are those of the formula, whatever fits a block."""
    monkeypatch.setattr(additive_attention, "_CPU_BLOCK", block)
    torch.manual_seed(1)
    attention = AdditiveAttention(4).double()
    query = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    nodes = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 2, 5, dtype=torch.float64)
    inputs = [query, nodes, *attention.parameters()]
    ours = attention(query, attention.project(nodes))
    plain = plain_scores(attention, query, nodes)
    torch.testing.assert_close(ours, plain)
    for mine, theirs in zip(
        torch.autograd.grad((weight * ours).sum(), inputs),
        torch.autograd.grad((weight * plain).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("q", "e"), [(30.0, -29.0), (1e3, 1e3), (-1e3, 5.0), (60.0, -90.0)])
def test_additive_scores_of_large_inputs(q, e):
    """Where an exponential alone would overflow, the tangent is right or at its limit."""
    attention = AdditiveAttention(1)
    with torch.no_grad():
        for layer in (attention.project_query, attention.project_reference):
            layer.weight.fill_(1.0)
            layer.bias.zero_()
        attention.v.fill_(1.0)
    query = torch.tensor([[[q]]], requires_grad=True)
    score = attention(query, attention.project(torch.tensor([[[e]]])))
    score.backward()
    limit = max(-40.0, min(40.0, q)) + max(-40.0, min(40.0, e))
    assert score.item() == pytest.approx(math.tanh(limit), abs=1e-5)
    assert math.isfinite(query.grad.item())


# ---------------------------------------------------------------- the network by hand


def by_hand(policy: PointerNetworkPolicy, locs: torch.Tensor, tour: list[int], num_glimpses=1):
    """Log-probabilities of the steps of one tour, by an independent loop over cells."""
    decoder, encoder = policy.decoder, policy.encoder

    def cell(lstm: nn.LSTM) -> nn.LSTMCell:
        out = nn.LSTMCell(lstm.input_size, lstm.hidden_size)
        out.load_state_dict({k.removesuffix("_l0"): v for k, v in lstm.state_dict().items()})
        return out

    def attend(attention: AdditiveAttention, query: torch.Tensor) -> torch.Tensor:
        return plain_scores(attention, query.view(1, 1, -1), references.unsqueeze(0))[0, 0]

    inputs = [encoder.init_embedding.init_embed.weight @ point for point in locs]
    read, h, c = cell(encoder.lstm), torch.zeros(1, 6), torch.zeros(1, 6)
    outputs = []
    for x in inputs:
        h, c = read(x.unsqueeze(0), (h, c))
        outputs.append(h[0])
    references = torch.stack(outputs)  # [N, H]
    read, x, visited, result = cell(decoder.lstm), decoder.first_input, [], []
    for node in tour:
        h, c = read(x.unsqueeze(0), (h, c))
        query = h[0]
        for _ in range(num_glimpses):
            score = attend(decoder.glimpse, query)
            score[visited] = -torch.inf
            keys = decoder.glimpse.project_reference(references)
            query = score.softmax(0) @ keys
        logits = 10.0 * attend(decoder.pointer, query).tanh()
        logits[visited] = -torch.inf
        result.append(logits.log_softmax(0)[node])
        x, visited = inputs[node], [*visited, node]
    return torch.stack(result)


@pytest.mark.parametrize("num_glimpses", [0, 1, 2])
def test_likelihood_by_hand(env, num_glimpses):
    """Encoder, memory, glimpses and pointer; the first solution of two, to tell starts apart."""
    torch.manual_seed(2)
    policy = PointerNetworkPolicy(**TINY, num_glimpses=num_glimpses)
    td = env.reset(batch_size=2)
    tours = [[3, 0, 4, 1, 2], [0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 1, 3, 0]]  # row s * B + b
    out = policy(td, env, actions=torch.tensor(tours), return_sum_log_likelihood=False)
    with torch.no_grad():
        expected = [
            by_hand(policy, td["locs"][row % 2], tour, num_glimpses)
            for row, tour in enumerate(tours)
        ]
    torch.testing.assert_close(
        out["log_likelihood"].detach(), torch.stack(expected), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("env_cls", [TSPEnv, CVRPEnv, SHPPEnv])
def test_forced_starts_are_read(env_cls):
    """Multi-start: the LSTM reads what is forced (SHPP: the first node before the start, too)."""
    env = env_cls(generator_params={"num_loc": 6}, seed=2)
    policy, td = PointerNetworkPolicy(env_name=env.name, **TINY), env.reset(batch_size=3)
    with torch.no_grad():
        out = policy(
            td, env, decode_type="multistart_greedy", num_starts=2, return_sum_log_likelihood=False
        )
    whole = policy(td, env, actions=out["actions"], return_sum_log_likelihood=False)
    forced = 2 if env_cls is SHPPEnv else 1
    assert bool((out["log_likelihood"][:, :forced] == 0).all())
    torch.testing.assert_close(
        whole["log_likelihood"][:, forced:], out["log_likelihood"][:, forced:], atol=1e-5, rtol=1e-5
    )
    given = policy(td, env, actions=out["actions"], decode_type="multistart_greedy")
    torch.testing.assert_close(
        given["log_likelihood"], out["log_likelihood"].sum(-1), atol=1e-5, rtol=1e-5
    )


@torch.no_grad()
def test_beams_carry_their_memory(policy):
    """With a beam for every tour of four nodes, all 24 come out, each with its own likelihood."""
    env = TSPEnv(generator_params={"num_loc": 4}, seed=1)
    td = env.reset(batch_size=2)
    out = policy(td, env, decode_type="beam_search", beam_width=24)
    tours = out["actions"].unflatten(0, (24, 2))  # [W, B, T]
    likelihood = out["log_likelihood"].unflatten(0, (24, 2))
    assert torch.equal(likelihood.sort(0, descending=True).values, likelihood)
    for b in range(2):
        found = {tuple(tour.tolist()) for tour in tours[:, b]}
        assert found == set(itertools.permutations(range(4)))
        for w in (0, 11, 23):
            expected = by_hand(policy, td["locs"][b], tours[w, b].tolist()).sum()
            torch.testing.assert_close(likelihood[w, b], expected, atol=1e-5, rtol=1e-5)


def test_one_step_of_one_instance(policy):
    """A single node: nothing to read before the only action."""
    env = TSPEnv(generator_params={"num_loc": 1}, check_instance=False)
    out = policy(env.reset(batch_size=1), env)
    assert out["actions"].tolist() == [[0]]
    assert out["log_likelihood"].item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.numerical
@pytest.mark.parametrize("chunk", [None, 2])
def test_gradients_reach_everything(env, chunk):
    """Encoder and decoder, also when the replay is cut into pieces."""
    torch.manual_seed(0)
    policy = PointerNetworkPolicy(**TINY, replay_chunk=chunk)
    td = env.reset(batch_size=4)
    out = policy(td, env, num_samples=3, rng=torch.Generator().manual_seed(1))
    (out["log_likelihood"] * torch.linspace(-1, 1, 12)).sum().backward()
    assert all(bool(p.grad.any()) for p in policy.parameters())
    again = PointerNetworkPolicy(**TINY)
    again.load_state_dict(policy.state_dict())
    same = again.evaluate(td, out["actions"], env)["log_likelihood"]
    torch.testing.assert_close(same, out["log_likelihood"], atol=1e-5, rtol=1e-5)
    (same * torch.linspace(-1, 1, 12)).sum().backward()
    assert_same_gradients(policy, again)


def test_the_order_of_the_nodes_matters(env, policy):
    """It reads a sequence: other than an Attention Model it is not blind to the numbering."""
    td = env.reset(batch_size=1)
    swapped = env.reset(td.select("locs").apply(lambda locs: locs.flip(1)))
    tour = torch.tensor([[0, 1, 2, 3, 4]])
    there = policy(td, env, actions=tour)["log_likelihood"]
    back = policy(swapped, env, actions=4 - tour)["log_likelihood"]
    assert abs(float((there - back).detach())) > 1e-4


# ---------------------------------------------------------------- errors


def test_partial_solutions_raise(env, policy):
    """The LSTM's memory of the steps behind a state is not in the state."""
    td = env.reset(batch_size=2)
    td = env.step(td.update({"action": torch.tensor([1, 2])}))["next"]
    with pytest.raises(UnsupportedError, match="right after reset"):
        policy(td, env, calc_reward=False)


def test_actions_that_are_no_nodes_raise(env):
    class Pair(nn.Module):
        def forward(self, state):
            return state["locs"].new_ones(len(state["locs"]), 2, 8)

    policy = PointerNetworkPolicy(**TINY, init_embedding=Pair())
    with pytest.raises(UnsupportedError, match="5 actions and 2 nodes"):
        policy(env.reset(batch_size=3), env)


@pytest.mark.parametrize(
    "bad", [{"num_glimpses": -1}, {"embed_dim": 0}, {"hidden_dim": 0}, {"num_encoder_layers": 0}]
)
def test_bad_settings(bad):
    with pytest.raises(ConfigError, match="at least"):
        PointerNetworkPolicy(**bad)


# ---------------------------------------------------------------- critic, checkpoint, learning


def test_critic_by_hand(env, policy):
    """Two glimpses that start from the last state of the encoder."""
    critic = policy.make_critic(num_process_steps=2)
    assert isinstance(critic, PointerNetworkCritic)
    assert not set(critic.encoder.parameters()) & set(policy.parameters())
    td = env.reset(batch_size=3)
    with torch.no_grad():
        value = critic(td)
        references, (h, _) = critic.encoder.lstm(critic.encoder.init_embedding(td))
        keys = critic.process.project_reference(references)
        query = h[-1].unsqueeze(1)
        for _ in range(2):
            query = plain_scores(critic.process, query, references).softmax(-1) @ keys
        expected = critic.value_head(query[:, 0])[:, 0]
    torch.testing.assert_close(value, expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ConfigError, match="num_process_steps"):
        policy.make_critic(num_process_steps=-1)


def save(model: Any, path: Any) -> Any:
    """A checkpoint as Lightning writes it."""
    checkpoint = {"state_dict": model.state_dict(), "pytorch-lightning_version": "2"}
    model.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, path)
    return path


@pytest.mark.parametrize("baseline", ["rollout", "critic"])
def test_checkpoint(env, tmp_path, baseline):
    """The model comes back without help, its baseline included."""
    model = PointerNetwork(env, policy_kwargs=TINY, baseline=baseline)
    loaded = PointerNetwork.load_from_checkpoint(save(model, tmp_path / "last.ckpt"))
    td = env.reset(batch_size=4)
    with torch.no_grad():
        expected, out = model.policy(td, env, phase="test"), loaded.policy(td, env, phase="test")
    assert torch.equal(expected["actions"], out["actions"])
    assert loaded.state_dict().keys() == model.state_dict().keys()


@pytest.mark.learning
@pytest.mark.parametrize("name", ["tsp", "cvrp"])
def test_training_improves(name, require):
    """With a critic on the TSP."""
    torch.manual_seed(0)
    env = {"tsp": TSPEnv, "cvrp": CVRPEnv}[name](generator_params={"num_loc": 8})
    baseline = "critic" if name == "tsp" else "mean"
    model = PointerNetwork(env, policy_kwargs={"embed_dim": 32}, baseline=baseline, seed=2)
    first = env.reset(env.generator(128, rng=derive_generator("first")))
    with torch.no_grad():
        reward = model.policy(first, env, phase="train", rng=derive_generator("first"))["reward"]
    model.baseline.start(first, reward)  # as a trainer does
    ratio = cost_ratio(model, lambda: train_steps(model, 60, 128, 3e-3))
    require("cost after / before", ratio, below=0.92)
