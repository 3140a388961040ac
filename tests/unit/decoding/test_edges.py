"""Decoding by weights of edges: closed forms against step by step, ants against the mask."""

from __future__ import annotations

import math

import pytest
import torch

from tensordict import TensorDict

from rl4co import kernels
from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.graphs import CandidateGraph, nearest_graph
from rl4co.core.ops import batchify, flatten_starts, unbatchify
from rl4co.decoding.ant_colony import AntColony, ColonyConfig, inverse_distances
from rl4co.decoding.edges import (
    EdgeLogits,
    edge_log_likelihood,
    sample_by_edges,
    tour_log_likelihood,
    walk_log_likelihood,
)
from rl4co.decoding.pheromone import deposit
from rl4co.decoding.rollout import expand_solutions, follow
from rl4co.envs import CVRPEnv, get_env

PROBLEMS = ("tsp", "cvrp", "cvrpmvc", "op", "pctsp")


def instance(problem: str, size: int = 12, degree: int = 4, batch: int = 3):
    """Environment, state, graph and random weights."""
    env = get_env(problem, generator_params={"num_loc": size}, seed=1)
    td = env.reset(env.generator(batch, rng=torch.Generator().manual_seed(2)))
    graph, _ = nearest_graph(td["locs"], degree, has_hub=problem != "tsp")
    weights = torch.rand(batch, graph.num_edges, generator=torch.Generator().manual_seed(3))
    return env, td, graph, weights.double() + 0.01


# ---------------------------------------------------------------- graphs


