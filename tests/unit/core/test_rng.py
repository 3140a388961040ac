"""Random streams: functions of their key, independent of global state."""

from __future__ import annotations

import torch

from rl4co.core.rng import derive_generator, derive_seed, draw_seed


def test_seed_is_a_function_of_the_key():
    """Pinned numbers: a change here would change every published run."""
    assert derive_seed(0) == 5328621672385243211
    assert derive_seed("specs") == 2478348909226931314
    assert derive_seed(1234, "train", 0, 0) == 3907749881816152495


def test_keys_do_not_collide():
    """Type, order and grouping of the parts all count."""
    keys = [(), (0,), ("0",), (0, 1), (1, 0), (1,), (10,), (1, 0, 0), ("a", "b"), ("ab",), ("a/b",)]
    seeds = [derive_seed(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_streams_are_reproducible_and_distinct():
    """The same key gives the same numbers, its neighbour different ones."""
    first, again, other = (
        torch.rand(100, generator=derive_generator(7, "val", epoch)) for epoch in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert (first != other).any()
    assert abs(torch.corrcoef(torch.stack([first, other]))[0, 1]) < 0.4


def test_global_state_is_not_involved():
    """Neither read nor moved by deriving."""
    before = torch.get_rng_state()
    first = derive_generator(3).initial_seed()
    torch.manual_seed(99)
    assert derive_generator(3).initial_seed() == first
    torch.set_rng_state(before)
    torch.rand(3, generator=derive_generator(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_drawn_seeds():
    """From a custom generator, or from the global one, which then advances."""
    assert draw_seed(derive_generator(1)) == draw_seed(derive_generator(1))
    stream = derive_generator(1)
    assert draw_seed(stream) != draw_seed(stream)
    torch.manual_seed(5)
    first = draw_seed()
    assert draw_seed() != first
    torch.manual_seed(5)
    assert draw_seed() == first
