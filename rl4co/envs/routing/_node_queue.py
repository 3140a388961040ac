"""The queue of nodes that a local search visits next, and types of arrays in compiled searches."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rl4co.kernels import compiled

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class NodeQueue(NamedTuple):
    """First-in, first-out queue of nodes in a ring buffer; each node is in it at most once.

    A search visits a node again only if something beside it has changed ("don't look bits").
    """

    ring: Ints  # [N]
    contains: Flags  # [N]
    span: Ints  # [2], front of the queue in the ring, number of nodes in the queue


def make_queue(size: int) -> NodeQueue:
    """An empty queue for the nodes 0..size-1."""
    return NodeQueue(np.zeros(size, np.int64), np.zeros(size, np.bool_), np.zeros(2, np.int64))


@compiled
def push(q: NodeQueue, node: int) -> None:
    """Adds a node at the end, unless it is in the queue."""
    if not q.contains[node]:
        q.contains[node] = True
        q.ring[(q.span[0] + q.span[1]) % q.ring.size] = node
        q.span[1] += 1


@compiled
def pop(q: NodeQueue) -> int:
    """Removes and returns the first node of a queue that is not empty."""
    node = q.ring[q.span[0]]
    q.contains[node] = False
    q.span[0] = (q.span[0] + 1) % q.ring.size
    q.span[1] -= 1
    return node


@compiled
def is_empty(q: NodeQueue) -> bool:
    """Whether no node is in the queue."""
    return q.span[1] == 0


@compiled
def clear(q: NodeQueue) -> None:
    """Removes all nodes."""
    while not is_empty(q):
        pop(q)
