"""Self-labelling: the loss of the best solutions by hand, and learning within seconds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl4co.core.errors import ConfigError
from rl4co.envs import CVRPEnv, JSSPEnv, TSPEnv
from rl4co.models import AttentionModelPolicy, L2DPolicy, SelfLabeling
from rl4co.models.rl.losses import self_labeling_loss
from tests.learning import cost_ratio, train_steps

TINY = {"embed_dim": 32, "num_heads": 4, "feedforward_hidden": 32, "num_encoder_layers": 1}


def make_model(problem: str, num_samples: int = 8) -> SelfLabeling:
    torch.manual_seed(0)
    policy: Any
    if problem == "jssp":
        env: Any = JSSPEnv(generator_params={"num_jobs": 4, "num_machines": 3}, seed=0)
        policy = L2DPolicy(env_name="jssp", encoder="gcn", embed_dim=16, num_encoder_layers=1)
    else:
        cls = {"tsp": TSPEnv, "cvrp": CVRPEnv}[problem]
        env = cls(generator_params={"num_loc": 8}, seed=0)
        policy = AttentionModelPolicy(env_name=problem, normalization="instance", **TINY)
    return SelfLabeling(env, policy, num_samples=num_samples, seed=1)


def test_loss_by_hand():
    """Likelihoods -6 and -12 of four steps: (6 + 12) / 2 / 4."""
    assert float(self_labeling_loss(torch.tensor([-6.0, -12.0]), 4)) == pytest.approx(2.25)


@pytest.mark.parametrize("problem", ["tsp", "cvrp", "jssp"])
def test_the_best_solution_is_the_label(problem):
    """The loss is that of the best of the sampled solutions, found by a loop."""
    model = make_model(problem, num_samples=5)
    model.policy.eval()
    calls = []
    forward = model.policy.forward

    def watched(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        calls.append((kwargs, out))
        return out

    model.policy.forward = watched
    batch = model.env.generate(3)
    loss = model.shared_step(batch, 0, "train")["loss"]
    (_, sampled), (label, _) = calls
    rows = sampled["reward"].view(5, 3)
    for b in range(3):
        best = max(range(5), key=lambda k: float(rows[k, b]))
        assert torch.equal(label["actions"][b], sampled["actions"][best * 3 + b])
    again = forward(model.env.reset(batch), model.env, actions=label["actions"])
    expected = -again["log_likelihood"].mean() / label["actions"].shape[-1]
    torch.testing.assert_close(loss, expected)
    loss.backward()


@pytest.mark.parametrize("problem", ["tsp", "cvrp", "jssp"])
def test_learns(problem):
    model = make_model(problem)
    ratio = cost_ratio(model, lambda: train_steps(model, 60, 32, 3e-3))
    assert ratio < (0.99 if problem == "jssp" else 0.93)


def test_one_sample_raises():
    with pytest.raises(ConfigError, match="num_samples"):
        make_model("tsp", num_samples=1)
