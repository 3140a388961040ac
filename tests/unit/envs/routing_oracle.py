"""Plain Python and NumPy to hold the routing problems against; shares no code with them."""

from __future__ import annotations

import itertools

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tensordict import TensorDict

from rl4co.core.errors import InvalidSolutionError
from rl4co.envs.testing import enumerate_solutions


def euclidean(points: Any) -> np.ndarray:
    """Distances of points: `[N, 2]` → `[N, N]`, in double precision."""
    points = np.asarray(points, dtype=np.float64)
    return np.hypot(*np.moveaxis(points[:, None] - points[None], -1, 0))


def distances_of(instance: TensorDict) -> np.ndarray:
    """Distances `[N, N]` of one instance, its depot first."""
    return euclidean(torch.cat([instance["depot"].unsqueeze(0), instance["locs"]]))


def round_trip(distances: np.ndarray, nodes: Sequence[int]) -> float:
    """Cost of leaving node 0, visiting nodes in this order, and coming back."""
    return float(sum(distances[a, b] for a, b in itertools.pairwise([0, *nodes, 0])))


def all_routes(customers: Sequence[int]) -> Iterator[list[list[int]]]:
    """All orders of some customers, cut into routes in all ways."""
    for order in itertools.permutations(customers):
        for cuts in itertools.product([False, True], repeat=len(order) - 1):
            routes = [[order[0]]]
            for cut, node in zip(cuts, order[1:], strict=True):
                if cut:
                    routes.append([])
                routes[-1].append(node)
            yield routes


def as_actions(routes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Routes with the depot between them; a single one ends with it, as episodes do."""
    actions = tuple(node for route in routes for node in (*route, 0))
    return actions if len(routes) == 1 else actions[:-1]


def as_routes(actions: Sequence[int]) -> list[list[int]]:
    """Routes with customers, from actions with any number of depot visits between them."""
    groups = itertools.groupby(actions, key=bool)
    return [list(nodes) for customers, nodes in groups if customers]


def padded(solutions: Sequence[Sequence[int]]) -> torch.Tensor:
    """Solutions as one tensor; those that are shorter wait at the depot."""
    longest = max(map(len, solutions))
    return torch.tensor([[*actions, *[0] * (longest - len(actions))] for actions in solutions])


def allowed_solutions(env: Any, instance: TensorDict) -> dict[tuple[int, ...], float]:
    """All solutions that the mask allows and their rewards; each is found once, and is valid."""
    solutions = [tuple(actions) for actions in enumerate_solutions(env, instance)]
    assert len(set(solutions)) == len(solutions)
    td = env.reset(instance.expand(len(solutions)))
    rewards = env.get_reward(td, padded(solutions), check_solution=True)
    return dict(zip(solutions, rewards.tolist(), strict=True))


def first_violation(env: Any, td: TensorDict, actions: Sequence[int]) -> str | None:
    """The constraint that a solution breaks, by the check of the environment."""
    try:
        env.check_solution_validity(td, torch.tensor([actions]))
    except InvalidSolutionError as error:
        return error.constraint
    return None


def count_steps(env: Any, td: TensorDict, last: bool = False) -> tuple[int, tuple[int, int]]:
    """Steps of the first (or last) allowed actions until all are done, and the bounds on them."""
    state, steps = env.reset(td), 0
    while not state["done"].all():
        mask = state["action_mask"].int()
        action = mask.shape[-1] - 1 - mask.flip(-1).argmax(-1) if last else mask.argmax(-1)
        state, steps = env.step(state.set("action", action))["next"], steps + 1
    return steps, env.step_bounds(dict(state.items()))
