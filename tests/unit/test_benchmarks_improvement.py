"""The benchmark of construction and improvement: integrals, table, plots from made-up curves."""

from __future__ import annotations

import pytest
import torch

from benchmarks import improvement
from rl4co.core.registry import MODELS


def test_integrals_by_hand():
    """Costs 12, then 10 after half of the time, of 10: 20 % for half of the time, then 0."""
    costs = torch.tensor([[12.0], [10.0]])
    integral = improvement.mean_integral(costs, [0.0, 0.5], torch.tensor([10.0]), 1.0)
    assert integral == pytest.approx(10.0)


def test_curve_by_hand():
    costs = torch.tensor([[12.0, 20.0], [11.0, 20.0]])
    entry = improvement.curve(costs, torch.tensor([0.0, 1.0]), torch.tensor([10.0, 20.0]))
    assert entry["gaps"] == pytest.approx([0.1, 0.05])


def test_methods_exist():
    """Every method builds, in an environment that it supports."""
    for method in improvement.METHODS.values():
        env = improvement.make_env(method, 6)
        small = {
            **method.settings.get("policy_kwargs", {}),
            "embed_dim": 16,
            "num_encoder_layers": 1,
        }
        model = MODELS[method.model](env, **{**method.settings, "policy_kwargs": small})
        assert model.policy is not None


def test_report(tmp_path):
    """Gaps and integrals in percent, sampling at the end of its row; and plots."""
    curves = {
        "DACT": {"gaps": [0.5] * 100 + [0.02], "times": [float(t) for t in range(101)]},
        "POMO (sampling)": {"gaps": [0.1, 0.03], "times": [1.0, 100.0]},
    }
    for entry in curves.values():
        entry["primal_integral"] = 12.5
    meta = {"command": "run", "date": "today", "cpu": "fast", "threads": 2}
    settings = {"size": 20, "instances": 2, "steps": 100, "minutes": 25.0}
    row = {"problem": "tsp", "reference": 3.8, "curves": curves}
    result = {"meta": meta, "settings": settings, "rows": [row]}
    text = improvement.markdown(result)
    assert "| DACT | 50.00 % | 2.00 % | 100.0 | 12.50 % |" in text
    assert "| POMO (sampling) | 10.00 % | 3.00 % | 100.0 | 12.50 % |" in text
    improvement.draw(result, tmp_path)
    assert (tmp_path / "improvement-tsp.png").read_bytes().startswith(b"\x89PNG")
