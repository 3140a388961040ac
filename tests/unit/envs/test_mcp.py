"""Maximum coverage against independent Python code and brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tensordict import TensorDict
from torch.distributions import Normal

from rl4co.core.errors import UnsupportedError
from rl4co.core.gains import FEW_STATES, coverage_gains
from rl4co.data import StateAugmentation
from rl4co.envs import MCPEnv
from rl4co.envs.graph import MCPGenerator
from rl4co.envs.graph.mcp.local_search import swap_sets
from rl4co.kernels import disabled

SMALL = {"num_items": 12, "num_sets": 7, "min_size": 1, "max_size": 4}


def weight_of(td: TensorDict, chosen) -> float:
    """The union of Python sets."""
    items = set().union(*(set(td["membership"][s].long().tolist()) for s in chosen)) - {0}
    return sum(float(td["weights"][item - 1]) for item in items)


def mixed_batch(*numbers: int, seed: int = 0) -> TensorDict:
    td = MCPGenerator(**SMALL)(len(numbers), rng=torch.Generator().manual_seed(seed))
    return td.set("n_sets_to_choose", torch.tensor(numbers).float().unsqueeze(-1))


def test_generator_has_the_published_keys():
    td = MCPGenerator()(50, rng=torch.Generator().manual_seed(0))
    assert {key: tuple(td[key].shape) for key in td.keys()} == {
        "membership": (50, 100, 15),
        "weights": (50, 200),
        "n_sets_to_choose": (50, 1),
    }
    assert all(value.dtype == torch.float32 for value in td.values())
    assert (td["n_sets_to_choose"] == 10).all()
    assert (td["weights"].min(), td["weights"].max()) == (1, 10)
    assert (td["weights"] == td["weights"].round()).all()
    assert (td["membership"].min(), td["membership"].max()) == (0, 200)


def test_items_are_drawn_with_replacement():
    """Sizes 5 to 15 are drawn, 10 on average; of s draws, m (1 - (1 - 1/m)^s) are different."""
    expected = np.mean([200 * (1 - (1 - 1 / 200) ** s) for s in range(5, 16)])
    td = MCPGenerator()(200, rng=torch.Generator().manual_seed(0))
    sizes = (td["membership"] > 0).sum(-1).float()
    # 20,000 sets, standard deviation 3.2: within four standard errors.
    assert float(sizes.mean()) == pytest.approx(expected, abs=0.09)
    whole = MCPGenerator(replacement=False)(200, rng=torch.Generator().manual_seed(0))
    sizes = (whole["membership"] > 0).sum(-1)
    assert (int(sizes.min()), int(sizes.max())) == (5, 15)
    assert float(sizes.float().mean()) == pytest.approx(10, abs=0.09)


def test_width_does_not_depend_on_the_draw():
    """Also where no set reaches the largest size, and for one instance without batch axis."""
    generator = MCPGenerator(num_sets=2, min_size=1, max_size=9, size_distribution=2)
    assert generator(3)["membership"].shape == (3, 2, 9)
    assert generator([])["membership"].shape == (2, 9)


def test_samplers_of_published_notebooks():
    """`env.generator(100)` with distributions by name and as objects."""
    by_name = MCPGenerator(size_distribution="uniform", weight_distribution="uniform")
    by_object = MCPGenerator(size_sampler=Normal(10, 2), weight_sampler=Normal(5, 1))
    for generator in (by_name, by_object):
        env = MCPEnv(generator=generator)
        data = env.generator(100)
        assert data["membership"].shape == (100, 100, 15)
        assert data["weights"].shape == (100, 200)
        env.reset(data)  # accepted by all rules
    assert float(data["weights"].mean()) == pytest.approx(4.5, abs=0.1)  # rounded down


def test_gains_of_few_and_many_states_agree():
    """Looked up, or by a table of all items."""
    td = mixed_batch(1, 1)
    weights = torch.rand(2, FEW_STATES + 1, 12, dtype=torch.float64)
    many = coverage_gains(weights, td["membership"])
    few = coverage_gains(weights[:, :FEW_STATES], td["membership"])
    torch.testing.assert_close(few, many[:, :FEW_STATES])


def test_local_search_compiled_and_plain_agree():
    td = mixed_batch(4, 2, 3)
    arrays = td["membership"].numpy(), td["weights"].numpy()
    rng = np.random.default_rng(0)
    chosen = np.stack([rng.permutation(7)[:4] for _ in range(6)])
    fast = swap_sets(*arrays, chosen, np.array([4, 2, 3]))
    with disabled():
        assert np.array_equal(swap_sets(*arrays, chosen, np.array([4, 2, 3])), fast)


def test_no_augmentation():
    """Rejected by name, and where somebody tries anyway."""
    env = MCPEnv()
    with pytest.raises(UnsupportedError, match="use sampling instead"):
        env.check_augmentation("dihedral8")
    with pytest.raises(UnsupportedError, match="coordinates"):
        StateAugmentation()(env.generator(2))


def test_figures():
    """Chosen sets have their rows; the title has the covered weight."""
    env = MCPEnv()
    instances = mixed_batch(3)
    td = env.reset(instances)
    title = env.render(td, torch.tensor([[1, 4, 6]])).axes[0].get_title()
    assert f"weight {weight_of(instances[0], [1, 4, 6]):g} of" in title
    figure = env.render(td)
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert [label for label in labels if label.startswith("set")] == [f"set {i}" for i in range(7)]
