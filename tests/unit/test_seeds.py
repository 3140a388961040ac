"""Shifted seeds: every road to a random stream is shifted, and nothing else."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from rl4co.core.rng import derive_generator, derive_seed
from tests import seeds

PLAIN = seeds._Generator


@pytest.fixture
def shifted(monkeypatch):
    """All seeds plus 1000, for one test."""
    monkeypatch.setattr(seeds, "_shift", 0)
    for owner, name in (
        (torch, "Generator"),
        (torch, "manual_seed"),
        (torch.random, "manual_seed"),
        (np.random, "default_rng"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    seeds.shift_seeds(1000)


@pytest.mark.usefixtures("shifted")
def test_every_seed_is_shifted():
    expected = torch.rand(3, generator=PLAIN().manual_seed(1001))
    assert torch.equal(torch.rand(3, generator=torch.Generator().manual_seed(1)), expected)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), expected)
    drawn = np.random.default_rng(1).random(3)
    assert (drawn == np.random.Generator(np.random.PCG64(1001)).random(3)).all()
    library = torch.rand(3, generator=derive_generator("train", 1))
    plain = PLAIN().manual_seed(derive_seed("train", 1) + 1000)
    assert torch.equal(library, torch.rand(3, generator=plain))


@pytest.mark.usefixtures("shifted")
def test_recorded_numbers_have_their_own_seeds():
    with seeds.original_seeds():
        drawn = torch.rand(3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(drawn, torch.rand(3, generator=PLAIN().manual_seed(1)))
    assert not torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(1)))


@pytest.mark.usefixtures("shifted")
def test_generators_are_generators():
    rng = torch.Generator().manual_seed(1)
    for each in (rng, copy.deepcopy(rng), torch.default_generator):
        assert isinstance(each, torch.Generator)
    assert not isinstance(1, torch.Generator)
