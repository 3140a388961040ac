"""Parts of improvement policies: encodings, norms, scores, choices; each exchangeable."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from torch import nn

from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    NotFiniteError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.rng import derive_generator
from rl4co.envs import PDPRuinRepairEnv, TSPkoptEnv
from rl4co.models import DACTPolicy, ImprovementEncoder, N2SPolicy, NeuOptPolicy
from rl4co.models.nn.heads import HeadMerge, HeadProjection, WholeNorm
from rl4co.models.nn.pair_moves import NodePairReinsertion, NodePairRemoval
from rl4co.models.nn.positional import CyclicPositionalEncoding, cyclic_encoding
from rl4co.models.nn.scores import cauchy_score, dot_score
from rl4co.models.nn.synthesis import SynthesisAttention
from rl4co.models.nn.value import SolutionCritic
from rl4co.models.policies.choices import ChoiceRule, Choices

TINY = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1}


def test_cyclic_encoding():
    """Neighbours on the circle are close, also across its end; columns are centred."""
    table = cyclic_encoding(20, 64)
    assert table.shape == (20, 64)
    assert np.abs(table.mean(0)).max() < 1e-6
    distance = np.linalg.norm(table[0] - table, axis=1)
    assert distance[1] < distance[5] < distance[10]
    assert distance[19] < distance[15]
    encoding = CyclicPositionalEncoding(64)
    order = torch.tensor([[3, 0, 2, 1]])
    out = encoding(order, torch.zeros(1, dtype=torch.float64))
    assert out.dtype == torch.float64
    torch.testing.assert_close(out[0].float(), torch.tensor(cyclic_encoding(4, 64))[order[0]])
    with pytest.raises(ConfigError, match="embed_dim"):
        cyclic_encoding(4, 1)
    encoding.table(out.float(), 4).zero_()
    assert np.abs(cyclic_encoding(4, 64)).max() > 0, "what is handed out is a copy"


def test_whole_norm_by_hand():
    """Values 1, 2, 3, 6: mean 3, unbiased variance (4 + 1 + 0 + 9) / 3."""
    x = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])
    expected = (x - 3) / math.sqrt(14 / 3 + 1e-5)
    torch.testing.assert_close(WholeNorm()(x), expected)


def test_heads_are_split_and_merged():
    """Head h of a projection is the input times block h of the weights."""
    x = torch.randn(2, 5, 6)
    project, merge = HeadProjection(6, 3, 4), HeadMerge(3, 4, 6)
    heads = project(x)
    assert heads.shape == (2, 3, 5, 4)
    torch.testing.assert_close(heads[:, 1], x @ project.weight[4:8].t())
    torch.testing.assert_close(merge(heads), heads.transpose(1, 2).flatten(2) @ merge.weight.t())


def test_scores():
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    torch.testing.assert_close(dot_score(query, key), torch.einsum("bnd,bmd->bnm", query, key))
    expected = 1 / (1 + (query[:, :, None] - key[:, None]).square().sum(-1))
    torch.testing.assert_close(cauchy_score(query, key), expected)


def test_synthesis_attention_mixes_both_scores():
    """Against the plain formula, score by score."""
    attention, x, auxiliary = SynthesisAttention(8, 2), torch.randn(3, 5, 8), torch.randn(2, 5, 5)
    own = attention.query(x) @ attention.key(x).transpose(-2, -1)
    both = torch.cat([own, auxiliary.expand(3, -1, -1, -1)], 1).permute(0, 2, 3, 1)  # [B, N, N, 2H]
    first, second = attention.mix_in, attention.mix_out
    hidden = F.linear(both, first.weight, first.bias).relu()
    mixed = F.linear(hidden, second.weight, second.bias).permute(0, 3, 1, 2)
    expected = attention.out(mixed.softmax(-1) @ attention.value(x))
    torch.testing.assert_close(attention(x, auxiliary), expected)
    torch.testing.assert_close(attention(x, auxiliary.expand(3, -1, -1, -1)), expected)


def test_removal_looks_at_neighbours():
    """λ_i = q_p k_i + q_i k_s - q_p k_s, node by node."""
    removal, h = NodePairRemoval(8, 2), torch.randn(1, 5, 8)
    before, behind = torch.tensor([[4, 0, 1, 2, 3]]), torch.tensor([[2, 3, 4, 0, 1]])
    recent, frequency = torch.rand(1, 2, 3), torch.rand(1, 2)
    query, key = removal.query(h)[0], removal.key(h)[0]  # [H, N, D]
    fit = torch.zeros(5, 2)
    for i in range(5):
        p, s = int(before[0, i]), int(behind[0, i])
        fit[i] = (
            (query[:, p] * key[:, i]).sum(-1)
            + (query[:, i] * key[:, s]).sum(-1)
            - (query[:, p] * key[:, s]).sum(-1)
        )
    for pair in range(2):
        features = torch.cat(
            [fit[pair + 1], fit[pair + 3], recent[0, pair], frequency[0, pair : pair + 1]]
        )
        logits = removal(h, before, behind, recent, frequency)
        torch.testing.assert_close(logits[0, pair], removal.network(features)[0])


def test_reinsertion_scores_every_pair_of_places():
    """The split first layer gives what the whole network gives."""
    module, h = NodePairReinsertion(8, 2), torch.randn(1, 5, 8)
    pair, successors = torch.tensor([[1, 3]]), torch.tensor([[2, 0, 4, 1, 3]])
    logits = module(h, pair, successors)
    front = module.in_front(h[:, [1, 3]], h)[0]  # [H, 2, N]
    back = module.behind(h[:, [1, 3]], h)[0]
    for j, k in ((0, 0), (0, 2), (4, 2)):
        sj, sk = int(successors[0, j]), int(successors[0, k])
        features = torch.cat([front[:, 0, j], back[:, 0, sj], front[:, 1, k], back[:, 1, sk]])
        first, *further = module.network
        hidden = F.linear(features, first.weight, first.bias)
        for layer in further:
            hidden = layer(hidden)
        torch.testing.assert_close(logits[0, j, k], hidden[0])


@torch.no_grad()
@pytest.mark.parametrize(
    ("policy_cls", "env", "part"),
    [
        (N2SPolicy, PDPRuinRepairEnv(), "decoder.reinsertion.network.0"),
        (N2SPolicy, PDPRuinRepairEnv(), "decoder.reinsertion.network.1"),
        (N2SPolicy, PDPRuinRepairEnv(), "decoder.removal.network.2"),
        (N2SPolicy, PDPRuinRepairEnv(), "encoder.pos_embedding"),
        (NeuOptPolicy, TSPkoptEnv(k_max=4), "encoder.layers.0.attention.mix_in"),
        (NeuOptPolicy, TSPkoptEnv(k_max=4), "encoder.layers.0.attention.mix_out"),
        (NeuOptPolicy, TSPkoptEnv(k_max=4), "decoder.streams.keys"),
        (DACTPolicy, TSPkoptEnv(), "encoder.pos_embedding"),
        (DACTPolicy, TSPkoptEnv(), "decoder.network.2"),
    ],
)
def test_every_part_is_called(policy_cls, env, part):
    """What a hook changes, or a part that replaces another, takes effect."""
    policy = policy_cls(dropout=0.0, **TINY).eval()
    td = env.reset(batch_size=3)
    actions = env.random_action(dict(td.items()))
    plain = policy(td, env, actions=actions)["log_likelihood"]
    hook = policy.get_submodule(part).register_forward_hook(lambda *call: call[-1].square())
    changed = policy(td, env, actions=actions)["log_likelihood"]
    assert not torch.allclose(plain, changed)
    hook.remove()
    torch.testing.assert_close(policy(td, env, actions=actions)["log_likelihood"], plain)


# ---------------------------------------------------------------- choices


def test_choices_by_hand():
    """Probabilities 1/4 and 3/4; the forbidden third counts for nothing, however likely."""
    logits = torch.tensor([[0.0, math.log(3.0), 50.0]]).expand(4, -1)
    mask = torch.tensor([[True, True, False]]).expand(4, -1)
    uniform = torch.tensor([[0.0], [0.24], [0.26], [1.0 - 2**-24]])
    choices = Choices(ChoiceRule(), uniform, with_entropy=True)
    assert choices.pick(logits, mask).tolist() == [0, 0, 1, 1]
    expected = torch.tensor([0.25, 0.25, 0.75, 0.75])
    torch.testing.assert_close(choices.log_prob.exp(), expected)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    torch.testing.assert_close(choices.entropy, torch.full((4,), entropy))
    active = torch.tensor([True, False, True, False])
    choices.uniform = uniform.expand(-1, 2)
    choices.pick(logits, mask, active=active)
    torch.testing.assert_close(choices.log_prob.exp(), torch.tensor([1 / 16, 1 / 4, 9 / 16, 3 / 4]))
    greedy = Choices(ChoiceRule("greedy", tanh_clipping=6.0), None, False)
    assert greedy.pick(logits, mask).tolist() == [1] * 4
    with pytest.raises(ConfigError, match="temperature"):
        ChoiceRule(temperature=0.0)
    with pytest.raises(UnknownNameError, match="greedy"):
        ChoiceRule("gready")


def test_temperature_flattens():
    env = TSPkoptEnv(generator_params={"num_loc": 8})
    policy, td = DACTPolicy(**TINY).eval(), env.reset(batch_size=4)
    entropies = [
        policy(td, env, return_entropy=True, temperature=t)["entropy"].mean()
        for t in (0.1, 1.0, 10.0)
    ]
    assert entropies[0] < entropies[1] < entropies[2] <= math.log(8 * 7) + 1e-4


# ---------------------------------------------------------------- exchangeable parts


class Plain(ImprovementEncoder):
    """Coordinates and positions, and nothing else."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3, dim)

    def forward(self, state):
        position = state["visited_time"].unsqueeze(-1) / state["visited_time"].shape[-1]
        return self.linear(torch.cat([state["locs"], position], -1))


