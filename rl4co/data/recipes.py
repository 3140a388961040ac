"""The validation and test sets of the paper: NumPy recipes of Kool et al. (2019).

Each function draws its arrays in the order of the original code from NumPy's legacy generator, so
that seed and sizes determine every bit. Environments have generators of their own, in torch; these
here are for sets that other libraries have, too.

Sources: https://github.com/wouterkool/attention-learn-to-route (TSP, CVRP, OP, PCTSP), and the
published RL4CO 0.7 (PDP, ATSP, mDPP).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from numpy.typing import NDArray

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.envs.routing.cvrp.generator import CAPACITIES
from rl4co.envs.routing.op.generator import MAX_LENGTHS
from rl4co.envs.routing.pctsp.generator import TOUR_LENGTHS

Arrays: TypeAlias = dict[str, NDArray[Any]]
#: Where numbers come from; None in the functions below: NumPy's global generator.
Rng: TypeAlias = "np.random.RandomState | None"

#: Problem → its distributions, in the order in which files are written; None: only one.
DISTRIBUTIONS_PER_PROBLEM: dict[str, list[str | None]] = {
    "tsp": [None],
    "vrp": [None],
    "pctsp": [None],
    "op": ["const", "unif", "dist"],
    "mdpp": [None],
    "pdp": [None],
    "atsp": [None],
}

PRIZES = ("const", "unif", "dist")


def generate_tsp_data(dataset_size: int, tsp_size: int, rng: Rng = None) -> Arrays:
    """Uniform coordinates: `locs [B, n, 2]`."""
    return {"locs": _uniform(rng, dataset_size, tsp_size, 2)}


def generate_vrp_data(
    dataset_size: int,
    vrp_size: int,
    capacities: Mapping[int, float] | None = None,
    rng: Rng = None,
) -> Arrays:
    """Demands 1 to 9 in units, and the capacity in the same unit.

    Args:
        dataset_size: Instances B.
        vrp_size: Customers n.
        capacities: Replaces the capacities of some sizes.
        rng: Source of randomness.

    Returns:
        `depot [B, 2]`, `locs [B, n, 2]`, `demand [B, n]`, `capacity [B]`.
    """
    capacity = _by_size({**CAPACITIES, **(capacities or {})}, vrp_size, "capacity")
    depot, locs = _uniform(rng, dataset_size, 2), _uniform(rng, dataset_size, vrp_size, 2)
    demand = _source(rng).randint(1, 10, size=(dataset_size, vrp_size))
    return {
        "depot": depot,
        "locs": locs,
        "demand": _single(demand),
        "capacity": np.full(dataset_size, capacity, np.float32),
    }


def generate_pdp_data(dataset_size: int, pdp_size: int, rng: Rng = None) -> Arrays:
    """`locs [B, n, 2]`, first half pickups, and `depot [B, 2]`, which is drawn first."""
    depot = _uniform(rng, dataset_size, 2)
    return {"locs": _uniform(rng, dataset_size, pdp_size, 2), "depot": depot}


def generate_op_data(
    dataset_size: int,
    op_size: int,
    prize_type: str = "const",
    max_lengths: Mapping[int, float] | None = None,
    rng: Rng = None,
) -> Arrays:
    """Prizes after Fischetti et al. (1998).

    Args:
        dataset_size: Instances B.
        op_size: Customers n.
        prize_type: "const": all 1; "unif": 0.01 to 1; "dist": growing from the depot.
        max_lengths: Longest tour by size; None: half of a tour through all customers.
        rng: Source of randomness.

    Returns:
        `depot [B, 2]`, `locs [B, n, 2]`, `prize [B, n]`, `max_length [B]`.
    """
    max_length = _by_size(max_lengths or MAX_LENGTHS, op_size, "maximum length")
    source = _source(rng)
    depot = source.uniform(size=(dataset_size, 2))
    locs = source.uniform(size=(dataset_size, op_size, 2))
    if prize_type == "const":
        prize: NDArray[Any] = np.ones((dataset_size, op_size))
    elif prize_type == "unif":
        prize = (1 + source.randint(0, 100, size=(dataset_size, op_size))) / 100.0
    elif prize_type == "dist":
        distance = np.linalg.norm(depot[:, None, :] - locs, axis=-1)  # [B, n]
        prize = (1 + (distance / distance.max(axis=-1, keepdims=True) * 99).astype(int)) / 100.0
    else:
        raise UnknownNameError("prize type", prize_type, PRIZES)
    return {
        "depot": _single(depot),
        "locs": _single(locs),
        "prize": _single(prize),
        "max_length": np.full(dataset_size, max_length, np.float32),
    }


def generate_pctsp_data(
    dataset_size: int,
    pctsp_size: int,
    penalty_factor: float = 3,
    max_lengths: Mapping[int, float] | None = None,
    rng: Rng = None,
) -> Arrays:
    """Penalties whose sum is about a tour's length, prizes of which about half are needed.

    Args:
        dataset_size: Instances B.
        pctsp_size: Customers n.
        penalty_factor: Factor of the penalties.
        max_lengths: Length of a tour by size, from which penalties are derived.
        rng: Source of randomness.

    Returns:
        `locs [B, n, 2]`, `depot [B, 2]`, `penalty [B, n]`, `deterministic_prize [B, n]`,
        `stochastic_prize [B, n]`.
    """
    length = _by_size(max_lengths or TOUR_LENGTHS, pctsp_size, "tour length")
    source, shape = _source(rng), (dataset_size, pctsp_size)
    depot, locs = _uniform(rng, dataset_size, 2), _uniform(rng, dataset_size, pctsp_size, 2)
    # The order of factors matters for the last bit.
    penalty = source.uniform(size=shape) * (length * penalty_factor / float(pctsp_size))
    expected = source.uniform(size=shape) * 4 / float(pctsp_size)
    stochastic = source.uniform(size=shape) * expected * 2
    return {
        "locs": locs,
        "depot": depot,
        "penalty": _single(penalty),
        "deterministic_prize": _single(expected),
        "stochastic_prize": _single(stochastic),
    }


def generate_atsp_data(
    dataset_size: int, atsp_size: int, tmat_class: bool = True, rng: Rng = None
) -> Arrays:
    """`cost_matrix [B, n, n]`, uniform; with `tmat_class` no detour over one node is shorter."""
    costs = _source(rng).uniform(size=(dataset_size, atsp_size, atsp_size))
    nodes = np.arange(atsp_size)
    costs[..., nodes, nodes] = 0
    for node in nodes if tmat_class else ():
        costs = np.minimum(costs, costs[..., :, [node]] + costs[..., [node], :])
    return {"cost_matrix": _single(costs)}


def generate_mdpp_data(
    dataset_size: int,
    size: int = 10,
    num_probes_min: int = 2,
    num_probes_max: int = 5,
    num_keepout_min: int = 1,
    num_keepout_max: int = 50,
    lock_size: bool = True,
    rng: Rng = None,
) -> Arrays | None:
    """Boards with probing ports and cells to keep out of.

    Args:
        dataset_size: Instances B.
        size: Cells along an edge of the board.
        num_probes_min: Fewest ports.
        num_probes_max: Most ports.
        num_keepout_min: Fewest cells to keep out of.
        num_keepout_max: Most of them.
        lock_size: Whether there are no instances (None) of other boards than 10 × 10, for which
            there are measurements.
        rng: Source of randomness.

    Returns:
        `locs [B, cells, 2]`, `probe [B, cells]`, `action_mask [B, cells]`.
    """
    if lock_size and size != 10:
        return None
    source, cells = _source(rng), size * size
    grid = np.stack(np.meshgrid(np.arange(size), np.arange(size)), -1).reshape(-1, 2)
    locs = grid / np.array([size, size], dtype=np.float32)
    probe = np.zeros((dataset_size, cells), dtype=bool)
    available = np.ones((dataset_size, cells), dtype=bool)
    # A cell that is no port, yet not available: the original code draws it, too.
    np.put_along_axis(available, source.randint(0, cells, size=(dataset_size, 1)), False, 1)
    ports = source.randint(num_probes_min, num_probes_max + 1, size=(dataset_size, 1))
    for row in range(dataset_size):
        chosen = source.choice(cells, ports[row, 0], replace=False)
        probe[row, chosen] = True
        available[row, chosen] = False
    keepout = source.randint(num_keepout_min, num_keepout_max + 1, size=(dataset_size, 1))
    for row in range(dataset_size):
        available[row, source.choice(cells, keepout[row, 0], replace=False)] = False
    return {
        "locs": _single(np.repeat(locs[None], dataset_size, 0)),
        "probe": probe,
        "action_mask": available,
    }


#: Problem (as in file names) → its recipe.
RECIPES: dict[str, Callable[..., Arrays | None]] = {
    "tsp": generate_tsp_data,
    "vrp": generate_vrp_data,
    "pctsp": generate_pctsp_data,
    "op": generate_op_data,
    "mdpp": generate_mdpp_data,
    "pdp": generate_pdp_data,
    "atsp": generate_atsp_data,
}


def _source(rng: Rng) -> Any:
    return np.random if rng is None else rng


def _single(values: NDArray[Any]) -> NDArray[np.float32]:
    return values.astype(np.float32)


def _uniform(rng: Rng, *shape: int) -> NDArray[np.float32]:
    return _single(_source(rng).uniform(size=shape))


def _by_size(table: Mapping[int, float], size: int, what: str) -> float:
    if size not in table:
        raise ConfigError(
            f"expected a size with a {what} in the recipe ({', '.join(map(str, table))}), got "
            f"{size}; for other sizes use rl4co.data.generate_dataset"
        )
    return table[size]
