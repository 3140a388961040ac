"""Functions of tensors that the published package has in `rl4co.utils.ops` and `.decoding`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torch import Tensor

from rl4co.core.errors import UnknownNameError
from rl4co.core.ops import gather_by_index, unbatchify
from rl4co.decoding.logits import keep_top_k, keep_top_p, mask_forbidden, sample_actions

if TYPE_CHECKING:
    from tensordict import TensorDictBase

#: What :func:`decode_logprobs` understands, as a part of its argument.
_CHOICES = ("greedy", "sampling")


# ---------------------------------------------------------------- decoding


def modify_logits_for_top_k_filtering(logits: Tensor, top_k: int) -> Tensor:
    """Minus infinity for all but the `top_k` largest logits of a row."""
    return keep_top_k(logits, top_k)


def modify_logits_for_top_p_filtering(logits: Tensor, top_p: float) -> Tensor:
    """Minus infinity outside the nucleus of probability `top_p`; 0 and 1 keep all."""
    return keep_top_p(logits, top_p) if 0.0 < top_p < 1.0 else logits


def decode_logprobs(logprobs: Tensor, mask: Tensor, decode_type: str = "sampling") -> Tensor:
    """One allowed action per row: `[B, N], [B, N]` → `[B]`.

    Args:
        logprobs: Log-probabilities.
        mask: Allowed actions.
        decode_type: "greedy" or "sampling".
    """
    allowed = mask_forbidden(logprobs, mask)
    if "greedy" in decode_type:
        return allowed.argmax(-1)
    if "sampling" in decode_type:
        return sample_actions(allowed)
    raise UnknownNameError("way to decode log-probabilities", decode_type, _CHOICES)


def sample_n_random_actions(td: TensorDictBase, n: int) -> Tensor:
    """Random allowed actions, distinct where each instance has `n` of them besides action 0.

    Shapes:
        `action_mask [B, N]` → `[n * B]`, row `s * B + b` is sample s of instance b
    """
    mask = td["action_mask"]
    repeats = bool((mask[:, 1:].sum(-1) < n).any())
    drawn = torch.multinomial(mask.float(), n, replacement=repeats)  # [B, n]
    return drawn.t().flatten()


def get_best_actions(actions: Tensor, max_idxs: Tensor) -> Tensor:
    """Actions of the best of S solutions: `[S * B, T], [B]` → `[B, T]`.

    Args:
        actions: Solutions, row `s * B + b` is solution s of instance b.
        max_idxs: Number of the best one of each instance.
    """
    copies = unbatchify(actions, len(actions) // len(max_idxs))  # [B, S, T]
    return gather_by_index(copies, max_idxs)


def select_start_nodes_by_distance(
    td: TensorDictBase, env: Any, num_starts: int, exclude_depot: bool = True
) -> Tensor:
    """The nodes next to the origin, or to the depot if `td` has `polar_locs`, nearest first.

    Args:
        td: State with `locs [B, N, 2]` or `polar_locs [B, N, 2]` (distance, angle).
        env: Not looked at; starts are selected by functions of (td, env, num_starts).
        num_starts: Starts S per instance.
        exclude_depot: Whether the nearest node of all is left out.

    Shapes:
        `[S * B]`, row `s * B + b` is start s of instance b
    """
    radius = td["polar_locs"][..., 0] if "polar_locs" in td.keys() else td["locs"].norm(dim=-1)
    nearest = radius.topk(num_starts + 1, dim=-1, largest=False).indices  # [B, S + 1]
    chosen = nearest[:, 1:] if exclude_depot else nearest[:, :-1]
    return chosen.t().flatten()


# ---------------------------------------------------------------- graphs and sums


def get_full_graph_edge_index(num_node: int, self_loop: bool = False) -> Tensor:
    """Edges `[2, E]` of the complete graph, row by row."""
    edges = torch.ones(num_node, num_node, dtype=torch.bool)
    if not self_loop:
        edges.fill_diagonal_(False)
    return edges.nonzero().t()


def adj_to_pyg_edge_index(adj: Tensor) -> Tensor:
    """Edges of a batch of graphs, nodes counted through them: `[B, N, N]` → `[2, E]`."""
    graph, origin, target = adj.nonzero(as_tuple=True)
    return torch.stack([origin, target]) + graph * adj.shape[-1]


def cartesian_to_polar(cartesian: Tensor, origin: Tensor | None = None) -> Tensor:
    """Distance and angle of points from an origin (default: 0, 0): `[*B, 2]` → `[*B, 2]`."""
    points = cartesian if origin is None else cartesian - origin
    angle = torch.atan2(points[..., 1], points[..., 0])
    return torch.stack([points.norm(dim=-1), angle], -1)


def batched_scatter_sum(src: Tensor, idx: Tensor) -> Tensor:
    """Sums of listed rows, numbered from 1; 0 is padding: `[B, N, D], [B, M, K]` → `[B, M, D]`."""
    padded = torch.cat([torch.zeros_like(src[:, :1]), src], 1)  # [B, N + 1, D]
    rows = gather_by_index(padded, idx.long().flatten(1), squeeze=False)  # [B, M * K, D]
    return rows.unflatten(1, idx.shape[1:]).sum(2)


def batch_to_scalar(param: Any) -> Any:
    """The number in a tensor that has the same one for each instance; others as they are."""
    return param.flatten()[0].item() if isinstance(param, Tensor) else param
