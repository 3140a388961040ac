"""Attention Model: its decoder against the written-out formula, and every replaceable part."""

from __future__ import annotations

import math

from typing import Any

import pytest
import torch

from tensordict import TensorDict
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import AttentionModelDecoder, AttentionModelEncoder, AttentionModelPolicy
from rl4co.models.embeddings import ContextEmbedding, DynamicEmbedding
from rl4co.models.nn.attention import scaled_dot_product_attention_simple
from tests.numerics import assert_same_gradients

DIM, HEADS = 12, 3
TINY = {
    "embed_dim": DIM,
    "num_heads": HEADS,
    "feedforward_hidden": 10,
    "num_encoder_layers": 1,
    "normalization": "layer",
}


@pytest.fixture(params=["tsp", "cvrp"])
def env(request):
    cls = {"tsp": TSPEnv, "cvrp": CVRPEnv}[request.param]
    return cls(generator_params={"num_loc": 6}, seed=3)


@pytest.fixture
def td(env):
    return env.reset(batch_size=4)


def make_policy(env: Any, **kwargs: Any) -> AttentionModelPolicy:
    return AttentionModelPolicy(env_name=env.name, **{**TINY, **kwargs})


def queries(td: TensorDict, env: Any, steps: int) -> tuple[dict[str, Tensor], Tensor]:
    """States with axes `[B, 2]` after some random steps, and the allowed actions."""
    states = []
    for _ in range(2):
        state = td
        for _ in range(steps):
            state = state.clone()
            state["action"] = torch.multinomial(state["action_mask"].float(), 1).squeeze(-1)
            state = env.step(state)["next"]
        states.append(state)
    stacked = torch.stack(states, 1)  # [B, 2]
    return dict(stacked.items()), stacked["action_mask"]


