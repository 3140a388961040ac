"""Learning to Dispatch: encoders against plain loops, padding, single steps, learning."""

from __future__ import annotations

import copy

import pytest
import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.ops import gather_nodes
from rl4co.core.rng import derive_generator
from rl4co.decoding.rollout import random_policy
from rl4co.envs import FJSPEnv, JSSPEnv, TSPEnv
from rl4co.envs.testing import make_sized_env
from rl4co.models import (
    L2DAttnPolicy,
    L2DModel,
    L2DPolicy,
    L2DPolicy4PPO,
    L2DPPOModel,
    load_pretrained,
)
from rl4co.models.nn.gcn import DisjunctiveGCN
from rl4co.models.nn.hgnn import EdgeAttention
from rl4co.models.nn.masked_norm import MaskedBatchNorm, MaskedInstanceNorm
from rl4co.models.zoo.l2d import features
from rl4co.models.zoo.l2d.decoder import L2DDecoder
from rl4co.models.zoo.l2d.features import Shop, observe
from tests.learning import choose_at_random_, cost_ratio, train_steps

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16}
ENVS = {"jssp": JSSPEnv, "fjsp": FJSPEnv}
CONFIGURATIONS = [(e, d) for e in ("gcn", "hgnn", "matnet") for d in ("mlp", "pointer")]


def make_env(name: str, jobs: int = 3, machines: int = 3, **options):
    return ENVS[name](generator_params={"num_jobs": jobs, "num_machines": machines}, **options)


def states_on_the_way(env, batch: int, steps: int, seed: int = 0) -> TensorDict:
    """States after some random steps."""
    td = env.reset(env.generator(batch, rng=torch.Generator().manual_seed(seed)))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for _ in range(steps):
            td = env.step(random_policy(td))["next"]
    return td


def pad(instances: TensorDict, extra: int) -> TensorDict:
    """The same instances with more operations, jobs and machines that are padding."""
    num_ops, batch = instances["pad_mask"].shape[-1], instances.batch_size[0]
    more_ops = torch.ones(batch, extra, dtype=torch.bool)
    nowhere = torch.full((batch, extra), num_ops)  # jobs that point to padding
    times = torch.nn.functional.pad(instances["proc_times"], (0, extra, 0, extra))
    return TensorDict(
        {
            "start_op_per_job": torch.cat([instances["start_op_per_job"], nowhere], -1),
            "end_op_per_job": torch.cat([instances["end_op_per_job"], nowhere], -1),
            "proc_times": times,
            "pad_mask": torch.cat([instances["pad_mask"], more_ops], -1),
        },
        batch_size=[batch],
    )


# -------------------------------------------------------------------- networks


def test_gcn_is_the_equation_with_a_dense_adjacency():
    r"""$\sigma(D^{-1/2} A D^{-1/2} h W)$ with self-loops, chains and machine cliques."""
    env = make_env("jssp", 3, 4)
    td = env.reset(env.generator(2, rng=torch.Generator().manual_seed(0)))
    shop = Shop.of(td)
    num_ops = td["pad_mask"].shape[-1]
    network = DisjunctiveGCN(8, 2).double()
    x = torch.randn(2, num_ops, 8, generator=torch.Generator().manual_seed(1)).double()
    out = network(x, shop.times > 0, shop.follows)
    for b in range(2):
        adjacency = torch.eye(num_ops).double()
        for i in range(num_ops):
            for j in range(num_ops):
                same_job = td["ops_job_map"][b, i] == td["ops_job_map"][b, j]
                same_machine = td["ma_assignment"][b, i] == td["ma_assignment"][b, j]
                if i != j and ((same_job and abs(i - j) == 1) or same_machine):
                    adjacency[i, j] = 1.0
        root = adjacency.sum(-1).rsqrt().diag()
        norm = root @ adjacency @ root
        first, second = network.layers
        hidden = (norm @ x[b] @ first.weight.T + first.bias).relu()
        expected = norm @ hidden @ second.weight.T + second.bias + x[b]
        torch.testing.assert_close(out[b], expected)


