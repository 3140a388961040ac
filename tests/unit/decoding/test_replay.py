"""Replay of all steps at once = step by step, in values and gradients."""

from __future__ import annotations

import copy

from typing import Any

import pytest
import torch

from torch import Tensor

from rl4co.decoding import replay as pieces
from rl4co.decoding.replay import evaluate_logits, replay
from rl4co.decoding.rollout import DecodingTask, expand_solutions
from rl4co.decoding.strategies import Greedy, Sampling
from rl4co.models import AttentionModelDecoder, AttentionModelPolicy
from tests.numerics import assert_same_gradients

NETWORKS = {
    "am": {},
    "pomo": {"normalization": "instance", "use_graph_context": False, "num_encoder_layers": 2},
    "layer": {"normalization": "layer"},
    "no-norm": {"normalization": None},
    "no-graph-context": {"use_graph_context": False},
    "open-glimpse": {"mask_inner": False},
    "out-bias": {"out_bias_pointer_attn": True},
    "decoder-bias": {"linear_bias_decoder": True},
    "no-clipping": {"tanh_clipping": 0.0},
}
DECODINGS = {
    "sampling": {"decode_type": "sampling"},
    "samples": {"decode_type": "sampling", "num_samples": 3},
    "multistart": {"decode_type": "multistart_sampling"},
    "greedy": {"decode_type": "greedy"},
    "temperature": {"decode_type": "sampling", "temperature": 0.6},
    "top-k": {"decode_type": "sampling", "top_k": 3},
    "top-p": {"decode_type": "sampling", "top_p": 0.7},
}


class StepByStep(AttentionModelDecoder):
    """The same decoder without replay: an autograd graph of T small steps."""

    @property
    def replay_keys(self) -> None:
        return None


def evaluates(logits_fn):
    """A function that evaluates actions by logits."""
    return lambda state, *rest: evaluate_logits(logits_fn(state), state, *rest)


def step_by_step(policy: AttentionModelPolicy) -> AttentionModelPolicy:
    """A copy of the policy, with the same weights, that must follow the steps."""
    twin = copy.deepcopy(policy)
    twin.decoder.__class__ = StepByStep
    return twin


def weighted_loss(values: Tensor) -> Tensor:
    """A loss in which every row counts differently, so that mixed-up rows change gradients.

    Divided by the root of their number, so that gradients are of the order of one.
    """
    weight = torch.linspace(-1.0, 1.0, values.numel()).view_as(values)
    return (weight * values).sum() / values.numel() ** 0.5


