"""Learning, not only running: a few seconds of training make solutions clearly better."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import AttentionModel
from tests.learning import cost_ratio
from tests.trainers import fit

POLICY = {"embed_dim": 32, "num_heads": 4, "num_encoder_layers": 2, "feedforward_hidden": 64}
SMALL = {"dataset_size": 256}
BASELINES: dict[str, dict[str, Any]] = {
    "no": {},
    "mean": {},
    "exponential": {},
    "rollout": SMALL,
    "critic": {},
    "warmup": {"baseline": "rollout", "n_epochs": 2, **SMALL},
}


def make_model(env: Any, batch_size: int = 128, rate: float = 1e-3, **options: Any) -> Any:
    """A small Attention Model that sees 20 batches per epoch."""
    torch.manual_seed(0)
    sizes = {"train_data_size": batch_size * 20, "val_data_size": 8, "test_data_size": 8}
    rates = {"optimizer_kwargs": {"lr": rate}}
    return AttentionModel(
        env, policy_kwargs=POLICY, batch_size=batch_size, seed=0, **sizes, **rates, **options
    )


@pytest.mark.learning
@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines(baseline: str, tmp_path: Path, require: Callable[..., None]) -> None:
    """Ten nodes, 60 steps: tours shrink from 5.0 to about 3.1 (2.9 is optimal)."""
    env = TSPEnv(generator_params={"num_loc": 10})
    options: dict[str, Any] = {"baseline": baseline, "baseline_kwargs": BASELINES[baseline]}
    # Without a baseline gradients are noisy: more instances per step, and more but smaller steps.
    noisy = baseline == "no"
    model = make_model(env, **options, **({"batch_size": 256, "rate": 5e-4} if noisy else {}))
    ratio = cost_ratio(model, lambda: fit(model, tmp_path, max_epochs=9 if noisy else 3))
    require("cost after / before", ratio, below=0.83)


@pytest.mark.learning
def test_routes(tmp_path: Path, require: Callable[..., None]) -> None:
    """The same for the CVRP, whose solutions have different lengths."""
    env = CVRPEnv(generator_params={"num_loc": 10})
    model = make_model(env, baseline="rollout", baseline_kwargs=SMALL)
    require(
        "cost after / before",
        cost_ratio(model, lambda: fit(model, tmp_path, max_epochs=3)),
        below=0.85,
    )


@pytest.mark.learning
def test_bfloat16(tmp_path: Path, require: Callable[..., None]) -> None:
    """Mixed precision on a CPU reaches nearly the same."""
    model = make_model(TSPEnv(generator_params={"num_loc": 10}), baseline="mean")
    ratio = cost_ratio(model, lambda: fit(model, tmp_path, max_epochs=2, precision="bf16-mixed"))
    require("cost after / before", ratio, below=0.85)
