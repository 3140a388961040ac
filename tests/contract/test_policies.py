"""Guarantees of every policy in every environment: all pairs of the registries, no list by hand."""

from __future__ import annotations

import copy
import functools

from typing import Any

import pytest
import torch

from tensordict import TensorDictBase
from torch import nn

from rl4co.core.errors import UnsupportedError
from rl4co.core.ops import batchify
from rl4co.core.registry import MODELS
from rl4co.envs.testing import make_sized_env
from rl4co.models import load_pretrained
from tests.contract.pairs import (
    REPRESENTATIVE,
    THOROUGH,
    every_pair,
    policy_pairs,
    thorough_pairs,
    tiny_arguments,
)
from tests.numerics import assert_same_gradients

BATCH = 4
DECODINGS = {
    "greedy": {},
    "sampling": {},
    "sampling x 3": {"decode_type": "sampling", "num_samples": 3},
    "multistart_greedy": {},
    "multistart_sampling": {"num_starts": 2},
    "best of starts": {"decode_type": "multistart_greedy", "select_best": True},
    "beam_search": {"beam_width": 3},
}


@functools.cache
def build(model_name: str, env_name: str) -> tuple[Any, nn.Module]:
    """Environment and model; built once, copied for each test that changes them."""
    env = make_sized_env(env_name, 6, seed=3)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return env, MODELS[model_name](env, **tiny_arguments(model_name), seed=4)


def prepare(model_name: str, env_name: str) -> tuple[Any, nn.Module, TensorDictBase]:
    """Environment, policy in evaluation mode, four instances."""
    env, model = build(model_name, env_name)
    td = env.reset(env.generator(BATCH, rng=torch.Generator().manual_seed(2)))
    return env, copy.deepcopy(model.policy).eval(), td


@pytest.fixture(params=thorough_pairs())
def pair(request):
    """Every method in representative environments, one of them in all."""
    return prepare(*request.param)


@pytest.fixture(params=policy_pairs())
def single_pair(request):
    """Every policy in one environment, one of them in all."""
    return prepare(*request.param)


def has_starts(env, td) -> bool:
    try:
        return env.get_num_starts(td) > 0
    except UnsupportedError:
        return False


def solve(policy, td, env, decoding: str, **kwargs):
    """The policy's output, or a skip where the environment has no starts (and says so)."""
    settings = {"decode_type": decoding, **DECODINGS[decoding], **kwargs}
    if settings["decode_type"].startswith("multistart") and not has_starts(env, td):
        with pytest.raises(UnsupportedError):
            policy(td, env, **settings)
        pytest.skip(f"{env.name} has no multi-start")
    return policy(td, env, **settings)


#: Decodings with gradients and batch size alternating: `(decoding, grad, batch)`.
COMBINATIONS = [
    (decoding, number % 2 == 0, BATCH if number % 4 < 2 else 1)
    for number, decoding in enumerate(DECODINGS)
]
#: Gradients and batch sizes that COMBINATIONS leave out, for representative environments.
COMPLEMENT = [(decoding, not grad, BATCH + 1 - batch) for decoding, grad, batch in COMBINATIONS]


@pytest.mark.parametrize(("decoding", "grad", "batch"), COMBINATIONS)
def test_output(pair, decoding, grad, batch):
    """Valid solutions with their rewards; log-likelihoods; the caller's state is unchanged."""
    check_output(*pair, decoding, grad, batch)


@pytest.mark.parametrize(("decoding", "grad", "batch"), COMPLEMENT)
@pytest.mark.parametrize("env_name", REPRESENTATIVE)
def test_output_of_other_combinations(env_name, decoding, grad, batch):
    """The same with the other mode of gradients and batch size."""
    check_output(*prepare(THOROUGH, env_name), decoding, grad, batch)


