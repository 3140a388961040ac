"""Mixtures of experts: gates and experts in loops, routing, the loss that balances, learning."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.envs import CVRPEnv, SDVRPEnv, TSPEnv
from rl4co.models import (
    POMO,
    AttentionModel,
    AttentionModelPolicy,
    MVMoE_AM,
    MVMoE_POMO,
    load_pretrained,
)
from rl4co.models.nn.moe import (
    Gate,
    MoE,
    MoEConfig,
    RoutingSession,
    balance_loss,
    chance_of_top_k,
)
from rl4co.models.zoo.mvmoe.model import DEFAULT_EXPERTS
from tests.learning import cost_ratio, train_steps
from tests.numerics import assert_same_gradients

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}
FULL = {"encoder": {"num_experts": 4, "k": 2}, "decoder": {"num_experts": 4, "k": 2}}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def trained_gates(module: nn.Module) -> nn.Module:
    """Weights that tell tokens apart: gates start at zero."""
    for gate in module.modules():
        if isinstance(gate, Gate):
            nn.init.normal_(gate.w_gate)
            if gate.w_noise is not None:
                nn.init.normal_(gate.w_noise)
    return module


def make_policy(
    env_name: str = "cvrp", moe_kwargs=DEFAULT_EXPERTS, **kwargs
) -> AttentionModelPolicy:
    options = {"normalization": "instance", "moe_kwargs": moe_kwargs, **TINY, **kwargs}
    policy = AttentionModelPolicy(env_name=env_name, **options)
    return trained_gates(policy)


# ---------------------------------------------------------------- layer


def expert(moe: MoE, e: int, x: Tensor) -> Tensor:
    """One expert's network, written out."""
    for layer, weight in enumerate(moe.weights):
        x = x if layer == 0 else x.clamp_min(0.0)
        x = x @ weight[e]
        if layer < len(moe.biases):
            x = x + moe.biases[layer][e]
    return x


@pytest.mark.parametrize("hidden", [12, None], ids=["network", "linear"])
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("out_bias", [True, False])
def test_experts_token_by_token(hidden, k, out_bias):
    """Softmax over the k largest logits, times the experts' results; for any leading axes."""
    moe = trained_gates(MoE(6, 5, hidden, MoEConfig(k=k, out_bias=out_bias))).double().eval()
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    out = moe(x)
    assert out.shape == (2, 3, 5)
    for b in range(2):
        for n in range(3):
            logits = (moe.gate.w_gate @ x[b, n]).tolist()
            chosen = sorted(range(4), key=lambda e: -logits[e])[:k]
            total = sum(math.exp(logits[e]) for e in chosen)
            expected = sum(math.exp(logits[e]) / total * expert(moe, e, x[b, n]) for e in chosen)
            torch.testing.assert_close(out[b, n], expected)


@pytest.mark.parametrize("hidden", [12, None], ids=["network", "linear"])
def test_sorted_and_all_experts_agree(hidden):
    """Results and gradients of the two ways to compute the same."""
    moe = trained_gates(MoE(6, 6, hidden, MoEConfig())).double().eval()
    x = torch.randn(40, 6, dtype=torch.float64, requires_grad=True)
    grads = []
    for mix in (moe.mix, moe._mix_all):
        out = mix(x, *moe.gate(x, None))
        tensors = [x, *moe.parameters()]
        found = torch.autograd.grad(out.square().sum(), tensors, allow_unused=True)
        grads.append([out, *(g for g in found if g is not None)])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_an_expert_without_tokens():
    """... gives nothing and takes no gradient."""
    moe = MoE(4, 4, 8, MoEConfig(num_experts=3, k=1))
    with torch.no_grad():
        moe.gate.w_gate.copy_(torch.eye(3, 4))
    out = moe.eval()(torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]))
    out.sum().backward()
    used = moe.weights[0].grad.flatten(1).abs().amax(-1)
    assert bool(used[0] > 0) and bool(used[1] > 0) and used[2] == 0


