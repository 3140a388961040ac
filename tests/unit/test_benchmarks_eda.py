"""The benchmark of decap placement: what it counts, compares and shows."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import eda


def row(objective: str, method: str, seed: int, score: float) -> dict[str, Any]:
    by_decaps = {count: score - 20 + count for count in eda.DECAPS}
    return {
        "objective": objective, "method": method, "seed": seed, "minutes": 1.0, "steps": 3,
        "rewards": 100, "curve": [(50, score - 1), (100, score)], "by_decaps": by_decaps,
    }  # fmt: skip


@pytest.fixture
def result() -> dict[str, Any]:
    """Rows as they come back from the file."""
    rows = [
        row("maxsum", "genetic x 100", 1, 11.0),
        row("maxsum", "DevFormer, critic", 1, 10.0),
        row("maxsum", "DevFormer, rollout", 1, 12.0),
        row("maxsum", "DevFormer, rollout", 2, 13.0),
        row("maxmin", "DevFormer, critic", 1, 9.0),
        row("maxmin", "DevFormer, rollout", 1, 8.0),
    ]
    return json.loads(json.dumps({"rows": rows}))


def test_table(result: dict[str, Any]) -> None:
    cells = {cells[0]: cells[1:] for cells in eda.table_rows(result)}
    assert cells["genetic x 100"] == ["", "", "11.000", ""]
    assert cells["DevFormer, rollout"] == ["1.0", "100", "12.500 ± 0.707 (2)", "8.000"]
    assert list(cells) == ["genetic x 100", "DevFormer, critic", "DevFormer, rollout"]


def test_the_best_two_are_those_of_the_first_seed(result: dict[str, Any]) -> None:
    ranked = eda.best_methods(result["rows"], ["DevFormer, critic", "DevFormer, rollout"])
    assert ranked == ["DevFormer, rollout", "DevFormer, critic"]


def test_plot(result: dict[str, Any], tmp_path: Path) -> None:
    eda.draw(result, tmp_path / "eda.png")
    assert (tmp_path / "eda.png").stat().st_size > 10_000


def test_the_published_formula_gives_the_reward() -> None:
    env = eda.make_env("maxsum", 3)
    td = env.reset(batch_size=1)
    actions, costs = env.solve(td, solver="random")
    ports = td["probe"][0].nonzero().flatten().tolist()
    scores = [eda.published_formula(env.chip, actions[0], port) for port in ports]
    torch.testing.assert_close(torch.stack(scores).mean().float(), -costs[0], atol=1e-5, rtol=0)


def test_rewards_are_counted() -> None:
    env = eda.make_env("maxmin", 2, eda.CountingEnv)
    tested = []
    curve = eda.Curve(env, lambda: tested.append(env.rewards) or 1.0)  # type: ignore[func-returns-value]
    for _ in range(10):
        env.solve(env.generator(128), solver="random")  # two rewards each: a rollout and a check
        curve.on_train_batch_end(None, None)
    assert env.rewards == 10 * 2 * 128
    assert curve.points == [(512, 1.0), (768, 1.0), (1280, 1.0), (2048, 1.0)]


def test_speed_is_a_ratio() -> None:
    text = eda.speed_text({"speed": {"a": 10.0, "b": 2.0, "c": 0.5}})
    assert text.endswith("5 and 20")
    assert eda.speed_text({}) == ""
