"""EAS: loss and layer by hand, gradients of the trace against the replay's, imitation."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.envs import ATSPEnv, CVRPEnv, SDVRPEnv, TSPEnv
from rl4co.models import (
    EAS,
    AttentionModelPolicy,
    EASEmb,
    EASLay,
    MatNetPolicy,
    MVMoE_POMO,
    PolyNetPolicy,
)
from rl4co.models.rl.losses import eas_loss
from rl4co.models.zoo.eas.adaptation import ResidualLayer
from rl4co.models.zoo.eas.sampling import ImitatingSampling

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}
#: What is learnt → settings of EAS.
KINDS = {
    "layer": {"use_eas_layer": True, "use_eas_embedding": False},
    "logit keys": {},
    "layer and logit keys": {"use_eas_layer": True},
    "all embeddings": {"eas_emb_cache_keys": ("logit_key", "glimpse_key", "glimpse_val")},
}


@pytest.fixture(params=["tsp", "cvrp"])
def env(request):
    return {"tsp": TSPEnv, "cvrp": CVRPEnv}[request.param](generator_params={"num_loc": 6})


def make_policy(env, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return AttentionModelPolicy(env_name=env.name, **{**TINY, **kwargs})


def draw(env, number=2, seed=3):
    return env.generator(number, rng=torch.Generator().manual_seed(seed))


def start(env, policy=None, data=None, **kwargs):
    """A search with two copies of two instances, moved away from its beginning."""
    model = EAS(env, policy or make_policy(env), augment_size=2, seed=5, **kwargs)
    search = model.start_search(env.reset(draw(env) if data is None else data))
    rng = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in search.adapted.parameters():
            # [K * B, ...]: the same for both instances of a copy
            half = torch.randn(parameter[::2].shape, generator=rng)
            parameter.add_(0.3 * half.repeat_interleave(2, 0)[: len(parameter)])
    return search


def sample(search, incumbent=None, seed=9):
    """Candidates and the gradients of all parameters."""
    for parameter in search.adapted.parameters():
        parameter.grad = None
    found = search.sample(incumbent, torch.Generator().manual_seed(seed))
    found.loss.backward()
    return found, {name: p.grad for name, p in search.adapted.named_parameters()}


# ---------------------------------------------------------------- beam searches


def test_beam_search_with_the_adapted_policy(env):
    """With all actions as expansions and beams, the search enumerates: nothing is better."""
    search = start(env, beam_interval=2, num_beams=720, expansion=7)
    assert search.intensify(0) is None
    actions, rewards = search.intensify(1)  # [B, K, T], [B, K]
    td = env.reset(draw(env))
    for copy in range(2):
        torch.testing.assert_close(env.get_reward(td, actions[:, copy]), rewards[:, copy])
    sampled, _ = sample(search)
    assert (rewards.amin(1) >= sampled.rewards.amax(1) - 1e-6).all()
    beams = {"beam_interval": 1, "num_beams": 720, "expansion": 7}
    model = EAS(env, make_policy(env), draw(env), max_iters=1, augment_size=1, **beams)
    torch.testing.assert_close(model.search().rewards, rewards.amax(1))


# ---------------------------------------------------------------- by hand


def test_loss_by_hand():
    """Two rows, two solutions each.

    Row 0: advantages (1, -1), log-likelihoods (-2, -3): -(1 * -2 + -1 * -3) / 2 = -0.5.
    Row 1: advantages (2, -2), log-likelihoods (-1, -5): -(2 * -1 + -2 * -5) / 2 = -4.
    Imitation with weight 0.1: -0.1 * (-6 - 4) = 1. Sum -3.5; without imitation -4.5.
    """
    advantage = torch.tensor([[1.0, -1.0], [2.0, -2.0]])
    likelihood = torch.tensor([[-2.0, -3.0], [-1.0, -5.0]])
    loss = eas_loss(advantage, likelihood, torch.tensor([-6.0, -4.0]), 0.1)
    assert float(loss) == pytest.approx(-3.5)
    assert float(eas_loss(advantage, likelihood, None, 0.1)) == pytest.approx(-4.5)
    assert float(eas_loss(advantage[:1], likelihood[:1], None, 0.1)) == pytest.approx(-0.5)
    with pytest.raises(ConfigError, match="same shape"):
        eas_loss(advantage[:, :1], likelihood, None, 0.1)


@torch.no_grad()
def test_layer_by_loops():
    """h + ReLU(h W1 + b1) W2 + b2 with weights of each row's own; nothing at first."""
    layer = ResidualLayer(2, 2, 3, torch.Generator().manual_seed(0))
    heads = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(layer(heads), heads)
    assert torch.equal(layer.first[0], layer.first[1]), "instances of a copy begin alike"
    assert not torch.equal(layer.first[0], layer.first[2])
    for parameter in layer.parameters():
        parameter.normal_(generator=torch.Generator().manual_seed(2))
    out = layer(heads)
    for row in range(4):
        for q in range(5):
            h = heads[row, q]
            hidden = [
                max(0.0, float(h @ layer.first[row, :, j] + layer.first_bias[row, 0, j]))
                for j in range(3)
            ]
            for j in range(3):
                change = sum(hidden[i] * float(layer.second[row, i, j]) for i in range(3))
                expected = float(h[j]) + change + float(layer.second_bias[row, 0, j])
                assert float(out[row, q, j]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("baseline", "axes"), [("multistart", (2,)), ("symmetric", (1,)), ("full", (1, 2))]
)
def test_baselines(baseline, axes):
    """The loss recomputed from the policy's own output."""
    env = TSPEnv(generator_params={"num_loc": 6})
    search = start(env, baseline=baseline, **KINDS["layer"])
    found, _ = sample(search)
    solved = search.copies.solve(
        search.policy, hidden=search.cache, instances=2, rng=torch.Generator().manual_seed(9)
    )
    assert torch.equal(solved.rewards.flatten(1), found.rewards)
    likelihood = solved.log_likelihood.detach()
    expected = 0.0
    count = {"multistart": 6, "symmetric": 2, "full": 12}[baseline]
    for b in range(2):
        for k in range(2):
            for s in range(6):
                others = solved.rewards[b, k if 1 not in axes else slice(None)]
                others = others[..., s if 2 not in axes else slice(None)]
                assert others.numel() == count
                advantage = float(solved.rewards[b, k, s] - others.mean())
                expected -= advantage * float(likelihood[b, k, s]) / 6
    assert float(found.loss.detach()) == pytest.approx(expected, abs=1e-4)


