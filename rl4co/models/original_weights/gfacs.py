"""Weights of the original GFACS code (ai4co/gfacs)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl4co.models.original_weights.edge_gnn import count_layers, read_edge_gnn
from rl4co.models.original_weights.files import fill
from rl4co.models.zoo.gfacs.policy import GFACSPolicy

#: Problems with original weights.
PROBLEMS = ("tsp", "cvrp")


def load_original_weights(
    source: str | Path | Mapping[str, Any], problem: str, k_sparse: int | None = None
) -> GFACSPolicy:
    """A policy with the weights of the original code, in evaluation mode.

    Its heatmaps and its estimates of $\\log Z$ are the original ones.

    Paper: Kim et al. (2025), https://arxiv.org/abs/2403.07041

    Args:
        source: An `.npz` file with the original keys, the original `.pt` file, or a state dict.
        problem: "tsp" or "cvrp".
        k_sparse: Candidate edges per node (default: a tenth of the nodes, for the CVRP a fifth,
            from 10 to 200).
    """
    weights = read_edge_gnn(source, problem, PROBLEMS)
    embed_dim, layers, head = count_layers(weights)
    policy = GFACSPolicy(
        env_name=problem,
        embed_dim=embed_dim,
        num_layers_graph_encoder=layers,
        num_layers_heatmap_generator=head,
        k_sparse=k_sparse,
    )
    return fill(policy, weights, problem)