@pytest.mark.parametrize(
    ("policy_cls", "env", "dim"),
    [
        (DACTPolicy, TSPkoptEnv(generator_params={"num_loc": 8}), 32),
        (NeuOptPolicy, TSPkoptEnv(generator_params={"num_loc": 8}, k_max=5), 16),
        (N2SPolicy, PDPRuinRepairEnv(generator_params={"num_loc": 8}), 16),
    ],
)
def test_parts_can_be_exchanged(policy_cls, env, dim):
    """A custom encoder, an embedding, and no critic."""
    sizes = {"embed_dim": TINY["embed_dim"], "num_heads": TINY["num_heads"]}
    policy = policy_cls(encoder=Plain(dim), critic=False, **sizes).eval()
    td = env.reset(batch_size=3)
    out = policy(td, env, return_entropy=True)
    env.check_solution_validity(env.step(td.set("action", out["actions"]))["next"])
    with pytest.raises(UnsupportedError, match="without one"):
        policy(td, env, return_value=True)

    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, TINY["embed_dim"])
            self.calls = 0

        def forward(self, state):
            self.calls += 1
            return self.linear(2 * state["locs"])

    with pytest.raises(ConfigError, match="no init_embedding beside an encoder"):
        policy_cls(encoder=Plain(dim), init_embedding=Doubled(), **sizes)
    with pytest.raises(ConfigError, match="no num_encoder_layers beside an encoder"):
        policy_cls(encoder=Plain(dim), **TINY)
    with pytest.raises(ConfigError, match="as critic, got 3"):
        policy_cls(critic=3, **TINY)
    with pytest.raises(ConfigError, match="names its kind of moves, got a Linear"):
        policy_cls(decoder=nn.Linear(2, 2), **TINY)
    embedding = Doubled()
    policy_cls(init_embedding=embedding, **TINY).eval()(env.reset(batch_size=3), env)
    assert embedding.calls == 1


