"""What every improvement method promises: all of them from the registry, no list by hand."""

from __future__ import annotations

import copy
import functools
import warnings

from typing import Any

import pytest
import torch

from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.registry import ENVS, MODELS
from rl4co.core.rng import derive_generator
from rl4co.envs import TSPEnv
from rl4co.envs.testing import make_sized_env
from rl4co.models import load_pretrained
from tests.contract.pairs import improvement_models
from tests.contract.test_devices import UNCHECKED, assert_on_device, pretend_gpu

BATCH = 4
TINY = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 2}


def make_env(name: str, size: int = 8, **kwargs: Any) -> Any:
    cls = MODELS[name]
    (env_name,) = cls.supported_envs
    return make_sized_env(env_name, size, **{**cls.env_params, **kwargs})


@functools.cache
def build(name: str) -> Any:
    """Environment and a tiny model; built once, copied for each test that changes them."""
    env = make_env(name, seed=3)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        settings = {"n_step": 2, "T_train": 4, "T_test": 3, "batch_size": BATCH}
        return env, MODELS[name](env, policy_kwargs=TINY, seed=4, **settings)


@pytest.fixture(params=improvement_models())
def method(request):
    """Environment, model, state of four instances."""
    env, model = build(request.param)
    td = env.reset(env.generator(BATCH, rng=derive_generator(2)), rng=derive_generator(5))
    return env, copy.deepcopy(model), td


@pytest.mark.parametrize("batch", [BATCH, 1])
@pytest.mark.parametrize("decode_type", ["sampling", "greedy"])
def test_moves_are_allowed(method, batch, decode_type):
    """Step by step, with likelihoods that are probabilities; the caller's state is left alone."""
    env, model, td = method
    policy, td = model.policy.eval(), td[:batch]
    strict = copy.copy(env)
    strict.check_action = True
    for step in range(4):
        before = td.clone()
        out = policy(td, env, phase="test", decode_type=decode_type, rng=derive_generator(step))
        assert all(torch.equal(td[key], before[key]) for key in before.keys())
        assert set(td.keys()) == set(before.keys())
        assert out["log_likelihood"].shape == (batch,)
        assert bool((out["log_likelihood"] <= 1e-6).all())
        td = strict.step(td.copy().set("action", out["actions"]))["next"]
        env.check_solution_validity(td, td["rec_current"])


def test_given_moves_have_the_likelihood_of_chosen_ones(method):
    env, model, td = method
    policy = model.policy.eval()
    out = policy(td, env, return_entropy=True, return_value=True, rng=derive_generator(0))
    again = policy.evaluate(td, out["actions"], env, return_value=True)
    for key in ("log_likelihood", "entropy", "value"):
        torch.testing.assert_close(again[key], out[key])
    assert torch.equal(again["actions"], out["actions"])
    assert bool((out["entropy"] > 0).all())
    torch.testing.assert_close(policy.value(td), out["value"])


@torch.no_grad()
def test_probabilities_add_up(method):
    """Sampled frequencies of a single state agree with the likelihoods of the moves."""
    env, model, td = method
    policy, count = model.policy.eval(), 4000
    many = td[:1].expand(count).clone()
    out = policy(many, env, phase="test", rng=derive_generator(1))
    moves, inverse = out["actions"].unique(dim=0, return_inverse=True)
    observed = torch.bincount(inverse, minlength=len(moves)) / count
    stated = torch.zeros(len(moves)).scatter(0, inverse, out["log_likelihood"].exp())
    likely = stated > 0.01
    deviation = (stated * (1 - stated) / count).sqrt()
    assert bool(((observed - stated).abs() < 5 * deviation)[likely].all())
    assert float(stated.sum()) <= 1 + 1e-4


@torch.no_grad()
def test_an_instance_does_not_depend_on_its_batch_mates(method, monkeypatch):
    """Alone, in a batch, and in chunks of a batch."""
    env, model, td = method
    policy = model.policy.eval()
    whole = policy(td, env, phase="test", decode_type="greedy")
    for b in range(BATCH):
        alone = policy(td[b : b + 1], env, phase="test", decode_type="greedy")
        assert torch.equal(alone["actions"][0], whole["actions"][b])
    sampled = policy(td, env, phase="test", rng=derive_generator(3), return_value=True)
    monkeypatch.setattr("rl4co.models.policies.improvement._PAIRS_AT_ONCE", 100)
    chunked = policy(td, env, phase="test", rng=derive_generator(3), return_value=True)
    assert torch.equal(chunked["actions"], sampled["actions"])
    torch.testing.assert_close(chunked["value"], sampled["value"])


