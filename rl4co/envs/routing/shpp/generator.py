"""Instances of the shortest Hamiltonian path problem."""

from __future__ import annotations

from rl4co.envs.routing.tsp.generator import TSPGenerator


class SHPPGenerator(TSPGenerator):
    """Nodes drawn from one distribution; the path leads from the first to the last.

    Arguments are those of :class:`~rl4co.envs.routing.tsp.generator.TSPGenerator`; `num_loc` counts
    both ends.

    Returns:
        `locs [*B, num_loc, 2]`.
    """