def test_batch_normalisation_sees_the_whole_batch(monkeypatch):
    """In training no chunks are made of a batch whose statistics are learned from."""

    class Normalised(Plain):
        def __init__(self, dim: int) -> None:
            super().__init__(dim)
            self.norm = nn.BatchNorm1d(dim)
            self.rows: list[int] = []

        def forward(self, state):
            self.rows.append(len(state["locs"]))
            return self.norm(super().forward(state).transpose(1, 2)).transpose(1, 2)

    monkeypatch.setattr("rl4co.models.policies.improvement._PAIRS_AT_ONCE", 200)
    encoder, env = Normalised(32), TSPkoptEnv(generator_params={"num_loc": 10})
    policy = DACTPolicy(encoder=encoder, embed_dim=16, num_heads=2)
    td = env.reset(batch_size=5)
    policy(td, env)
    policy.eval()(td, env)
    assert encoder.rows == [5, 2, 2, 1]


@pytest.mark.parametrize("policy_cls", [DACTPolicy, NeuOptPolicy, N2SPolicy])
def test_sizes_of_the_critic(policy_cls):
    sizes = {"num_heads": 3, "head_dim": 5, "feedforward_hidden": 7, "hidden": [9, 4]}
    critic = policy_cls(critic_kwargs=sizes, **TINY).critic
    assert critic.query.weight.shape[0] == 15
    assert critic.feedforward[0].out_features == 7
    layers = [layer for layer in critic.network if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in layers] == [9, 4, 1]
    with pytest.raises(ConfigError, match="no critic_kwargs without critic=True"):
        policy_cls(critic=False, critic_kwargs=sizes, **TINY)


