"""MDAM: paths against single decoders, divergence and loss by hand, embedding glimpse, learning."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.ops import batchify
from rl4co.envs import CVRPEnv, SDVRPEnv, TSPEnv
from rl4co.models import MDAM, AttentionModelPolicy, MDAMPolicy, load_pretrained
from rl4co.models.rl.baselines import FrozenPolicy
from rl4co.models.rl.losses import path_divergence
from tests.learning import cost_ratio, train_steps
from tests.numerics import assert_same_gradients

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 2}
PATHS = 3


@pytest.fixture(params=[TSPEnv, CVRPEnv, SDVRPEnv])
def env(request):
    return request.param(generator_params={"num_loc": 7}, seed=1)


def make_policy(env_name: str = "tsp", **kwargs) -> MDAMPolicy:
    torch.manual_seed(0)
    settings = {"normalization": "instance", "num_paths": PATHS, **TINY, **kwargs}
    return MDAMPolicy(env_name=env_name, **settings).eval()


def single(policy: MDAMPolicy, path: int) -> AttentionModelPolicy:
    """One path as an Attention Model of its own."""
    return AttentionModelPolicy(
        encoder=policy.encoder, decoder=policy.decoder.paths[path], env_name=policy.env_name
    ).eval()


# ---------------------------------------------------------------- divergence


def test_divergence_pair_by_pair():
    """All ordered pairs; an action that none may take does not matter."""
    logits = torch.randn(4, 5, 6, dtype=torch.float64)
    logits[..., 2] = -torch.inf
    log_probs = logits.log_softmax(-1)
    expected = torch.zeros(5, dtype=torch.float64)
    for i in range(4):
        for j in range(4):
            for a in (0, 1, 3, 4, 5):
                p, q = log_probs[i, :, a].exp(), log_probs[j, :, a].exp()
                expected += p * (p / q).log() / 12 if i != j else 0.0
    torch.testing.assert_close(path_divergence(log_probs), expected)
    assert path_divergence(log_probs[:1]).tolist() == [0.0] * 5
    assert path_divergence(log_probs[:1].expand(3, -1, -1)).abs().max() < 1e-12


def test_divergence_has_a_gradient_where_actions_are_forbidden():
    logits = torch.randn(2, 1, 3, requires_grad=True)
    masked = torch.where(torch.tensor([True, True, False]), logits, -torch.inf)
    path_divergence(masked.log_softmax(-1)).sum().backward()
    assert bool(logits.grad.isfinite().all())
    assert logits.grad[..., 2].abs().max() == 0


def test_divergence_of_a_policy(env):
    """That of the single paths' distributions in the first step."""
    policy = make_policy(env.name)
    td = env.reset(batch_size=4)
    out = policy(td, env)
    log_probs = []
    for path in range(PATHS):
        alone = single(policy, path)
        hidden, _ = alone.encoder(td)
        state = {key: value.unsqueeze(1) for key, value in td.items()}
        logits = alone.decoder(state, alone.decoder.prepare(hidden, dict(td.items())))
        clipped = 10 * logits.tanh()
        log_probs.append(clipped.masked_fill(~state["action_mask"], -torch.inf).log_softmax(-1))
    expected = path_divergence(torch.stack(log_probs)).squeeze(-1)
    torch.testing.assert_close(out["divergence"], expected, atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        assert "divergence" not in policy(td, env)


# ---------------------------------------------------------------- paths


@torch.no_grad()
@pytest.mark.parametrize("decode_type", ["greedy", "multistart_greedy"])
def test_every_path_is_a_decoder_of_its_own(env, decode_type):
    """Row (s * P + p) * B + b is what the Attention Model with decoder p constructs."""
    policy = make_policy(env.name)
    td = env.reset(batch_size=4)
    out = policy(td, env, decode_type=decode_type)
    rewards = out["reward"].unflatten(0, (-1, PATHS, 4))  # [S, P, B]
    likelihoods = out["log_likelihood"].unflatten(0, (-1, PATHS, 4))
    for path in range(PATHS):
        alone = single(policy, path)(td, env, decode_type=decode_type)
        torch.testing.assert_close(rewards[:, path].flatten(), alone["reward"])
        torch.testing.assert_close(
            likelihoods[:, path].flatten(), alone["log_likelihood"], atol=1e-5, rtol=1e-5
        )
    assert rewards.std(1).max() > 1e-3, "paths differ"


@torch.no_grad()
def test_validation_is_the_best_of_paths(env):
    """... for each start or sample; the best of all with select_best."""
    policy = make_policy(env.name)
    td = env.reset(batch_size=4)
    for settings in ({"decode_type": "greedy"}, {"decode_type": "multistart_greedy"}):
        every = policy(td, env, **settings)
        by_path = every["reward"].unflatten(0, (-1, PATHS, 4))  # [S, P, B]
        best = policy(td, env, phase="test", **settings)
        assert torch.equal(best["reward"], by_path.amax(1).flatten())
        copies = batchify(td, len(best["reward"]) // 4)
        torch.testing.assert_close(env.get_reward(copies, best["actions"]), best["reward"])
        one = policy(td, env, select_best=True, **settings)
        assert torch.equal(one["reward"], by_path.amax((0, 1)))
        # Without rewards there is no best.
        blind = policy(td, env, phase="test", calc_reward=False, **settings)
        assert torch.equal(blind["actions"], every["actions"])


@torch.no_grad()
def test_evaluation_of_given_solutions():
    """Of all paths, row by row; or of any one, by the path that likes them most."""
    env = TSPEnv(generator_params={"num_loc": 7}, seed=1)
    policy = make_policy()
    td = env.reset(batch_size=4)
    out = policy(td, env, decode_type="sampling", num_samples=2)
    again = policy.evaluate(td, out["actions"], env)
    torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"], atol=1e-5, rtol=1e-5)
    given = out["actions"][:4]
    expected = torch.stack(
        [single(policy, p).evaluate(td, given, env)["log_likelihood"] for p in range(PATHS)]
    ).amax(0)
    found = policy.evaluate(td, given, env)
    torch.testing.assert_close(found["log_likelihood"], expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(found["actions"], given)


@pytest.mark.numerical
def test_replay_is_step_by_step(env):
    policy = make_policy(env.name)
    slow = copy.deepcopy(policy)
    kind = type(slow.decoder)
    slow.decoder.__class__ = type("Steps", (kind,), {"replay_keys": property(lambda _: None)})
    td = env.reset(batch_size=4)
    for each in (policy, slow):
        out = each(td, env, rng=torch.Generator().manual_seed(2))
        (out["log_likelihood"] * torch.linspace(-1, 1, PATHS * 4)).sum().backward()
    assert policy.decoder.replay_keys is not None
    assert_same_gradients(policy, slow)


def test_encoding_is_done_once_if_given():
    env = TSPEnv(generator_params={"num_loc": 7}, seed=1)
    policy, td = make_policy(), env.reset(batch_size=2)
    first = policy(td, env, phase="test", return_hidden=True, return_init_embeds=True)
    assert first["init_embeds"].shape == (2, 7, 16)
    torch.testing.assert_close(first["hidden"].nodes, policy.encoder(td)[0])
    policy.encoder.encode = None  # not called again
    again = policy(td, env, phase="test", hidden=first["hidden"])
    assert torch.equal(again["actions"], first["actions"])
    with pytest.raises(ConfigError, match="return_init_embeds=False"):
        policy(td, env, hidden=first["hidden"], return_init_embeds=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_paths": 0}, "num_paths"),
        ({"eg_step_gap": 0}, "eg_step_gap"),
        ({"num_encoder_layers": 0}, "num_layers"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_policy(**settings)


# ---------------------------------------------------------------- embedding glimpse


@torch.no_grad()
def test_glimpse_renormalises_the_attention():
    """Weights of the last layer over visible nodes only, divided by their sum; written out."""
    env = TSPEnv(generator_params={"num_loc": 6}, seed=1)
    policy, td = make_policy(), env.reset(batch_size=2)
    hidden, _ = policy.encoder.encode(td)
    visible = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)) > 0.4
    out = hidden.glimpse(visible)  # two rows per instance
    layer = policy.encoder.net.layers[-1]
    for row in range(4):
        below = hidden.below[row % 2]  # [N, D]
        q, k, v = layer.attention.Wqkv(below).chunk(3, -1)
        heads = []
        for head in range(2):
            part = slice(8 * head, 8 * head + 8)
            weights = (q[:, part] @ k[:, part].T / math.sqrt(8)).softmax(-1)  # [N, N]
            weights = weights * visible[row]
            heads.append(weights / weights.sum(-1, keepdim=True) @ v[:, part])
        h = below + layer.attention.out_proj(torch.cat(heads, -1))
        h = layer.norm_attention(h.unsqueeze(0))
        expected = layer.norm_feedforward(h + layer.feedforward(h)).squeeze(0)
        torch.testing.assert_close(out[row], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(hidden.glimpse(torch.ones(2, 6, dtype=torch.bool)), hidden.nodes)


def glimpsing_greedy(policy: MDAMPolicy, env, td, gap: int) -> tuple[Tensor, Tensor]:
    """Greedy actions and likelihoods `[P * B, ...]` of single decoders, embedded anew by hand."""
    all_actions, all_likelihoods = [], []
    for path in range(PATHS):
        decoder = policy.decoder.paths[path]
        hidden, _ = policy.encoder.encode(td)
        state, nodes, at_first = dict(td.items()), hidden.nodes, td["action_mask"]
        actions, likelihood = [], torch.zeros(len(td))
        while not bool(state["done"].all()):
            if actions and len(actions) % gap == 0:
                nodes = hidden.glimpse(state["action_mask"] | ~at_first)
            query_state = {key: value.unsqueeze(1) for key, value in state.items()}
            logits = decoder(query_state, decoder.prepare(nodes, state)).squeeze(1)
            logits = (10 * logits.tanh()).masked_fill(~state["action_mask"], -torch.inf)
            best = logits.log_softmax(-1).max(-1)
            likelihood += best.values
            actions.append(best.indices)
            state = env.advance(state, best.indices)
        all_actions.append(torch.stack(actions, -1))
        all_likelihoods.append(likelihood)
    length = max(a.shape[-1] for a in all_actions)
    padded = [torch.nn.functional.pad(a, (0, length - a.shape[-1])) for a in all_actions]
    return torch.cat(padded), torch.cat(all_likelihoods)


@torch.no_grad()
@pytest.mark.parametrize("gap", [1, 3])
def test_glimpse_every_few_steps(env, gap):
    policy = make_policy(env.name, eg_step_gap=gap)
    td = env.reset(batch_size=4)
    actions, likelihood = glimpsing_greedy(policy, env, td, gap)
    out = policy(td, env, decode_type="greedy")
    torch.testing.assert_close(out["log_likelihood"], likelihood, atol=1e-5, rtol=1e-5)
    assert torch.equal(out["reward"], env.get_reward(batchify(td, PATHS), actions))
    without = make_policy(env.name, eg_step_gap=None)(td, env, decode_type="greedy")
    assert not torch.equal(without["log_likelihood"], out["log_likelihood"])


@torch.no_grad()
def test_glimpse_with_several_solutions(env):
    """Each solution has embeddings of its own; beams take theirs along."""
    policy = make_policy(env.name, eg_step_gap=2)
    td = env.reset(batch_size=3)
    greedy = policy(td, env, decode_type="greedy")
    beam = policy(td, env, decode_type="beam_search", beam_width=1)
    torch.testing.assert_close(beam["log_likelihood"], greedy["log_likelihood"])
    for settings in ({"decode_type": "sampling", "num_samples": 2}, {"decode_type": "beam_search"}):
        out = policy(td, env, rng=None, **settings)
        again = policy.evaluate(td, out["actions"], env)
        torch.testing.assert_close(
            again["log_likelihood"], out["log_likelihood"], atol=1e-5, rtol=1e-5
        )


def test_short_solutions_replay():
    """No glimpse can come before the end: training computes all steps at once."""
    env = TSPEnv(generator_params={"num_loc": 7}, seed=1)
    for gap, replays in ((7, True), (6, False), (None, True)):
        policy = make_policy(eg_step_gap=gap)
        policy(env.reset(batch_size=2), env)["log_likelihood"].sum().backward()
        assert (policy.decoder.replay_keys is not None) is replays


def test_gradients_pass_through_a_glimpse():
    """Log-likelihoods of given actions: gradients reach the last layer through each embedding."""
    env = TSPEnv(generator_params={"num_loc": 5}, seed=1)
    policy = make_policy(eg_step_gap=2).double()
    td = env.reset(batch_size=2)
    actions = policy(td, env)["actions"]

    def likelihood() -> Tensor:
        return policy.evaluate(td, actions, env)["log_likelihood"].sum()

    likelihood().backward()
    weight = policy.encoder.net.layers[-1].feedforward.expand.weight
    with torch.no_grad():
        direction = torch.randn_like(weight)
        weight += 1e-5 * direction
        above = likelihood()
        weight -= 2e-5 * direction
        below = likelihood()
    slope = float((above - below) / 2e-5)
    assert float((weight.grad * direction).sum()) == pytest.approx(slope, rel=1e-3)


# ---------------------------------------------------------------- model


class FixedPolicy(torch.nn.Module):
    """Returns given rewards, likelihoods and divergences."""

    def __init__(self) -> None:
        super().__init__()
        self.log_likelihood = torch.nn.Parameter(torch.tensor([0.1, 0.2, 0.3, 0.4]))

    def forward(self, td, env, **kwargs):
        return {
            "reward": torch.tensor([1.0, 10.0, 3.0, 30.0]),
            "log_likelihood": self.log_likelihood + 0.0,
            "divergence": torch.tensor([2.0, 4.0]),
        }


def test_loss_by_hand():
    """Two paths, two instances: rewards (1, 3) and (10, 30), their mean 11 as baseline.

    Advantages -10, -1, -8, 19 times 0.1, 0.2, 0.3, 0.4: -1 - 0.2 - 2.4 + 7.6 = 4, so -4 / 4; the
    divergence 3 times 0.1 is subtracted.
    """
    env = TSPEnv(generator_params={"num_loc": 4})
    model = MDAM(env, FixedPolicy(), baseline="mean", kl_weight=0.1)
    out = model.shared_step(env.generate(2), 0, "train")
    assert out["loss"].item() == pytest.approx(-1.0 - 0.3)
    assert float(out["divergence"]) == pytest.approx(3.0)
    assert float(out["max_reward"]) == pytest.approx((3 + 30) / 2)
    with pytest.raises(ConfigError, match="kl_weight"):
        MDAM(env, FixedPolicy(), kl_weight=-1.0)


def test_divergence_grows_if_it_is_all_that_counts():
    """Descent on the auxiliary loss drives paths apart."""
    env = TSPEnv(generator_params={"num_loc": 6}, seed=1)
    model = MDAM(env, make_policy().train(), baseline="mean", kl_weight=100.0, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    batch, found = env.generate(16), []
    for _ in range(10):
        out = model.shared_step(batch, 0, "train")
        optimizer.zero_grad()
        out["loss"].backward()
        optimizer.step()
        found.append(float(out["divergence"]))
    assert found[-1] > 1.5 * found[0]


def test_rollout_baseline_is_the_best_path():
    """One greedy value per instance, compared with all of its paths."""
    env = TSPEnv(generator_params={"num_loc": 6}, seed=1)
    policy = make_policy()
    td = env.reset(batch_size=4)
    value = FrozenPolicy(policy).greedy_reward(td, env)
    with torch.no_grad():
        every = policy(td, env, decode_type="greedy")["reward"].view(PATHS, 4)
    assert torch.equal(value, every.amax(0))
    model = MDAM(env, policy, baseline_kwargs={"dataset_size": 8}, seed=3)
    model.baseline.alpha = 1.0  # after the warm-up
    out = model.shared_step(env.generate(4), 0, "train")
    assert bool(out["loss"].isfinite())


@torch.no_grad()
def test_saving_and_loading(tmp_path):
    env = CVRPEnv(generator_params={"num_loc": 6}, seed=1)
    policy = make_policy("cvrp", eg_step_gap=4)
    loaded = load_pretrained(policy.save_pretrained(tmp_path))
    td = env.reset(batch_size=3)
    expected, out = policy(td, env, phase="test"), loaded(td, env, phase="test")
    assert torch.equal(out["actions"], expected["actions"])
    assert torch.equal(out["log_likelihood"], expected["log_likelihood"])


@pytest.mark.learning
@pytest.mark.parametrize("gap", [200, 4], ids=["replay", "glimpse"])
def test_training_improves(gap, require):
    torch.manual_seed(0)
    env = TSPEnv(generator_params={"num_loc": 10})
    policy = {**TINY, "embed_dim": 32, "num_heads": 4, "num_paths": PATHS, "eg_step_gap": gap}
    model = MDAM(env, policy_kwargs=policy, baseline="mean", seed=2)
    ratio = cost_ratio(model, lambda: train_steps(model, 25, 64, 2e-3))
    require("cost after / before", ratio, below=0.9)