def test_edge_attention_is_the_equation_in_loops():
    layer = EdgeAttention(4).double()
    rng = torch.Generator().manual_seed(0)
    x, other = (torch.randn(2, n, 4, generator=rng).double() for n in (3, 5))
    weights = torch.rand(2, 3, 5, generator=rng).double()
    edges = torch.rand(2, 3, 5, generator=rng) > 0.5
    edges[0, 0] = False  # only itself
    out = layer(x, other, weights, edges)

    def leaky(value: Tensor) -> Tensor:
        return torch.where(value > 0, value, 0.2 * value)

    for b in range(2):
        for i in range(3):
            own = x[b, i] @ layer.self_score
            scores, values = [leaky(own + own)], [x[b, i]]
            for j in range(5):
                if edges[b, i, j]:
                    edge = layer.edge_score[0] * weights[b, i, j]
                    scores.append(leaky(own + other[b, j] @ layer.other_score + edge))
                    values.append(other[b, j] + weights[b, i, j] * layer.edge_value)
            share = torch.stack(scores).softmax(0)
            expected = (share.unsqueeze(-1) * torch.stack(values)).sum(0)
            torch.testing.assert_close(out[b, i], expected)
    torch.testing.assert_close(out[0, 0], x[0, 0])


@pytest.mark.parametrize("cls", [MaskedInstanceNorm, MaskedBatchNorm])
def test_norms_look_at_real_nodes_only(cls):
    norm = cls(3, affine=True)
    torch.nn.init.uniform_(norm.weight)
    torch.nn.init.uniform_(norm.bias)
    x = torch.randn(4, 6, 3)
    real = torch.arange(6) < torch.tensor([[6], [3], [5], [2]])
    out = norm(x, real)
    assert not out[~real].any()
    for b in range(4):
        rows = x[b, real[b]] if cls is MaskedInstanceNorm else x[real]
        deviation = (rows.var(0, unbiased=False) + norm.eps).sqrt()
        expected = (x[b, real[b]] - rows.mean(0)) / deviation * norm.weight + norm.bias
        torch.testing.assert_close(out[b, real[b]], expected, atol=1e-5, rtol=1e-5)
    everything = torch.ones_like(real)
    torch.testing.assert_close(norm(x, everything), norm(x), atol=1e-5, rtol=1e-5)


# -------------------------------------------------------------------- features


@pytest.mark.parametrize("name", ENVS)
def test_features_of_pairs_by_hand(name):
    """Times, waits and loads of a state on the way, from the state's own numbers."""
    env = make_env(name, 4, 3)
    td = states_on_the_way(env, 5, 4)
    shop = Shop.of(td)
    keys = ("next_op", "time", "busy_until", "job_busy_until", "earliest_start", "action_mask")
    seen = observe({key: td[key].unsqueeze(1) for key in keys}, shop)
    for b in range(5):
        times, next_op = td["proc_times"][b], td["next_op"][b]
        scale = float(td["op_times"][b][~td["pad_mask"][b]].mean())
        load = torch.zeros(3)
        for o in range(times.shape[1]):
            if not td["op_scheduled"][b, o]:
                load += times[:, o] / (times[:, o] > 0).sum() / scale
        torch.testing.assert_close(seen.machines[b, 0, :, 2], load / 10)
        busy = (td["busy_until"][b] - td["time"][b]).clamp_min(0) / scale
        torch.testing.assert_close(seen.machines[b, 0, :, 0], busy)
        for j in range(4):
            op = int(next_op[j])
            if td["op_scheduled"][b, op]:
                assert not seen.left[b, 0, j]
                continue
            end = int(td["end_op_per_job"][b, j])
            after = float(td["op_times"][b, op + 1 : end + 1].sum()) / scale
            assert float(seen.jobs[b, 0, j, 1]) == pytest.approx(after / 10, abs=1e-5)
    assert len(seen.pairs) == int(td["action_mask"][:, 1:].sum())
    for pair, job, machine in zip(seen.pairs, seen.pair_job, seen.pair_machine, strict=True):
        b, j, m = int(job) // 4, int(job) % 4, int(machine) % 3
        assert int(machine) // 3 == b
        action = 1 + (j if name == "jssp" else 3 * j + m)
        assert td["action_mask"][b, action]
        op = int(td["next_op"][b, j])
        scale = float(td["op_times"][b][~td["pad_mask"][b]].mean())
        assert float(pair[0]) == pytest.approx(float(td["proc_times"][b, m, op]) / scale, abs=1e-5)
        assert float(pair[1]) == 0.0  # what can start need not wait


