"""Import path of tensor functions and of the selection of starts."""

from __future__ import annotations

from rl4co.core.ops import (
    batchify,
    calculate_entropy,
    gather_by_index,
    get_distance,
    get_distance_matrix,
    get_open_tour_length,
    get_tour_length,
    sparsify_graph,
    unbatchify,
    unbatchify_and_gather,
)
from rl4co.envs.starts import get_num_starts, select_start_nodes

__all__ = [
    "batchify",
    "calculate_entropy",
    "gather_by_index",
    "get_distance",
    "get_distance_matrix",
    "get_num_starts",
    "get_open_tour_length",
    "get_tour_length",
    "select_start_nodes",
    "sparsify_graph",
    "unbatchify",
    "unbatchify_and_gather",
]
