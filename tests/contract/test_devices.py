"""Device correctness without the device: fake tensors on `meta` represent a GPU.

Inside `FakeTensorMode` nothing is computed, but every operation checks the devices of its
arguments, and a question that needs a value (`.item()`, a tensor in an `if`) raises. So a tensor
created on the wrong device, or a hidden synchronisation in a step, fails here by name.
"""

from __future__ import annotations

import functools

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tensordict import TensorDictBase
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import EMBEDDINGS, ENVS, MODELS
from rl4co.envs import CVRPEnv, RL4COEnvBase, TSPEnv
from rl4co.envs.testing import constructive_names, improvement_names, make_sized_env
from rl4co.models import AttentionModelPolicy
from tests.contract.pairs import (
    REPRESENTATIVE,
    THOROUGH,
    TINY,
    loss_pairs,
    policy_pairs,
    tiny_arguments,
)

DEVICE = torch.device("meta")
#: Checks need values, so they are off.
UNCHECKED = {"check_solution": False, "check_instance": False, "device": DEVICE}


@contextmanager
def pretend_gpu(*modules: nn.Module) -> Iterator[None]:
    """Fake mode in which the modules' weights are fake tensors on the pretended device."""
    with FakeTensorMode():
        for module in modules:
            for part in module.modules():
                for table in (part._parameters, part._buffers):
                    for name, value in table.items():
                        if value is not None:
                            table[name] = on_device(value)
        yield


def on_device(value: Tensor) -> Tensor:
    """A fake tensor with the shape and dtype of a weight; a new one, so that it has no history."""
    fake = torch.empty(value.shape, dtype=value.dtype, device=DEVICE)
    if isinstance(value, nn.Parameter):
        return nn.Parameter(fake, requires_grad=value.requires_grad)
    return fake


def assert_on_device(tensors: dict[str, Any]) -> None:
    for name, value in tensors.items():
        assert isinstance(value, FakeTensor), name
        assert value.device == DEVICE, f"{name} is on {value.device}"


def longest(env, td) -> int:
    return env.step_bounds(dict(td.items()))[1]


def make_env(name: str) -> RL4COEnvBase:
    """An environment whose number of starts, the one value it may read, is an upper bound."""
    env = make_sized_env(name, 4, **UNCHECKED)
    env.get_num_starts = functools.partial(most_starts, env)
    return env


def most_starts(env: RL4COEnvBase, td: TensorDictBase) -> int:
    state = dict(td.items())
    try:
        return env._count_starts(state)
    except DataDependentOutputException:
        return env._most_starts(state)


def make_policy(env_name: str, **kwargs: Any) -> AttentionModelPolicy:
    return AttentionModelPolicy(env_name=env_name, check_nan=False, **{**TINY, **kwargs})


# ---------------------------------------------------------------- environments


@pytest.mark.parametrize("name", constructive_names())
def test_environment(name):
    """Specs, generation, reset, masks, steps, starts and rewards stay on the device."""
    env = make_env(name)
    for spec in (env.observation_spec, env.action_spec, env.reward_spec, env.done_spec):
        assert spec.device == DEVICE
    with pretend_gpu():
        td = env.reset(batch_size=3)
        assert_on_device(dict(td.items()))
        state, actions = td, []
        for _ in range(longest(env, td)):
            state["action"] = state["action_mask"].long().argmax(-1)
            actions.append(state["action"])
            state = env.step(state)["next"]
            assert_on_device(dict(state.items()))
        solution = torch.stack(actions, -1)
        assert_on_device({"reward": env.get_reward(td, solution)})
        try:
            starts = env.select_start_nodes(td, env.get_num_starts(td))
        except UnsupportedError:
            return
        assert_on_device({"starts": starts})


@pytest.mark.parametrize("name", improvement_names())
def test_improvement_environment(name):
    """Specs, first solutions, moves and costs stay on the device."""
    env = make_sized_env(name, 6, **UNCHECKED)
    for spec in (env.observation_spec, env.action_spec, env.reward_spec, env.done_spec):
        assert spec.device == DEVICE
    with pretend_gpu():
        for initial in ("random", "greedy"):
            td = env.reset(batch_size=3, initial=initial)
            assert_on_device(dict(td.items()))
            td["action"] = env.random_action(dict(td.items()))
            td = env.step(td)["next"]
            assert_on_device(dict(td.items()))
        assert_on_device({"reward": env.get_reward(td, td["rec_best"])})