@pytest.mark.parametrize("hidden", [8, None], ids=["network", "linear"])
def test_no_tokens(hidden):
    """... as when no instance of a batch takes the way to the experts."""
    moe = MoE(4, 5, hidden, MoEConfig())
    moe.gate.session = session = RoutingSession()
    out = moe(torch.empty(0, 3, 4), torch.empty(0, 1, 4))
    assert out.shape == (0, 3, 5)
    assert session.loss() is None


def test_expert_choice_by_hand():
    """Of each instance's five tokens, three experts take ceil(5 / 3) = 2 each, k = 1."""
    config = MoEConfig(num_experts=3, k=1, routing_method="expert_choice")
    moe = trained_gates(MoE(4, 4, None, config)).double().requires_grad_(False)
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    out = moe(x)
    expected = torch.zeros_like(out)
    for b in range(2):
        scores = (x[b] @ moe.gate.w_gate.T).softmax(-1)  # [N, E]
        for e in range(3):
            for n in sorted(range(5), key=lambda n: -float(scores[n, e]))[:2]:
                expected[b, n] += scores[n, e] * expert(moe, e, x[b, n])
    torch.testing.assert_close(out, expected)


# ---------------------------------------------------------------- gate and balance


def test_noise_of_the_gate():
    """Logits x W_g + noise * (softplus(x W_n) + 0.01), in training alone."""
    gate = trained_gates(Gate(3, MoEConfig(num_experts=5, k=2)))
    x, noise = torch.randn(4, 3), torch.randn(4, 5)
    logits = x @ gate.w_gate.T + noise * ((x @ gate.w_noise.T).exp().log1p() + 0.01)
    experts, weights = gate(x, noise)
    best = logits.topk(2)
    assert torch.equal(experts, best.indices)
    torch.testing.assert_close(weights, best.values.softmax(-1))
    assert gate.draw(x, 4).shape == (4, 5)
    assert gate.eval().draw(x, 4) is None
    assert Gate(3, MoEConfig(noisy_gating=False)).draw(x, 4) is None


def test_fresh_gates_use_all_experts():
    """Zero weights: the noise alone decides, so that all are used about equally often."""
    gate = Gate(3, MoEConfig())
    experts, _ = gate(torch.randn(4000, 3), torch.randn(4000, 4))
    counts = experts.flatten().bincount(minlength=4)
    assert bool(((counts - 2000).abs() < 150).all())  # standard deviation 32


def test_chance_of_top_k():
    """With its noise drawn anew: compared with an empirical frequency."""
    clean, spread = torch.tensor([0.3, -0.2, 0.5, 0.0]), torch.tensor([0.5, 1.0, 0.3, 0.8])
    logits = clean + torch.tensor([0.2, 1.0, -0.4, -0.3]) * spread
    k = 2
    chance = chance_of_top_k(clean, logits, spread, logits.topk(k + 1).values[k - 1 :])
    for i in range(4):
        redrawn = logits.expand(40_000, 4).clone()
        redrawn[:, i] = clean[i] + torch.randn(40_000) * spread[i]
        frequency = (redrawn.topk(k).indices == i).any(-1).float().mean()
        assert float(chance[i]) == pytest.approx(float(frequency), abs=0.01)


def test_balance_loss_by_hand():
    """(1, 3): mean 2, variance 2, so 2 / 4; (2, 2) adds nothing; scale does not matter."""
    usage = torch.tensor([[1.0, 3.0], [2.0, 2.0]])
    assert float(balance_loss(usage)) == pytest.approx(0.5)
    assert float(balance_loss(10 * usage)) == pytest.approx(0.5)


