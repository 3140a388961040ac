"""Augmentation: symmetries keep distances, rows are in the published order, inputs stay intact."""

from __future__ import annotations

import pytest
import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.core.ops import batchify, get_distance_matrix, unbatchify
from rl4co.data import (
    StateAugmentation,
    dihedral_8_augmentation,
    min_max_normalize,
    symmetric_augmentation,
)
from rl4co.envs.routing.cvrp.generator import CVRPGenerator

SQUARES = [(0.0, 1.0), (-3.0, 2.0), (100.0, 900.0), (0.5, 1.5)]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def points(batch: int = 3, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + (high - low) * torch.rand(batch, 7, 2, generator=seeded(9))


def assert_same_distances(augmented: Tensor, original: Tensor, num_augment: int) -> None:
    """Row a · B + b has the distances of instance b."""
    expected = batchify(get_distance_matrix(original), num_augment)
    scale = original.abs().max().item()
    torch.testing.assert_close(
        get_distance_matrix(augmented), expected, rtol=1e-5, atol=2e-6 * max(scale, 1)
    )


# ---------------------------------------------------------------- dihedral


def test_dihedral_table_by_hand():
    """The point (0.1, 0.3) in the order of the paper's table."""
    out = dihedral_8_augmentation(torch.tensor([[[0.1, 0.3]]]))
    expected = [
        [0.1, 0.3],
        [0.1, 0.7],
        [0.9, 0.3],
        [0.9, 0.7],
        [0.3, 0.1],
        [0.3, 0.9],
        [0.7, 0.1],
        [0.7, 0.9],
    ]
    torch.testing.assert_close(out.squeeze(1), torch.tensor(expected))


def test_dihedral_outside_the_unit_square_by_hand():
    """Coordinates from 2 to 10: x becomes 12 - x, and everything stays between 2 and 10."""
    xy = torch.tensor([[[2.0, 3.0], [10.0, 4.0]]])
    out = dihedral_8_augmentation(xy)
    assert out[0].tolist() == [[2, 3], [10, 4]]
    assert out[1].tolist() == [[2, 9], [10, 8]]
    assert out[2].tolist() == [[10, 3], [2, 4]]
    assert out[7].tolist() == [[9, 10], [8, 2]]
    assert out.min() == 2
    assert out.max() == 10


@pytest.mark.parametrize(("low", "high"), SQUARES)
@pytest.mark.parametrize("batch", [1, 3])
def test_dihedral_keeps_distances(low: float, high: float, batch: int):
    """Copy after copy, instance after instance, whatever square the data is in."""
    xy = points(batch, low, high)
    out = dihedral_8_augmentation(xy)
    assert out.shape == (8 * batch, 7, 2)
    assert torch.equal(out[:batch], xy)
    assert_same_distances(out, xy, 8)
    assert out.min() >= min(low, 0) - 1e-3
    assert out.max() <= max(high, 1) + 1e-3


def test_dihedral_treats_each_instance_by_itself():
    """An instance in the unit square is mirrored in it, also next to one that is not."""
    inside, outside = points(1), points(1, 5.0, 9.0)
    both = dihedral_8_augmentation(torch.cat([inside, outside]))
    assert torch.equal(unbatchify(both, 8)[0], dihedral_8_augmentation(inside))
    assert torch.equal(unbatchify(both, 8)[1], dihedral_8_augmentation(outside))


def test_dihedral_copies_are_distinct():
    """Eight different figures of an instance without symmetry."""
    out = dihedral_8_augmentation(points(1))
    assert len(out.flatten(1).unique(dim=0)) == 8


@pytest.mark.parametrize("shape", [(7, 2), (2, 7, 3), (2, 2, 7, 2)])
def test_dihedral_needs_points(shape: tuple[int, ...]):
    """Anything but [B, N, 2] is rejected."""
    with pytest.raises(ConfigError, match="B N 2"):
        dihedral_8_augmentation(torch.rand(shape))


# ---------------------------------------------------------------- symmetric


@pytest.mark.parametrize(("low", "high"), SQUARES)
@pytest.mark.parametrize("batch", [1, 3])
def test_symmetric_keeps_distances_and_the_first_copy(low: float, high: float, batch: int):
    """Random isometries; the first copy is the instance itself unless told otherwise."""
    xy = points(batch, low, high)
    out = symmetric_augmentation(batchify(xy, 5), 5, rng=seeded())
    assert_same_distances(out, xy, 5)
    assert torch.equal(out[:batch], xy)
    assert not torch.isclose(out[batch:], batchify(xy, 4)).all(-1).all(-1).any()
    moved = symmetric_augmentation(batchify(xy, 5), 5, first_augment=True, rng=seeded())
    assert not torch.isclose(moved[:batch], xy).all(-1).all(-1).any()
    assert_same_distances(moved, xy, 5)


def test_symmetric_turns_about_the_center_and_reflects_half_of_the_time():
    """Angles fill the circle; the orientation of a triangle flips in about half of the copies."""
    triangle = torch.tensor([[[0.5, 0.5], [0.9, 0.5], [0.5, 0.7]]])
    out = symmetric_augmentation(batchify(triangle, 4000), 4000, first_augment=True, rng=seeded())
    torch.testing.assert_close(out[:, 0], torch.full((4000, 2), 0.5))
    first, second = out[:, 1] - out[:, 0], out[:, 2] - out[:, 0]
    orientation = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    torch.testing.assert_close(orientation.abs(), torch.full((4000,), 0.08))
    assert (orientation > 0).float().mean().item() == pytest.approx(0.5, abs=0.04)
    angle = torch.atan2(first[:, 1], first[:, 0])
    share = torch.histc(angle, bins=8, min=-torch.pi, max=torch.pi) / 4000
    assert (share - 1 / 8).abs().max() < 0.03


def test_symmetric_seed_reproduces_and_global_state_is_untouched():
    """All randomness comes from rng."""
    xy = batchify(points(), 4)
    before = torch.get_rng_state()
    first, second = (symmetric_augmentation(xy, 4, rng=seeded(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(symmetric_augmentation(xy, 4, rng=seeded(2)), first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("num_augment", [0, 2])
def test_symmetric_needs_repeated_rows(num_augment: int):
    """Three rows are not two copies of anything."""
    with pytest.raises(ConfigError, match="3 rows"):
        symmetric_augmentation(points(3), num_augment)


# ---------------------------------------------------------------- normalisation


def test_min_max_normalize():
    """Over everything or per row; constants become 0 instead of NaN."""
    x = torch.tensor([[1.0, 3.0], [5.0, 9.0]])
    assert min_max_normalize(x).tolist() == [[0, 0.25], [0.5, 1]]
    assert min_max_normalize(x, dim=1).tolist() == [[0, 1], [0, 1]]
    assert min_max_normalize(torch.full((3,), 2.0)).tolist() == [0, 0, 0]


# ---------------------------------------------------------------- whole instances


@pytest.fixture
def instances() -> TensorDict:
    """Three CVRP instances with four customers."""
    return CVRPGenerator(num_loc=4)(3, seeded())


@pytest.mark.parametrize(
    ("augment_fn", "num_augment"),
    [("dihedral8", 8), ("dihedral8", 1), ("dihedral8", 3), ("symmetric", 1), ("symmetric", 11)],
)
@pytest.mark.parametrize("batch", [1, 3])
def test_state_augmentation(instances: TensorDict, augment_fn: str, num_augment: int, batch: int):
    """Depot and customers move together, other keys are repeated, the input stays as it is."""
    instances = instances[:batch]
    before = instances.clone()
    out = StateAugmentation(num_augment, augment_fn, rng=seeded())(instances)
    assert out.batch_size == (num_augment * batch,)
    assert set(out.keys()) == set(instances.keys())
    for key in ("demand", "capacity"):
        assert torch.equal(out[key], batchify(instances[key], num_augment))
    nodes = torch.cat([instances["depot"].unsqueeze(1), instances["locs"]], 1)
    moved = torch.cat([out["depot"].unsqueeze(1), out["locs"]], 1)
    assert_same_distances(moved, nodes, num_augment)
    assert torch.equal(moved[:batch], nodes)
    assert all(torch.equal(instances[key], before[key]) for key in before.keys())


def test_state_augmentation_with_dihedral8_is_the_function(instances: TensorDict):
    """Eight copies are those of `dihedral_8_augmentation`, fewer are the first of them."""
    full = dihedral_8_augmentation(instances["locs"])
    assert torch.equal(StateAugmentation(8, "dihedral8")(instances)["locs"], full)
    assert torch.equal(StateAugmentation(3, "dihedral8")(instances)["locs"], full[:9])


@pytest.mark.parametrize("augment_fn", ["dihedral8", "symmetric"])
def test_first_copy_can_be_transformed_too(instances: TensorDict, augment_fn: str):
    """Without `first_aug_identity` no instance comes first as itself."""
    out = StateAugmentation(4, augment_fn, first_aug_identity=False, rng=seeded())(instances)
    assert not torch.isclose(out["locs"][:3], instances["locs"]).all(-1).all(-1).any()


def test_depot_decides_the_square_too():
    """Customers in the unit square and a depot outside: one square for all of them."""
    td = TensorDict(
        {"locs": torch.tensor([[[0.0, 0.0], [1.0, 1.0]]]), "depot": torch.tensor([[4.0, 2.0]])},
        batch_size=[1],
    )
    out = StateAugmentation(3, "dihedral8")(td)
    assert out["depot"].tolist() == [[4, 2], [4, 2], [0, 2]]  # 0 + 4 - x
    assert out["locs"][2].tolist() == [[4, 0], [3, 1]]


def test_several_depots_are_points_as_well():
    """A depot key of shape [B, k, 2] keeps it."""
    td = TensorDict({"locs": torch.rand(2, 5, 2), "depot": torch.rand(2, 3, 2)}, batch_size=[2])
    out = StateAugmentation(8, "dihedral8")(td)
    assert out["depot"].shape == (16, 3, 2)
    assert torch.equal(out["depot"], dihedral_8_augmentation(td["depot"]))


def test_feats_choose_the_keys(instances: TensorDict):
    """Only the named keys are transformed; a key that is not there is an error."""
    out = StateAugmentation(8, "dihedral8", feats=["locs"])(instances)
    assert torch.equal(out["depot"], batchify(instances["depot"], 8))
    assert torch.equal(out["locs"], dihedral_8_augmentation(instances["locs"]))
    with pytest.raises(ConfigError, match="location"):
        StateAugmentation(8, feats=["location"])(instances)


def test_own_function(instances: TensorDict):
    """It gets the repeated points and the number of copies; the first copy is kept if asked."""
    seen = []

    def shift(xy: Tensor, num_augment: int) -> Tensor:
        seen.append((tuple(xy.shape), num_augment))
        return xy + 1

    kept = StateAugmentation(2, shift)(instances)
    assert seen == [((6, 5, 2), 2)]
    assert torch.equal(kept["locs"], torch.cat([instances["locs"], instances["locs"] + 1]))
    moved = StateAugmentation(2, shift, first_aug_identity=False)(instances)
    assert torch.equal(moved["depot"], batchify(instances["depot"] + 1, 2))
    with pytest.raises(ConfigError, match="keep the shape"):
        StateAugmentation(2, lambda xy, num_augment: xy[:1])(instances)


@pytest.mark.parametrize("augment_fn", ["dihedral8", "symmetric"])
def test_normalize_uses_one_scale_for_all_copies(augment_fn: str):
    """Coordinates end in [0, 1]; distances of all copies of an instance shrink by one factor."""
    td = TensorDict({"locs": points(3, -40.0, 60.0)}, batch_size=[3])
    out = StateAugmentation(6, augment_fn, normalize=True, rng=seeded())(td)["locs"]
    copies = unbatchify(out, 6)  # [B, A, N, 2]
    torch.testing.assert_close(copies.flatten(1).amin(1), torch.zeros(3))
    torch.testing.assert_close(copies.flatten(1).amax(1), torch.ones(3))
    ratio = (
        get_distance_matrix(copies)[..., 0, 1:] / get_distance_matrix(td["locs"])[:, None, 0, 1:]
    )
    torch.testing.assert_close(ratio, ratio[:, :1, :1].expand_as(ratio), rtol=1e-3, atol=0)


def test_seed_of_state_augmentation(instances: TensorDict):
    """Equal generators give equal copies, and the global one does not move."""
    before = torch.get_rng_state()
    first, second = (StateAugmentation(4, rng=seeded())(instances)["locs"] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_instances_without_coordinates_are_unsupported():
    """A matrix has no symmetries of the plane; a key of another shape is no coordinate."""
    with pytest.raises(UnsupportedError, match="cost_matrix"):
        StateAugmentation()(TensorDict({"cost_matrix": torch.rand(2, 4, 4)}, batch_size=[2]))
    with pytest.raises(UnsupportedError, match="'locs'"):
        StateAugmentation()(TensorDict({"locs": torch.rand(2, 4, 3)}, batch_size=[2]))


def test_matrix_next_to_coordinates_is_repeated():
    """Distances do not change, so the matrix stays right."""
    locs = points(2)
    td = TensorDict({"locs": locs, "cost_matrix": get_distance_matrix(locs)}, batch_size=[2])
    out = StateAugmentation(8, "dihedral8")(td)
    torch.testing.assert_close(
        get_distance_matrix(out["locs"]), out["cost_matrix"], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_augment": 0}, ConfigError, "num_augment of at least 1"),
        ({"num_augment": 9, "augment_fn": "dihedral8"}, ConfigError, "from 1 to 8"),
        ({"augment_fn": "dihedral"}, UnknownNameError, "did you mean 'dihedral8'"),
    ],
)
def test_bad_augmentations_are_rejected(options, error, message):
    """At construction, not at the first batch."""
    with pytest.raises(error, match=message):
        StateAugmentation(**options)


def test_one_batch_axis_is_needed():
    """Copies are the outermost rows of one axis."""
    td = TensorDict({"locs": torch.rand(2, 3, 4, 2)}, batch_size=[2, 3])
    with pytest.raises(ConfigError, match=r"\[2, 3\]"):
        StateAugmentation()(td)
