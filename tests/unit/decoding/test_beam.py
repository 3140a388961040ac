"""Beam search against greedy decoding and against the enumeration of all solutions."""

from __future__ import annotations

import itertools

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.ops import unbatchify
from rl4co.decoding.rollout import DecodingTask, expand_solutions
from rl4co.decoding.strategies import BeamSearch
from rl4co.envs import CVRPEnv, TSPEnv


@pytest.fixture
def tsp(rng):
    """Two instances with four nodes and a table of logits; 4! = 24 solutions each."""
    env = TSPEnv()
    td = env.reset(TensorDict({"locs": torch.rand(2, 4, 2, generator=rng)}, batch_size=2))
    return env, td, 2 * torch.randn(2, 4, 4, generator=rng)


@pytest.fixture
def cvrp(rng):
    """Two instances with three customers; two of them fit a vehicle, or any one."""
    env = CVRPEnv()
    instance = {
        "locs": torch.rand(2, 3, 2, generator=rng),
        "depot": torch.rand(2, 2, generator=rng),
        "demand": torch.tensor([[0.5, 0.5, 0.5], [0.9, 0.8, 0.7]]),
        "capacity": torch.ones(2, 1),
    }
    td = env.reset(TensorDict(instance, batch_size=2))
    return env, td, 2 * torch.randn(2, 4, 4, generator=rng)


def enumerate_solutions(env, td, table) -> dict[tuple[int, ...], float]:
    """All solutions of one instance (batch size 1) with their log-likelihoods.

    Sequences are extended until the environment says that they are complete. `table [N, N]` gives
    the logits by current node.
    """
    complete: dict[tuple[int, ...], float] = {}
    open_ = [((), 0.0, td)]
    while open_:
        actions, total, state = open_.pop()
        if bool(state["done"]):
            complete[actions] = total
            continue
        mask = state["action_mask"][0]
        logits = table[int(state["current_node"])].masked_fill(~mask, -torch.inf)
        log_probs = logits.log_softmax(-1)
        for action in mask.nonzero().flatten().tolist():
            state["action"] = torch.tensor([action])
            following = env.step(state)["next"]
            open_.append(((*actions, action), total + float(log_probs[action]), following))
    return complete


def search(env, td, table, width, table_logits):
    state = expand_solutions(dict(td.items()), 1)
    return BeamSearch(beam_width=width).run(DecodingTask(env, state, table_logits(table)))


def strip(actions: list[int], solutions) -> tuple[int, ...]:
    """A solution without padding: the prefix that is in the enumeration."""
    (found,) = [
        s for s in solutions if tuple(actions[: len(s)]) == s and not any(actions[len(s) :])
    ]
    return found


