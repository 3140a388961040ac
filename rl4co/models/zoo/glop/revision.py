"""Revision of tours: pieces of a tour are shortest-path problems that a reviser solves anew.

Paper: Ye et al. (2024), https://arxiv.org/abs/2312.08224, algorithm 1.
"""

from __future__ import annotations

import warnings

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from tensordict import TensorDict
from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.core.modes import evaluating
from rl4co.core.ops import get_open_tour_length
from rl4co.envs.routing.shpp.env import SHPPEnv

#: Pieces solved in one call of a reviser, between two looks at the clock.
PIECES_AT_ONCE = 512


class Reviser(NamedTuple):
    """A policy that solves pieces of a tour.

    Attributes:
        policy: Policy for the SHPP.
        size: Nodes of a piece.
        iterations: How often all pieces of a tour are solved, shifted each time.
    """

    policy: nn.Module
    size: int
    iterations: int


def check_revisers(revisers: Sequence[Reviser]) -> None:
    """Raises for what is no reviser, pieces too small to have an order, or no iterations."""
    for reviser in revisers:
        if not isinstance(reviser, Reviser):
            raise ConfigError(
                f"expected Reviser(policy, size, iterations), got {type(reviser).__name__}; say "
                "how large the pieces are that it solves, and how often"
            )
        if not isinstance(reviser.policy, nn.Module):
            raise ConfigError(
                f"expected a policy as reviser, got {reviser.policy!r}; make one with "
                "make_reviser_policy() and train it, or load one"
            )
        numbers = (reviser.size, reviser.iterations)
        if any(type(number) is not int for number in numbers) or reviser.size < 4 or numbers[1] < 1:
            raise ConfigError(
                "expected revisers of at least 4 nodes with at least 1 iteration, got "
                f"{reviser.size} nodes and {reviser.iterations} iterations"
            )


def normalise_pieces(pieces: Tensor) -> Tensor:
    """Pieces moved to the origin, wider than high, and scaled to a width of one.

    Shapes:
        `[M, m, 2]` → `[M, m, 2]`
    """
    low = pieces.amin(1, keepdim=True)  # [M, 1, 2]
    moved = pieces - low
    extent = moved.amax(1, keepdim=True)  # [M, 1, 2]
    is_high = extent[..., 1:] > extent[..., :1]  # [M, 1, 1]
    turned = torch.where(is_high, moved.flip(-1), moved)
    return turned / (extent.amax(-1, keepdim=True) + 1e-10)


def reflect_pieces(pieces: Tensor) -> Tensor:
    """Pieces and their mirror images: `[M, m, 2]` → `[4 * M, m, 2]`."""
    x, y = pieces.unbind(-1)
    images = [(x, y), (1 - x, y), (x, 1 - y), (1 - x, 1 - y)]
    return torch.cat([torch.stack(image, -1) for image in images])


@torch.no_grad()
def solve_pieces(policy: nn.Module, pieces: Tensor, reflect: bool = True) -> Tensor:
    """Short paths from the first to the last node of each piece.

    Each piece is solved forwards and backwards, and so are its mirror images; the best path counts.

    Args:
        policy: Policy for the SHPP, decoded greedily.
        pieces: Normalised coordinates.
        reflect: Whether to solve mirror images, too.

    Returns:
        Orders of the nodes.

    Shapes:
        pieces `[M, m, 2]` → `[M, m]`
    """
    images = reflect_pieces(pieces) if reflect else pieces  # [A * M, m, 2]
    count, size = len(pieces), pieces.shape[1]
    forward = decode_paths(policy, images, backward=False)
    backward = decode_paths(policy, images, backward=True)
    paths = torch.cat([forward, backward]).view(-1, count, size)  # [2 * A, M, m]
    ordered = pieces.expand(len(paths), -1, -1, -1).gather(2, _pairs(paths))
    best = get_open_tour_length(ordered).argmin(0)  # [M]
    return paths[best, torch.arange(count, device=best.device)]


@torch.no_grad()
def decode_paths(policy: nn.Module, pieces: Tensor, backward: bool) -> Tensor:
    """Greedy paths from the first to the last node `[M, m]`, or the other way round and flipped."""
    return path_output(policy, pieces, backward, "greedy")["actions"]