def test_recorded_usage():
    """Importance is the sum of weights, load the sum of chances; sums over calls, then the loss."""
    gate = trained_gates(Gate(3, MoEConfig(num_experts=4, k=2, loss_coef=0.5)))
    gate.session = session = RoutingSession()
    usages = []
    for _ in range(2):
        x, noise = torch.randn(6, 3), torch.randn(6, 4)
        experts, weights = gate(x, noise)
        importance = torch.zeros(4)
        for row in range(6):
            for j in range(2):
                importance[experts[row, j]] += weights[row, j].detach()
        spread = torch.nn.functional.softplus(x @ gate.w_noise.T) + 0.01
        logits = x @ gate.w_gate.T + noise * spread
        border = logits.sort(-1, descending=True).values[:, 1:3]
        load = chance_of_top_k(x @ gate.w_gate.T, logits, spread, border).sum(0)
        usages.append(torch.stack([importance, load]))
    total = usages[0] + usages[1]
    expected = sum(0.5 * row.var() / row.mean() ** 2 for row in total)
    torch.testing.assert_close(session.loss(), expected)
    with torch.no_grad():
        gate(x, noise)
    assert len(session.usage[gate]) == 2, "nothing is recorded without gradients"


def test_balancing_balances():
    """Descent on the loss alone spreads tokens that all preferred one expert."""
    gate = Gate(3, MoEConfig(k=1, loss_coef=1.0))
    with torch.no_grad():
        gate.w_gate[0] = 1.0
    x = torch.rand(256, 3) + 0.5
    optimizer = torch.optim.Adam(gate.parameters(), 0.05)
    share = []
    for _ in range(40):
        gate.session = session = RoutingSession()
        experts, _ = gate(x, torch.randn(256, 4))
        share.append(float((experts == 0).float().mean()))
        optimizer.zero_grad()
        session.loss().backward()
        optimizer.step()
    assert share[0] > 0.7
    assert share[-1] < 0.4


# ---------------------------------------------------------------- policy


def written_out(
    policy: AttentionModelPolicy, hidden: Tensor, state, cache, to_experts: Tensor | None
) -> Tensor:
    """Logits of one query per instance with nothing folded and nothing sorted."""
    decoder = policy.decoder
    query = decoder._query(state, cache)
    heads = decoder.pointer.glimpse(
        query, cache.glimpse_key, cache.glimpse_value, state["action_mask"]
    )
    rows = []
    for b, g in enumerate(heads[:, 0]):
        logits = decoder.experts.gate.w_gate @ g
        best = logits.topk(2)
        projected = sum(
            w * expert(decoder.experts, int(e), g)
            for e, w in zip(best.indices, best.values.softmax(-1), strict=True)
        )
        if to_experts is not None:
            chances = decoder.choose_way(hidden[b].mean(0)).softmax(-1)
            projected = (
                chances[1] * projected
                if to_experts[b]
                else chances[0] * decoder.pointer.project_out(g)
            )
        keys = decoder.project_node_embeddings(hidden[b]).chunk(3, -1)[2]  # [N, D]
        rows.append(keys @ projected / 4.0)  # sqrt(16)
    return torch.stack(rows).unsqueeze(1)


@torch.no_grad()
@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("out_bias", [True, False])
def test_decoder_written_out(light, out_bias):
    decoder = {"light_version": light, "out_bias": out_bias}
    # With instance normalisation all instances would have the same mean embedding.
    policy = make_policy(moe_kwargs={"decoder": decoder}, normalization="batch").eval()
    env = CVRPEnv(generator_params={"num_loc": 5}, seed=1)
    td = env.reset(batch_size=12)
    hidden, _ = policy.encoder(td)
    state = {key: value.unsqueeze(1) for key, value in td.items()}
    if light:
        # Across the mean of all instances, so that some lie on either side.
        means = hidden.mean(1)  # [B, D]
        middle, first = means.mean(0), means[0]
        way = first - (first @ middle) / (middle @ middle) * middle
        policy.decoder.choose_way.weight.copy_(torch.stack([torch.zeros_like(way), way]))
    cache = policy.decoder.prepare(hidden, dict(td.items()))
    to_experts = None
    if light:
        chances = policy.decoder.choose_way(hidden.mean(1)).softmax(-1)
        to_experts = chances[:, 1] > 0.5
        assert torch.equal(cache.route[0].flatten(), to_experts)
        assert 0 < int(to_experts.sum()) < 12, "both ways are tried"
    expected = written_out(policy, hidden, state, cache, to_experts)
    torch.testing.assert_close(policy.decoder(state, cache), expected, atol=1e-5, rtol=1e-5)