@torch.no_grad()
def test_evaluation_mode_is_deterministic(method):
    """No dropout survives it, and randomness comes from the given stream alone."""
    env, model, td = method
    policy = model.policy.eval()
    state = torch.get_rng_state()
    outs = [
        policy(td, env, phase="test", return_value=True, rng=derive_generator(s)) for s in (0, 0, 1)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    for key in ("actions", "log_likelihood", "value"):
        assert torch.equal(outs[0][key], outs[1][key])
    assert not torch.equal(outs[0]["actions"], outs[2]["actions"])


@torch.no_grad()
def test_the_direction_and_place_of_an_instance_do_not_matter(method):
    """Instances mirrored in the batch give mirrored results."""
    env, model, td = method
    policy = model.policy.eval()
    one = policy(td, env, phase="test", decode_type="greedy")["log_likelihood"]
    other = policy(td.flip(0), env, phase="test", decode_type="greedy")["log_likelihood"]
    torch.testing.assert_close(one, other.flip(0))


@torch.no_grad()
def test_other_sizes(method):
    """A policy is not tied to the size it was built with."""
    env, model, _ = method
    td = make_env(_name(model), 12, seed=5).reset(batch_size=2)
    out = model.policy.eval()(td, env, phase="test")
    env.check_solution_validity(env.step(td.set("action", out["actions"]))["next"])


@torch.no_grad()
def test_saving_and_loading(method, tmp_path):
    """A folder without code brings back the same moves."""
    env, model, td = method
    policy = model.policy.eval()
    loaded = load_pretrained(policy.save_pretrained(tmp_path))
    expected = policy(td, env, phase="test", decode_type="greedy", return_value=True)
    out = loaded(td, env, phase="test", decode_type="greedy", return_value=True)
    assert torch.equal(out["actions"], expected["actions"])
    assert torch.equal(out["value"], expected["value"])
    assert torch.equal(loaded(td, phase="test", decode_type="greedy")["actions"], out["actions"])


@torch.no_grad()
def test_double_precision_instances(method):
    env, model, td = method
    double = td.clone().set("locs", td["locs"].double())
    out = model.policy.eval()(double, env, phase="test", decode_type="greedy")
    expected = model.policy(td, env, phase="test", decode_type="greedy")
    assert torch.equal(out["actions"], expected["actions"])


def test_bad_input(method):
    env, model, td = method
    policy = model.policy.eval()
    with pytest.raises(UnknownNameError, match="sampling"):
        policy(td, env, decode_type="samplin")
    with pytest.raises(UnknownNameError, match="temperature"):
        policy(td, env, temperatur=1.0)
    with pytest.raises(UnknownNameError, match="no phase"):
        policy(td, env, phase="tests")
    with pytest.raises(UnsupportedError, match="got tsp with 'whole solutions'"):
        policy(td, TSPEnv())
    for other in improvement_models():
        if MODELS[other] is not type(model) and make_env(other).moves != env.moves:
            with pytest.raises(UnsupportedError, match="expected an environment with moves"):
                policy(make_env(other).reset(batch_size=2), make_env(other))
    with pytest.raises(ConfigError, match="one batch axis"):
        policy(td.reshape(2, 2), env)
    # A move that was just made may not be made again.
    done = env.step(td.copy().set("action", policy(td, env)["actions"]))["next"]
    with pytest.raises(InvalidActionError, match="forbidden ones"):
        policy(done, env, actions=done["last_action"])


def test_training_step(method):
    """A finite loss whose gradient reaches actor and critic; the batch stays as it was."""
    env, model, _ = method
    batch = env.generate(BATCH)
    before = batch.clone()
    out = model.train().shared_step(batch, 0, "train")
    out["loss"].backward()
    again = model.shared_step(batch, 0, "train")
    with torch.no_grad():
        val = model.shared_step(batch, 0, "val")
    assert bool(out["loss"].isfinite())
    moved = [p.grad is not None and bool((p.grad != 0).any()) for p in model.policy.parameters()]
    assert sum(moved) > 0.9 * len(moved)
    assert all(torch.equal(batch[key], before[key]) for key in before.keys())
    if not any(isinstance(m, torch.nn.Dropout) for m in model.policy.decoder.modules()):
        torch.testing.assert_close(again["reward"], out["reward"], msg="moves depend on the seed")
    assert "loss" not in val
    assert float(val["cost_bsf"]) <= float(val["cost_init"])
    assert model.training and model.policy.training


@pytest.mark.parametrize("name", improvement_models())
def test_devices(name):
    """Moves, replays and losses neither leave the device nor look at it."""
    env = make_env(name, 6, **UNCHECKED)
    model = MODELS[name](env, policy_kwargs={**TINY, "check_nan": False}, n_step=2, T_train=2)
    model.action_rng = lambda *_: None
    with pretend_gpu(model), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You are trying to `self.log\\(\\)`")
        td = env.reset(batch_size=3)
        out = model.policy(td, env, return_entropy=True, return_value=True, return_embeds=True)
        assert_on_device(out)
        loss = model.shared_step(env.generate(3), 0, "train")["loss"]
        loss.backward()
        gradients = {n: p.grad for n, p in model.policy.named_parameters() if p.grad is not None}
        assert_on_device(gradients)


@pytest.mark.parametrize("name", improvement_models())
def test_unsupported_environments_are_named(name):
    (own,) = MODELS[name].supported_envs
    for other in ENVS.names():
        assert MODELS[name].supports(other) is (other == own)
    with pytest.raises(UnsupportedError, match=f"expected one of {own}"):
        MODELS[name](TSPEnv())


def _name(model: Any) -> str:
    return next(name for name in improvement_models() if MODELS[name] is type(model))
