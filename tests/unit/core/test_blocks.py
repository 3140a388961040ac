"""Blocks of rows that threads share."""

from __future__ import annotations

import pytest
import torch

from rl4co.core import blocks
from rl4co.core.blocks import add_up, in_blocks


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 7, 8, 9])
def test_blocks_cover_all_rows_in_order(count, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = torch.arange(count)
    parts = in_blocks(lambda some: [rows[block].tolist() for block in some], count, size=3)
    found = [row for part in parts for block in part for row in block]
    assert found == list(range(count))
    assert len(parts) == min(threads, -(-count // 3))


@pytest.mark.parametrize("inference", [False, True])
def test_threads_write_to_tensors_of_the_caller(inference, monkeypatch):
    """Inference mode belongs to a thread; another one must not refuse the caller's tensors."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    weight = torch.eye(4, requires_grad=True)

    def work(some):
        for block in some:
            torch.mm(x[block], weight.detach(), out=y[block])
            assert not torch.is_grad_enabled()

    with torch.inference_mode(inference):
        x = torch.randn(6, 4)
        y = torch.zeros_like(x)
        in_blocks(work, 6, size=1)
        assert torch.equal(x, y)


def test_without_a_team_one_caller_has_all_blocks(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(blocks, "has_team", lambda: False)
    assert in_blocks(lambda some: len(list(some)), 10, size=2) == [5]


def test_sums_of_parts():
    first = torch.tensor([1.0, 2.0]), torch.tensor(3.0)
    second = torch.tensor([10.0, 20.0]), torch.tensor(30.0)
    total, other = add_up([first, second])
    assert total.tolist() == [11.0, 22.0] and other.item() == 33.0
