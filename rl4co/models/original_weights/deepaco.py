"""Weights of the original DeepACO code (henry-yeh/DeepACO)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl4co.models.original_weights.edge_gnn import count_layers, read_edge_gnn
from rl4co.models.original_weights.files import fill
from rl4co.models.zoo.deepaco.policy import DeepACOPolicy

#: Problems with original weights → settings of their edge embedding.
PROBLEMS: dict[str, dict[str, Any]] = {"tsp": {}, "cvrp": {"self_loops": True}}


def load_original_weights(
    source: str | Path | Mapping[str, Any], problem: str, k_sparse: int | None = None
) -> DeepACOPolicy:
    """A policy with the weights of the original code, in evaluation mode.

    Its heatmaps are the original ones. For the CVRP a customer is its own nearest neighbour, so
    `k_sparse` counts one more than there are other customers; for the TSP, weights with one feature
    per node mark the first node only, those with two have coordinates.

    Paper: Ye et al. (2023), https://arxiv.org/abs/2309.14032

    Args:
        source: An `.npz` file with the original keys, the original `.pt` file, or a state dict.
        problem: "tsp" or "cvrp".
        k_sparse: Candidate edges per node (default: a tenth of the nodes, for the CVRP a fifth,
            from 10 to 200).
    """
    weights = read_edge_gnn(source, problem, PROBLEMS)
    embed_dim, layers, head = count_layers(weights)
    options = dict(PROBLEMS[problem])
    features = weights["encoder.edge_embedding.node_embed.weight"].shape[1]
    if "self_loops" not in options and features == 1:
        options["nodes"] = "start"
    policy = DeepACOPolicy(
        env_name=problem,
        embed_dim=embed_dim,
        num_layers_graph_encoder=layers,
        num_layers_heatmap_generator=head,
        k_sparse=k_sparse,
        edge_options=options,
    )
    return fill(policy, weights, problem)