def test_graph_by_hand():
    """Three customers on a line, the depot apart: one neighbour each, and the depot."""
    locs = torch.tensor([[[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]])
    graph, lengths = nearest_graph(locs, 1, has_hub=True)
    assert graph.targets.tolist() == [[[2, 0], [1, 0], [2, 0]]]
    assert graph.origins().tolist() == [1, 1, 2, 2, 3, 3, 0, 0, 0]
    assert graph.destinations().tolist() == [[2, 0, 1, 0, 2, 0, 1, 2, 3]]
    expected = [1, 1, 1, math.sqrt(2), 2, math.sqrt(10), 1, math.sqrt(2), math.sqrt(10)]
    torch.testing.assert_close(lengths, torch.tensor([expected]))
    dense = graph.dense(lengths)[0]
    assert dense[3, 2] == 2 and dense[2, 3] == 0 and dense[0, 3] == dense[3, 0] > 3


def test_graph_leaves_the_caller_alone_and_rejects_too_many_edges():
    locs = torch.rand(2, 5, 2)
    before = locs.clone()
    nearest_graph(locs, 4)
    assert torch.equal(locs, before)
    for degree in (0, 5, 9):
        with pytest.raises(ConfigError, match="1 to 4 candidate edges"):
            nearest_graph(locs, degree)
    with pytest.raises(ConfigError, match="1 to 3 candidate edges"):
        nearest_graph(locs, 4, has_hub=True)


def test_large_matrices_are_rejected():
    graph = CandidateGraph(torch.zeros(1, 6000, 1, dtype=torch.int64), has_hub=False)
    with pytest.raises(UnsupportedError, match="5,000 nodes"):
        graph.dense(torch.zeros(1, 6000))


# ---------------------------------------------------------------- likelihoods


@pytest.mark.parametrize("rule", ["uniform", "nearest"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_closed_form_is_step_by_step(problem: str, rule: str):
    """Against log-softmax of the logits of every state on the way; gradients, too."""
    env, td, graph, weights = instance(problem)
    weights.requires_grad_()
    state = dict(td.items())
    actions = sample_by_edges(env, state, graph, weights, 5, torch.Generator().manual_seed(0), rule)
    solutions = expand_solutions(state, 5)
    logits_of = EdgeLogits.of(graph, weights, td["locs"].double(), rule)
    expected = torch.zeros(3, 5, dtype=torch.float64)
    current = solutions
    for step in range(actions.shape[-1]):
        logits = logits_of(current).masked_fill(~current["action_mask"], -torch.inf)
        chosen = actions[..., step : step + 1]
        expected = expected + logits.log_softmax(-1).gather(-1, chosen).squeeze(-1)
        current = env.advance(current, actions[..., step])
    found = edge_log_likelihood(env, state, graph, weights, actions, rule)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-7)
    again = walk_log_likelihood(env, state, graph, weights, actions, rule)
    torch.testing.assert_close(again, expected, atol=1e-7, rtol=1e-7)
    factor = torch.linspace(-1, 1, 15, dtype=torch.float64).view(3, 5)
    gradients = [
        torch.autograd.grad((factor * value).sum(), weights, retain_graph=True)[0]
        for value in (found, expected)
    ]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-6)


def test_tour_likelihood_by_hand():
    """Four nodes, two candidates each: 1/4 for the start, then 2/3, 1, and the last for sure."""
    targets = torch.tensor([[[1, 2], [2, 0], [3, 0], [0, 1]]])
    weights = torch.tensor([[2.0, 1.0, 3.0, 1.0, 5.0, 1.0, 1.0, 1.0]])
    found = tour_log_likelihood(
        CandidateGraph(targets, False), weights, torch.tensor([[[0, 1, 2, 3]]])
    )
    assert float(found) == pytest.approx(math.log(1 / 4 * 2 / 3), abs=1e-6)


def test_edges_that_are_no_candidates_are_nearly_impossible_but_finite():
    _, _, graph, weights = instance("tsp", degree=1)
    tours = torch.arange(12).expand(3, 2, 12)
    found = tour_log_likelihood(graph, weights, tours, "uniform")
    assert bool(found.isfinite().all()) and bool((found < -50).all())


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("rule", ["uniform", "nearest"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_samples_are_valid_and_reproducible(problem: str, rule: str):
    env, td, graph, weights = instance(problem, size=20, degree=3)
    draw = [
        sample_by_edges(
            env, dict(td.items()), graph, weights, 6, torch.Generator().manual_seed(seed), rule
        )
        for seed in (0, 0, 1)
    ]
    assert torch.equal(draw[0], draw[1]) and not torch.equal(draw[0], draw[2])
    env.check_solution_validity(batchify(td, 6), flatten_starts(draw[0]))


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_compiled_ants_follow_the_weights(problem: str):
    """Frequencies of first steps against probabilities; compiled, plain and by the decode loop."""
    env, td, graph, weights = instance(problem, size=5, degree=3, batch=1)
    state = dict(td.items())
    with kernels.disabled():
        few = sample_by_edges(env, state, graph, weights, 20, torch.Generator().manual_seed(5))
    assert torch.equal(
        few, sample_by_edges(env, state, graph, weights, 20, torch.Generator().manual_seed(5))
    )
    count = 20_000
    actions = sample_by_edges(env, state, graph, weights, count, torch.Generator().manual_seed(0))
    log_likelihood = edge_log_likelihood(env, state, graph, weights, actions)[0]
    solutions, rows = actions[0].unique(dim=0, return_inverse=True)
    frequency = rows.bincount() / count
    probability = torch.zeros(len(solutions), dtype=torch.float64)
    probability[rows] = log_likelihood.exp()
    spread = (probability * (1 - probability) / count).sqrt()
    assert bool(((frequency - probability).abs() < 5 * spread + 1e-4).all())
    assert float(probability.sum()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.filterwarnings("ignore:the rules of .* are not those:UserWarning")
def test_changed_rules_are_respected():
    """A subclass that forbids something, and a patched hook: no compiled loop goes past them."""

    class Short(CVRPEnv):
        def _forbidden(self, state):
            full = state["used_capacity"] > 0  # one customer per route
            return super()._forbidden(state) | full

    patched = CVRPEnv()
    patched._forbidden = lambda state: Short._forbidden(Short(), state)
    _, td, graph, weights = instance("cvrp")
    for env in (Short(), patched):
        actions = sample_by_edges(env, dict(td.items()), graph, weights, 3)
        customers = actions != 0
        assert not bool((customers[..., 1:] & customers[..., :-1]).any())


def test_nearest_rule_goes_to_the_nearest():
    """Without any candidate left, the follow jumps to the closest node."""
    locs = torch.tensor([[[0.0, 0.0], [0.1, 0.0], [1.0, 0.0], [1.1, 0.0], [2.5, 0.0]]])
    env = get_env("tsp")
    td = env.reset(TensorDict({"locs": locs}, batch_size=[1]))
    graph, lengths = nearest_graph(locs, 1)
    tours = sample_by_edges(env, dict(td.items()), graph, torch.ones_like(lengths), 50)[0]
    from_zero = tours[tours[:, 0] == 0]
    assert len(from_zero) and all(row == [0, 1, 2, 3, 4] for row in from_zero.tolist())


# ---------------------------------------------------------------- colonies


@pytest.mark.parametrize("variant", ["ant_system", "elitist", "max_min", "balanced"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_colonies_get_better_and_stay_valid(problem: str, variant: str):
    env, td, _, _ = instance(problem, size=20)
    colony = AntColony(env, td, config=ColonyConfig(n_ants=8, variant=variant))
    result = colony.run(4)
    env.check_solution_validity(td, result.actions)
    torch.testing.assert_close(env.get_reward(td, result.actions), result.reward)
    assert bool((result.curve.diff(dim=-1) >= 0).all())
    assert bool((result.reward >= result.mean_reward[:, 0]).all())
    assert bool(colony.pheromone.isfinite().all()) and bool((colony.pheromone > 0).all())


def test_pheromone_survives_agreement():
    """Ants that all find the same tour: no division by zero anywhere."""
    env = get_env("tsp", generator_params={"num_loc": 4}, seed=0)
    td = env.reset(batch_size=2)
    for variant in ("ant_system", "elitist", "max_min", "balanced"):
        colony = AntColony(env, td, config=ColonyConfig(n_ants=5, variant=variant))
        colony.run(5)
        assert bool(colony.pheromone.isfinite().all())


def test_pheromone_teaches():
    """Without local search, later ants are better than the first ones."""
    env, td, _, _ = instance("tsp", size=40)
    colony = AntColony(env, td, config=ColonyConfig(n_ants=30, use_local_search=False))
    result = colony.run(20)
    assert bool((result.mean_reward[:, -3:].mean(1) > result.mean_reward[:, :3].mean(1)).all())


def test_shorter_solutions_wait_at_the_depot():
    """The best solution may end at a customer; later ones of its batch are longer."""
    env, td, graph, weights = instance("cvrp")
    td, graph, weights = td[:1], CandidateGraph(graph.targets[:1], True), weights[:1]
    actions = sample_by_edges(env, dict(td.items()), graph, weights, 1)  # [1, 1, T]
    actions = actions[..., : int(actions[0, 0].nonzero().max()) + 1]
    colony = AntColony(env, td, graph, weights)
    reward = colony._rewards(actions)
    colony._remember(actions, reward)
    colony._remember(torch.nn.functional.pad(actions, (0, 3)), reward - 1.0)
    env.check_solution_validity(td, colony.actions)
    assert colony.reward.equal(reward[:, 0])


def test_pheromone_does_not_depend_on_padding():
    """Batch mates with longer solutions make actions wider."""
    env, td, graph, weights = instance("cvrp")
    td, graph, weights = td[:1], CandidateGraph(graph.targets[:1], True), weights[:1]
    actions = sample_by_edges(env, dict(td.items()), graph, weights, 4)
    found = []
    for wide in (actions, torch.nn.functional.pad(actions, (0, 12))):
        colony = AntColony(env, td, graph, weights, ColonyConfig(n_ants=4, variant="balanced"))
        colony._update_pheromone(wide, colony._rewards(wide))
        found.append(colony.pheromone)
    assert found[0].equal(found[1])


def test_deposit_by_hand():
    """Tour 0-1-2-0 leaves 0.5 on both directions of the edges that are candidates."""
    graph = CandidateGraph(torch.tensor([[[1], [2], [1]]]), False)
    tour = torch.tensor([[[0, 1, 2]]])
    both = deposit(graph, torch.ones(1, 3), tour, torch.tensor([[0.5]]))
    assert both.tolist() == [[1.5, 1.5, 1.5]]  # 0-1, 1-2, 2-1
    one_way = deposit(graph, torch.ones(1, 3), tour, torch.tensor([[0.5]]), symmetric=False)
    assert one_way.tolist() == [[1.5, 1.5, 1.0]]


def test_deposits_of_routes_by_hand():
    """Route 0-1-2-0 and waiting at the depot, which leaves nothing."""
    graph = CandidateGraph(torch.tensor([[[2, 0], [1, 0]]]), True)
    out = deposit(graph, torch.zeros(1, 6), torch.tensor([[[1, 2, 0, 0]]]), torch.ones(1, 1), False)
    assert out.tolist() == [[1.0, 0.0, 0.0, 1.0, 1.0, 0.0]]  # 1-2, 1-0, 2-1, 2-0, 0-1, 0-2


def test_bad_settings_are_rejected():
    env, td, graph, weights = instance("tsp")
    for count in (0, 1.5, True):
        with pytest.raises(ConfigError, match="at least 1 ant"):
            ColonyConfig(n_ants=count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="finite powers"):
        ColonyConfig(alpha=float("nan"))
    with pytest.raises(UnknownNameError, match="max_min"):
        ColonyConfig(variant="maxmin")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="guided_rounds of at least 0"):
        ColonyConfig(guided_rounds=1.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="guided_rounds=0 without local search"):
        ColonyConfig(guided_rounds=2, use_local_search=False)
    orienteering, state, *_ = instance("op")
    with pytest.raises(UnsupportedError, match="op, which has no local search"):
        AntColony(orienteering, state, config=ColonyConfig(guided_rounds=2))
    for other in (nearest_graph(td["locs"][:1], 4), nearest_graph(td["locs"][:, :7], 4)):
        with pytest.raises(ConfigError, match="candidate edges of 3 instances with 12 nodes"):
            AntColony(env, td, *other)
        with pytest.raises(ConfigError, match="candidate edges of 3 instances with 12 nodes"):
            sample_by_edges(env, dict(td.items()), *other, 2)
    with pytest.raises(ConfigError, match="heuristic of shape"):
        AntColony(env, td, graph, weights[:, :-1])
    with pytest.raises(ConfigError, match="finite weights"):
        AntColony(env, td, graph, weights * torch.nan)
    with pytest.raises(UnknownNameError, match="nearest"):
        sample_by_edges(env, dict(td.items()), graph, weights, 2, rule="neares")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least 1"):
        sample_by_edges(env, dict(td.items()), graph, weights, 0)


def test_duplicate_points_are_no_problem():
    env = get_env("tsp")
    td = env.reset(env.generator(2))
    td["locs"] = torch.zeros_like(td["locs"])
    result = AntColony(env, td, config=ColonyConfig(n_ants=3)).run(2)
    assert result.reward.tolist() == [0.0, 0.0]
    assert bool(inverse_distances(td)[1].isfinite().all())


def test_walk_is_not_needed_for_tours():
    """Both closed forms agree on tours that were not sampled."""
    env, td, graph, weights = instance("tsp", degree=5)
    tours = torch.stack([torch.randperm(12) for _ in range(9)]).view(3, 3, 12)
    walked = walk_log_likelihood(env, dict(td.items()), graph, weights, tours)
    torch.testing.assert_close(walked, tour_log_likelihood(graph, weights, tours))
    assert follow(env, expand_solutions(dict(td.items()), 3), tours).actions is tours
    assert unbatchify(flatten_starts(tours), 3).equal(tours)
