"""Arguments of a policy call: partial solutions, other precisions, published conventions."""

from __future__ import annotations

import pytest
import torch

from torch import nn

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.ops import batchify
from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import POMO, AttentionModel, AttentionModelPolicy, DeepACO, DeepACOPolicy
from rl4co.models.rl.baselines import RolloutBaseline

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}
SIZE = 6


def make(env_cls, **options):
    """Environment, untrained policy and four states."""
    env = env_cls(generator_params={"num_loc": SIZE}, seed=3)
    policy = AttentionModelPolicy(env_name=env.name, **{**TINY, **options}).eval()
    return env, policy, env.reset(batch_size=4)


def walked(env, td, actions):
    """The state after some actions `[B, t]`."""
    for action in actions.unbind(-1):
        td = env.step(td.clone().set("action", action))["next"]
    return td


def without_waiting(actions: torch.Tensor) -> list[list[int]]:
    """Solutions without the depot visits behind their end."""
    return [row[: max(t for t, a in enumerate(row) if a) + 1] for row in actions.tolist()]


# ---------------------------------------------------------------- steps behind a state


@pytest.mark.parametrize("env_cls", [TSPEnv, CVRPEnv])
@pytest.mark.parametrize("grad", [True, False], ids=["replay", "steps"])
@pytest.mark.parametrize("settings", [{"decode_type": "greedy"}, {"decode_type": "beam_search"}])
@pytest.mark.parametrize("taken", [1, 3, SIZE - 1])
def test_policy_goes_on_from_a_partial_solution(env_cls, grad, settings, taken):
    """The rest is what the policy would have done anyway, and complete solutions are valid."""
    env, policy, td = make(env_cls)
    settings = {"beam_width": 1, **settings} if settings["decode_type"] != "greedy" else settings
    with torch.set_grad_enabled(grad):
        whole = policy(td, env, return_sum_log_likelihood=False, **settings)
        partial = walked(env, td, whole["actions"][:, :taken])
        rest = policy(partial, env, calc_reward=False, return_sum_log_likelihood=False, **settings)
    complete = torch.cat([whole["actions"][:, :taken], rest["actions"]], -1)
    assert without_waiting(complete) == without_waiting(whole["actions"])
    torch.testing.assert_close(env.get_reward(td, complete), whole["reward"])
    likelihood = whole["log_likelihood"][:, taken:].sum(-1)
    torch.testing.assert_close(rest["log_likelihood"].sum(-1), likelihood, atol=1e-5, rtol=1e-5)
    assert "reward" not in rest
    if env_cls is TSPEnv:
        assert rest["actions"].shape == (4, SIZE - taken)


@pytest.mark.parametrize("env_cls", [TSPEnv, CVRPEnv])
def test_instances_may_have_come_differently_far(env_cls):
    """Those that finish early wait, and waiting is certain."""
    env, policy, td = make(env_cls)
    with torch.no_grad():
        whole = policy(td, env, decode_type="greedy")
        parts = [walked(env, td, whole["actions"][:, :taken]) for taken in (2, 4)]
        alone = [policy(part, env, decode_type="greedy", calc_reward=False) for part in parts]
        both = policy(torch.cat(parts), env, decode_type="greedy", calc_reward=False)
    torch.testing.assert_close(
        both["log_likelihood"],
        torch.cat([out["log_likelihood"] for out in alone]),
        atol=1e-5,
        rtol=1e-5,
    )
    further = both["actions"][4:]
    assert torch.equal(further[:, : SIZE - 4], alone[1]["actions"][:, : SIZE - 4])
    if env_cls is TSPEnv:
        assert (further[:, SIZE - 4 :] == further[:, SIZE - 5, None]).all()


@pytest.mark.parametrize("env_cls", [TSPEnv, CVRPEnv])
def test_sampling_from_a_partial_solution(env_cls):
    """Several different remainders, each valid."""
    env, policy, td = make(env_cls)
    start = td["action_mask"].long().argmax(-1, keepdim=True)  # [B, 1]
    partial = walked(env, td, start)
    out = policy(partial, env, decode_type="sampling", num_samples=8, calc_reward=False)
    complete = torch.cat([batchify(start, 8), out["actions"]], -1)
    env.check_solution_validity(batchify(td, 8), complete)
    assert len({tuple(row) for row in complete.tolist()}) > 8


def test_remainder_can_be_evaluated():
    env, policy, td = make(TSPEnv)
    partial = walked(env, td, torch.zeros(4, 1, dtype=torch.int64))
    out = policy(partial, env, decode_type="sampling", calc_reward=False)
    again = policy.evaluate(partial, out["actions"], env, calc_reward=False)
    torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"], atol=1e-5, rtol=1e-5)