def plain_logits(
    decoder: AttentionModelDecoder,
    hidden: Tensor,
    query: Tensor,
    mask: Tensor,
    changes: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Logits of one state, without folding, caching or fused kernels.

    Args:
        decoder: Where the weights come from.
        hidden: Node embeddings `[N, D]`.
        query: `[D]`.
        mask: Allowed actions `[N]`.
        changes: What a dynamic embedding adds to the three projections, `[N, D]` each.
    """
    key, value, logit_key = decoder.project_node_embeddings(hidden).chunk(3, -1)
    if changes is not None:
        key, value, logit_key = (
            x + y for x, y in zip((key, value, logit_key), changes, strict=True)
        )
    size, heads = DIM // HEADS, []
    for h in range(HEADS):
        part = slice(h * size, (h + 1) * size)
        scores = key[:, part] @ query[part] / math.sqrt(size)
        if decoder.pointer.mask_inner:
            scores = scores.masked_fill(~mask, -torch.inf)
        heads.append(scores.softmax(-1) @ value[:, part])
    glimpse = decoder.pointer.project_out(torch.cat(heads))
    return logit_key @ glimpse / math.sqrt(DIM)


VARIANTS = {
    "default": {},
    "pomo": {"use_graph_context": False},
    "open-glimpse": {"mask_inner": False},
    "out-bias": {"out_bias_pointer_attn": True},
    "decoder-bias": {"linear_bias_decoder": True},
    "all-biases": {"out_bias_pointer_attn": True, "linear_bias_decoder": True},
}


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("steps", [0, 3])
def test_decoder_is_the_formula(env, td, variant, steps):
    """Folding the output projection into the keys changes nothing: z = K W_o MHA(q) / sqrt(D)."""
    policy = make_policy(env, **VARIANTS[variant])
    decoder = policy.decoder
    hidden, _ = policy.encoder(td)
    state, mask = queries(td, env, steps)
    cache = decoder.prepare(hidden, dict(td.items()))
    out = decoder(state, cache)
    context = decoder.context_embedding
    query = context(context.prepare(hidden), state)  # [B, 2, D]
    if policy.decoder.project_fixed_context is not None:
        query = query + decoder.project_fixed_context(hidden.mean(1)).unsqueeze(1)
    for b in range(4):
        for q in range(2):
            expected = plain_logits(decoder, hidden[b], query[b, q], mask[b, q])
            torch.testing.assert_close(out[b, q], expected, atol=1e-5, rtol=1e-5)


def test_biases_are_where_they_should_be(env):
    """Switches of the published interface."""
    plain = {name for name, _ in make_policy(env).decoder.named_parameters()}
    assert not any(name.endswith("bias") for name in plain)
    rich = make_policy(env, out_bias_pointer_attn=True, linear_bias_decoder=True).decoder
    extra = {name for name, _ in rich.named_parameters()} - plain
    assert extra == {
        "pointer.project_out.bias",
        "project_node_embeddings.bias",
        "project_fixed_context.bias",
    }
    assert make_policy(env, use_graph_context=False).decoder.project_fixed_context is None


@torch.no_grad()
def test_probabilities_are_clipped_and_masked(env, td):
    """log p of each step = log_softmax of masked 10 tanh(z), by hand for the first step."""
    policy = make_policy(env, tanh_clipping=10.0)
    out = policy(td, env, phase="test", return_sum_log_likelihood=False)
    hidden, _ = policy.encoder(td)
    state = {key: value.unsqueeze(1) for key, value in td.items()}
    logits = policy.decoder(state, policy.decoder.prepare(hidden, dict(td.items())))[:, 0]
    expected = (10 * logits.tanh()).masked_fill(~td["action_mask"], -torch.inf).log_softmax(-1)
    torch.testing.assert_close(out["log_likelihood"][:, 0], expected.max(-1).values)
    assert torch.equal(out["actions"][:, 0], expected.argmax(-1))


# ---------------------------------------------------------------- replaced parts


class LastNode(nn.Module):
    """A context that declares no state keys: the embedding of the last node."""

    def prepare(self, embeddings: Tensor) -> Tensor:
        return embeddings

    def forward(self, cache: Tensor, state: dict[str, Tensor]) -> Tensor:
        rows = torch.arange(len(cache)).unsqueeze(-1)
        return cache[rows, state["current_node"]]


class DeclaredLastNode(LastNode):
    """The same with its keys declared, so that it can be replayed."""

    state_keys = ("current_node",)


def count_decoder_calls(policy: AttentionModelPolicy) -> list[int]:
    calls: list[int] = []
    policy.decoder.register_forward_hook(
        lambda module, args, out: calls.append(out.shape[1]) if torch.is_grad_enabled() else None
    )
    return calls


@pytest.mark.numerical
def test_context_without_state_keys_takes_the_steps(env, td):
    """Once per step with gradients; with keys, one call for all steps and the same numbers."""
    slow, fast = make_policy(env, context_embedding=LastNode()), None
    fast = make_policy(env, context_embedding=DeclaredLastNode())
    fast.load_state_dict(slow.state_dict())
    assert slow.decoder.replay_keys is None
    assert fast.decoder.replay_keys == ("current_node",)
    outs = {}
    for name, policy in (("slow", slow), ("fast", fast)):
        calls = count_decoder_calls(policy)
        out = policy(td, env, rng=torch.Generator().manual_seed(0))
        out["log_likelihood"].sum().backward()
        outs[name] = out
        steps = out["actions"].shape[-1]
        assert calls == ([1] * steps if name == "slow" else [steps])
    assert torch.equal(outs["slow"]["actions"], outs["fast"]["actions"])
    torch.testing.assert_close(
        outs["slow"]["log_likelihood"], outs["fast"]["log_likelihood"], atol=1e-5, rtol=1e-5
    )
    assert_same_gradients(fast, slow)


class Undeclared(ContextEmbedding):
    """Uses the library's base class and forgets to declare what it reads."""

    def features(self, state):
        return state["i"].float() / 10


def test_context_that_forgets_its_state_keys_still_trains(env, td):
    """It costs speed, not correctness."""
    policy = make_policy(env, context_embedding=Undeclared(DIM, num_features=1))
    policy(td, env)["log_likelihood"].sum().backward()
    assert float(policy.decoder.context_embedding.project_context.weight.grad.abs().sum()) > 0


class Clock(DynamicEmbedding):
    """Adds learned vectors to the three projections, growing with step and node number."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(3, DIM))

    def forward(self, state):
        number = torch.arange(state["action_mask"].shape[-1]) / 10
        growth = (state["i"] * number).unsqueeze(-1)  # [B, Q, N, 1]
        return tuple(growth * vector for vector in self.vectors)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["default", "all-biases", "open-glimpse"])
def test_dynamic_embedding_is_added(env, td, variant):
    """Keys, values and logit keys of each query change before heads are split."""
    policy = make_policy(env, dynamic_embedding=Clock(), **VARIANTS[variant])
    decoder = policy.decoder
    assert decoder.replay_keys is None
    hidden, _ = policy.encoder(td)
    state, mask = queries(td, env, 3)
    out = decoder(state, decoder.prepare(hidden, dict(td.items())))
    context = decoder.context_embedding
    query = context(context.prepare(hidden), state)
    query = query + decoder.project_fixed_context(hidden.mean(1)).unsqueeze(1)
    changes = decoder.dynamic_embedding(state)  # [B, Q, N, D] each
    for b in range(4):
        for q in range(2):
            expected = plain_logits(
                decoder, hidden[b], query[b, q], mask[b, q], tuple(c[b, q] for c in changes)
            )
            torch.testing.assert_close(out[b, q], expected, atol=1e-5, rtol=1e-5)


def test_dynamic_embedding_trains(env, td):
    """Step by step, for several solutions per instance."""
    policy = make_policy(env, dynamic_embedding=Clock())
    out = policy(td, env, decode_type="multistart_sampling", num_starts=3)
    out["log_likelihood"].sum().backward()
    assert bool((policy.decoder.dynamic_embedding.vectors.grad.abs().sum(-1) > 0).all())
    again = policy(td, env, actions=out["actions"], return_sum_log_likelihood=False)
    torch.testing.assert_close(
        again["log_likelihood"][:, 1:].sum(-1), out["log_likelihood"], atol=1e-5, rtol=1e-5
    )


class MatrixInit(nn.Module):
    """Node embeddings from the mean and the smallest distance in a row of the matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(2, DIM)

    def forward(self, td):
        matrix = td["cost_matrix"]
        return self.project(torch.stack([matrix.mean(-1), matrix.amin(-1)], -1))


def test_matrix_only_instances():
    """Rejected by the default embedding, solved with one that reads the matrix."""
    env = TSPEnv()
    td = env.reset(TensorDict({"cost_matrix": torch.rand(3, 5, 5)}, batch_size=3))
    with pytest.raises(UnsupportedError, match="init_embedding that reads the matrix"):
        make_policy(env)(td, env)
    policy = make_policy(env, init_embedding=MatrixInit())
    out = policy(td, env, decode_type="greedy", return_init_embeds=True)
    torch.testing.assert_close(out["init_embeds"], policy.encoder.init_embedding(td))
    for b in range(3):
        tour = out["actions"][b].tolist()
        legs = zip(tour, tour[1:] + tour[:1], strict=True)
        length = sum(float(td["cost_matrix"][b, i, j]) for i, j in legs)
        assert float(out["reward"][b]) == pytest.approx(-length, abs=1e-5)


def test_custom_attention_function(env, td):
    """Called by encoder and decoder, or by one of them; the result is that of the default."""
    default = make_policy(env).eval()
    expected = default(td, env, phase="test")
    for argument, minimum, maximum in (
        ("sdpa_fn", 2, 99),
        ("sdpa_fn_encoder", 1, 1),
        ("sdpa_fn_decoder", 2, 99),
    ):
        calls = []

        def counting(q, k, v, attn_mask=None, calls=calls):
            calls.append(attn_mask is not None)
            return scaled_dot_product_attention_simple(q, k, v, attn_mask)

        policy = make_policy(env, **{argument: counting}).eval()
        policy.load_state_dict(default.state_dict())
        out = policy(td, env, phase="test")
        assert minimum <= len(calls) <= maximum
        # The encoder has no mask, every step of the decoder has one.
        assert (False in calls) is (argument != "sdpa_fn_decoder")
        assert (True in calls) is (argument != "sdpa_fn_encoder")
        assert torch.equal(out["actions"], expected["actions"])
        torch.testing.assert_close(out["log_likelihood"], expected["log_likelihood"])


def test_custom_encoder_network(env, td):
    """It replaces the blocks and nothing else."""

    class Double(nn.Module):
        def forward(self, h, mask=None):
            return 2 * h

    policy = make_policy(env, encoder_network=Double())
    out = policy(td, env, return_hidden=True, return_init_embeds=True)
    torch.testing.assert_close(out["hidden"], 2 * out["init_embeds"])
    assert not any("layers" in name for name, _ in policy.named_parameters())


def test_custom_encoder_and_decoder(env, td):
    """Given objects are used as they are."""
    encoder = AttentionModelEncoder(embed_dim=DIM, num_heads=2, env_name=env.name, num_layers=0)
    decoder = AttentionModelDecoder(embed_dim=DIM, num_heads=4, env_name=env.name)
    policy = make_policy(env, encoder=encoder, decoder=decoder)
    assert policy.encoder is encoder
    assert policy.decoder is decoder
    out = policy(td, env, return_hidden=True, return_init_embeds=True)
    assert torch.equal(out["hidden"], out["init_embeds"]), "no layers, no change"


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"env_name": "cvpr"}, UnknownNameError, "did you mean 'cvrp'"),
        ({"normalization": "bach"}, UnknownNameError, "did you mean 'batch'"),
        ({"num_heads": 5}, ConfigError, "5 heads for 12"),
        ({"num_encoder_layers": -1}, ConfigError, "got -1"),
        ({"embeding_dim": 5}, TypeError, "embeding_dim"),
        ({"encoder": "tsp"}, ConfigError, "nn.Module as encoder, got 'tsp'.*env_name"),
    ],
    ids=["environment", "normalization", "heads", "layers", "unknown", "no module"],
)
def test_bad_arguments_raise(arguments, error, message):
    with pytest.raises(error, match=message):
        AttentionModelPolicy(**{"env_name": "tsp", **TINY, **arguments})


