"""Learning, not only running: in every environment, seconds of training beat no training."""

from __future__ import annotations

import copy

from collections.abc import Callable

import pytest
import torch

from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import EMBEDDINGS, ENVS
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.testing import make_sized_env, size_argument
from rl4co.models import POMO, REINFORCE, AttentionModel, AttentionModelPolicy
from tests.learning import paired_t

# Small, and even for problems whose nodes come in pairs; of a grid, the cells of one side.
SIZE, SIDE = 8, 5
STEPS = 40
#: Instances on which a policy is judged.
JUDGED = 256
POLICY = {"embed_dim": 32, "num_heads": 4, "num_encoder_layers": 2, "feedforward_hidden": 64}
#: Paired t-statistic of the improvement; by chance it exceeds 4 once in 30,000 times.
MARGIN = 4.0


def make_model(env: RL4COEnvBase) -> REINFORCE:
    """POMO, or the Attention Model for problems that do not offer several starts."""
    policy = AttentionModelPolicy(env_name=env.name, normalization="instance", **POLICY)
    try:
        several = env.get_num_starts(env.reset(batch_size=1)) > 1
    except UnsupportedError:
        several = False
    if several:
        return POMO(env, policy, num_augment=1, seed=1)
    return AttentionModel(env, policy, baseline="mean", seed=1)


def train(model: REINFORCE) -> None:
    """A few steps on fresh instances, without the trainer and what it costs to start it."""
    optimizer = torch.optim.Adam(model.policy.parameters(), lr=2e-3)
    batch_size = 32 if isinstance(model, POMO) else 128
    model.train()
    for step in range(STEPS):
        batch = model.env.generator(batch_size, rng=derive_generator("learning", step))
        optimizer.zero_grad()
        model.shared_step(batch, step, "train")["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.policy.parameters(), 1.0)
        optimizer.step()


@torch.no_grad()
def rewards(model: REINFORCE, policy: AttentionModelPolicy, seed: int = 0) -> Tensor:
    """Mean reward `[B]` of sampled solutions of fixed instances.

    POMO is judged as it is trained and used: from all starts, never by its own first action.
    """
    multistart = isinstance(model, POMO)
    how = {"decode_type": "multistart_sampling"} if multistart else {"num_samples": 4}
    td = model.env.reset(model.env.generator(JUDGED, rng=derive_generator("judged")))
    settings = {"decode_type": "sampling", **how, "rng": derive_generator("samples", seed)}
    reward = policy.eval()(td, model.env, **settings)["reward"]  # [S * B]
    return reward.unflatten(0, (-1, JUDGED)).mean(0)  # [S, B] -> [B]


def build(name: str) -> tuple[REINFORCE, AttentionModelPolicy]:
    """The model, and a copy of its untrained policy."""
    torch.manual_seed(0)
    size = SIDE if size_argument(name) == "grid_size" else SIZE
    model = make_model(make_sized_env(name, size))
    return model, copy.deepcopy(model.policy)


@pytest.mark.learning
@pytest.mark.parametrize("name", [name for name in ENVS.names() if name in EMBEDDINGS])
def test_training_improves(name: str, require: Callable[..., None]) -> None:
    """Rewards are larger than those of the untrained policy, instance by instance."""
    model, untrained = build(name)
    train(model)
    gained = rewards(model, model.policy) - rewards(model, untrained)
    require("t of the gain", paired_t(gained), above=MARGIN)


def test_no_improvement_without_training() -> None:
    """Other samples of the same policy are no better, and the same ones no different."""
    model, untrained = build("tsp")
    gained = rewards(model, untrained, seed=1) - rewards(model, untrained)
    assert abs(paired_t(gained)) < MARGIN
    assert torch.equal(rewards(model, model.policy), rewards(model, untrained))