def assert_same(policy, td, env, *, entropy: bool, **settings) -> None:
    """Values to 1e-5 and gradients to 1e-4 against the step-by-step computation.

    The entropy needs the whole distribution; without it a shorter road may be taken, so callers
    try both.
    """
    slow = step_by_step(policy)
    outs = []
    for network in (policy, slow):
        network.train()
        out = network(
            td,
            env,
            return_entropy=entropy,
            return_sum_log_likelihood=False,
            rng=torch.Generator().manual_seed(11),
            **settings,
        )
        loss = weighted_loss(out["log_likelihood"])
        if entropy:
            loss = loss + weighted_loss(out["entropy"])
        loss.backward()
        outs.append(out)
    fast, reference = outs
    assert torch.equal(fast["actions"], reference["actions"])
    assert float(reference["log_likelihood"].detach().min()) < -0.5, "nothing was decided"
    torch.testing.assert_close(
        fast["log_likelihood"], reference["log_likelihood"], atol=1e-5, rtol=1e-5
    )
    if entropy:
        torch.testing.assert_close(fast["entropy"], reference["entropy"], atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(fast["reward"], reference["reward"])
    assert all(weight.grad is not None for weight in policy.parameters())
    assert_same_gradients(policy, slow)
    assert any(bool(p.grad.abs().max() > 1e-2) for p in policy.parameters())


BOTH = pytest.mark.parametrize("entropy", [False, True], ids=["likelihood", "with-entropy"])


def both(test: Any) -> Any:
    """With and without the entropy; all such tests compare the two roads."""
    return pytest.mark.numerical(BOTH(test))


@pytest.fixture(params=["tsp", "cvrp"])
def instances(request, make_env):
    env = make_env(request.param, 9)
    return env, env.reset(batch_size=4)


@both
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("decoding", ["samples", "multistart"])
def test_replay_is_step_by_step_for_every_network(
    instances, make_policy, network, decoding, entropy
):
    env, td = instances
    policy = make_policy(env.name, **NETWORKS[network])
    assert_same(policy, td, env, entropy=entropy, **DECODINGS[decoding])


@both
@pytest.mark.parametrize("decoding", DECODINGS)
def test_replay_is_step_by_step_for_every_strategy(instances, make_policy, decoding, entropy):
    env, td = instances
    assert_same(make_policy(env.name), td, env, entropy=entropy, **DECODINGS[decoding])


@both
@pytest.mark.parametrize("name", ["tsp", "cvrp"])
def test_large_replays(name, make_env, make_policy, entropy):
    """Hundreds of queries per instance, for which other kernels may be chosen than for a step."""
    env = make_env(name, 20)
    td = env.reset(batch_size=24)
    assert_same(make_policy(name), td, env, entropy=entropy, decode_type="multistart_sampling")


@both
@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("decoding", ["samples", "multistart"])
def test_replay_in_pieces(instances, make_policy, chunk, decoding, entropy):
    """One step, seven steps and more steps than there are."""
    env, td = instances
    policy = make_policy(env.name, replay_chunk=chunk)
    assert_same(policy, td, env, entropy=entropy, **DECODINGS[decoding])


@both
@pytest.mark.parametrize("chunk", [None, 4])
def test_evaluation_is_step_by_step(instances, make_policy, chunk, entropy):
    """Given actions, two solutions per instance."""
    env, td = instances
    policy = make_policy(env.name, replay_chunk=chunk)
    with torch.no_grad():
        actions = policy(td, env, decode_type="sampling", num_samples=2)["actions"]
    assert_same(policy, td, env, entropy=entropy, actions=actions)


@pytest.mark.numerical
@pytest.mark.parametrize("decoding", ["samples", "multistart"])
def test_replay_in_double_precision(instances, make_policy, decoding):
    """Without rounding the two roads agree to twelve digits."""
    env, td = instances
    td = td.apply(lambda x: x.double() if x.is_floating_point() else x)
    fast = make_policy(env.name).double()
    slow = step_by_step(fast)
    outs = []
    for policy in (fast, slow):
        settings = {"rng": torch.Generator().manual_seed(3), **DECODINGS[decoding]}
        outs.append(policy(td, env, **settings)["log_likelihood"])
        weighted_loss(outs[-1]).backward()
    assert outs[0].dtype == torch.float64
    torch.testing.assert_close(*outs, atol=1e-10, rtol=1e-10)
    for ours, theirs in zip(fast.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-10, rtol=1e-8)


# ---------------------------------------------------------------- the road that is taken


def record_calls(policy) -> list[tuple[bool, int]]:
    """(gradients enabled, number of queries Q) of every call of the decoder from now on."""
    calls: list[tuple[bool, int]] = []

    original = policy.decoder.forward

    def watching(state, cache):
        calls.append((torch.is_grad_enabled(), state["action_mask"].shape[1]))
        return original(state, cache)

    policy.decoder.forward = watching
    return calls


def test_training_builds_one_graph_for_all_steps(instances, make_policy):
    """T calls without gradients, one call with the queries of all steps (a start has none)."""
    env, td = instances
    policy = make_policy(env.name)
    calls = record_calls(policy)
    out = policy(td, env, decode_type="multistart_sampling", num_starts=3)
    steps = out["actions"].shape[-1]
    # With kernels off the loop may take steps after the end, which are dropped.
    assert set(calls[:-1]) == {(False, 3)}
    assert len(calls[:-1]) >= steps - 1
    assert calls[-1] == (True, 3 * (steps - 1))


@pytest.mark.parametrize("decoding", ["sampling", "samples", "multistart", "top-k"])
@pytest.mark.parametrize("limit", [1, 500, 2**20])  # logits: parts of an instance, some, all
def test_pieces_change_nothing(instances, make_policy, decoding, limit, monkeypatch):
    """Likelihoods, entropies and gradients, however a batch is cut."""
    env, td = instances
    td = td.apply(lambda x: x.double() if x.is_floating_point() else x)
    policy = make_policy(env.name).double()
    found = []
    for size in (2**30, limit):
        monkeypatch.setattr(pieces, "PIECE", {"cpu": size})
        monkeypatch.setattr(pieces, "MAX_UNSPLIT", 1)
        settings = {"rng": torch.Generator().manual_seed(3), **DECODINGS[decoding]}
        out = policy(td, env, return_entropy=True, **settings)
        policy.zero_grad()
        weighted_loss(out["log_likelihood"] + out["entropy"]).backward()
        found.append(
            [out["log_likelihood"], out["entropy"], *(p.grad for p in policy.parameters())]
        )
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-8)


def test_large_batches_are_cut_by_instance(make_env, make_policy, monkeypatch):
    """Each piece has all steps of some instances, and is computed again in the backward pass."""
    env, policy = make_env("tsp", 9), make_policy("tsp")
    monkeypatch.setattr(pieces, "PIECE", {"cpu": 2 * 9 * 9})
    monkeypatch.setattr(pieces, "MAX_UNSPLIT", 1)
    sizes = []
    policy.decoder.register_forward_hook(lambda _, given, out: sizes.append(out.shape[:2]))
    out = policy(env.reset(batch_size=5), env)
    assert sizes[9:] == [(2, 9), (2, 9), (1, 9)]
    del sizes[:]
    out["log_likelihood"].sum().backward()
    assert sorted(sizes) == [(1, 9), (2, 9), (2, 9)]