def follow_steps(policy: AttentionModelPolicy) -> AttentionModelPolicy:
    slow = copy.deepcopy(policy)
    kind = type(slow.decoder)
    slow.decoder.__class__ = type("Steps", (kind,), {"replay_keys": property(lambda _: None)})
    return slow


@pytest.mark.numerical
@pytest.mark.parametrize("moe_kwargs", [DEFAULT_EXPERTS, FULL], ids=["light", "full"])
@pytest.mark.parametrize("env_cls", [CVRPEnv, SDVRPEnv])
@pytest.mark.parametrize("chunk", [None, 3])
def test_noisy_replay_is_step_by_step(moe_kwargs, env_cls, chunk):
    """In training: the replay is routed as the rollout was, and so are its gradients."""
    env = env_cls(generator_params={"num_loc": 5}, seed=1)
    policy = make_policy(env.name, moe_kwargs, replay_chunk=chunk).train()
    td = env.reset(batch_size=6)
    outs = []
    policies = (policy, follow_steps(policy))
    for each in policies:
        rng = torch.Generator().manual_seed(3)
        # So many steps: otherwise the replay skips those in which finished solutions wait.
        out = each(td, env, decode_type="multistart_sampling", rng=rng, num_steps=9)
        (out["log_likelihood"].sum() + 10 * out["auxiliary_loss"]).backward()
        outs.append(out)
    assert torch.equal(outs[0]["actions"], outs[1]["actions"])
    for key in ("log_likelihood", "auxiliary_loss"):
        torch.testing.assert_close(outs[0][key], outs[1][key], atol=5e-5, rtol=1e-4)
    assert_same_gradients(*policies)


def test_randomness_of_routing_comes_from_the_generator():
    env = TSPEnv(generator_params={"num_loc": 6}, seed=1)
    policy = make_policy("tsp").train()
    td = env.reset(batch_size=4)
    before = torch.get_rng_state()
    likelihoods = [
        policy(td, env, decode_type="greedy", rng=torch.Generator().manual_seed(s))[
            "log_likelihood"
        ]
        for s in (0, 0, 1)
    ]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(likelihoods[0], likelihoods[1])
    assert not torch.equal(likelihoods[0], likelihoods[2])


@torch.no_grad()
@pytest.mark.parametrize("moe_kwargs", [DEFAULT_EXPERTS, FULL], ids=["light", "full"])
def test_evaluation_does_not_depend_on_batch_mates(moe_kwargs):
    """No expert is ever full: each instance gets what it gets alone, without noise."""
    env = CVRPEnv(generator_params={"num_loc": 8}, seed=1)
    policy = make_policy(moe_kwargs=moe_kwargs).eval()
    td = env.reset(batch_size=5)
    whole = policy(td, env, phase="test")
    assert "auxiliary_loss" not in whole
    for b in range(5):
        alone = policy(td[b : b + 1], env, phase="test")
        torch.testing.assert_close(alone["log_likelihood"][0], whole["log_likelihood"][b])


