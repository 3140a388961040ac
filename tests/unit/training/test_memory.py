"""The allocator's settings: fewer page faults at nearly the same peak memory."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

from rl4co.training.memory import tune_allocator

#: Repeats an operation with temporaries of 48 MiB, as training steps do.
SCRIPT = """
import json, resource, sys
import torch
from rl4co.training.memory import tune_allocator
torch.set_num_threads(1)
applied = [tune_allocator(), tune_allocator()] if sys.argv[1] == "tuned" else None
x = torch.ones(12 << 20)
def step():
    y = x * 2 + 1
    return float((y - x).sum())
def usage():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt, used.ru_maxrss / 1024
for _ in range(10):
    step()
faults, early = usage()
for _ in range(40):
    step()
later, peak = usage()
print(json.dumps({"applied": applied, "faults": later - faults, "early": early, "peak": peak}))
"""


def measure(mode: str) -> dict[str, float]:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, mode],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)},
    )
    return json.loads(result.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's allocator")
def test_large_blocks_are_kept() -> None:
    """Nearly no page faults; by default every temporary is faulted in anew, page by page."""
    default, tuned = measure("default"), measure("tuned")
    assert tuned["applied"] == [True, True]
    # 40 steps with 3 temporaries of 12288 pages each.
    assert default["faults"] > 1_000_000
    assert tuned["faults"] < default["faults"] / 10
    # A kept block does not always fit the next request, so the heap is larger by some blocks (how
    # many depends on its layout, which differs from process to process). But it stops growing: a
    # block lost in each of the 40 later steps would be 1920 MiB.
    assert tuned["peak"] - tuned["early"] < 4 * 48
    assert tuned["peak"] < 2.5 * default["peak"]


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for attribute, value in (("system", lambda: "Darwin"), ("libc_ver", lambda: ("", ""))):
        with monkeypatch.context() as patch:
            patch.setattr(platform, attribute, value)
            tune_allocator.cache_clear()
            assert tune_allocator() is False
    tune_allocator.cache_clear()
