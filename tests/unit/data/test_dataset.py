"""Data sets and loaders: what is fetched, in which order, by whom, at what cost."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from tensordict import TensorDict
from torch.utils.data import DataLoader

from rl4co.core.errors import ConfigError
from rl4co.core.rng import derive_generator
from rl4co.data import ExtraKeyDataset, GeneratedDataset, TensorDictDataset, make_dataloader
from rl4co.data.dataset import ShardedBatchSampler
from rl4co.envs.routing.tsp.generator import TSPGenerator


def numbered(size: int) -> TensorDictDataset:
    """Instance i has index i."""
    return TensorDictDataset(TensorDict({"i": torch.arange(size)}, batch_size=[size]))


def batches(loader) -> list[list[int]]:
    return [batch["i"].tolist() for batch in loader]


# ---------------------------------------------------------------- in memory


def test_items_of_a_dataset():
    """One instance by integer (also from the end), batches by list, slice or tensor."""
    dataset = numbered(5)
    assert len(dataset) == 5
    assert dataset[3].batch_size == ()
    assert dataset[3]["i"].item() == 3
    assert dataset[-1]["i"].item() == 4
    assert dataset[[4, 0]]["i"].tolist() == [4, 0]
    assert dataset[1:3]["i"].tolist() == [1, 2]
    assert dataset[torch.tensor([2, 2])]["i"].tolist() == [2, 2]
    assert dataset.__getitems__([3, 1]).batch_size == (2,)


def test_torch_loaders_fetch_a_batch_by_one_index_operation(monkeypatch: pytest.MonkeyPatch):
    """Neither our loader nor a plain one with `collate_fn` touches single instances."""
    dataset = numbered(10)
    calls = []
    original = TensorDictDataset.__getitem__

    def spy(self, index):
        calls.append(index)
        return original(self, index)

    monkeypatch.setattr(TensorDictDataset, "__getitem__", spy)
    plain = DataLoader(dataset, batch_size=4, collate_fn=dataset.collate_fn)
    expected = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches(plain) == expected
    assert batches(make_dataloader(dataset, 4)) == expected
    assert calls == [*expected, *expected]


def test_collate_stacks_single_instances():
    """For code that fetches one by one."""
    dataset = numbered(4)
    assert dataset.collate_fn([dataset[2], dataset[0]])["i"].tolist() == [2, 0]


def test_batches_do_not_share_memory_with_the_dataset():
    """Writing into a batch does not change the data set."""
    dataset = numbered(4)
    for batch in make_dataloader(dataset, 2):
        batch["i"].fill_(99)
    assert dataset.data["i"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("td", [TensorDict({}, []), {"i": torch.arange(3)}])
def test_dataset_needs_a_batch_axis(td):
    """A single instance or a dictionary is no data set."""
    with pytest.raises(ConfigError, match="batch axis"):
        TensorDictDataset(td)


def test_add_key_leaves_the_original_alone():
    """The new data set has the key, the wrapped one and its TensorDict do not."""
    dataset = numbered(3)
    extended = dataset.add_key("extra", torch.tensor([7.0, 8.0, 9.0]))
    assert isinstance(extended, ExtraKeyDataset)
    assert extended[[2, 0]]["extra"].tolist() == [9, 7]
    assert extended[1]["extra"].item() == 8
    assert set(dataset.data.keys()) == {"i"}
    again = extended.add_key("extra", torch.zeros(3)).add_key("more", torch.ones(3))
    assert again[0]["extra"].item() == 0
    assert extended[0]["extra"].item() == 7
    assert len(again) == 3


@pytest.mark.parametrize("extra", [torch.zeros(2), torch.tensor(1.0)])
def test_extra_key_needs_one_row_per_instance(extra: torch.Tensor):
    """Three instances cannot share two values."""
    with pytest.raises(ConfigError, match="3 instances"):
        ExtraKeyDataset(numbered(3), extra, "baseline")


# ---------------------------------------------------------------- shuffling and sharding


def test_shuffle_is_a_permutation_that_changes_with_the_epoch():
    """Every instance once per epoch; equal seed and epoch give an equal order."""
    loader = make_dataloader(numbered(20), 6, shuffle=True, seed=3)
    first = batches(loader)
    assert [len(batch) for batch in first] == [6, 6, 6, 2]
    order = list(itertools.chain(*first))
    assert sorted(order) == list(range(20))
    assert order != list(range(20))
    assert batches(loader) == first
    loader.sampler.set_epoch(1)
    assert batches(loader) != first
    loader.sampler.set_epoch(0)
    assert batches(loader) == first


def test_shuffle_without_seed_follows_the_global_generator():
    """A new order each time, reproducible by `torch.manual_seed`."""
    loader = make_dataloader(numbered(20), 20, shuffle=True)
    torch.manual_seed(1)
    first, second = batches(loader), batches(loader)
    torch.manual_seed(1)
    assert batches(loader) == first
    assert first != second


@pytest.mark.parametrize("num_workers", [0, 1])
def test_seeded_loaders_leave_the_global_generator_alone(num_workers: int):
    """torch's loader draws a seed for its workers from the global generator unless told not to."""
    loader = make_dataloader(numbered(8), 4, shuffle=True, seed=0, num_workers=num_workers)
    before = torch.get_rng_state()
    assert len(batches(loader)) == 2
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("size", "batch_size"), [(16, 4), (17, 4), (9, 4), (10, 3), (3, 8)])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_share_the_dataset(size: int, batch_size: int, world_size: int, shuffle: bool):
    """Together they see every instance exactly once, in equally many non-empty batches."""
    ranks = [
        batches(
            make_dataloader(
                numbered(size), batch_size, shuffle, seed=5, rank=rank, world_size=world_size
            )
        )
        for rank in range(world_size)
    ]
    assert sorted(i for rank in ranks for batch in rank for i in batch) == list(range(size))
    assert len({len(rank) for rank in ranks}) == 1
    assert all(1 <= len(batch) <= batch_size for rank in ranks for batch in rank)
    counts = [sum(map(len, rank)) for rank in ranks]
    assert max(counts) - min(counts) <= 1