def path_output(
    policy: nn.Module, pieces: Tensor, backward: bool, decode_type: str
) -> dict[str, Tensor]:
    """The policy's output for pieces `[M, m, 2]`, with actions in the order of the pieces.

    Nodes backwards are the same problem for the policy; `anchor` is the first node of the piece as
    it was, which revisers with original weights look at in both directions.
    """
    env = SHPPEnv(check_solution=False, check_instance=False)
    size = pieces.shape[1]
    oriented = pieces.flip(1) if backward else pieces
    td = env.reset(TensorDict({"locs": oriented}, batch_size=[len(oriented)]))
    td["anchor"] = td["last_node"] if backward else td["first_node"]
    out: dict[str, Tensor] = policy(td, env, phase="test", decode_type=decode_type)
    if backward:
        # Node i of the flipped piece is node m - 1 - i, and the path is read from its end.
        out["actions"] = (size - 1 - out["actions"]).flip(-1)
    return out


def revise_tours(
    points: Sequence[np.ndarray],
    revisers: Sequence[Reviser],
    reflect: bool = True,
    is_over: Callable[[], bool] = lambda: False,
) -> list[np.ndarray]:
    """Closed tours after revision by one reviser after the other; never longer.

    In each iteration a tour is shifted and cut into pieces of the reviser's size; what is left over
    stays. A piece is kept if its new path is not longer.

    Args:
        points: Coordinates of the nodes of each tour, in the order of the tour, `[N, 2]`.
        revisers: Revisers, the largest first.
        reflect: Whether pieces are solved in all mirror images.
        is_over: Asked before each call of a reviser whether to leave all else as it is.

    Returns:
        New orders of each tour's nodes, `[N]`.
    """
    check_revisers(revisers)
    longest = max(map(len, points), default=0)
    if longest and all(reviser.size > longest for reviser in revisers):
        warnings.warn(
            f"expected a reviser of at most {longest} nodes, as many as the longest tour has, got "
            f"{[reviser.size for reviser in revisers]}: nothing is revised",
            stacklevel=2,
        )
    orders = [np.arange(len(tour)) for tour in points]
    with evaluating(*(reviser.policy for reviser in revisers)):
        for reviser in revisers:
            shift = max(1, reviser.size // reviser.iterations)
            for _ in range(reviser.iterations):
                orders = [np.roll(order, -shift) if len(order) else order for order in orders]
                _revise_once(points, orders, reviser, reflect, is_over)
    return orders


def _revise_once(
    points: Sequence[np.ndarray],
    orders: list[np.ndarray],
    reviser: Reviser,
    reflect: bool,
    is_over: Callable[[], bool],
) -> None:
    """Solves all pieces of all tours once, while there is time; `orders` change in place."""
    size = reviser.size
    counts = [len(order) // size for order in orders]
    if not sum(counts):
        return
    cut = [
        (order[: count * size].reshape(count, size), tour)
        for order, tour, count in zip(orders, points, counts, strict=True)
    ]
    pieces = torch.from_numpy(
        np.concatenate([tour[nodes] for nodes, tour in cut if len(nodes)]).astype(np.float32)
    )  # [M, m, 2]
    paths = torch.arange(size).repeat(len(pieces), 1)  # [M, m]
    for first in range(0, len(pieces), PIECES_AT_ONCE):
        if is_over():
            break
        part = slice(first, first + PIECES_AT_ONCE)
        paths[part] = _revise_pieces(reviser.policy, pieces[part], reflect)
    first = 0
    for number, (nodes, _) in enumerate(cut):
        if len(nodes):
            order = paths[first : first + len(nodes)].numpy()
            orders[number][: nodes.size] = np.take_along_axis(nodes, order, 1).reshape(-1)
            first += len(nodes)


def _revise_pieces(policy: nn.Module, pieces: Tensor, reflect: bool) -> Tensor:
    """New paths `[M, m]` of pieces `[M, m, 2]`, or the old ones where these are shorter."""
    paths = solve_pieces(policy, normalise_pieces(pieces), reflect)
    before = get_open_tour_length(pieces)
    after = get_open_tour_length(pieces.gather(1, _pairs(paths)))
    same = torch.arange(pieces.shape[1], device=paths.device)
    return torch.where((after <= before).unsqueeze(-1), paths, same)


def _pairs(index: Tensor) -> Tensor:
    """An index of nodes as one of coordinates: `[..., m]` → `[..., m, 2]`."""
    return index.unsqueeze(-1).expand(*index.shape, 2)