def test_pieces_bound_the_number_of_queries(make_env, make_policy):
    """Nine steps in pieces of four: 4, 4 and 1, each once more in the backward pass."""
    env, policy = make_env("tsp", 9), make_policy("tsp", replay_chunk=4)
    td = env.reset(batch_size=2)
    calls = record_calls(policy)
    out = policy(td, env, decode_type="sampling", num_samples=2)
    assert [queries for grad, queries in calls if grad] == [8, 8, 2]
    calls.clear()
    out["log_likelihood"].sum().backward()
    assert sorted(queries for _, queries in calls) == [2, 8, 8]


def test_step_by_step_decoders_have_no_replay(instances, make_policy):
    """A decoder without replay keys is called once per step, with gradients."""
    env, td = instances
    policy = step_by_step(make_policy(env.name))
    calls = record_calls(policy)
    out = policy(td, env, decode_type="sampling")
    assert calls == [(True, 1)] * out["actions"].shape[-1]
    assert out["log_likelihood"].requires_grad


def test_without_gradients_there_is_no_replay(instances, make_policy):
    """Inference needs the steps only."""
    env, td = instances
    policy = make_policy(env.name)
    calls = record_calls(policy)
    with torch.no_grad():
        out = policy(td, env, decode_type="sampling")
    assert calls == [(False, 1)] * out["actions"].shape[-1]


def test_the_encoder_runs_once(instances, make_policy):
    """Statistics of batch normalisation see a training batch once, not once per pass."""
    env, td = instances
    policy = make_policy(env.name).train()
    policy(td, env, decode_type="multistart_sampling")["log_likelihood"].sum().backward()
    norm = policy.encoder.net.layers[0].norm_attention
    assert int(norm.num_batches_tracked) == 1


def test_gradients_of_forced_starts_are_absent(make_env, make_policy):
    """The first action of multi-start is given: its step has log-probability 0, exactly."""
    env, policy = make_env("tsp", 6), make_policy("tsp")
    out = policy(
        env.reset(batch_size=3),
        env,
        decode_type="multistart_sampling",
        return_sum_log_likelihood=False,
    )
    assert out["log_likelihood"].shape == (18, 6)
    assert out["log_likelihood"][:, 0].tolist() == [0.0] * 18
    assert bool((out["log_likelihood"][:, 1:-1] < 0).all())


@pytest.mark.parametrize("settings", [{"top_k": 2}, {"top_p": 0.5}], ids=str)
def test_truncation_does_not_move_in_the_replay(make_env, settings, rng):
    """Nearly equal logits: what was in the truncated support when drawn is in it when replayed.

    The replay of this policy differs from its steps by a rounding error, as the products of a
    network do. Recomputing the border between kept and dropped actions would put some chosen
    actions on the wrong side: probability zero, an infinite loss.
    """
    env = make_env("tsp", 8)
    td = env.reset(batch_size=50)
    table = 1e-6 * torch.randn(50, 8, generator=rng)
    noise = [0.0]

    def logits_fn(state):
        moved = table + noise[0] * torch.randn(50, 8, generator=rng)
        return moved.unsqueeze(1).expand(state["action_mask"].shape)

    strategy = Sampling(rng=rng, **settings)
    state = expand_solutions(dict(td.items()), 1)
    made = strategy.run(DecodingTask(env, state, logits_fn, record=("action_mask",)))
    noise[0] = 1e-6
    log_probs, _ = replay(evaluates(logits_fn), made, strategy)
    assert bool(log_probs.isfinite().all())
    torch.testing.assert_close(log_probs, made.log_probs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("settings", [{"temperature": 0.5}, {"tanh_clipping": 4.0}, {}], ids=str)
def test_replay_function_on_a_table(make_env, table_logits, rng, settings):
    """`replay` by itself, with a policy that is a table: the values of the decode loop."""
    strategy = Greedy(**settings)
    env = make_env("tsp", 6)
    td = env.reset(batch_size=3)
    table = torch.randn(3, 6, 6, generator=rng, requires_grad=True)
    logits_fn = table_logits(table)
    starts = env.start_actions(dict(td.items()), 2)
    task = DecodingTask(
        env,
        expand_solutions(dict(td.items()), 2),
        logits_fn,
        starts=(starts,),
        record=("current_node", "action_mask"),
        with_entropy=True,
    )
    made = strategy.run(task)
    theirs = torch.autograd.grad(made.log_probs.sum(), table)[0]
    for chunk in (None, 2, 100):
        log_probs, entropy = replay(
            evaluates(logits_fn), made, strategy, chunk=chunk, with_entropy=True
        )
        torch.testing.assert_close(log_probs, made.log_probs)
        torch.testing.assert_close(entropy, made.entropy)
        alone, nothing = replay(evaluates(logits_fn), made, strategy, chunk=chunk)
        assert nothing is None
        torch.testing.assert_close(alone, made.log_probs)
        for values in (log_probs, alone):
            torch.testing.assert_close(torch.autograd.grad(values.sum(), table)[0], theirs)