# ---------------------------------------------------------------- gradients


@pytest.mark.numerical
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_incumbent", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"tanh_clipping": 0.0}, {"temperature": 2.0}, {"out_bias_pointer_attn": True}],
    ids=str,
)
def test_pieces_of_the_replay_agree(env, kind, with_incumbent, settings):
    """The same solutions, loss and gradients all at once and in pieces."""
    results = []
    incumbent = None
    if with_incumbent:
        first, _ = sample(start(env, make_policy(env, **settings), **KINDS[kind]), seed=1)
        incumbent = first.actions[:, 3]
    for chunk in (None, 2):
        policy = make_policy(env, replay_chunk=chunk, **settings)
        results.append(sample(start(env, policy, **KINDS[kind]), incumbent))
    (found, gradients), (other, theirs) = results
    assert all(bool((gradient != 0).any()) for gradient in gradients.values())
    assert torch.equal(found.actions, other.actions)
    torch.testing.assert_close(found.loss, other.loss, atol=1e-4, rtol=1e-4)
    for name, gradient in gradients.items():
        # Sums over steps and starts: their rounding is that of the largest gradient.
        scale = float(gradient.abs().max())
        torch.testing.assert_close(
            gradient, theirs[name], atol=1e-4 * max(1.0, scale), rtol=1e-3, msg=name
        )