def test_what_needs_a_fresh_state_says_so():
    """The reward of a remainder, starts in the middle, and nothing left to do."""
    env, policy, td = make(TSPEnv)
    partial = walked(env, td, torch.zeros(4, 1, dtype=torch.int64))
    with pytest.raises(ConfigError, match=r"calc_reward=False.*torch\.cat"):
        policy(partial, env)
    with pytest.raises(ConfigError, match="right after reset for multi-start"):
        policy(partial, env, decode_type="multistart_greedy", calc_reward=False)
    finished = walked(env, td, torch.arange(SIZE).expand(4, SIZE))
    with pytest.raises(ConfigError, match="something left to decide, got finished ones only"):
        policy(finished, env, calc_reward=False)


def test_bounds_of_the_rest():
    """Fewest from the instance that came furthest, most from the one that came least far."""
    env = CVRPEnv(generator_params={"num_loc": SIZE})
    td = env.reset(batch_size=2)
    state = dict(td.items())
    fewest, most = env.step_bounds(state)
    assert env.steps_left(state) == (fewest, most)
    state["i"] = torch.tensor([[1], [3]])
    assert env.steps_left(state) == (fewest - 3, most - 1)
    state["i"] = torch.tensor([[most], [100]])
    assert env.steps_left(state) == (0, 0)


# ---------------------------------------------------------------- precision


@pytest.mark.parametrize("env_cls", [TSPEnv, CVRPEnv])
@pytest.mark.parametrize("grad", [True, False], ids=["replay", "steps"])
def test_double_instances_are_solved_in_the_policys_precision(env_cls, grad):
    """The solutions of the rounded instances, with rewards of the exact ones."""
    env, policy, _ = make(env_cls)
    exact = env.generate(4).double()
    for key in exact.keys():  # half of a float32's last digit
        exact[key] = exact[key] * (1 - 2**-26) if exact[key].is_floating_point() else exact[key]
    double = env.reset(exact)
    single = env.reset(exact.float())
    with torch.set_grad_enabled(grad):
        out = policy(double, env, decode_type="greedy")
        expected = policy(single, env, decode_type="greedy")
    assert torch.equal(out["actions"], expected["actions"])
    assert out["log_likelihood"].dtype == torch.float32
    torch.testing.assert_close(out["log_likelihood"], expected["log_likelihood"])
    assert out["reward"].dtype == torch.float64
    assert torch.equal(out["reward"], env.get_reward(double, out["actions"]))
    assert double["locs"].dtype == torch.float64


def test_policy_in_double_precision_solves_single_instances():
    env, policy, td = make(TSPEnv)
    with torch.no_grad():
        expected = policy(td, env, decode_type="greedy")
        out = policy.double()(td, env, decode_type="greedy")
    assert torch.equal(out["actions"], expected["actions"])
    assert out["log_likelihood"].dtype == torch.float64
    assert out["reward"].dtype == torch.float32


@pytest.mark.parametrize("baseline", ["exponential", RolloutBaseline(), "critic"], ids=str)
def test_training_on_double_instances(baseline):
    """Also the networks of baselines."""
    env = CVRPEnv(generator_params={"num_loc": SIZE})
    model = AttentionModel(env, baseline=baseline, policy_kwargs=TINY)
    out = model.shared_step(env.generate(4).double(), 0, "train")
    out["loss"].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.policy.parameters())


# ---------------------------------------------------------------- published dynamic embeddings


class Static(nn.Module):
    """As in the published package: nothing changes."""

    def forward(self, td):
        return 0, 0, 0


class Wrong(nn.Module):
    def forward(self, td):
        return 0, 1, 0


@pytest.mark.parametrize("grad", [True, False], ids=["replay", "steps"])
def test_dynamic_embedding_of_zeros_is_none(grad):
    env, _, td = make(TSPEnv)
    torch.manual_seed(0)
    plain = AttentionModelPolicy(env_name="tsp", **TINY).eval()
    torch.manual_seed(0)
    static = AttentionModelPolicy(env_name="tsp", dynamic_embedding=Static(), **TINY).eval()
    assert static.decoder.dynamic_embedding is None
    with torch.set_grad_enabled(grad):
        outs = [each(td, env, decode_type="greedy") for each in (plain, static)]
    assert torch.equal(outs[0]["actions"], outs[1]["actions"])
    assert torch.equal(outs[0]["log_likelihood"], outs[1]["log_likelihood"])


def test_dynamic_embedding_of_other_numbers_raises():
    with pytest.raises(ConfigError, match=r"Wrong, got \(0, 1, 0\)"):
        make(TSPEnv, dynamic_embedding=Wrong())


def test_pomo_with_a_published_dynamic_embedding():
    env = TSPEnv(generator_params={"num_loc": SIZE})
    model = POMO(env, policy_kwargs={**TINY, "dynamic_embedding": Static()}, num_augment=1)
    out = model.policy(env.reset(batch_size=2), env, decode_type="multistart_greedy")
    assert out["reward"].shape == (2 * SIZE,)


