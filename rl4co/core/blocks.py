"""Torch's operations on blocks of a batch, each by one thread and in its cache.

One operation after the other over a whole batch sends every result to memory and fetches it again.
Where several operations follow each other, threads that take some instances through all of them
find the results of one in the cache for the next.
"""

from __future__ import annotations

import functools

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from torch import Tensor

from rl4co.kernels.threads import has_team, run_in_chunks

T = TypeVar("T")


def in_blocks(work: Callable[[Iterator[slice]], T], count: int, size: int) -> list[T]:
    """Has slices of up to `size` out of `count` worked on by all threads.

    Operations inside run on the one thread that calls them, without gradients. Where that cannot be
    had, one caller has all blocks, and its operations all threads.

    Args:
        work: Called once by each thread with its slices.
        count: Rows or instances.
        size: Of a block.

    Returns:
        What the calls returned, in the order of slices.
    """
    found: dict[int, T] = {}
    inference = torch.is_inference_mode_enabled()

    def run(blocks: range) -> None:
        with torch.inference_mode(inference), torch.no_grad():
            found[blocks.start] = work(slice(i * size, (i + 1) * size) for i in blocks)

    run_in_chunks(run, -(-count // size), torch.get_num_threads() if has_team() else 1)
    return [found[start] for start in sorted(found)]


def add_up(parts: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
    """The sums of what threads found, in their order, so that they are rounded the same way."""
    return [functools.reduce(torch.add, part) for part in zip(*parts, strict=True)]
