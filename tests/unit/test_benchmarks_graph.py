"""The benchmark of graph problems: gaps, table and plot from made-up results."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks import cases, graph
from rl4co.envs import get_env
from rl4co.models import GNNAttentionModelPolicy


def made_up(problem: str, method: str, **more: Any) -> dict[str, Any]:
    gaps = {"greedy": 0.07, "sampling best": 0.015}
    return {"problem": problem, "method": method, "gaps": {"100": gaps, "200": gaps}, **more}


def test_gaps_by_hand():
    """Costs 11 and 20 where 10 and 20 are best; prizes 9 where 10 is best."""
    few = torch.tensor([10.0, 20.0]).double()
    costs = graph.TestSet(get_env("flp"), None, few)
    assert costs.gap(torch.tensor([-11.0, -20.0])) == pytest.approx(0.05)
    prizes = graph.TestSet(get_env("mcp"), None, few)
    assert prizes.gap(torch.tensor([9.0])) == pytest.approx(0.1)  # of the first instance alone
    assert prizes.gap(torch.tensor([11.0])) == pytest.approx(-0.1)  # better than what was known


def test_report(tmp_path):
    grid = [[0.02] * len(graph.TOP_P) for _ in graph.TEMPERATURES]
    rows = [made_up("mcp", "mlp, critic", steps=7, heatmap=grid), made_up("flp", "greedy")]
    table = graph.table_rows({"rows": rows})
    assert [row[0] for row in table] == [
        "FLP 100/10, greedy", "MCP 100/10, mlp, critic", "FLP 200/20, greedy",
        "MCP 200/20, mlp, critic",
    ]  # fmt: skip
    assert table[1][1:4] == ["7", "7.00 %", "1.50 %"]
    graph.draw({"rows": rows}, tmp_path / "grid.png")
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")


def test_best_and_mean_of_samples():
    env = get_env("flp", generator_params={"num_loc": 8, "to_choose": 2})
    chosen = graph.TestSet(env, env.generator(3), torch.ones(3).double())
    policy = GNNAttentionModelPolicy(env_name="flp", embed_dim=16, num_heads=2).eval()
    best, mean = graph.sample(policy, chosen, seed=0, batch_size=2)
    assert best.shape == mean.shape == (3,)
    assert (best > mean).all()


def test_rollouts_are_compared_with_the_published_package():
    rows = cases.plan(["graph_rollout"])
    assert [(row.problem, row.batch) for row in rows] == [("flp", 512), ("mcp", 512)]
    assert {row.spec(cases.NEW)["kind"] for row in rows} == {"env_rollout"}
