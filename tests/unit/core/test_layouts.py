"""State keys in the layouts of this library and of published environments."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.errors import ConfigError
from rl4co.core.layouts import node_index, per_node, per_solution

VALUES = torch.arange(6.0).view(2, 3)  # batch axes [2, 3]


def test_numbers_and_nodes_of_solutions_have_one_shape():
    """With an axis of their own, without one, or a number for every node, the depot first."""
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    per_arrival = VALUES.unsqueeze(-1) - torch.arange(4.0)
    for value in (VALUES, VALUES.unsqueeze(-1), per_arrival):
        state = {"x": value, "action_mask": mask}
        assert torch.equal(per_solution(state, "x"), VALUES.unsqueeze(-1))
    for value in (VALUES, VALUES.unsqueeze(-1)):
        assert torch.equal(node_index({"x": value, "action_mask": mask}, "x"), VALUES)
    # Without a mask there is no better information.
    assert per_solution({"x": VALUES[:, :1]}, "x").shape == (2, 1)
    assert node_index({"x": VALUES}, "x") is VALUES


def test_customers_get_a_depot():
    assert per_node({"x": VALUES}, "x", 3) is VALUES
    assert per_node({"x": VALUES}, "x", 4)[0].tolist() == [0.0, 0.0, 1.0, 2.0]
    with pytest.raises(ConfigError, match=r"'x' with a value for each of 7 nodes or of 6 .*\[2, 3"):
        per_node({"x": VALUES}, "x", 7)
