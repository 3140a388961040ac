"""All compiled code is in this package, with one switch that turns it off.

The reference implementations elsewhere define what the library computes; a kernel is an optional
second implementation of a part of them. `README.md` beside this file lists them all.

    RL4CO_KERNELS=0 python train.py          # without any of them, for the whole process
    with rl4co.kernels.disabled(): ...       # for a block of code

Importing this package does not import numba: a loop is compiled when it is first called.
"""

from __future__ import annotations

from rl4co.kernels import pointer
from rl4co.kernels.compile import CompiledFunction, compiled
from rl4co.kernels.score_mixing import mix_scores
from rl4co.kernels.switch import are_enabled, disabled, waits_for_device
from rl4co.kernels.threads import run_in_chunks
from rl4co.kernels.untouched import is_standard, is_untouched, may_replace, standard

__all__ = [
    "CompiledFunction",
    "are_enabled",
    "compiled",
    "disabled",
    "is_standard",
    "is_untouched",
    "may_replace",
    "mix_scores",
    "pointer",
    "run_in_chunks",
    "standard",
    "waits_for_device",
]
