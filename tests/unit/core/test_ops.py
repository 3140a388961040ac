"""Pure tensor functions against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError
from rl4co.core.ops import (
    all_true,
    batchify,
    calculate_entropy,
    flatten_starts,
    gather_by_index,
    gather_nodes,
    gather_points,
    get_distance,
    get_distance_matrix,
    get_leg_costs,
    get_log_likelihood,
    get_matrix_tour_length,
    get_open_tour_length,
    get_tour_length,
    sparsify_graph,
    unbatchify,
    unbatchify_and_gather,
)

SQUARE = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
# From row to column.
COSTS = torch.tensor([[0.0, 1.0, 7.0], [5.0, 0.0, 2.0], [3.0, 9.0, 0.0]])


# ---------------------------------------------------------------- batching of starts


def test_batchify_puts_repeats_outermost():
    """Row `s * B + b` is copy s of instance b."""
    assert batchify(torch.tensor([10, 20, 30]), 2).tolist() == [10, 20, 30, 10, 20, 30]
    rows = batchify(torch.arange(5), 4)
    assert all(rows[s * 5 + b] == b for s in range(4) for b in range(5))


def test_unbatchify_makes_an_axis_behind_the_batch():
    """Row `s * B + b` becomes `[b, s]`."""
    rows = torch.tensor([[s, b] for s in range(4) for b in range(3)])  # [S * B, 2]
    out = unbatchify(rows, 4)
    assert out.shape == (3, 4, 2)
    assert all(out[b, s].tolist() == [s, b] for s in range(4) for b in range(3))


def test_nested_shapes():
    """Copies made first are innermost: `(A, S)` takes row `(s * A + a) * B + b` to `[b, a, s]`."""
    num_augment, num_starts, batch = 2, 3, 4
    # Augment first, then decode several starts of each copy, as POMO does.
    instances = torch.arange(batch)  # [B]
    augmented = batchify(instances, num_augment) * 10 + torch.arange(2).repeat_interleave(batch)
    rows = batchify(augmented, num_starts) * 10 + torch.arange(3).repeat_interleave(2 * batch)
    out = unbatchify(rows, (num_augment, num_starts))
    expected = [[[100 * b + 10 * a + s for s in range(3)] for a in range(2)] for b in range(batch)]
    assert out.tolist() == expected
    assert batchify(instances, (num_augment, num_starts)).tolist() == [0, 1, 2, 3] * 6


@pytest.mark.parametrize("shape", [1, 3, (2, 3), (2, 1, 2), (0, 3), 0, ()])
def test_unbatchify_undoes_batchify(shape):
    """Every repeat is the original; zeros are skipped."""
    x = torch.rand(4, 5)
    sizes = [size for size in ((shape,) if isinstance(shape, int) else shape) if size]
    out = unbatchify(batchify(x, shape), shape)
    assert out.shape == (4, *sizes, 5)
    assert (out == x.view(4, *[1] * len(sizes), 5)).all()


def test_tensordicts_are_batched_too():
    """All keys move together, and the batch size follows."""
    td = TensorDict({"locs": torch.rand(2, 5, 2), "i": torch.tensor([7, 8])}, batch_size=[2])
    many = batchify(td, 3)
    assert many.batch_size == (6,)
    assert many["i"].tolist() == [7, 8, 7, 8, 7, 8]
    back = unbatchify(many, 3)
    assert back.batch_size == (2, 3)
    assert back["i"].tolist() == [[7, 7, 7], [8, 8, 8]]
    assert torch.equal(back["locs"][:, 2], td["locs"])
    assert unbatchify(batchify(td, (2, 4)), (2, 4)).batch_size == (2, 2, 4)


def test_flatten_starts_is_the_published_order():
    """`[B, S]` to rows `s * B + b`, so unbatchify leads back."""
    x = torch.arange(6).view(2, 3)  # [B, S]
    assert flatten_starts(x).tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.equal(unbatchify(flatten_starts(x), 3), x)


def test_flatten_starts_of_several_batch_axes_or_none():
    """Starts are outermost, and what is behind their axis stays."""
    x = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)  # [*B, S, T], batch (2, 3)
    flat = flatten_starts(x, 2)
    assert flat.shape == (24, 5)
    for s, a, b in itertools.product(range(4), range(2), range(3)):
        assert torch.equal(flat[s * 6 + a * 3 + b], x[a, b, s])
    assert torch.equal(flatten_starts(x[0, 0], 0), x[0, 0])


def test_wrong_repeats_are_rejected():
    """Negative ones, and a batch that does not divide."""
    with pytest.raises(ConfigError, match="divisible by 2 repeats, got 5 rows"):
        unbatchify(torch.zeros(5), 2)
    with pytest.raises(ConfigError, match="non-negative repeats, got -1"):
        batchify(torch.zeros(5), -1)


# ---------------------------------------------------------------- gathering


def test_gather_by_index():
    """One index per row drops the axis; several keep it."""
    src = torch.arange(24.0).view(2, 4, 3)
    assert torch.equal(gather_by_index(src, torch.tensor([1, 3])), src[[0, 1], [1, 3]])
    two = gather_by_index(src, torch.tensor([[1, 0], [3, 3]]))
    assert torch.equal(two, torch.stack([src[0, [1, 0]], src[1, [3, 3]]]))
    single = gather_by_index(src, torch.tensor([[2], [0]]))
    assert single.shape == (2, 3)
    assert gather_by_index(src, torch.tensor([[2], [0]]), squeeze=False).shape == (2, 1, 3)
    flat = gather_by_index(src[..., 0], torch.tensor([1, 3]))
    assert flat.tolist() == [3.0, 21.0]
    assert torch.equal(gather_by_index(src[..., 0], torch.tensor([[1], [3]]), dim=-1), flat)


def test_gather_along_another_axis():
    """An index per start picks a step: `[B, S, T], [B, S]` → `[B, S]`."""
    src = torch.arange(12).view(2, 2, 3)
    assert gather_by_index(src, torch.tensor([[0, 1], [2, 0]]), dim=2).tolist() == [[0, 4], [8, 9]]


def test_gather_nodes_and_points():
    """One value, or the coordinates of several nodes, with any batch axes."""
    values = torch.arange(12.0).view(2, 2, 3)
    assert gather_nodes(values, torch.tensor([[0, 1], [2, 0]])).tolist() == [[0.0, 4.0], [8.0, 9.0]]
    points = gather_points(SQUARE, torch.tensor([2, 0, 2]))
    assert points.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_all_true():
    """As `all`, with the axis kept."""
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    assert all_true(mask).tolist() == [[True], [False], [False]]


def test_unbatchify_and_gather():
    """The best start of each instance."""
    x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])  # rows (s, b): s * 2 + b
    assert unbatchify_and_gather(x, torch.tensor([1, 0]), 2).tolist() == [[1, 0], [0, 1]]


# ---------------------------------------------------------------- distances


def test_distances():
    """3-4-5."""
    a, b = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    assert get_distance(a, b).tolist() == [5.0, 0.0]
    diagonal = math.sqrt(2.0)
    torch.testing.assert_close(
        get_distance_matrix(SQUARE[:3]),
        torch.tensor([[0.0, 1.0, diagonal], [1.0, 0.0, 1.0], [diagonal, 1.0, 0.0]]),
    )
    assert get_distance_matrix(torch.rand(2, 3, 5, 2)).shape == (2, 3, 5, 5)


def test_tour_lengths():
    """Around the unit square: 4 closed, 3 open; zig-zag costs the diagonals."""
    assert get_tour_length(SQUARE).item() == 4.0
    assert get_open_tour_length(SQUARE).item() == 3.0
    crossed = SQUARE[[0, 2, 1, 3]]
    assert get_tour_length(crossed).item() == pytest.approx(2 + 2 * math.sqrt(2))
    assert get_tour_length(SQUARE[:1]).item() == 0.0
    assert get_tour_length(SQUARE.expand(2, 3, 4, 2)).tolist() == [[4.0] * 3] * 2


def test_matrix_tour_lengths():
    """Costs are read from row to column: 1 + 2 + 3 one way, 7 + 9 + 5 the other."""
    tours = torch.tensor([[0, 1, 2], [0, 2, 1]])
    assert get_matrix_tour_length(COSTS.expand(2, 3, 3), tours).tolist() == [6.0, 21.0]
    legs = get_leg_costs(COSTS, torch.tensor([0, 2]), torch.tensor([2, 1]))
    assert legs.tolist() == [7.0, 9.0]


# ---------------------------------------------------------------- probabilities


def test_entropy_ignores_masked_actions():
    """Two steps: a fair coin, log 2, and a certain choice, 0; forbidden actions count nothing."""
    log_probs = torch.tensor([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]]).log()
    assert calculate_entropy(log_probs).tolist() == pytest.approx([math.log(2.0)])


def test_entropy_of_a_uniform_choice():
    """log N per step."""
    log_probs = torch.zeros(2, 3, 4).log_softmax(-1)
    assert calculate_entropy(log_probs).tolist() == pytest.approx([3 * math.log(4.0)] * 2)


def test_log_likelihood():
    """The chosen entries, those that count, summed or not."""
    log_probs = torch.tensor([[[0.5, 0.5], [0.25, 0.75]]]).log()  # [1, 2, 2]
    actions = torch.tensor([[1, 0]])
    total = math.log(0.5) + math.log(0.25)
    assert get_log_likelihood(log_probs, actions).item() == pytest.approx(total)
    steps = get_log_likelihood(log_probs, actions, return_sum=False)
    assert steps.tolist()[0] == pytest.approx([math.log(0.5), math.log(0.25)])
    mask = torch.tensor([[True, False]])
    assert get_log_likelihood(steps, mask=mask).item() == pytest.approx(math.log(0.5))
    assert steps[0, 1] != 0  # the mask did not write into its input


# ---------------------------------------------------------------- sparse graphs


def test_sparse_graph_keeps_the_cheapest_edges():
    """Two nodes keep one edge each; the diagonal of zeros does not count, nor does it change."""
    costs = COSTS.clone()
    index, attributes = sparsify_graph(costs, k_sparse=1)
    edges = {tuple(edge): cost for edge, cost in zip(index.T.tolist(), attributes[:, 0].tolist(),
                                                     strict=True)}  # fmt: skip
    assert edges == {(0, 1): 1.0, (1, 2): 2.0, (2, 0): 3.0}
    assert attributes.shape == (3, 1)
    assert torch.equal(costs, COSTS)


def test_sparse_graph_with_loops():
    """The edge to oneself is the cheapest where it is allowed."""
    index, _ = sparsify_graph(COSTS, k_sparse=1, self_loop=True)
    assert index.tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("shape", "k"), [((3, 3), 2), ((12, 12), 10), ((100, 100), 20), ((4, 15), 10)]
)
def test_default_number_of_edges(shape, k):
    """A fifth of the nodes, at least ten, at most as many as there are; also from M to N nodes."""
    index, attributes = sparsify_graph(torch.rand(shape))
    assert index.shape == (2, shape[0] * k)
    assert index[0].bincount().tolist() == [k] * shape[0]
    assert attributes.isfinite().all()


def test_no_edges_are_rejected():
    """A graph without edges raises."""
    with pytest.raises(ConfigError, match="k_sparse of at least 1, got 0"):
        sparsify_graph(COSTS, k_sparse=0)