@pytest.mark.parametrize("kind", KINDS)
def test_begins_as_the_policy(env, kind):
    """Before anything is learnt, likelihoods are those of the pretrained policy."""
    policy = make_policy(env).eval()
    model = EAS(env, policy, augment_size=1, seed=5, **KINDS[kind])
    td = env.reset(draw(env))
    search = model.start_search(td)
    solved = search.copies.solve(
        search.policy, hidden=search.cache, instances=2, rng=torch.Generator()
    )
    count = search.copies.num_solutions
    rows = solved.actions[:, 0].transpose(0, 1).flatten(0, 1)  # [S * B, T]
    expected = policy(td, env, actions=rows, decode_type="multistart_sampling")
    torch.testing.assert_close(
        solved.log_likelihood[:, 0].t().flatten(), expected["log_likelihood"], atol=1e-4, rtol=1e-4
    )
    assert solved.rewards.shape == (2, 1, count)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_instances_are_separate(env, kind):
    """Another second instance changes nothing for the first."""
    data, other = draw(env), draw(env, seed=4)
    other["locs"][0] = data["locs"][0]
    for key in data.keys():
        other[key][0] = data[key][0]
    _, ours = sample(start(env, data=data, **KINDS[kind]))
    _, theirs = sample(start(env, data=other, **KINDS[kind]))
    for name, gradient in ours.items():
        for copy in range(2):  # row k * B + b
            torch.testing.assert_close(
                gradient[2 * copy], theirs[name][2 * copy], atol=1e-5, rtol=1e-4
            )
        assert not torch.allclose(gradient[1], theirs[name][1], atol=1e-5), name


# ---------------------------------------------------------------- imitation


def test_last_solution_follows_the_incumbent(env):
    """Also where it has ended before the others; its likelihood is that of its actions."""
    search = start(env, **KINDS["layer"])
    first, _ = sample(search, seed=1)
    incumbent = first.actions[:, 4]  # [B, T]
    padded = torch.nn.functional.pad(incumbent, (0, 3), value=-1)
    solved = search.copies.solve(
        search.policy, padded, hidden=search.cache, instances=2,
        rng=torch.Generator().manual_seed(2),
    )  # fmt: skip
    count = search.copies.num_solutions
    assert solved.actions.shape[2] == count + 1
    length = min(incumbent.shape[1], solved.actions.shape[-1])
    for k in range(2):
        assert torch.equal(solved.actions[:, k, -1, :length], incumbent[:, :length])
    td = env.reset(draw(env))
    expected = env.get_reward(td, incumbent)
    torch.testing.assert_close(solved.rewards[:, 0, -1], expected)


def test_imitation_makes_the_incumbent_likely(env):
    """With hardly anything but imitation, its log-likelihood goes up."""
    model = EASLay(env, make_policy(env), draw(env), augment_size=2, seed=5, eas_lambda=1e4)
    search = model.start_search(env.reset(draw(env)))
    optimizer = torch.optim.Adam(search.adapted.parameters(), lr=0.05)
    incumbent = search.sample(None, torch.Generator().manual_seed(0)).actions[:, 0]
    likelihoods = []
    for step in range(25):
        solved = search.copies.solve(
            search.policy, incumbent, hidden=search.cache, instances=2,
            rng=torch.Generator().manual_seed(step),
        )  # fmt: skip
        likelihoods.append(float(solved.log_likelihood[..., -1].mean().detach()))
        optimizer.zero_grad()
        search.sample(incumbent, torch.Generator().manual_seed(step)).loss.backward()
        optimizer.step()
    assert likelihoods[-1] > likelihoods[0] + 0.5
    assert likelihoods[-1] <= 0


def test_instances_share_random_numbers():
    """Rows of the same copy draw by the same numbers; other copies and solutions by others."""
    logits = torch.zeros(6, 4, 50)  # K = 3 copies of B = 2 instances
    drawn = ImitatingSampling(batch=2, rng=torch.Generator().manual_seed(0)).choose(logits, 0, {})
    rows = drawn.view(3, 2, 4)
    assert torch.equal(rows[:, 0], rows[:, 1])
    assert len(set(rows[:, 0].flatten().tolist())) > 6