@pytest.mark.parametrize("chance", [0.0, 1.0], ids=["dense", "experts"])
@pytest.mark.parametrize("env_cls", [CVRPEnv, SDVRPEnv])
def test_whole_batches_may_take_one_way(env_cls, chance, monkeypatch):
    """All instances by the dense layer, or all by the experts, in training."""
    env = env_cls(generator_params={"num_loc": 5}, seed=1)
    policy = make_policy(env.name).train()
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.full(*shape, 1 - chance))
    cache = policy.decoder.prepare(torch.randn(3, 6, 16), {})
    assert int(cache.route[0].sum()) == 3 * chance
    monkeypatch.undo()
    monkeypatch.setattr(policy.decoder, "prepare", lambda *_: cache)
    out = policy(env.reset(batch_size=3), env, decode_type="multistart_sampling")
    assert bool(out["log_likelihood"].isfinite().all())
    out["log_likelihood"].sum().backward()
    moved = policy.decoder.experts.weights[0].grad
    assert (moved is not None and bool(moved.any())) is bool(chance)


@pytest.mark.parametrize("moe_kwargs", [DEFAULT_EXPERTS, FULL], ids=["light", "full"])
def test_half_precision(moe_kwargs):
    """A training step under autocast stays close to that in full precision."""
    env = CVRPEnv(generator_params={"num_loc": 5}, seed=1)
    policy = make_policy(moe_kwargs=moe_kwargs).train()
    td = env.reset(batch_size=8)
    given = policy(td, env, decode_type="multistart_sampling")["actions"]

    def likelihood() -> Tensor:
        rng = torch.Generator().manual_seed(0)
        return policy(td, env, actions=given, decode_type="multistart_sampling", rng=rng)[
            "log_likelihood"
        ]

    with torch.autocast("cpu", torch.bfloat16):
        half = likelihood()
    half.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in policy.parameters() if p.grad is not None)
    # Ties of the gates may be broken otherwise for some steps.
    assert (half - likelihood()).abs().median() < 0.2


def test_no_state_is_kept():
    """After a step the policy can be copied (the rollout baseline does), and no session is open."""
    env = CVRPEnv(generator_params={"num_loc": 5}, seed=1)
    policy = make_policy().train()
    policy(env.reset(batch_size=3), env)["auxiliary_loss"].backward()
    assert all(m.session is None for m in policy.modules() if isinstance(m, Gate))
    copy.deepcopy(policy)


@torch.no_grad()
def test_saving_and_loading(tmp_path):
    """Experts that choose, as the contract tests do with the default ones."""
    moe_kwargs = {"encoder": {"routing_method": "expert_choice", "num_experts": 3}}
    env = CVRPEnv(generator_params={"num_loc": 6}, seed=1)
    policy = make_policy(moe_kwargs=moe_kwargs).eval()
    loaded = load_pretrained(policy.save_pretrained(tmp_path))
    td = env.reset(batch_size=3)
    expected, out = policy(td, env, phase="test"), loaded(td, env, phase="test")
    assert torch.equal(out["actions"], expected["actions"])
    assert torch.equal(out["log_likelihood"], expected["log_likelihood"])


@pytest.mark.parametrize(
    ("moe_kwargs", "error", "message"),
    [
        ({"encoder": {"k": 5}}, ConfigError, "k between 1 and num_experts, got k=5 of 4"),
        ({"encoder": {"loss_coef": -1}}, ConfigError, "loss_coef"),
        ({"encoder": {"experts": 4}}, UnknownNameError, "did you mean 'num_experts'"),
        ({"encoder": {"hidden_act": "relu"}}, UnknownNameError, "known: GELU, ReLU"),
        ({"encoder": {"routing_method": "random"}}, UnknownNameError, "expert_choice"),
        ({"decoder": {"routing_method": "expert_choice"}}, ConfigError, "steps to come"),
        ({"encodre": {}}, UnknownNameError, "did you mean 'encoder'"),
    ],
)
def test_bad_settings(moe_kwargs, error, message):
    with pytest.raises(error, match=message):
        AttentionModelPolicy(moe_kwargs=moe_kwargs, **TINY)


