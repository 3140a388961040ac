"""Pure tensor functions: batching of starts, gathering, distances, tour lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError

Batched = TypeVar("Batched", Tensor, TensorDictBase)


def batchify(x: Batched, shape: int | Sequence[int]) -> Batched:
    """Repeats a batch, repeats outermost: row `s * B + b` is copy s of instance b.

    Args:
        x: Tensor or TensorDict with leading axis B.
        shape: Number of repeats, or several nested ones (zeros are skipped).

    Shapes:
        `[B, ...]` → `[S * B, ...]`
    """
    for repeats in reversed(_sizes(shape)):
        x = x.expand(repeats, *x.shape)  # [S, B, ...]
        x = x.reshape(repeats * x.shape[1], *x.shape[2:])  # [S * B, ...]
    return x


def unbatchify(x: Batched, shape: int | Sequence[int]) -> Batched:
    """Undoes :func:`batchify`: the repeats become axes after the batch.

    Of nested repeats the last is the outermost: `(A, S)` takes row `(s * A + a) * B + b`, as after
    repeating A times and then S times, to `[b, a, s]`.

    Shapes:
        `[S * B, ...]` → `[B, S, ...]`
    """
    for repeats in reversed(_sizes(shape)):
        if x.shape[0] % repeats:
            raise ConfigError(
                f"expected a batch divisible by {repeats} repeats, got {x.shape[0]} rows"
            )
        x = x.reshape(repeats, x.shape[0] // repeats, *x.shape[1:])  # [S, B, ...]
        x = x.transpose(0, 1)  # [B, S, ...]
    return x


def flatten_starts(x: Tensor, batch_dims: int = 1) -> Tensor:
    """From the library's axes to the published row order, starts outermost.

    Args:
        x: Instances, then their starts.
        batch_dims: Number of axes of instances, in front of that of the starts; 0 for one instance.

    Shapes:
        `[*B, S, ...]` → `[S * B, ...]` with B instances in all
    """
    return x.movedim(batch_dims, 0).flatten(0, batch_dims)


def gather_by_index(src: Tensor, idx: Tensor, dim: int = 1, squeeze: bool = True) -> Tensor:
    """Selects entries of `src` along `dim`, broadcasting the index over trailing axes.

    Args:
        src: `[B, N, ...]`.
        idx: `[B]` or `[B, K]`.
        dim: Axis to select from; negative ones count from the end.
        squeeze: Drop the selected axis when it has size one.

    Shapes:
        `[B, N, ...], [B, K]` → `[B, K, ...]`
    """
    dim %= src.dim()
    while idx.dim() <= dim:
        idx = idx.unsqueeze(-1)
    index = idx.view(idx.shape + (1,) * (src.dim() - idx.dim()))  # [B, K, 1, ...]
    expanded = [-1 if axis == dim else size for axis, size in enumerate(src.shape)]
    out = src.gather(dim, index.expand(expanded))  # [B, K, ...]
    return out.squeeze(dim) if squeeze and out.shape[dim] == 1 else out


def gather_nodes(values: Tensor, index: Tensor) -> Tensor:
    """One value per node, picked by node index: `[*B, N], [*B]` → `[*B]`."""
    return values.gather(-1, index.unsqueeze(-1)).squeeze(-1)  # [*B]


def gather_points(points: Tensor, index: Tensor) -> Tensor:
    """Coordinates (or embeddings) of the visited nodes: `[*B, N, F], [*B, T]` → `[*B, T, F]`."""
    index = index.unsqueeze(-1).expand(*index.shape, points.shape[-1])  # [*B, T, F]
    return points.gather(-2, index)  # [*B, T, F]


def all_true(mask: Tensor) -> Tensor:
    """Whether a boolean row is all True, kept as an axis of one: `[*B, N]` → `[*B, 1]`.

    Bytes are compared several times faster than booleans (`mask.all(-1)`) and, unlike in a sum,
    are not copied to integers first.
    """
    return mask.view(torch.uint8).amin(-1, keepdim=True).view(torch.bool)


def any_true(mask: Tensor) -> Tensor:
    """Whether a boolean row has a True, kept as an axis of one: `[*B, N]` → `[*B, 1]`.

    On bytes for the same reason as :func:`all_true`.
    """
    return mask.view(torch.uint8).any(-1, keepdim=True).view(torch.bool)


def unbatchify_and_gather(x: Tensor, idx: Tensor, n: int) -> Tensor:
    """Row `idx[b]` of the `n` repeats of each instance: `[n * B, ...], [B]` → `[B, ...]`."""
    return gather_by_index(unbatchify(x, n), idx, dim=idx.dim())


def get_distance(x: Tensor, y: Tensor) -> Tensor:
    """Euclidean distance along the last axis."""
    return (x - y).norm(p=2, dim=-1)


def get_distance_matrix(locs: Tensor) -> Tensor:
    """All pairwise Euclidean distances: `[*B, N, 2]` → `[*B, N, N]`."""
    return get_distance(locs.unsqueeze(-2), locs.unsqueeze(-3))


def get_tour_length(ordered_locs: Tensor) -> Tensor:
    """Length of the closed tour through points in order: `[*B, T, 2]` → `[*B]`."""
    return get_distance(ordered_locs, ordered_locs.roll(-1, dims=-2)).sum(-1)


def get_open_tour_length(ordered_locs: Tensor) -> Tensor:
    """Length of the open path through points in order: `[*B, T, 2]` → `[*B]`."""
    return get_distance(ordered_locs[..., 1:, :], ordered_locs[..., :-1, :]).sum(-1)


def get_matrix_tour_length(matrix: Tensor, tour: Tensor) -> Tensor:
    """Length of the closed tour under a cost matrix: `[*B, N, N], [*B, T]` → `[*B]`."""
    return get_leg_costs(matrix, tour, tour.roll(-1, dims=-1)).sum(-1)


def get_leg_costs(matrix: Tensor, origin: Tensor, destination: Tensor) -> Tensor:
    """`matrix[origin, destination]` per leg: `[*B, N, N], [*B, T], [*B, T]` → `[*B, T]`."""
    flat = matrix.flatten(-2)  # [*B, N * N]
    return flat.gather(-1, origin * matrix.shape[-1] + destination)  # [*B, T]


def step_entropy(log_probs: Tensor) -> Tensor:
    """Entropy of each row of (masked) log-probabilities: `[*B, N]` → `[*B]`."""
    finite = log_probs.clamp_min(torch.finfo(log_probs.dtype).min)  # 0 * -inf is not a number
    return -(finite.exp() * finite).sum(-1)


def calculate_entropy(log_probs: Tensor) -> Tensor:
    """Entropy summed over steps of masked log-probabilities: `[*B, T, N]` → `[*B]`."""
    return step_entropy(log_probs).sum(-1)


def get_log_likelihood(
    logprobs: Tensor,
    actions: Tensor | None = None,
    mask: Tensor | None = None,
    return_sum: bool = True,
) -> Tensor:
    """Log-likelihood of solutions.

    Args:
        logprobs: Of all actions `[*B, T, N]`, or of the chosen ones `[*B, T]` if `actions` is None.
        actions: `[*B, T]`.
        mask: Steps that count, `[*B, T]`; None counts all.
        return_sum: Sum over the steps.

    Shapes:
        `[*B, T, N], [*B, T]` → `[*B]`, or `[*B, T]` without the sum
    """
    if actions is not None:
        logprobs = logprobs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)  # [*B, T]
    if mask is not None:
        logprobs = torch.where(mask, logprobs, torch.zeros_like(logprobs))
    return logprobs.sum(-1) if return_sum else logprobs


def sparsify_graph(
    cost_matrix: Tensor, k_sparse: int | None = None, self_loop: bool = False
) -> tuple[Tensor, Tensor]:
    """Keeps the `k_sparse` cheapest outgoing edges of each node.

    Args:
        cost_matrix: `[M, N]`, from M nodes to N nodes; not modified.
        k_sparse: Edges per node (default `max(N // 5, 10)`, at most as many as there are).
        self_loop: Whether a node of a square matrix may keep the edge to itself.

    Returns:
        `edge_index [2, M * k]` and `edge_attr [M * k, 1]`.
    """
    if k_sparse is not None and k_sparse < 1:
        raise ConfigError(f"expected k_sparse of at least 1, got {k_sparse}")
    m, n = cost_matrix.shape
    no_loops = m == n and not self_loop
    k = min(max(n // 5, 10) if k_sparse is None else k_sparse, n - 1 if no_loops else n)
    costs = cost_matrix
    if no_loops:
        diagonal = torch.eye(n, dtype=torch.bool, device=cost_matrix.device)
        costs = cost_matrix.masked_fill(diagonal, torch.inf)
    edge_attr, neighbours = costs.topk(k, dim=-1, largest=False, sorted=False)  # [M, k]
    origin = torch.arange(m, device=cost_matrix.device).repeat_interleave(k)
    edge_index = torch.stack([origin, neighbours.flatten()])  # [2, M * k]
    return edge_index, edge_attr.flatten().unsqueeze(-1)  # [M * k, 1]


def _sizes(shape: int | Sequence[int]) -> list[int]:
    sizes = [shape] if isinstance(shape, int) else list(shape)
    if any(size < 0 for size in sizes):
        raise ConfigError(f"expected non-negative repeats, got {shape!r}")
    return [size for size in sizes if size > 0]