def check_output(env, policy, td, decoding, grad, batch):
    td = td[:batch]
    before = {key: (value, value._version, value.clone()) for key, value in td.items()}
    with torch.set_grad_enabled(grad):
        out = solve(policy, td, env, decoding)
    rows = len(out["reward"])
    assert rows % batch == 0
    assert out["reward"].shape == out["log_likelihood"].shape == (rows,)
    assert out["actions"].dtype == torch.int64
    repeated = batchify(td, rows // batch)
    env.check_solution_validity(repeated, out["actions"])
    torch.testing.assert_close(out["reward"], env.get_reward(repeated, out["actions"]))
    assert out["reward"].is_floating_point()
    assert bool((out["log_likelihood"] <= 1e-6).all())
    assert bool(out["log_likelihood"].isfinite().all())
    assert out["log_likelihood"].requires_grad is grad
    assert set(td.keys()) == set(before)
    for key, (tensor, version, value) in before.items():
        assert td[key] is tensor
        assert tensor._version == version
        assert torch.equal(tensor, value)


@torch.no_grad()
def test_an_instance_does_not_depend_on_its_batch(single_pair):
    """An instance alone has the solution that it has in a batch."""
    env, policy, td = single_pair
    together = policy(td, env, decode_type="greedy")
    for b in (0, BATCH - 1):
        alone = policy(td[b : b + 1], env, decode_type="greedy")
        for key in ("reward", "log_likelihood"):
            torch.testing.assert_close(alone[key][0], together[key][b], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("decoding", ["sampling x 3", "beam_search"])
def test_evaluation_of_actions(single_pair, decoding):
    """The log-likelihood is that of decoding; the entropy is not negative."""
    env, policy, td = single_pair
    with torch.no_grad():
        out = solve(policy, td, env, decoding)
    # Beams all descend from a first solution, and are evaluated as such, one by one.
    single = decoding == "beam_search"
    size = len((solve(policy, td, env, "greedy") if single else out)["reward"])
    parts = [policy.evaluate(td, actions, env) for actions in out["actions"].split(size)]
    again = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(again["reward"], out["reward"])
    assert bool((again["entropy"] >= 0).all())


@pytest.mark.numerical
@pytest.mark.parametrize(
    ("decoding", "keys"),
    [
        ("sampling x 3", ("log_likelihood", "entropy")),
        ("multistart_sampling", ("log_likelihood",)),
    ],
    ids=str,
)
def test_replay_is_step_by_step(single_pair, decoding, keys):
    """Values to 1e-5 and gradients to 1e-4, for every policy that replays."""
    env, policy, td = single_pair
    if policy.decoder.replay_keys is None:
        pytest.skip("does not replay")
    slow = copy.deepcopy(policy)
    kind = type(slow.decoder)
    slow.decoder.__class__ = type("StepByStep", (kind,), {"replay_keys": property(lambda _: None)})
    settings = {"return_entropy": "entropy" in keys}
    outs = [
        solve(p, td, env, decoding, rng=torch.Generator().manual_seed(0), **settings)
        for p in (policy, slow)
    ]
    assert torch.equal(outs[0]["actions"], outs[1]["actions"])
    weight = torch.linspace(-1, 1, len(outs[0]["reward"]))
    for key in keys:
        torch.testing.assert_close(outs[0][key], outs[1][key], atol=5e-5, rtol=1e-5)
    for out in outs:
        sum((weight * out[key]).sum() for key in keys).backward()
    assert_same_gradients(policy, slow)


def test_randomness_comes_from_the_generator(single_pair):
    """The same stream, the same solutions; the global one does not advance."""
    env, policy, td = single_pair
    state = torch.get_rng_state()
    outs = [
        policy(td, env, decode_type="sampling", num_samples=4, rng=torch.Generator().manual_seed(s))
        for s in (0, 0, 1)
    ]
    assert torch.equal(outs[0]["actions"], outs[1]["actions"])
    assert not torch.equal(outs[0]["reward"], outs[2]["reward"])
    assert torch.equal(torch.get_rng_state(), state)


@torch.no_grad()
def test_other_sizes(single_pair):
    """A policy is not tied to the size it was built with."""
    env, policy, _ = single_pair
    larger = make_sized_env(env.name, 10, seed=5)  # even: pickups and deliveries come in pairs
    td = larger.reset(batch_size=2)
    actions = policy(td, env, decode_type="greedy")["actions"]
    larger.check_solution_validity(batchify(td, len(actions) // 2), actions)


@torch.no_grad()
def test_saving_and_loading(single_pair, tmp_path):
    """A policy that is loaded from a folder without code decodes the same solutions."""
    env, policy, td = single_pair
    loaded = load_pretrained(policy.save_pretrained(tmp_path))
    expected, out = policy(td, env, decode_type="greedy"), loaded(td, env, decode_type="greedy")
    assert torch.equal(out["actions"], expected["actions"])
    assert torch.equal(out["log_likelihood"], expected["log_likelihood"])


@pytest.mark.parametrize("pair_names", every_pair())
def test_training_step(pair_names):
    """A finite loss whose gradient reaches the policy; the batch stays as it was."""
    env, model = copy.deepcopy(build(*pair_names))
    batch = env.generate(BATCH)
    before = batch.clone()
    out = model.train().shared_step(batch, 0, "train")
    out["loss"].backward()
    again = model.shared_step(batch, 0, "train")
    with torch.no_grad():
        val = model.eval().shared_step(batch, 0, "val")
    assert bool(out["loss"].isfinite())
    moved = [p.grad is not None and bool((p.grad != 0).any()) for p in model.policy.parameters()]
    assert sum(moved) > 0.9 * len(moved)
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
    assert set(batch.keys()) == set(before.keys())
    assert all(torch.equal(batch[key], before[key]) for key in before.keys())
    torch.testing.assert_close(again["reward"], out["reward"], msg="actions depend on the seed")
    assert "loss" not in val
    assert bool(val["reward"].isfinite())


@pytest.mark.parametrize("name", MODELS.names())
def test_registered_name_is_the_folder(name):
    """... so that the registry finds it, and only there."""
    cls = MODELS[name]
    assert cls.__module__.startswith(f"rl4co.models.zoo.{name}.")