def test_other_dynamic_embeddings_raise():
    with pytest.raises(UnsupportedError, match="LinearDynamicEmbedding"):
        AttentionModelPolicy(
            context_embedding=nn.Identity(),
            dynamic_embedding=nn.Linear(1, 1),
            moe_kwargs=FULL,
            **TINY,
        )


# ---------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("cls", "kwargs"), [(MVMoE_POMO, {}), (MVMoE_AM, {"baseline": "mean"})], ids=["pomo", "am"]
)
def test_balance_enters_the_loss(cls, kwargs):
    """The loss of a step is that without balancing plus the logged part, gradient included."""
    env = CVRPEnv(generator_params={"num_loc": 5}, seed=1)

    batch = env.generate(8)

    def step(loss_coef: float) -> tuple[float, float, Tensor]:
        torch.manual_seed(0)
        moe = {part: {**DEFAULT_EXPERTS[part], "loss_coef": loss_coef} for part in DEFAULT_EXPERTS}
        model = cls(env, policy_kwargs=TINY, moe_kwargs=moe, seed=5, **kwargs)
        trained_gates(model)
        out = model.train().shared_step(batch, 0, "train")
        out["loss"].backward()
        grad = model.policy.encoder.net.layers[0].feedforward.gate.w_gate.grad
        return out["loss"].item(), float(out.get("auxiliary_loss", 0.0)), grad

    (without, nothing, plain), (loss, extra, grad) = step(0.0), step(0.5)
    assert nothing == 0.0
    assert extra > 0.01
    assert loss == pytest.approx(without + extra, rel=1e-4, abs=1e-4)
    assert (grad - plain).abs().max() > 1e-4


def test_default_experts_and_settings():
    """POMO's settings with the paper's experts; what the caller says wins, and stays as it was."""
    env = TSPEnv()
    model = MVMoE_POMO(env)
    assert isinstance(model, POMO)
    layers = model.policy.encoder.net.layers
    assert len(layers) == 6
    assert isinstance(layers[0].feedforward, MoE)
    assert layers[0].feedforward.weights[0].shape == (4, 128, 512)
    assert model.policy.decoder.choose_way is not None
    given = {"moe_kwargs": {"encoder": None, "decoder": {"num_experts": 3}}, **TINY}
    before = copy.deepcopy(given)
    mine = MVMoE_AM(env, policy_kwargs=given).policy
    assert given == before
    assert isinstance(mine.decoder.experts, MoE)
    assert mine.decoder.experts.config.num_experts == 3
    assert mine.decoder.choose_way is None
    assert not isinstance(mine.encoder.net.layers[0].feedforward, MoE)
    assert isinstance(MVMoE_AM(env, policy_kwargs=TINY), AttentionModel)


def test_contradictions_raise():
    env = TSPEnv()
    policy = AttentionModelPolicy(**TINY)
    assert MVMoE_POMO(env, policy).policy is policy
    with pytest.raises(ConfigError, match="policy or moe_kwargs"):
        MVMoE_POMO(env, policy, moe_kwargs=FULL)
    with pytest.raises(ConfigError, match="moe_kwargs once"):
        MVMoE_AM(env, policy_kwargs={"moe_kwargs": FULL}, moe_kwargs=FULL)


def test_plain_policies_have_no_experts():
    policy = AttentionModelPolicy(**TINY)
    assert not policy.has_experts
    env = TSPEnv(generator_params={"num_loc": 5})
    assert "auxiliary_loss" not in policy.train()(env.reset(batch_size=2), env)


@pytest.mark.learning
def test_training_improves(require):
    env = CVRPEnv(generator_params={"num_loc": 10})
    settings = {**TINY, "embed_dim": 32, "num_heads": 4}
    model = MVMoE_POMO(env, policy_kwargs=settings, num_augment=1, seed=2)
    ratio = cost_ratio(
        model, lambda: train_steps(model, 40, 32, 2e-3), decode_type="multistart_sampling"
    )
    require("cost after / before", ratio, below=0.9)
