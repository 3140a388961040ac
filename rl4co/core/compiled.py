"""Compiled loops over the instances of a batch, for tensors on a CPU.

A kernel takes arrays and the range of instances that it works on. What it writes for an instance
depends on no other one, so that threads share the batch without waiting for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch import Tensor

from rl4co.kernels import CompiledFunction, compiled, run_in_chunks

#: Floats of the vectors in kernels: one register of AVX, two of NEON.
WIDTH = 8

#: A kernel whose sums may be taken in any order, as vector instructions need it. Infinities and NaN
#: are respected.
kernel = compiled(fast_sums=True)


def can_compile(x: Tensor) -> bool:
    """Whether kernels take this tensor."""
    exact = x.dtype in (torch.float32, torch.float64)
    return exact and x.device.type == "cpu" and not torch.compiler.is_compiling()


def run_kernel(
    loop: CompiledFunction, tensors: Sequence[Tensor], *options: Any, threads: int = 1
) -> None:
    """Runs a kernel on the memory of contiguous tensors, of which the first has the batch first."""
    arrays = [x.numpy() for x in tensors]
    run_in_chunks(
        lambda rows: loop(*arrays, *options, rows.start, rows.stop), len(tensors[0]), threads
    )