def test_units_of_time_do_not_matter():
    env = make_env("fjsp", 4, 3)
    instances = env.generator(3, rng=torch.Generator().manual_seed(0))
    seconds = instances.clone()
    seconds["proc_times"] = 60 * seconds["proc_times"]
    policy = L2DPolicy("matnet", "pointer", **TINY).eval()
    outs = [policy(env.reset(x), env, decode_type="greedy") for x in (instances, seconds)]
    assert torch.equal(outs[0]["actions"], outs[1]["actions"])
    torch.testing.assert_close(outs[0]["log_likelihood"], outs[1]["log_likelihood"])


# -------------------------------------------------------------------- policies


@pytest.mark.parametrize("stepwise", [False, True], ids=["once", "stepwise"])
@pytest.mark.parametrize(("encoder", "decoder"), CONFIGURATIONS)
@pytest.mark.parametrize("name", ENVS)
def test_padding_changes_nothing(name, encoder, decoder, stepwise):
    """More padded operations, jobs and machines: the same schedule, equally likely."""
    env = make_env(name)
    instances = env.generator(3, rng=torch.Generator().manual_seed(0))
    policy = L2DPolicy(encoder, decoder, env_name=name, stepwise_encoding=stepwise, **TINY)
    plain = policy(env.reset(instances), env, decode_type="greedy")
    padded = policy(env.reset(pad(instances, 2)), env, decode_type="greedy")
    torch.testing.assert_close(padded["reward"], plain["reward"])
    torch.testing.assert_close(
        padded["log_likelihood"], plain["log_likelihood"], atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("name", ENVS)
def test_common_padding_is_trimmed_from_every_key(name):
    """One operation of padding stays: it is what padded jobs point to."""
    env = make_env(name, 4, 3)
    instances = env.generator(3, rng=torch.Generator().manual_seed(0))
    size = instances["pad_mask"].shape[-1]
    td = env.reset(pad(instances, 7))
    trimmed = features.trim_padding(dict(td.items()))
    assert {key for key in td.keys() if td[key].shape[-1] == size + 7} == {
        key for key in features.OPERATION_KEYS if key in td.keys()
    }
    for key, value in trimmed.items():
        expected = td[key][..., : size + 1] if key in features.OPERATION_KEYS else td[key]
        assert torch.equal(value, expected), key


@pytest.mark.parametrize(("encoder", "decoder"), CONFIGURATIONS)
@pytest.mark.parametrize("name", ENVS)
def test_both_ways_to_encode_agree_on_the_first_step(name, encoder, decoder):
    """With the same weights; afterwards only one of them sees what has happened."""
    env = make_env(name)
    td = env.reset(env.generator(3, rng=torch.Generator().manual_seed(0)))
    once = L2DPolicy(encoder, decoder, env_name=name, **TINY).eval()
    anew = L2DPolicy(encoder, decoder, env_name=name, stepwise_encoding=True, **TINY).eval()
    anew.decoder.feature_extractor.load_state_dict(once.encoder.state_dict())
    anew.decoder.actor.load_state_dict(once.decoder.actor.state_dict())
    actions = once(td, env, decode_type="greedy")["actions"]
    steps = [
        p(td, env, actions=actions, return_sum_log_likelihood=False)["log_likelihood"]
        for p in (once, anew)
    ]
    torch.testing.assert_close(steps[0][:, 0], steps[1][:, 0])
    assert not torch.allclose(steps[0][:, 2:], steps[1][:, 2:])


@pytest.mark.parametrize(("encoder", "decoder"), CONFIGURATIONS)
@pytest.mark.parametrize("name", ENVS)
def test_gradients_reach_every_weight(name, encoder, decoder):
    """Waiting is allowed here, otherwise its weights have nothing to decide."""
    env = make_env(name, mask_no_ops=False)
    policy = L2DPolicy(encoder, decoder, env_name=name, **TINY)
    out = policy(env.reset(batch_size=8), env, decode_type="sampling", num_samples=4)
    (out["log_likelihood"] * torch.linspace(-1, 1, 32)).sum().backward()
    for weight_name, weight in policy.named_parameters():
        if name == "jssp" and ".rows.cross." in weight_name:
            continue  # operations have one machine to attend to: nothing to weigh
        assert weight.grad is not None, weight_name
        assert bool(weight.grad.isfinite().all()), weight_name
        assert bool((weight.grad != 0).any()), weight_name


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("waiting", [False, True])
def test_one_instance_and_waiting(name, waiting):
    env = make_env(name, mask_no_ops=not waiting)
    td = env.reset(batch_size=1)
    out = L2DAttnPolicy(env_name=name, **TINY, num_encoder_layers=1)(td, env)
    env.check_solution_validity(td, out["actions"])


@pytest.mark.parametrize("name", ENVS)
def test_acting_and_evaluating_are_the_forward_pass(name):
    """Step by step by `act`, evaluated by `evaluate`: the log-likelihood of the whole solution."""
    env = make_env(name)
    policy = L2DPolicy4PPO(env_name=name, **TINY).eval()
    first = env.reset(env.generator(4, rng=torch.Generator().manual_seed(0)))
    td, total, actions = first.clone(), torch.zeros(4), []
    rng = torch.Generator().manual_seed(1)
    while not td["done"].all():
        acted = policy.act(td, env, phase="train", rng=rng)
        log_prob, value, entropy = policy.evaluate(acted)
        torch.testing.assert_close(log_prob, acted["logprobs"])
        torch.testing.assert_close(value, acted["value"])
        assert log_prob.shape == value.shape == entropy.shape == (4,)
        assert bool((entropy >= 0).all())
        total = total + torch.where(td["done"].squeeze(-1), 0.0, log_prob)
        actions.append(acted["action"])
        td = env.step(td.set("action", acted["action"]))["next"]
    out = policy.evaluate(first, torch.stack(actions, -1), env)
    torch.testing.assert_close(out["log_likelihood"], total, atol=1e-5, rtol=1e-5)


def test_acting_is_greedy_outside_training():
    env = make_env("fjsp")
    policy = L2DPolicy4PPO(**TINY).eval()
    td = states_on_the_way(env, 6, 2)
    log_probs, _ = policy.evaluate_state(td)
    action = policy.act(td, env, phase="test")["action"]
    torch.testing.assert_close(gather_nodes(log_probs, action), log_probs.amax(-1))
    assert "logprobs" not in td.keys()


def test_states_do_not_depend_on_each_other():
    """Rows of a mini-batch come from any step of any instance."""
    env = make_env("fjsp")
    policy = L2DPolicy4PPO("matnet", "pointer", **TINY).eval()
    states = [states_on_the_way(env, 3, steps, seed=7) for steps in (0, 2, 4)]
    mixed = torch.cat([td.select(*states[0].keys()) for td in states])
    together = policy.evaluate_state(mixed)
    for row in range(9):
        alone = policy.evaluate_state(mixed[row : row + 1])
        torch.testing.assert_close(alone[0][0], together[0][row], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(alone[1][0], together[1][row], atol=1e-5, rtol=1e-5)


def test_published_arguments():
    """`het_emb` chooses the encoder; `scaling_factor` is the unit of time."""
    assert not L2DPolicy(env_name="jssp", het_emb=False, **TINY).encoder.has_machines
    assert L2DPolicy(env_name="jssp", het_emb=True, **TINY).encoder.has_machines
    td = make_env("jssp").reset(batch_size=2)
    torch.testing.assert_close(Shop.of(td, 1000.0).times, td["proc_times"] / 1000)


def test_bad_arguments_raise():
    with pytest.raises(UnknownNameError, match="hgnn"):
        L2DPolicy("hgn")
    with pytest.raises(UnknownNameError, match="pointer"):
        L2DPolicy(decoder="pointr")
    with pytest.raises(ConfigError, match="scaling_factor"):
        L2DPolicy(scaling_factor=0.0)
    with pytest.raises(ConfigError, match="stepwise_encoding"):
        L2DPolicy4PPO(stepwise_encoding=False)
    policy = L2DPolicy("gcn", **TINY)
    encoder, actor = policy.encoder, policy.decoder.actor
    for cls in (L2DPolicy, L2DPolicy4PPO):
        with pytest.raises(ConfigError, match=r"feature_extractor .* got one without"):
            cls(encoder, L2DDecoder(actor), stepwise_encoding=True)
        with pytest.raises(ConfigError, match=r"got also .*leave encoder out"):
            cls(copy.deepcopy(encoder), L2DDecoder(actor, encoder), stepwise_encoding=True)
    with pytest.raises(ConfigError, match="num_heads"):
        L2DPolicy("matnet", embed_dim=16, num_heads=3)
    for cls in (L2DModel, L2DPPOModel):
        with pytest.raises(UnsupportedError, match="fjsp, jssp"):
            cls(TSPEnv(generator_params={"num_loc": 5}))


@pytest.mark.parametrize("cls", [L2DAttnPolicy, L2DPolicy4PPO])
def test_saving_and_loading(cls, tmp_path):
    env = make_env("fjsp")
    td = env.reset(batch_size=3)
    policy = cls(**TINY, num_encoder_layers=1).eval()
    loaded = load_pretrained(policy.save_pretrained(tmp_path))
    outs = [p(td, env, decode_type="greedy") for p in (policy, loaded)]
    assert torch.equal(outs[0]["actions"], outs[1]["actions"])
    assert torch.equal(outs[0]["log_likelihood"], outs[1]["log_likelihood"])


# -------------------------------------------------------------------- learning


@pytest.mark.learning
@pytest.mark.parametrize("name", ENVS)
def test_learns_from_whole_schedules(name, require):
    env = make_env(name, 5, 3)
    torch.manual_seed(0)
    model = L2DModel(
        env, baseline="shared", num_samples=4, policy_kwargs=TINY, reward_scale="scale", seed=1
    )
    actor = model.policy.decoder.actor
    choose_at_random_(actor.score, actor.score_wait)
    ratio = cost_ratio(model, lambda: train_steps(model, 30, 32, 3e-3), num_samples=4)
    require("makespan after / before", ratio, below=0.96)


@pytest.mark.learning
def test_learns_from_single_steps(require):
    # Six jobs: with three there is mostly one that can start.
    env = make_env("jssp", 6, 3, stepwise_reward=True)
    torch.manual_seed(0)
    model = L2DPPOModel(
        env, policy_kwargs=TINY, reward_scale="scale", normalize_adv=True, gamma=1.0, seed=1
    )
    actor = model.policy.decoder.actor
    choose_at_random_(actor.score, actor.score_wait)

    def train() -> None:
        optimizer = torch.optim.Adam(model.policy.parameters(), lr=3e-3)
        for step in range(12):
            model.collect(env.generator(32, rng=derive_generator("train", step)), step)
            for _ in range(3):
                for rows in torch.randperm(len(model.buffer)).split(256):
                    optimizer.zero_grad()
                    model.calculate_loss(model.buffer.get(rows, model.device))["loss"].backward()
                    optimizer.step()
            model.buffer.clear()

    ratio = cost_ratio(model, train, num_samples=4)
    require("makespan after / before", ratio, below=0.985)


@pytest.mark.parametrize("env_name", ["jssp", "fjsp"])
@pytest.mark.parametrize("decoder", ["mlp", "pointer"])
def test_scoring_all_pairs_is_scoring_those_that_can_start(env_name, decoder, monkeypatch):
    """Other devices than the CPU score all pairs of jobs and machines, and mask most of them."""
    env = make_sized_env(env_name, 4, seed=1, mask_no_ops=False)
    policy = L2DPolicy(env_name=env_name, decoder=decoder, embed_dim=16).eval()
    td = env.reset(batch_size=3)
    out = policy(td, env, decode_type="sampling", num_samples=2)
    monkeypatch.setattr(features, "_scored", lambda startable: torch.arange(len(startable)))
    again = policy.evaluate(td, out["actions"], env)
    torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"])