# ---------------------------------------------------------------- policies and losses


#: Decoding strategies; all environments replay the first and step through the second.
STRATEGIES: list[dict[str, Any]] = [
    {"decode_type": "sampling", "num_samples": 2},
    {"decode_type": "multistart_greedy"},
    {"decode_type": "greedy"},
    {"decode_type": "sampling", "temperature": 0.5, "top_k": 3, "top_p": 0.9},
    {"decode_type": "multistart_sampling", "num_starts": 2, "select_best": True},
]


def strategies_of(model_name: str, env_name: str, *, grad: bool) -> list[dict[str, Any]]:
    """All strategies for one method, else one that replays or one that only steps."""
    if model_name == THOROUGH and env_name in REPRESENTATIVE:
        return STRATEGIES
    return STRATEGIES[:1] if grad else STRATEGIES[1:3]


@pytest.mark.parametrize("pair_names", policy_pairs({}))
@pytest.mark.parametrize("grad", [True, False], ids=["replay", "steps"])
def test_decoding(pair_names, grad):
    """Rollout and replay neither leave the device nor read its values."""
    model_name, env_name = pair_names
    strategies = strategies_of(model_name, env_name, grad=grad)
    env = make_env(env_name)
    policy = MODELS[model_name](env, **tiny_arguments(model_name, check_nan=False)).policy
    with pretend_gpu(policy), torch.set_grad_enabled(grad):
        td = env.reset(batch_size=3)
        steps = longest(env, td)
        for settings in strategies:
            try:
                out = policy(td, env, num_steps=steps, return_entropy=True, **settings)
            except UnsupportedError:
                assert settings["decode_type"].startswith("multistart")
                continue
            assert_on_device(out)
            assert out["actions"].shape[-1] == steps
            if strategies is not STRATEGIES:
                break
        evaluated = policy.evaluate(td, out["actions"], env)
        assert_on_device(evaluated)
        if grad:
            evaluated["log_likelihood"].sum().backward()
            # Parts that only a custom loss reaches have none here.
            gradients = {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}
            assert gradients
            assert_on_device(gradients)


#: Settings of the Attention Model: all in representative environments, one in each other.
VARIANTS: list[dict[str, Any]] = [
    {"replay_chunk": 2},
    {"normalization": "instance", "use_graph_context": False},
    {"normalization": "layer", "mask_inner": False},
    {"out_bias_pointer_attn": True, "linear_bias_decoder": True},
]
EMBEDDED = [env for env in ENVS.names() if env in EMBEDDINGS]


@pytest.mark.parametrize(
    ("env_name", "arguments"),
    [
        (env, arguments)
        for k, env in enumerate(EMBEDDED)
        for i, arguments in enumerate(VARIANTS)
        if env in REPRESENTATIVE or i == k % len(VARIANTS)
    ],
    ids=str,
)
def test_variants_of_the_attention_model(env_name, arguments):
    """Training with other settings neither leaves the device nor reads its values."""
    env = make_env(env_name)
    policy = make_policy(env_name, **arguments)
    with pretend_gpu(policy):
        td = env.reset(batch_size=3)
        out = policy(td, env, num_steps=longest(env, td))
        out["log_likelihood"].sum().backward()
        assert_on_device(out)
        assert_on_device({name: p.grad for name, p in policy.named_parameters()})


@pytest.mark.parametrize("env_name", REPRESENTATIVE)
def test_beam_search(env_name):
    """With a known number of steps, beam search reads no values from the device."""
    env, policy = make_env(env_name), make_policy(env_name)
    with pretend_gpu(policy), torch.no_grad():
        td = env.reset(batch_size=3)
        settings = {"decode_type": "beam_search", "beam_width": 4, "select_best": True}
        out = policy(td, env, num_steps=longest(env, td), **settings)
        assert_on_device(out)
        assert out["actions"].shape == (3, longest(env, td))


