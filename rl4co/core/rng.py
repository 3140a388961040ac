"""Random streams that are pure functions of a key.

A training batch is identified by (seed, phase, epoch, batch index, rank). Deriving a fresh
`torch.Generator` from such a key means that nothing about randomness has to be stored in a
checkpoint: a run that is killed and resumed draws the same numbers as one that was not.
"""

from __future__ import annotations

import hashlib

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(*key: int | str) -> int:
    """A 63-bit seed from any sequence of integers and strings."""
    digest = hashlib.blake2b("/".join(f"{type(k).__name__}:{k}" for k in key).encode())
    return int.from_bytes(digest.digest()[:8], "little") >> 1


def derive_generator(*key: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """A `torch.Generator` whose stream depends on the key alone.

    Args:
        key: What identifies the stream, e.g. `(seed, "train", epoch, batch_idx, rank)`.
        device: Device on which the generator will draw.
    """
    return torch.Generator(device=device).manual_seed(derive_seed(*key))


def draw_seed(rng: torch.Generator | None = None) -> int:
    """A fresh seed drawn from `rng` (None: torch's global generator)."""
    device = "cpu" if rng is None else rng.device
    return int(torch.randint(2**62, (), generator=rng, device=device))


@contextmanager
def forked_rng(rng: torch.Generator | None) -> Iterator[None]:
    """Runs code that draws from torch's global generator as if it drew from `rng`.

    The global state is the same afterwards as before. With `rng=None` nothing is forked.
    """
    if rng is None:
        yield
        return
    seed = draw_seed(rng)
    # `torch.manual_seed` would also queue a seed for CUDA devices that are not in use yet.
    cuda = torch.cuda.is_initialized()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else ()):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed_all(seed)
        yield