def test_uneven_shards_by_hand():
    """Nine instances, two ranks, batches of four: 4 = 3 + 1 and 5 = 4 + 1."""
    parts = [batches(make_dataloader(numbered(9), 4, rank=rank, world_size=2)) for rank in (0, 1)]
    assert parts == [[[0, 1, 2], [3]], [[4, 5, 6, 7], [8]]]


def test_batches_of_one_repeat_an_instance_rather_than_leaving_a_rank_behind():
    """Three instances on two ranks, one at a time: rank 0 has one instance for two batches."""
    parts = [batches(make_dataloader(numbered(3), 1, rank=rank, world_size=2)) for rank in (0, 1)]
    assert parts == [[[0], [0]], [[1], [2]]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_workers_give_the_same_batches(shuffle: bool):
    """Two worker processes, same order as none."""
    dataset = TensorDictDataset(TensorDict({"i": torch.arange(11), "x": torch.rand(11, 3)}, [11]))
    plain = list(make_dataloader(dataset, 4, shuffle, seed=0))
    workers = list(make_dataloader(dataset, 4, shuffle, num_workers=2, seed=0))
    assert len(plain) == len(workers) == 3
    for ours, theirs in zip(plain, workers, strict=True):
        assert torch.equal(ours["i"], theirs["i"])
        assert torch.equal(ours["x"], theirs["x"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size >= 1"),
        ({"batch_size": None}, "batch_size"),
        ({"batch_size": 2, "rank": 2, "world_size": 2}, "rank < world_size"),
        ({"batch_size": 2, "world_size": 9}, "9 processes, got 8"),
        ({"batch_size": 2, "shuffle": True, "world_size": 2}, "seed"),
    ],
)
def test_bad_loader_options_are_rejected(options, message):
    """One bad value each."""
    with pytest.raises(ConfigError, match=message):
        make_dataloader(numbered(8), **options)


# ---------------------------------------------------------------- generated


def test_generated_batches_are_functions_of_their_key():
    """Batch i of an epoch is what the generator gives for (seed, epoch, i, rank)."""
    generator = TSPGenerator(num_loc=5)
    dataset = GeneratedDataset(generator, size=10, batch_size=4, seed=1, epoch=2, rank=0)
    assert len(dataset) == 3
    assert [len(batch) for batch in dataset] == [4, 4, 2]
    expected = generator(4, rng=derive_generator(1, 2, 1, 0))["locs"]
    assert torch.equal(dataset[1]["locs"], expected)
    assert torch.equal(dataset[1]["locs"], expected)
    changed = [
        dataclasses.replace(dataset, seed=0)[1],
        dataclasses.replace(dataset, epoch=0)[1],
        dataclasses.replace(dataset, rank=1, size=20, world_size=2)[1],
        dataset[0],
    ]
    assert not any(torch.equal(batch["locs"], expected) for batch in changed)


def test_generating_touches_no_global_state():
    """Nor does the loader around it."""
    before = torch.get_rng_state()
    dataset = GeneratedDataset(TSPGenerator(num_loc=5), size=6, batch_size=4)
    assert [len(batch) for batch in make_dataloader(dataset)] == [4, 2]
    assert torch.equal(torch.get_rng_state(), before)


def test_generated_batches_are_made_only_when_asked_for():
    """An epoch of a billion instances costs nothing until it is walked through."""
    calls = []

    def generator(batch_size, rng=None):
        calls.append(batch_size)
        return TensorDict({"i": torch.zeros(batch_size)}, [batch_size])

    dataset = GeneratedDataset(generator, size=10**9, batch_size=512)
    assert len(dataset) == 1_953_125
    assert not calls
    assert len(dataset[1_953_124]) == 512
    assert calls == [512]
    with pytest.raises(IndexError):
        dataset[1_953_125]


def test_generated_batches_with_workers():
    """Workers change nothing: the key alone decides."""
    dataset = GeneratedDataset(TSPGenerator(num_loc=5), size=10, batch_size=4, seed=3)
    plain, workers = (list(make_dataloader(dataset, num_workers=n)) for n in (0, 2))
    assert [len(batch) for batch in workers] == [4, 4, 2]
    for ours, theirs in zip(plain, workers, strict=True):
        assert torch.equal(ours["locs"], theirs["locs"])


@pytest.mark.parametrize("world_size", [2, 3])
def test_generated_epoch_is_shared_by_the_ranks(world_size: int):
    """`size` instances altogether, equally many batches each, all different."""
    ranks = [
        list(
            GeneratedDataset(
                TSPGenerator(num_loc=4), size=20, batch_size=3, rank=rank, world_size=world_size
            )
        )
        for rank in range(world_size)
    ]
    assert len({len(rank) for rank in ranks}) == 1
    locs = torch.cat([batch["locs"] for rank in ranks for batch in rank])
    assert len(locs) == 20
    assert len(locs.flatten(1).unique(dim=0)) == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [({"batch_size": 3}, "batch_size=3"), ({"shuffle": True}, "shuffle=True")],
)
def test_generated_batches_are_taken_as_they_are(options, message):
    """Their size and order are settled already."""
    dataset = GeneratedDataset(TSPGenerator(), size=8, batch_size=4)
    assert len(make_dataloader(dataset, batch_size=4)) == 2
    with pytest.raises(ConfigError, match=message):
        make_dataloader(dataset, **options)


@pytest.mark.parametrize("options", [{"size": 0, "batch_size": 4}, {"size": 4, "batch_size": 0}])
def test_bad_generated_datasets_are_rejected(options):
    """Empty epochs and empty batches."""
    with pytest.raises(ConfigError):
        GeneratedDataset(TSPGenerator(), **options)


def test_sampler_length_is_the_number_of_batches():
    """Progress bars depend on it."""
    sampler = ShardedBatchSampler(10, 4, world_size=2)
    assert len(sampler) == len(list(sampler)) == 2