@pytest.mark.parametrize("pair_names", loss_pairs())
def test_losses(pair_names):
    """A training step and a validation step of the method, baseline and augmentation included."""
    model_name, env_name = pair_names
    if getattr(MODELS[model_name], "searches_on_host", False):
        pytest.skip("local search and sub-solvers run on the host")
    env = make_env(env_name)
    model = MODELS[model_name](env, **tiny_arguments(model_name, check_nan=False))
    # Generators of random numbers exist on real devices only.
    model.action_rng = lambda *_: None
    with pretend_gpu(model):
        batch = env.generate(3)
        steps = longest(env, env.reset(batch))
        model.policy.forward = functools.partial(model.policy.forward, num_steps=steps)
        out = model.shared_step(batch, 0, "train")
        out["loss"].backward()
        assert_on_device(out)
        assert_on_device({name: p.grad for name, p in model.policy.named_parameters()})
        with torch.no_grad():
            assert_on_device(model.shared_step(batch, 0, "val"))


# ---------------------------------------------------------------- these tests can fail


class ForgetsTheDevice(CVRPEnv):
    """Creates a tensor on the CPU in each step."""

    def _transition(self, state, action):
        changes = super()._transition(state, action)
        return {**changes, "i": state["i"] + torch.ones(state["i"].shape, dtype=torch.int64)}


class AsksForAValue(CVRPEnv):
    """Stops the pipeline in each step."""

    def _transition(self, state, action):
        if state["visited"].all():
            return {}
        return super()._transition(state, action)


class AsksForAPosition(TSPEnv):
    """Looks for nodes on the host."""

    def _transition(self, state, action):
        state["action_mask"].nonzero()
        return super()._transition(state, action)


def run(env, policy, **settings) -> dict[str, Any]:
    with pretend_gpu(policy), torch.no_grad():
        td = env.reset(batch_size=2)
        return policy(td, env, decode_type="greedy", num_steps=longest(env, td), **settings)


def test_a_tensor_on_the_wrong_device_is_noticed():
    env = ForgetsTheDevice(**UNCHECKED)
    with pytest.raises(RuntimeError, match=r"(?s)device.*(meta.*cpu|cpu.*meta)"):
        run(env, make_policy("cvrp"))


@pytest.mark.parametrize(
    ("cls", "error"),
    [
        (AsksForAValue, DataDependentOutputException),
        (AsksForAPosition, DynamicOutputShapeException),
    ],
)
def test_a_synchronisation_is_noticed(cls, error):
    env = cls(**UNCHECKED)
    with pytest.raises(error):
        run(env, make_policy(cls.name))


class HostContext(nn.Module):
    """A context that indexes with a tensor of its own, left on the CPU."""

    def prepare(self, embeddings):
        return embeddings

    def forward(self, cache, state):
        first = torch.zeros(cache.shape[0], 1, cache.shape[-1])
        return cache[:, :1] + first


def test_a_network_on_the_wrong_device_is_noticed():
    env = TSPEnv(**UNCHECKED)
    with pytest.raises(RuntimeError, match=r"(?s)device.*(meta.*cpu|cpu.*meta)"):
        run(env, make_policy("tsp", context_embedding=HostContext()))


def test_weights_on_the_wrong_device_are_noticed():
    """A policy that was not moved."""
    env, policy = TSPEnv(**UNCHECKED), make_policy("tsp")
    with pytest.raises((RuntimeError, AssertionError)), FakeTensorMode(allow_non_fake_inputs=True):
        policy(env.reset(batch_size=2), env, num_steps=20)


def test_the_check_for_nan_is_one_look():
    """... which is why it has a switch."""
    env = TSPEnv(**UNCHECKED)
    policy = AttentionModelPolicy(env_name="tsp", **TINY)
    with pytest.raises(DataDependentOutputException):
        run(env, policy)


def test_open_ended_problems_look_at_done_without_a_number_of_steps():
    env, policy = CVRPEnv(**UNCHECKED), make_policy("cvrp")
    with pretend_gpu(policy), torch.no_grad():
        td = env.reset(batch_size=2)
        with pytest.raises(DataDependentOutputException):
            policy(td, env, decode_type="greedy")
