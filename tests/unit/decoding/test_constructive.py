"""What a constructive policy makes of a decode type: rows, starts, samples, evaluation."""

from __future__ import annotations

import math

import pytest
import torch

from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    NotFiniteError,
    RL4COError,
    UnknownNameError,
)
from rl4co.core.ops import batchify, unbatchify
from rl4co.envs import TSPEnv

ENVS = ["tsp", "cvrp"]
DECODINGS = {
    "greedy": {"decode_type": "greedy"},
    "sampling": {"decode_type": "sampling"},
    "samples": {"decode_type": "sampling", "num_samples": 3},
    "multistart_greedy": {"decode_type": "multistart_greedy"},
    "multistart_sampling": {"decode_type": "multistart_sampling", "num_starts": 4},
    "beam_search": {"decode_type": "beam_search", "beam_width": 3},
    "best_of_starts": {"decode_type": "multistart_greedy", "select_best": True},
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=ENVS)
def setup(request, make_env, make_policy):
    """Environment with seven nodes, a small policy, five instances."""
    env = make_env(request.param, 7)
    return env, make_policy(request.param), env.reset(batch_size=5)


# ---------------------------------------------------------------- rows


@torch.no_grad()
@pytest.mark.parametrize("decoding", DECODINGS)
def test_row_order(setup, decoding):
    """Row s * B + b is a solution of instance b: rewards agree with the instances repeated so.

    The reward of a solution under another instance's coordinates differs, so a wrong order shows.
    """
    env, policy, td = setup
    out = policy(td, env, phase="test", **DECODINGS[decoding])
    rows = len(out["reward"])
    assert rows % 5 == 0
    repeated = batchify(td, rows // 5)
    torch.testing.assert_close(out["reward"], env.get_reward(repeated, out["actions"]))
    assert out["log_likelihood"].shape == (rows,)
    rotated = out["actions"].roll(1, dims=0)
    if rows > 1:
        other = env.get_reward(repeated, rotated, check_solution=False)
        assert not torch.allclose(out["reward"], other, atol=1e-3)


@torch.no_grad()
def test_start_s_of_row(setup):
    """The first action of row s * B + b is start s."""
    env, policy, td = setup
    out = policy(td, env, phase="test", decode_type="multistart_greedy", num_starts=4)
    first = unbatchify(out["actions"][:, 0], 4)  # [B, S]
    assert torch.equal(first, env.start_actions(dict(td.items()), 4))


# ---------------------------------------------------------------- starts and samples


@torch.no_grad()
def test_multistart_is_the_same_starts_one_by_one(setup):
    """Actions, rewards and likelihoods."""
    env, policy, td = setup
    num_starts = env.get_num_starts(td)
    out = policy(td, env, phase="test", decode_type="multistart_greedy")
    together = {key: unbatchify(out[key], num_starts) for key in ("reward", "log_likelihood")}
    actions = unbatchify(out["actions"], num_starts)  # [B, S, T]
    starts = env.start_actions(dict(td.items()), num_starts)  # [B, S]
    for s in range(num_starts):
        one = policy(
            td,
            env,
            phase="test",
            decode_type="multistart_greedy",
            num_starts=1,
            select_start_nodes_fn=lambda td, env, n, s=s: starts[:, s],
        )
        length = one["actions"].shape[-1]
        assert torch.equal(one["actions"], actions[:, s, :length])
        assert not bool(actions[:, s, length:].any()), "padding stays at the depot"
        for key, value in together.items():
            torch.testing.assert_close(one[key], value[:, s], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_too_many_starts_are_rejected(setup):
    env, policy, td = setup
    available = env.get_num_starts(td)
    with pytest.raises(ConfigError, match=f"1 to {available} starts"):
        policy(td, env, decode_type="multistart_greedy", num_starts=available + 1)


@torch.no_grad()
def test_samples_are_drawn_from_the_first_step_on(setup):
    """All actions of a sample come from the policy: the likelihood includes the first one."""
    env, policy, td = setup
    settings = {"decode_type": "sampling", "num_samples": 40, "return_sum_log_likelihood": False}
    out = policy(td, env, phase="test", rng=seeded(), **settings)
    first = unbatchify(out["log_likelihood"][:, 0], 40)
    assert bool((first < 0).all())
    assert len(set(out["actions"][::5, 0].tolist())) > 2, "samples of instance 0 all start alike"


@torch.no_grad()
def test_sampling_repeats_with_the_same_generator(setup):
    env, policy, td = setup
    first, again, other = (
        policy(td, env, phase="test", decode_type="sampling", num_samples=4, rng=seeded(s))
        for s in (1, 1, 2)
    )
    assert torch.equal(first["actions"], again["actions"])
    assert torch.equal(first["log_likelihood"], again["log_likelihood"])
    assert not torch.equal(first["reward"], other["reward"])


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {"decode_type": "sampling", "num_samples": 8},
        {"decode_type": "multistart_greedy"},
        {"decode_type": "multistart_sampling", "num_starts": 3},
        {"decode_type": "beam_search", "beam_width": 6},
    ],
    ids=lambda settings: settings["decode_type"],
)
@pytest.mark.parametrize("summed", [True, False], ids=["summed", "per-step"])
def test_select_best_keeps_the_solution_of_the_highest_reward(setup, settings, summed):
    """Its reward, its actions and its likelihood, for every instance."""
    env, policy, td = setup
    settings = {**settings, "phase": "test", "return_sum_log_likelihood": summed}
    every = policy(td, env, rng=seeded(), **settings)
    best = policy(td, env, rng=seeded(), select_best=True, **settings)
    number = len(every["reward"]) // 5
    reward = unbatchify(every["reward"], number)
    torch.testing.assert_close(best["reward"], reward.max(1).values)
    assert bool((reward.max(1).values > reward.min(1).values).any()), "nothing to choose from"
    for b in range(5):
        row = int(reward[b].argmax()) * 5 + b
        assert torch.equal(best["actions"][b], every["actions"][row])
        assert torch.equal(best["log_likelihood"][b], every["log_likelihood"][row])


