"""mTSP: exhaustive oracles for both objectives, batches of different agents, and rejected input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.rng import derive_generator
from rl4co.envs import MTSPEnv, MTSPGenerator
from rl4co.envs.contract.evidence import record_episode
from tests.unit.envs.routing_oracle import (
    all_routes,
    allowed_solutions,
    as_routes,
    count_steps,
    euclidean,
    round_trip,
)

COMBINE = {"minmax": max, "sum": sum}


def random_instance(
    size: int, agents: int, seed: int, given_by: str = "locs"
) -> tuple[TensorDict, np.ndarray]:
    """An instance without batch axis and its costs `[N, N]`; the diagonal of a matrix is not 0."""
    rng = np.random.default_rng(seed)
    if given_by == "locs":
        data = rng.random((size, 2))
        costs = euclidean(data)
    else:
        data = costs = rng.integers(1, 1000, (size, size)).astype(float)
    tensors = {
        given_by: torch.as_tensor(data, dtype=torch.float32),
        "num_agents": torch.tensor(agents),
    }
    return TensorDict(tensors, batch_size=[]), costs


def cost_of(costs: np.ndarray, tours: list[list[int]], cost_type: str) -> float:
    return float(COMBINE[cost_type]([round_trip(costs, tour) for tour in tours]))


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("given_by", ["locs", "cost_matrix"])
@pytest.mark.parametrize("cost_type", ["minmax", "sum"])
@pytest.mark.parametrize(("size", "agents"), [(2, 1), (3, 1), (3, 5), (5, 1), (5, 2), (5, 3)])
def test_mask_allows_exactly_the_solutions(size: int, agents: int, cost_type: str, given_by: str):
    """Each solution once, and each with the cost of NumPy."""
    instance, costs = random_instance(size, agents, seed=size + agents, given_by=given_by)
    env = MTSPEnv(cost_type=cost_type)
    expected = {
        tuple(node for tour in tours for node in (*tour, 0))[:-1]: -cost_of(costs, tours, cost_type)
        for tours in all_routes(range(1, size))
        if len(tours) <= agents
    }
    assert allowed_solutions(env, instance) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@given(
    size=st.integers(min_value=2, max_value=9),
    agents=st.lists(st.integers(min_value=1, max_value=12), min_size=1, max_size=5),
    matrix=st.booleans(),
    cost_type=st.sampled_from(["minmax", "sum"]),
    seed=st.integers(min_value=0, max_value=2**32),
)
def test_random_batches(size: int, agents: list[int], matrix: bool, cost_type: str, seed: int):
    """Agents differ within a batch; rollouts end, are valid, and cost what each costs alone."""
    key = "cost_matrix" if matrix else "locs"
    pairs = [random_instance(size, n, seed + b, key) for b, n in enumerate(agents)]
    instances = torch.stack([instance for instance, _ in pairs])
    env = MTSPEnv(cost_type=cost_type)
    episode = record_episode(env, instances, derive_generator(seed))
    assert episode.complete
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True)
    final = episode.states[-1]
    for b, (instance, costs) in enumerate(pairs):
        tours = as_routes(episode.actions[b].tolist())
        assert len(tours) <= agents[b]
        assert reward[b].item() == pytest.approx(-cost_of(costs, tours, cost_type), rel=1e-5)
        # The state knows the longest tour too, whether or not the instance had to wait.
        longest = cost_of(costs, tours, "minmax")
        assert final["max_subtour_length"][b].item() == pytest.approx(longest, rel=1e-5)
        assert final["agent_idx"][b].item() == len(tours) - 1
        # Alone, and without the steps that it waited.
        steps = episode.lengths[b]
        own = env.get_reward(env.reset(instance.unsqueeze(0)), episode.actions[b : b + 1, :steps])
        torch.testing.assert_close(own[0], reward[b])


def test_idle_agents_are_allowed_in_solutions():
    """An agent that leaves the depot for nowhere makes no tour; the mask never asks for it."""
    instance, costs = random_instance(4, agents=2, seed=0)
    env = MTSPEnv()
    td = env.reset(instance.unsqueeze(0))
    reward = env.get_reward(td, torch.tensor([[0, 0, 1, 2, 0, 0, 3]]))
    assert reward.item() == pytest.approx(-cost_of(costs, [[1, 2], [3]], "minmax"), rel=1e-5)


# ---------------------------------------------------------------- stepping


def test_state_follows_the_tours():
    """Agent, lengths and mask: on the way, at the depot, with the last agent, and at the end."""
    locs = torch.tensor([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0]])
    instance = TensorDict({"locs": locs, "num_agents": torch.tensor(2)}, batch_size=[])
    env = MTSPEnv()
    td = env.reset(instance.unsqueeze(0))
    assert td["action_mask"][0].tolist() == [False, True, True, True]
    script = [
        # action, agent, current length, way home, longest tour, allowed nodes, done
        (2, 0, 5.0, 5.0, 0.0, [True, True, False, True], False),
        (0, 1, 0.0, 0.0, 10.0, [False, True, False, True], False),
        (1, 1, 3.0, 3.0, 10.0, [False, False, False, True], False),  # no agent is left
        (3, 1, 8.0, 4.0, 12.0, [True, False, False, False], True),
        (0, 1, 0.0, 0.0, 12.0, [True, False, False, False], True),
        (0, 1, 0.0, 0.0, 12.0, [True, False, False, False], True),
    ]
    for action, agent, length, home, longest, allowed, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["agent_idx"].item() == agent
        assert td["current_length"].item() == pytest.approx(length)
        assert td["way_home"].item() == pytest.approx(home)
        assert td["max_subtour_length"].item() == pytest.approx(longest)
        assert td["action_mask"][0].tolist() == allowed
        assert td["done"].item() is done


@pytest.mark.parametrize("size", [2, 3, 8])
def test_step_bounds_are_reached(size: int):
    """One agent needs the fewest steps; with an agent for each customer there may be the most."""
    env = MTSPEnv()
    for agents, bound in ((1, 0), (size - 1, 1)):
        instance, _ = random_instance(size, agents, seed=0)
        steps, bounds = count_steps(env, instance.unsqueeze(0))
        assert steps == bounds[bound]


# ---------------------------------------------------------------- generator


def test_generator():
    """Defaults of the published package; the number of agents is drawn per instance."""
    instances = MTSPGenerator()(3)
    assert instances["locs"].shape == (3, 20, 2)
    assert instances["num_agents"].tolist() == [5, 5, 5]
    drawn = MTSPGenerator(num_loc=4, min_num_agents=2, max_num_agents=4)([300])["num_agents"]
    assert drawn.dtype == torch.int64
    counts = torch.bincount(drawn)
    assert counts[:2].sum() == 0
    assert len(counts) == 5
    assert (counts[2:] > 60).all()
    locs = MTSPGenerator(num_loc=4, min_loc=-3.0, max_loc=5.0)(200)["locs"]
    assert -3.0 <= locs.min() < -2.8
    assert 4.8 < locs.max() <= 5.0


# ---------------------------------------------------------------- plots


def test_plot_names_agents_with_their_lengths():
    """Closed tours, the longest one bold; the title has both objectives."""
    locs = torch.tensor([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0]])
    env = MTSPEnv()
    td = env.reset(TensorDict({"locs": locs, "num_agents": torch.tensor(3)}, batch_size=[]))
    ax = env.render(td, torch.tensor([3, 0, 1, 2, 0])).axes[0]
    assert ax.get_title() == "3 customers · 3 agents · longest tour 12.000 · total 20.000"
    lines = ax.get_lines()
    walks = [locs[[0, 3, 0]].tolist(), locs[[0, 1, 2, 0]].tolist()]
    assert [np.asarray(line.get_xydata()).tolist() for line in lines] == walks
    assert lines[1].get_linewidth() > lines[0].get_linewidth()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["agent 1: 8.000", "agent 2: 12.000", "depot"]
    assert env.render(td).axes[0].get_title() == "3 customers · 3 agents"