# ---------------------------------------------------------------- other policies


def test_changing_embeddings():
    """SDVRP, whose keys change at every step, goes by the replay; both kinds learn."""
    env = SDVRPEnv(generator_params={"num_loc": 5})
    for kind in KINDS:
        search = start(env, **KINDS[kind])
        _, gradients = sample(search)
        assert all(bool((gradient != 0).any()) for gradient in gradients.values())
    result = EASLay(env, make_policy(env), draw(env), max_iters=3, augment_size=2).search()
    assert bool(result.rewards.isfinite().all())


def test_experts():
    """A decoder with experts has no output projection: its layer learns, its keys do not."""
    env = TSPEnv(generator_params={"num_loc": 5})
    policy = MVMoE_POMO(env, policy_kwargs=TINY).policy
    if type(policy.decoder).prepare is make_policy(env).decoder.prepare.__func__:
        pytest.skip("no experts in this decoder")
    result = EASLay(env, policy, draw(env), max_iters=2, augment_size=2).search()
    assert bool(result.rewards.isfinite().all())
    with pytest.raises(UnsupportedError, match="use EASLay or ActiveSearch"):
        EASEmb(env, policy, draw(env))


@pytest.mark.parametrize("cls", [EASEmb, EASLay])
def test_decoders_with_a_memory_raise(env, cls):
    """PolyNet's solutions remember the strategy that they follow."""
    policy = PolyNetPolicy(k=2, env_name=env.name, poly_layer_dim=8, **TINY)
    with pytest.raises(UnsupportedError, match="PolyNetDecoder"):
        cls(env, policy, draw(env))


def test_embeddings_of_matnet():
    """Keys from the columns of a matrix learn like those of coordinates."""
    env = ATSPEnv(generator_params={"num_loc": 5}, seed=0)
    policy = MatNetPolicy(**{**TINY, "num_encoder_layers": 2}).eval()
    data = env.generator(2)
    found = EASEmb(env, policy, data, max_iters=4, seed=1).search()
    start = policy(env.reset(data), env, decode_type="multistart_greedy", select_best=True)
    assert bool((found.rewards >= start["reward"] - 1e-5).all())


def test_policies_that_cannot_replay_raise(env):
    policy = make_policy(env)
    policy.decoder.context_embedding.state_keys = None
    with pytest.raises(UnsupportedError, match="replay_keys None"):
        EASLay(env, policy, draw(env))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"use_eas_embedding": False}, ConfigError, "got neither"),
        ({"eas_lambda": -1.0}, ConfigError, "eas_lambda of at least 0"),
        ({"eas_emb_cache_keys": ()}, ConfigError, "list of embeddings"),
        ({"eas_emb_cache_keys": "logit_key"}, ConfigError, "list of embeddings"),
        ({"eas_emb_cache_keys": ("logit",)}, UnknownNameError, "did you mean 'logit_key'"),
        ({"baseline": "rollout"}, UnknownNameError, "multistart"),
        ({"beam_interval": 0}, ConfigError, "beam_interval"),
        ({"beam_interval": 5, "expansion": 0}, ConfigError, "expansion"),
    ],
)
def test_bad_settings(settings, error, message):
    env = TSPEnv(generator_params={"num_loc": 5})
    with pytest.raises(error, match=message):
        EAS(env, make_policy(env), draw(env), **settings)


def test_names_say_what_is_learnt():
    env = TSPEnv(generator_params={"num_loc": 5})
    td = env.reset(draw(env))
    layer = EASLay(env, make_policy(env)).start_search(td).adapted
    embedding = EASEmb(env, make_policy(env)).start_search(td).adapted
    assert sorted(name for name, _ in layer.named_parameters()) == [
        "layer.first", "layer.first_bias", "layer.second", "layer.second_bias",
    ]  # fmt: skip
    assert [tuple(p.shape) for p in embedding.parameters()] == [(16, 5, 16)]
    assert layer.layer.first.shape == (16, 16, 16)
