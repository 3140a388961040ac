"""ReLD: logits by hand, replay against single steps, sizes that change from batch to batch."""

from __future__ import annotations

import math

from typing import Any

import pytest
import torch

from tensordict import TensorDict

from rl4co import kernels
from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.registry import MODELS
from rl4co.envs import CVRPEnv, CVRPXGenerator, MixedSizeGenerator, OPEnv, TSPEnv
from rl4co.models import AttentionModelPolicy, ReLD, ReLDPolicy
from tests.learning import cost_ratio, train_steps

TINY = {
    "embed_dim": 16,
    "num_heads": 2,
    "feedforward_hidden": 16,
    "num_encoder_layers": 1,
    "refinement_hidden": 8,
}


@pytest.fixture(params=["tsp", "cvrp"])
def env(request):
    cls = {"tsp": TSPEnv, "cvrp": CVRPEnv}[request.param]
    return cls(generator_params={"num_loc": 7}, seed=3)


def make_policy(env_name: str, **kwargs: Any) -> ReLDPolicy:
    torch.manual_seed(0)
    return ReLDPolicy(env_name, **{**TINY, **kwargs})


@torch.no_grad()
@pytest.mark.parametrize("enabled", [True, False])
def test_logits_by_hand(env, enabled):
    """Glimpse, last node, load, feed-forward layer and bias, for one query at a time."""
    policy = make_policy(env.name).eval()
    decoder, td = policy.decoder, env.reset(batch_size=2)
    td = env.step(td.update({"action": torch.tensor([1, 4])}))["next"]
    hidden, _ = policy.encoder(td)
    state = {key: value.unsqueeze(1) for key, value in td.items()}  # one query per instance
    if enabled:
        logits = decoder(state, decoder.prepare(hidden, dict(td.items())))
    else:
        with kernels.disabled():
            logits = decoder(state, decoder.prepare(hidden, dict(td.items())))
    for b, last in enumerate([1, 4]):
        key, value, logit_key = decoder.project_node_embeddings(hidden[b]).chunk(3, -1)
        node = hidden[b, last]
        if env.name == "tsp":
            inputs, added = torch.cat([node, node]), node
        else:
            load = 1.0 - td["used_capacity"][b]
            inputs, added = torch.cat([node, load]), node + decoder.project_features(load)
        query = decoder.context_embedding.project_context(inputs)
        heads = []
        for part in (slice(0, 8), slice(8, 16)):
            score = key[:, part] @ query[part] / math.sqrt(8)
            score[~td["action_mask"][b]] = -torch.inf
            heads.append(score.softmax(0) @ value[:, part])
        glimpse = decoder.pointer.project_out(torch.cat(heads)) + added
        layer = decoder.feedforward
        refined = glimpse + layer.contract(layer.expand(glimpse).relu())
        distance = (td["locs"][b] - td["locs"][b, last]).norm(dim=-1)
        distance[last] = 1.0
        expected = logit_key @ refined / math.sqrt(16) - distance.log()
        torch.testing.assert_close(logits[b, 0], expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_no_bias_before_the_first_node():
    """A tour may begin anywhere: node 0, the current node of a fresh state, is not special."""
    env, policy = TSPEnv(generator_params={"num_loc": 6}, seed=1), make_policy("tsp").eval()
    td = env.reset(batch_size=2)
    state = {key: value.unsqueeze(1) for key, value in td.items()}
    cache = policy.decoder.prepare(policy.encoder(td)[0], dict(td.items()))
    assert torch.equal(policy.decoder._bias(state, cache), torch.zeros(2, 1, 6))


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("decode_type", ["sampling", "multistart_sampling"])
def test_replay_equals_single_steps(env, batch, enabled, decode_type):
    """Log-likelihoods of all steps at once are those of the decode loop, with gradients."""
    policy, td = make_policy(env.name).eval(), env.reset(batch_size=batch)

    def compare() -> None:
        with torch.no_grad():
            out = policy(td, env, decode_type=decode_type)
        again = policy(td, env, decode_type=decode_type, actions=out["actions"])
        torch.testing.assert_close(
            again["log_likelihood"], out["log_likelihood"], atol=1e-4, rtol=1e-4
        )
        again["log_likelihood"].sum().backward()
        weights = dict(policy.decoder.named_parameters())
        for name in ("feedforward.expand.weight", "pointer.project_out.weight"):
            assert float(weights[name].grad.abs().max()) > 0

    if enabled:
        compare()
    else:
        with kernels.disabled():
            compare()


@torch.no_grad()
def test_kernels_change_nothing(env):
    policy, td = make_policy(env.name).eval(), env.reset(batch_size=3)
    fast = policy(td, env, decode_type="greedy")
    with kernels.disabled():
        plain = policy(td, env, decode_type="greedy")
    assert torch.equal(fast["actions"], plain["actions"])
    torch.testing.assert_close(
        fast["log_likelihood"], plain["log_likelihood"], atol=1e-5, rtol=1e-5
    )


@torch.no_grad()
def test_matrix_and_coincident_nodes():
    """Distances come from the matrix where there is one; equal places have finite logits."""
    locs = torch.rand(2, 5, 2, generator=torch.Generator().manual_seed(0))
    locs[:, 3] = locs[:, 1]
    env, policy = TSPEnv(), make_policy("tsp").eval()
    td = env.reset(TensorDict({"locs": locs}, batch_size=2))
    cache = policy.decoder.prepare(policy.encoder(td)[0], dict(td.items()))
    assert bool(cache.log_distance.isfinite().all())
    matrix = torch.cdist(locs, locs)
    given = policy.decoder._log_distance({"cost_matrix": 10 * matrix})
    expected = (matrix / matrix.amax((1, 2), keepdim=True)).clamp_min(1e-6).log()
    expected = expected.masked_fill(torch.eye(5, dtype=torch.bool), 0.0)
    torch.testing.assert_close(given, expected)


def test_options_of_the_attention_model():
    """Both options work alone; the plain decoder is not touched by them."""
    plain = AttentionModelPolicy(embed_dim=16, num_heads=2)
    bias = AttentionModelPolicy(embed_dim=16, num_heads=2, distance_bias=True)
    assert plain.state_dict().keys() == bias.state_dict().keys()
    env = TSPEnv(generator_params={"num_loc": 5}, seed=0)
    td = env.reset(batch_size=2)
    assert bias(td, env)["log_likelihood"].requires_grad
    refined = AttentionModelPolicy(embed_dim=16, num_heads=2, refinement_hidden=4)
    assert refined(td, env)["log_likelihood"].requires_grad


def test_bad_combinations_raise():
    with pytest.raises(ConfigError, match="experts"):
        AttentionModelPolicy(distance_bias=True, moe_kwargs={"decoder": {"num_experts": 2, "k": 1}})
    with pytest.raises(ConfigError, match="refinement_hidden"):
        ReLDPolicy(refinement_hidden=0)
    with pytest.raises(UnsupportedError, match="ReLD"):
        ReLD(OPEnv())


def test_is_pomo_with_another_policy(env):
    assert MODELS["reld"] is ReLD
    policy = ReLD(env).policy
    assert isinstance(policy, ReLDPolicy)
    assert policy.tanh_clipping == 50.0
    assert len(policy.encoder.net.layers) == 6


def test_checkpoints_hold_sizes_of_network_and_instances(tmp_path):
    """A checkpoint rebuilds policy and generator from its record, without being passed either."""
    env = CVRPEnv(generator=MixedSizeGenerator(CVRPXGenerator(), 5, 9))
    model = ReLD(env, policy_kwargs=TINY, seed=1)
    checkpoint = {"state_dict": model.state_dict(), "pytorch-lightning_version": "2"}
    model.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "last.ckpt")
    loaded = ReLD.load_from_checkpoint(tmp_path / "last.ckpt")
    assert loaded.policy.decoder.feedforward.expand.out_features == 8
    generator = loaded.env.generator
    assert isinstance(generator, MixedSizeGenerator)
    assert isinstance(generator.generator, CVRPXGenerator)
    assert (generator.min_size, generator.max_size) == (5, 9)


def test_learns(env):
    """Sampled solutions from all starts become shorter within seconds."""
    torch.manual_seed(0)
    kwargs = {**TINY, "embed_dim": 32, "feedforward_hidden": 32, "distance_bias": False}
    model = ReLD(env, policy_kwargs=kwargs, seed=2)
    ratio = cost_ratio(
        model, lambda: train_steps(model, 40, 32, 3e-3), decode_type="multistart_sampling"
    )
    assert ratio < 0.95
