"""The benchmark of searches: gaps, table and plot from made-up curves."""

from __future__ import annotations

import pytest
import torch

from benchmarks import search


def test_gaps_by_hand():
    """Costs 10 and 20. First iteration: 11 and 20, gaps 10 % and 0; second: 10 and 20."""
    rewards = torch.tensor([[-11.0, -10.0], [-20.0, -20.0]])
    assert search.gaps(rewards, torch.tensor([10.0, 20.0])) == pytest.approx([0.05, 0.0])


@pytest.mark.parametrize(
    ("iterations", "expected"), [(100, [1, 10, 25, 50, 100]), (4, [1, 2, 4]), (1, [1])]
)
def test_iterations_of_the_table(iterations, expected):
    assert search.checkpoints(iterations) == expected


def test_report(tmp_path):
    """Names, gaps in percent; and a plot."""
    row = {
        "problem": "tsp",
        "solver": 5.7,
        "greedy": 0.015,
        "curves": {"sampling": [0.01, 0.005], "eas_lay": [0.01, 0.00125]},
    }
    meta = {"command": "run", "date": "today", "cpu": "fast", "threads": 2}
    settings = {"instances": 2, "iterations": 2, "solutions": 50, "copies": 8}
    result = {"meta": meta, "settings": settings, "rows": [row]}
    text = search.markdown(result)
    assert "| sampling | 1.000 % | 0.500 % |" in text
    assert "| EAS-Lay | 1.000 % | 0.125 % |" in text
    assert "greedy decoding has 1.500 %" in text
    search.draw(result, tmp_path / "search.png")
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")


def test_weights_are_needed(capsys):
    with pytest.raises(SystemExit):
        search.parse_arguments([])
    assert "--reference FOLDER" in capsys.readouterr().err
