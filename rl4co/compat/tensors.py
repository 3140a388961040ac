"""Functions of tensors that the published package has in `rl4co.utils.ops` and `.decoding`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torch import Tensor

from rl4co.decoding.logits import keep_top_p

if TYPE_CHECKING:
    from tensordict import TensorDictBase


def modify_logits_for_top_p_filtering(logits: Tensor, top_p: float) -> Tensor:
    """Minus infinity outside the nucleus of probability `top_p`; 0 and 1 keep all."""
    return keep_top_p(logits, top_p) if 0.0 < top_p < 1.0 else logits


def sample_n_random_actions(td: TensorDictBase, n: int) -> Tensor:
    """Random allowed actions, distinct where each instance has `n` of them besides action 0.

    Shapes:
        `action_mask [B, N]` → `[n * B]`, row `s * B + b` is sample s of instance b
    """
    mask = td["action_mask"]
    repeats = bool((mask[:, 1:].sum(-1) < n).any())
    drawn = torch.multinomial(mask.float(), n, replacement=repeats)  # [B, n]
    return drawn.t().flatten()


def get_full_graph_edge_index(num_node: int, self_loop: bool = False) -> Tensor:
    """Edges `[2, E]` of the complete graph, row by row."""
    edges = torch.ones(num_node, num_node, dtype=torch.bool)
    if not self_loop:
        edges.fill_diagonal_(False)
    return edges.nonzero().t()


def batch_to_scalar(param: Any) -> Any:
    """The number in a tensor with the same value for each instance; other arguments unchanged."""
    return param.flatten()[0].item() if isinstance(param, Tensor) else param
