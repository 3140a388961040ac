"""MTPOMO: variants mixed in a batch, each with its own baseline, and learning on all of them."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import MODELS
from rl4co.envs import CVRPEnv, MTVRPEnv
from rl4co.envs.routing.mtvrp.variants import get_variant_names
from rl4co.models import MTPOMO, POMO
from tests.learning import expected_cost, train_steps

TINY = {"embed_dim": 32, "num_heads": 4, "feedforward_hidden": 32, "num_encoder_layers": 1}


def make_model(variant: str = "all", **kwargs) -> MTPOMO:
    torch.manual_seed(0)
    env = MTVRPEnv(generator_params={"num_loc": 8, "variant_preset": variant}, seed=1)
    return MTPOMO(env, policy_kwargs=TINY, seed=2, **kwargs)


def test_is_pomo_with_its_settings():
    policy = MTPOMO(MTVRPEnv()).policy
    assert issubclass(MTPOMO, POMO)
    assert MODELS["mtpomo"] is MTPOMO
    assert len(policy.encoder.net.layers) == 6
    assert policy.decoder.project_fixed_context is None
    assert policy.env_name == "mtvrp"


def test_other_problems_raise():
    with pytest.raises(UnsupportedError, match="mtvrp for MTPOMO, got 'cvrp'"):
        MTPOMO(CVRPEnv())


def test_baseline_of_a_mixed_batch():
    """Each instance is compared with its own starts, whatever the costs of other variants."""
    model = make_model()
    batch = model.env.generate(64)
    assert len(set(get_variant_names(model.env.reset(batch)))) >= 12
    rewards, likelihoods = [], []
    forward = model.policy.forward

    def watched(*args, **kwargs):
        out = forward(*args, **kwargs)
        rewards.append(out["reward"].view(-1, 64))  # [S, B]
        likelihoods.append(out["log_likelihood"].view(-1, 64))
        return out

    model.policy.forward = watched
    loss = model.shared_step(batch, 0, "train")["loss"]
    expected = 0.0
    for b in range(64):
        own = rewards[0][:, b]
        expected -= float(((own - own.mean()) * likelihoods[0][:, b].detach()).mean()) / 64
    assert loss.item() == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["cvrp", "ovrpbltw"])
def test_one_policy_for_every_variant(variant):
    """Trained on a mixture or not: a single variant is solved like any other."""
    policy = make_model().policy.eval()
    env = MTVRPEnv(generator_params={"num_loc": 10, "variant_preset": variant}, seed=3)
    td = env.reset(batch_size=3)
    out = policy(td, env, phase="test")
    env.check_solution_validity(td, out["actions"])
    alone = policy(td[:1], env, phase="test")
    torch.testing.assert_close(alone["log_likelihood"][0], out["log_likelihood"][0])


@pytest.mark.learning
def test_training_improves_every_kind(require):
    """After a few steps on all variants, those with and without time windows are both better."""
    model = make_model(num_augment=1)
    mixture = model.env
    kinds = {
        variant: MTVRPEnv(generator_params={"num_loc": 8, "variant_preset": variant})
        for variant in ("cvrp", "ovrptw")
    }

    def costs() -> dict[str, float]:
        found = {}
        for variant, model.env in kinds.items():
            found[variant] = expected_cost(model, "multistart_sampling")
        model.env = mixture
        return found

    before = costs()
    train_steps(model, 40, 32, 2e-3)
    after = costs()
    for variant in kinds:
        require(f"cost after / before: {variant}", after[variant] / before[variant], below=0.95)