def test_select_best_needs_the_reward(setup):
    env, policy, td = setup
    with pytest.raises(ConfigError, match="calc_reward=True"):
        policy(td, env, decode_type="multistart_greedy", select_best=True, calc_reward=False)


# ---------------------------------------------------------------- evaluation of given actions


@pytest.mark.parametrize("decoding", ["greedy", "sampling", "samples", "beam_search"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
def test_evaluate_gives_the_likelihood_of_the_decode(setup, decoding, grad):
    """Per step and summed, with and without gradients, one solution per instance or several."""
    env, policy, td = setup
    with torch.set_grad_enabled(grad):
        settings = {"phase": "test", "return_sum_log_likelihood": False}
        out = policy(td, env, **settings, **DECODINGS[decoding])
        given = policy(td, env, actions=out["actions"], **settings)
        summed = policy.evaluate(td, out["actions"], env)
    assert torch.equal(given["actions"], out["actions"])
    torch.testing.assert_close(given["log_likelihood"], out["log_likelihood"], atol=1e-5, rtol=0)
    torch.testing.assert_close(given["reward"], out["reward"])
    torch.testing.assert_close(
        summed["log_likelihood"], out["log_likelihood"].sum(-1), atol=1e-5, rtol=1e-5
    )
    assert summed["log_likelihood"].requires_grad is grad
    assert bool((summed["entropy"] > 0).all())


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
@pytest.mark.parametrize("select_best", [False, True])
def test_evaluate_solutions_of_multistart(setup, grad, select_best):
    """Told how they came about, their first action counts as given, as it did in the decode."""
    env, policy, td = setup
    settings = {
        "phase": "test",
        "decode_type": "multistart_sampling",
        "return_sum_log_likelihood": False,
    }
    with torch.set_grad_enabled(grad):
        out = policy(td, env, num_starts=4, select_best=select_best, rng=seeded(), **settings)
        given = policy(td, env, actions=out["actions"], **settings)
        alone = policy(td, env, actions=out["actions"], **{**settings, "decode_type": "evaluate"})
    torch.testing.assert_close(given["log_likelihood"], out["log_likelihood"], atol=1e-5, rtol=0)
    assert not bool(given["log_likelihood"][:, 0].any())
    # Without the hint the policy answers for the first action too.
    assert bool((alone["log_likelihood"][:, 0] < 0).all())
    torch.testing.assert_close(
        alone["log_likelihood"][:, 1:], out["log_likelihood"][:, 1:], atol=1e-5, rtol=0
    )


@torch.no_grad()
def test_padding_does_not_change_an_evaluation(make_env, make_policy):
    """Zeros after the end of a CVRP solution add nothing to likelihood, entropy or reward."""
    env, policy = make_env("cvrp", 7), make_policy("cvrp")
    td = env.reset(batch_size=5)
    actions = policy(td, env, phase="test")["actions"]
    longer = torch.cat([actions, torch.zeros(5, 4, dtype=torch.int64)], -1)
    short, long = (policy.evaluate(td, given, env) for given in (actions, longer))
    for key in ("log_likelihood", "entropy", "reward"):
        torch.testing.assert_close(long[key], short[key])


def test_evaluating_a_forbidden_action(setup):
    """It has probability zero: an error, unless the check is off."""
    env, policy, td = setup
    actions = policy(td, env, phase="test")["actions"].clone()
    actions[2, 1] = actions[2, 0]
    with pytest.raises(NotFiniteError, match="minus infinity"):
        policy(td, env, actions=actions, calc_reward=False)
    policy.check_nan = False
    out = policy(td, env, actions=actions, calc_reward=False)
    assert out["log_likelihood"][2].item() == -math.inf
    assert bool(out["log_likelihood"][[0, 1, 3, 4]].isfinite().all())


def test_evaluate_knows_its_decode_types(setup):
    """A misspelt multi-start would count a forced first action as chosen."""
    env, policy, td = setup
    actions = policy(td, env, decode_type="multistart_greedy")["actions"]
    with pytest.raises(UnknownNameError, match="multistart_greedy"):
        policy(td, env, actions=actions, decode_type="multistrat_greedy")


def test_evaluate_needs_actions(setup):
    env, policy, td = setup
    with pytest.raises(ConfigError, match="actions"):
        policy(td, env, decode_type="evaluate")


@pytest.mark.parametrize("shape", [(3, 7), (5, 1, 7), (7,)], ids=str)
def test_actions_of_the_wrong_shape_are_rejected(setup, shape):
    """Five instances need 5, 10, ... rows of actions."""
    env, policy, td = setup
    with pytest.raises(ConfigError, match=r"\[S \* 5, T\]"):
        policy(td, env, actions=torch.zeros(shape, dtype=torch.int64))


# ---------------------------------------------------------------- independence


@torch.no_grad()
@pytest.mark.parametrize("decoding", ["greedy", "multistart_greedy", "beam_search"])
def test_an_instance_does_not_depend_on_its_batch_mates(setup, decoding):
    """Alone (batch size 1), in reversed order and in the whole batch: the same solutions."""
    env, policy, td = setup
    settings = {"phase": "test", **DECODINGS[decoding]}
    whole = policy(td, env, **settings)
    number = len(whole["reward"]) // 5
    keys = ("reward", "log_likelihood")
    whole_actions = unbatchify(whole["actions"], number)  # [B, S, T]
    reversed_ = policy(td.flip(0), env, **settings)
    for key in keys:
        torch.testing.assert_close(
            unbatchify(reversed_[key], number).flip(0), unbatchify(whole[key], number)
        )
    for b in range(5):
        alone = policy(td[b : b + 1], env, **settings)
        length = alone["actions"].shape[-1]
        assert torch.equal(alone["actions"], whole_actions[b, :, :length])
        assert not bool(whole_actions[b, :, length:].any())
        for key in keys:
            torch.testing.assert_close(
                alone[key], unbatchify(whole[key], number)[b], atol=1e-5, rtol=1e-5
            )


@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
def test_one_instance(setup, decoding, grad):
    """Batch size 1 keeps its axis in every output, in training and evaluation."""
    env, policy, td = setup
    with torch.set_grad_enabled(grad):
        out = policy(td[:1], env, phase="train", **DECODINGS[decoding])
    rows = len(out["reward"])
    assert out["reward"].shape == out["log_likelihood"].shape == (rows,)
    assert out["actions"].shape[0] == rows
    env.check_solution_validity(batchify(td[:1], rows), out["actions"])


@pytest.mark.parametrize("decoding", [*DECODINGS, "evaluate"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
def test_the_callers_state_is_left_alone(setup, decoding, grad, unchanged):
    """Keys, values and version counters; so are given actions."""
    env, policy, td = setup
    settings = dict(DECODINGS.get(decoding, {}))
    if decoding == "evaluate":
        settings["actions"] = policy(td, env, phase="test")["actions"]
        version = settings["actions"]._version
    with torch.set_grad_enabled(grad), unchanged(td):
        out = policy(td, env, phase="train", return_entropy=decoding != "beam_search", **settings)
    assert bool(out["log_likelihood"].isfinite().all())
    if decoding == "evaluate":
        assert settings["actions"]._version == version


def test_single_node(make_env, make_policy):
    """One node, one start, no decision: still a solution of likelihood one."""
    env, policy = make_env("tsp", 1), make_policy("tsp")
    td = env.reset(batch_size=3)
    for decode_type in ("sampling", "greedy", "multistart_sampling", "beam_search"):
        out = policy(td, env, decode_type=decode_type, select_best=True)
        assert out["actions"].tolist() == [[0]] * 3
        assert out["log_likelihood"].tolist() == [0.0] * 3
        assert out["reward"].tolist() == [0.0] * 3


# ---------------------------------------------------------------- settings


@torch.no_grad()
def test_temperature_of_the_policy_and_of_the_call(setup):
    """Hotter means flatter: the likelihood of the greedy solution falls towards uniform."""
    env, policy, td = setup
    actions = policy(td, env, phase="test")["actions"]

    def likelihood(**settings):
        return policy(td, env, phase="test", actions=actions, **settings)["log_likelihood"]

    plain, hot, cold = likelihood(), likelihood(temperature=5.0), likelihood(temperature=0.2)
    assert bool((hot < plain).all())
    assert bool((cold > plain).all())
    policy.temperature = 5.0
    assert torch.equal(likelihood(), hot)
    assert torch.equal(likelihood(temperature=1.0), plain)


@torch.no_grad()
def test_top_k_one_is_greedy(setup):
    env, policy, td = setup
    greedy = policy(td, env, phase="test")
    sampled = policy(td, env, decode_type="sampling", top_k=1)
    assert torch.equal(sampled["actions"], greedy["actions"])
    assert sampled["log_likelihood"].tolist() == [0.0] * 5


@torch.no_grad()
def test_decode_type_of_the_phase(setup):
    """train samples, val and test are greedy unless the policy is told otherwise."""
    env, policy, td = setup
    greedy = policy(td, env, decode_type="greedy")["actions"]
    assert torch.equal(policy(td, env, phase="val")["actions"], greedy)
    assert torch.equal(policy(td, env, phase="test")["actions"], greedy)
    assert not torch.equal(policy(td, env, phase="train", rng=seeded())["actions"], greedy)
    policy.val_decode_type = "multistart_greedy"
    assert len(policy(td, env, phase="val")["actions"]) == 5 * env.get_num_starts(td)


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        ({"decode_type": "greddy"}, "greedy"),
        ({"phase": "training"}, "train"),
        ({"temprature": 0.5}, "temperature"),
        ({"env": "tps"}, "tsp"),
    ],
    ids=str,
)
def test_unknown_names_are_rejected(setup, arguments, nearest):
    env, policy, td = setup
    with pytest.raises(UnknownNameError, match=f"did you mean '{nearest}'"):
        policy(td, **{"env": env, **arguments})


def test_two_batch_axes_are_rejected(setup):
    env, policy, td = setup
    with pytest.raises(ConfigError, match=r"one batch axis.*\[5, 1\]"):
        policy(td.unsqueeze(1), env)
    with pytest.raises(ConfigError, match=r"one batch axis.*\[\]"):
        policy(td[0], env)


@torch.no_grad()
def test_environment_by_name_or_by_default(setup):
    """The policy's own environment solves instances of any size."""
    env, policy, td = setup
    expected = policy(td, env, phase="test")
    for given in (env.name, None):
        out = policy(td, given, phase="test")
        assert torch.equal(out["actions"], expected["actions"])
        assert torch.equal(out["reward"], expected["reward"])


@pytest.mark.parametrize("decode_type", ["greedy", "sampling", "beam_search"])
def test_max_steps(setup, decode_type):
    """A limit below the length of any solution is an error in every decode type."""
    env, policy, td = setup
    with pytest.raises(InvalidActionError, match="within 3 steps"):
        policy(td, env, decode_type=decode_type, max_steps=3)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"train_decode_type": "sampl"}, UnknownNameError),
        ({"val_decode_type": "gredy"}, UnknownNameError),
        ({"test_decode_type": "multistart"}, UnknownNameError),
        ({"temperature": 0.0}, ConfigError),
        ({"tanh_clipping": -1.0}, ConfigError),
    ],
    ids=str,
)
def test_bad_defaults_are_rejected_at_once(make_policy, arguments, error):
    """A typing error in a configuration does not wait for the first validation."""
    with pytest.raises(error):
        make_policy("tsp", **arguments)