def test_enumeration_counts():
    """The oracle itself: 4! tours; CVRP with one customer per route: 3! orders."""
    env = TSPEnv()
    td = env.reset(TensorDict({"locs": torch.rand(1, 4, 2)}, batch_size=1))
    assert set(enumerate_solutions(env, td, torch.zeros(4, 4))) == set(
        itertools.permutations(range(4))
    )


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_wide_beam_finds_all_solutions_in_order(problem, request, table_logits):
    """A beam wider than any layer of the tree loses nothing: it is the exact ranking."""
    env, td, table = request.getfixturevalue(problem)
    out = search(env, td, table, 60, table_logits)
    for b in range(2):
        solutions = enumerate_solutions(env, td[b : b + 1], table[b])
        ranked = sorted(solutions, key=solutions.get, reverse=True)
        assert len(ranked) < 60
        rows = [strip(row, solutions) for row in out.actions[b].tolist()]
        scores = out.log_probs[b].sum(-1)
        expected = torch.tensor([solutions[s] for s in ranked])
        torch.testing.assert_close(scores[: len(ranked)], expected, atol=1e-5, rtol=1e-5)
        assert set(rows[: len(ranked)]) == set(ranked)
        # More beams than solutions: the others repeat the best one.
        assert rows[0] == ranked[0]
        assert set(rows[len(ranked) :]) == {ranked[0]}
        torch.testing.assert_close(
            scores[len(ranked) :], expected[0].expand(60 - len(ranked)), atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("width", [2, 3, 5])
def test_narrow_beams_hold_distinct_solutions_best_first(problem, width, request, table_logits):
    """Sorted by likelihood, no solution twice, log-probabilities of the solutions themselves."""
    env, td, table = request.getfixturevalue(problem)
    out = search(env, td, table, width, table_logits)
    for b in range(2):
        solutions = enumerate_solutions(env, td[b : b + 1], table[b])
        rows = [strip(row, solutions) for row in out.actions[b].tolist()]
        assert len(set(rows)) == width
        scores = out.log_probs[b].sum(-1)
        torch.testing.assert_close(
            scores, torch.tensor([solutions[s] for s in rows]), atol=1e-5, rtol=1e-5
        )
        assert scores.tolist() == sorted(scores.tolist(), reverse=True)


def test_a_beam_corrects_a_greedy_mistake(table_logits):
    """The likely first step leads to unlikely second ones.

    At first the logits are those of node 0: 2.0 for node 1 (probability 0.525) and 1.9 for node 2
    (0.475). Node 1 splits its mass evenly over three nodes; nodes 2 and 3 are sure of the next.
    So the best solution through 1 has 0.525 / 3 = 0.175 at most, the one through 2 has 0.475.
    """
    env = TSPEnv()
    td = env.reset(TensorDict({"locs": torch.rand(1, 4, 2)}, batch_size=1))
    table = torch.tensor(
        [[-9.0, 2.0, 1.9, -9.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 20.0], [20.0, 0.0, 0.0, 0.0]]
    ).unsqueeze(0)
    narrow, wide = (search(env, td, table, width, table_logits) for width in (1, 2))
    assert narrow.actions[0, 0, 0] == 1
    assert wide.actions[0, 0].tolist() == [2, 3, 0, 1]
    assert float(wide.log_probs[0, 0].sum().exp()) == pytest.approx(0.475, abs=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("name", ["tsp", "cvrp"])
def test_one_beam_is_greedy(name, make_env, make_policy):
    """Random coordinates and weights have no ties."""
    env, policy = make_env(name, 8), make_policy(name)
    td = env.reset(batch_size=6)
    greedy = policy(td, env, decode_type="greedy")
    beam = policy(td, env, decode_type="beam_search", beam_width=1)
    assert torch.equal(beam["actions"], greedy["actions"])
    torch.testing.assert_close(beam["log_likelihood"], greedy["log_likelihood"])
    torch.testing.assert_close(beam["reward"], greedy["reward"])


@torch.no_grad()
@pytest.mark.parametrize("name", ["tsp", "cvrp"])
def test_beams_of_a_network_are_sound(name, make_env, make_policy):
    """Valid solutions with the likelihood that an evaluation gives them; wider is not worse."""
    env, policy = make_env(name, 8), make_policy(name)
    td = env.reset(batch_size=4)
    best = []
    for width in (1, 4, 16):
        out = policy(td, env, decode_type="beam_search", beam_width=width)
        again = policy(td, env, actions=out["actions"])
        torch.testing.assert_close(
            out["log_likelihood"], again["log_likelihood"], atol=1e-5, rtol=1e-5
        )
        best.append(unbatchify(out["log_likelihood"], width)[:, 0])
    assert float(best[2].mean()) >= float(best[1].mean()) >= float(best[0].mean())
    assert float(best[2].mean()) > float(best[0].mean())


@torch.no_grad()
def test_settings_reach_the_beam(make_env, make_policy):
    """With top_k=1 one continuation is left at each step: the greedy one, in all beams."""
    env, policy = make_env("tsp", 6), make_policy("tsp")
    td = env.reset(batch_size=2)
    greedy = policy(td, env, decode_type="greedy")["actions"]
    out = policy(td, env, decode_type="beam_search", beam_width=3, top_k=1)
    assert torch.equal(out["actions"], greedy.repeat(3, 1))
    assert out["log_likelihood"].tolist() == [0.0] * 6