def test_flexible_moves_with_two_cuts():
    """A policy of k-opt has an environment of k-opt, also where 2-opt has as many numbers."""
    policy = NeuOptPolicy(env_params={"k_max": 2}, **TINY).eval()
    env = TSPkoptEnv(k_max=2, two_opt_mode=False)
    td = env.reset(batch_size=3)
    out = policy(td, phase="test")
    again = policy(td, env, phase="test", actions=out["actions"])
    torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"])
    with pytest.raises(UnsupportedError, match="'two_opt_mode': False, 'k_max': 2"):
        policy(td, TSPkoptEnv(k_max=2))


@pytest.mark.parametrize(
    ("policy_cls", "env", "bad"),
    [
        (DACTPolicy, TSPkoptEnv(), [[3, 25], [3, -1], [1, 2, 3]]),
        (NeuOptPolicy, TSPkoptEnv(k_max=4), [[3, 25, 1, 2], [1, 2]]),
        (N2SPolicy, PDPRuinRepairEnv(), [[3, 2, 30], [10, 1, 2]]),
    ],
)
def test_given_moves_are_checked_and_nan_is_named(policy_cls, env, bad):
    """Elsewhere numbers beyond the last node would be read as other moves."""
    policy, td = policy_cls(**TINY).eval(), env.reset(batch_size=2)
    for move in bad:
        with pytest.raises(InvalidActionError):
            policy(td, env, phase="test", actions=torch.tensor([move] * 2))
    allowed = policy(td, env, phase="test")["actions"]
    with pytest.raises(InvalidActionError, match="integer action"):
        policy(td, env, phase="test", actions=allowed + 0.5)
    with pytest.raises(InvalidActionError, match=r"shape \[2, "):
        policy(td, env, phase="test", actions=allowed[:1])
    half = copy.deepcopy(policy).to(torch.bfloat16)(td, env, phase="test", actions=allowed)
    exact = policy(td, env, phase="test", actions=allowed)
    torch.testing.assert_close(
        half["log_likelihood"].float(), exact["log_likelihood"], rtol=0.05, atol=0.05
    )
    for weight in policy.parameters():
        weight.data.fill_(torch.nan)
    for decode_type in ("greedy", "sampling"):
        with pytest.raises(NotFiniteError, match="got NaN"):
            policy(td, env, phase="test", decode_type=decode_type)


def test_cauchy_scores_change_the_policy():
    """In the node aspect of the encoder and in both of the decoder; unknown ones raise."""
    env = TSPkoptEnv(generator_params={"num_loc": 8})
    td = env.reset(batch_size=3, rng=derive_generator(0))
    plain, cauchy = DACTPolicy(**TINY).eval(), DACTPolicy(score="cauchy", **TINY).eval()
    cauchy.load_state_dict(plain.state_dict())
    layer = cauchy.encoder.layers[0].attention
    assert layer.score is cauchy_score
    assert cauchy.decoder.node_scores.score is cauchy.decoder.position_scores.score is cauchy_score
    actions = env.random_action(dict(td.items()), derive_generator(1))
    ours = cauchy(td, env, actions=actions)["log_likelihood"]
    assert not torch.allclose(ours, plain(td, env, actions=actions)["log_likelihood"])
    same = DACTPolicy(score=cauchy_score, **TINY).eval()
    same.load_state_dict(plain.state_dict())
    torch.testing.assert_close(same(td, env, actions=actions)["log_likelihood"], ours)
    with pytest.raises(UnknownNameError, match="no score 'couchy'; did you mean 'cauchy'"):
        DACTPolicy(score="couchy", **TINY)


def test_the_score_of_the_critic():
    """Attention with a score function by hand; the default is the scalar product."""
    critic = SolutionCritic(8, num_heads=2, score="cauchy").eval()
    plain = SolutionCritic(8, num_heads=2).eval()
    plain.load_state_dict(critic.state_dict())
    x, cost = torch.randn(3, 5, 8), torch.rand(3)
    found = critic._attend(critic.query(x), critic.key(x), critic.value(x))
    distance = torch.cdist(critic.query(x), critic.key(x)).square()
    expected = (1 / (1 + distance) / 2).softmax(-1) @ critic.value(x)
    torch.testing.assert_close(found, expected)
    by_function = SolutionCritic(8, num_heads=2, score=dot_score).eval()
    by_function.load_state_dict(critic.state_dict())
    torch.testing.assert_close(by_function(x, cost), plain(x, cost))


def test_weights_begin_in_their_ranges():
    """±1/sqrt(last axis) of the original layout: heads, or outputs."""
    torch.manual_seed(0)
    encoder = N2SPolicy().encoder
    attention = encoder.layers[0].attention
    for weight, size in (
        (attention.query.weight, 32),
        (attention.out.weight, 128),
        (encoder.init_embedding.linear.weight, 2),
    ):
        assert 0.95 * size**-0.5 < float(weight.detach().abs().max()) <= size**-0.5