@pytest.mark.parametrize("chunk", [0, -1])
def test_replay_chunk_is_validated(make_policy, chunk):
    with pytest.raises(ConfigError, match=f"replay_chunk.*{chunk}"):
        make_policy("tsp", replay_chunk=chunk)


def test_likelihoods_can_be_left_out(setup):
    """The solutions are the same."""
    env, policy, td = setup
    with torch.no_grad():
        usual = policy(td, env, decode_type="greedy")
        without = policy(td, env, decode_type="greedy", log_probs=False)
    assert "log_likelihood" not in without
    assert torch.equal(without["actions"], usual["actions"])


def test_outputs_on_request(setup):
    """Nothing that was not asked for, everything that was."""
    env, policy, td = setup
    plain = policy(td, env, calc_reward=False, return_actions=False)
    assert set(plain) == {"log_likelihood"}
    rich = policy(td, env, return_entropy=True, return_hidden=True, return_init_embeds=True)
    assert set(rich) == {
        "log_likelihood", "reward", "actions", "entropy", "hidden", "init_embeds",
    }  # fmt: skip
    hidden, init_embeds = policy.encoder(td)
    torch.testing.assert_close(rich["hidden"], hidden)
    torch.testing.assert_close(rich["init_embeds"], init_embeds)


@pytest.mark.parametrize("decode_type", ["greedy", "sampling", "beam_search"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
def test_nan_is_reported_as_such(setup, decode_type, grad):
    """Diverged weights give an error that says so, whatever the decode type."""
    env, policy, td = setup
    with torch.no_grad():
        policy.decoder.project_node_embeddings.weight.fill_(math.nan)
    with torch.set_grad_enabled(grad), pytest.raises(FloatingPointError, match="got NaN"):
        policy(td, env, decode_type=decode_type)


class DeadEnd(TSPEnv):
    """Every tour of instance 1 gets stuck before its third node."""

    def _action_mask(self, state):
        stuck = (state["i"] == 2) & (state["locs"][..., :1, 0] > 1)  # [*B, 1]
        return super()._action_mask(state) & ~stuck


@pytest.mark.parametrize(
    "decode_type", ["greedy", "sampling", "multistart_greedy", "multistart_sampling"]
)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
def test_a_dead_end_is_not_taken_for_divergence(make_policy, decode_type, grad):
    """Also where the number of steps is known, so that the mask is not read between the steps."""
    env, policy = DeadEnd(generator_params={"num_loc": 5}, check_solution=False), make_policy("tsp")
    instances = env.generate(3)
    instances["locs"][1] += 2.0
    expected = r"an allowed action in every unfinished tsp state, got none in instances 1;"
    with torch.set_grad_enabled(grad), pytest.raises(InvalidActionError, match=expected):
        policy(env.reset(instances), env, decode_type=decode_type)


def test_diverged_weights_are_an_error_of_the_library(setup):
    """Which the command line reports in one line."""
    env, policy, td = setup
    with torch.no_grad():
        policy.decoder.project_node_embeddings.weight.fill_(math.nan)
    with pytest.raises(RL4COError, match="lower the learning rate"):
        policy(td, env)


def test_nan_check_can_be_switched_off(make_env, make_policy):
    """Then the likelihood is what it is."""
    env, policy = make_env("tsp", 5), make_policy("tsp", check_nan=False)
    with torch.no_grad():
        policy.decoder.project_node_embeddings.weight.fill_(math.nan)
    out = policy(env.reset(batch_size=2), env, phase="test", calc_reward=False)
    assert bool(out["log_likelihood"].isnan().all())


@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no-grad"])
def test_mixed_precision(setup, decoding, grad):
    """Networks may compute with 8 bits; likelihoods and entropies are sums and stay in float32."""
    env, policy, td = setup
    entropy = decoding != "beam_search"
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.set_grad_enabled(grad):
        out = policy(td, env, return_entropy=entropy, **DECODINGS[decoding])
    for key in ("log_likelihood", "reward", *(["entropy"] if entropy else [])):
        assert out[key].dtype == torch.float32, key
        assert bool(out[key].isfinite().all())
    if grad:
        out["log_likelihood"].sum().backward()
        assert all(bool(p.grad.isfinite().all()) for p in policy.parameters())