# ---------------------------------------------------------------- states of another problem


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(("made_for", "other"), [(TSPEnv, CVRPEnv), (CVRPEnv, TSPEnv)])
def test_state_of_another_problem_raises(made_for, other, gradients: bool):
    """With the names of both, not with the first key that is not there."""
    _, policy, _ = make(made_for)
    env, _, td = make(other)
    message = f"a state of {made_for.name}, which this .* got one of {other.name} \\(missing: "
    with torch.set_grad_enabled(gradients):
        for given in (env, env.name):
            with pytest.raises(UnsupportedError, match=message):
                policy(td, given)


def test_missing_key_of_the_own_problem_stays_what_it_is():
    """The message names the missing key and the environment."""
    env, policy, td = make(TSPEnv)
    with pytest.raises(UnsupportedError, match=r"first_node.*tsp.*env\.reset"):
        policy(td.exclude("first_node"), env)


@pytest.mark.parametrize(("made_for", "other"), [(TSPEnv, CVRPEnv), (CVRPEnv, TSPEnv)])
def test_state_of_another_problem_without_an_environment_raises(made_for, other):
    """`policy(td)` reads the state as one of its own problem: the message lists missing keys."""
    _, policy, _ = make(made_for)
    _, _, td = make(other)
    missing = {"tsp": "'first_node'", "cvrp": "'demand', "}[made_for.name]
    with pytest.raises(UnsupportedError, match=rf"{missing}.* states of {made_for.name}.*reset"):
        policy(td)


def test_a_state_that_was_written_into_raises_with_the_key():
    """The message names the key, both shapes and `env.reset`."""
    env, policy, td = make(CVRPEnv)
    instance = {"locs": torch.rand(len(td), 9, 2), "demand": torch.full((len(td), 8), 0.1)}
    td.update({**instance, "action_mask": torch.ones(len(td), 9, dtype=torch.bool)})
    with pytest.raises(ConfigError, match=r"'demand' of shape \[9\] .* got \[8\]; .* env.reset"):
        policy(td, env, decode_type="greedy")
    env, policy, td = make(TSPEnv)
    td["locs"] = torch.rand(len(td), 9, 2)
    td["action_mask"] = torch.ones(len(td), 9, dtype=torch.bool)
    with pytest.raises(ConfigError, match=r"'available' of shape \[9\] .* got \[6\]; .* env.reset"):
        policy(td, env, decode_type="greedy")


# ---------------------------------------------------------------- compilation


def test_compiled_policies_decode_and_train():
    """One compiled policy: several samples, multi-start and a training step in turn."""
    env = TSPEnv(generator_params={"num_loc": 4}, seed=3)
    policy, td = AttentionModelPolicy(env_name="tsp", **TINY), env.reset(batch_size=2)
    torch.compiler.reset()
    compiled = torch.compile(policy, backend="eager")
    for settings in (
        {"decode_type": "sampling", "num_samples": 2},
        {"decode_type": "multistart_greedy"},
    ):
        with torch.no_grad():
            out = compiled(td, env, phase="test", **settings)
            rows = batchify(td, len(out["actions"]) // len(td))
        torch.testing.assert_close(out["reward"], env.get_reward(rows, out["actions"]))
    out = compiled(td, env, phase="train", decode_type="multistart_sampling")
    out["log_likelihood"].sum().backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in policy.decoder.parameters())


# ---------------------------------------------------------------- environments of other kinds


class ForwardingEnv:
    """A wrapper that forwards every attribute to an environment."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.__dict__["env"], name)


def test_a_wrapped_environment_is_an_environment():
    """It is not mistaken for a name; what is neither raises."""
    env, policy, td = make(TSPEnv)
    for settings in ({"decode_type": "greedy"}, {"decode_type": "multistart_greedy"}):
        wrapped = policy(td, ForwardingEnv(env), **settings)
        assert torch.equal(wrapped["actions"], policy(td, env, **settings)["actions"])
    with pytest.raises(ConfigError, match="environment"):
        policy(td, 3)
    with pytest.raises(ConfigError, match=r"class .*TSPEnv"):
        policy(td, TSPEnv)


def test_ants_accept_wrapped_environments():
    """Optional hooks, such as local search and compiled samplers, are found behind the wrapper."""
    env = TSPEnv(generator_params={"num_loc": 6})
    policy = DeepACOPolicy("tsp", embed_dim=8, n_ants=3).eval()
    td = env.reset(env.generate(2))
    by_env, by_wrapper = (policy(td, each, phase="test") for each in (env, ForwardingEnv(env)))
    assert torch.equal(by_env["actions"], by_wrapper["actions"])
    assert DeepACO(ForwardingEnv(env), policy=policy).searches


def test_a_state_of_another_problem_raises():
    """Also where the policy falls back to its default environment."""
    _, policy, _ = make(TSPEnv)
    env, _, td = make(CVRPEnv)
    for given in (TSPEnv(), None):
        with pytest.raises(UnsupportedError, match="first_node"):
            policy(td, given)
    with pytest.raises(UnsupportedError, match="cvrp"):
        policy(td, env)
