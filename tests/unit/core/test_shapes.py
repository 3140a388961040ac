"""`check_shapes`: axis letters as executable contracts."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.errors import ConfigError
from rl4co.core.shapes import check_shapes


def test_letters_bind_sizes_across_arguments():
    """Equal letters are equal sizes; the sizes are returned."""
    sizes = check_shapes(
        logits=(torch.zeros(4, 3, 7), "B T N"),
        actions=(torch.zeros(4, 3), "B T"),
        locs=(torch.zeros(4, 7, 2), "B N 2"),
    )
    assert sizes == {"B": 4, "T": 3, "N": 7}


def test_star_allows_leading_axes():
    """Any number of them, also none."""
    for leading in ((), (5,), (5, 6)):
        assert check_shapes(x=(torch.zeros(*leading, 7, 2), "* N 2")) == {"N": 7}
    assert check_shapes(x=(torch.zeros(3, 4), "*")) == {}


def test_scalars():
    """No axes, no letters."""
    assert check_shapes(x=(torch.tensor(1.0), "")) == {}


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((4, 7), "B"), ((4,), "B N"), ((4, 3), "B 2"), ((4, 5), "N N"), ((4,), "* N 2"), ((), "B")],
)
def test_wrong_shapes_raise(shape, axes):
    """The message names the argument, what was expected and what came."""
    with pytest.raises(ConfigError) as caught:
        check_shapes(x=(torch.zeros(shape), axes))
    assert f"expected x of shape [{axes}]" in str(caught.value)
    assert f"got {list(shape)}" in str(caught.value)


def test_disagreement_between_arguments():
    """The second argument is blamed, with the sizes bound by the first."""
    with pytest.raises(ConfigError, match=r"expected actions of shape \[B T\] with {'B': 4"):
        check_shapes(logits=(torch.zeros(4, 7), "B N"), actions=(torch.zeros(5, 3), "B T"))