def test_defaults_are_the_papers():
    """128 dimensions, 3 layers, 8 heads, 512 hidden units, batch normalisation, clipping at 10."""
    policy = AttentionModelPolicy()
    assert policy.env_name == "tsp"
    assert policy.tanh_clipping == 10.0
    assert policy.decoder.project_node_embeddings.weight.shape == (384, 128)
    assert policy.decoder.pointer.num_heads == 8
    layers = policy.encoder.net.layers
    assert len(layers) == 3
    assert layers[0].attention.num_heads == 8
    assert layers[0].feedforward.expand.weight.shape == (512, 128)
    assert isinstance(layers[0].norm_attention, nn.BatchNorm1d)


def test_every_parameter_learns(env, td):
    """A gradient that is not zero everywhere, for each of them."""
    policy = make_policy(env, normalization="batch", num_encoder_layers=2)
    out = policy(td, env, decode_type="sampling", num_samples=4)
    weight = torch.linspace(-1, 1, len(out["reward"]))
    (weight * out["log_likelihood"]).sum().backward()
    for name, parameter in policy.named_parameters():
        # A constant added to all keys or before a normalisation cancels, up to rounding.
        if name.endswith("bias") and ("Wqkv" in name or "out_proj" in name or "contract" in name):
            continue
        assert float(parameter.grad.abs().max()) > 1e-6, name


def test_sizes_come_from_the_instance(env):
    """One policy for instances of any size, multi-start included."""
    policy = make_policy(env)
    for num_loc in (3, 11):
        other = type(env)(generator_params={"num_loc": num_loc})
        td = other.reset(batch_size=2)
        # The environment of the policy has another default size.
        out = policy(td, env, decode_type="multistart_greedy")
        assert len(out["reward"]) == 2 * num_loc
        assert len(set(out["actions"][::2, 0].tolist())) == num_loc
