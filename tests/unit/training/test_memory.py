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
for _ in range(2):
    step()
before = resource.getrusage(resource.RUSAGE_SELF)
for _ in range(8):
    step()
after = resource.getrusage(resource.RUSAGE_SELF)
faults = after.ru_minflt - before.ru_minflt
print(json.dumps({"applied": applied, "faults": faults, "peak": after.ru_maxrss / 1024}))
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
    # 8 steps with 3 temporaries of 12288 pages each.
    assert default["faults"] > 200_000
    assert tuned["faults"] < default["faults"] / 10
    # Kept blocks do not always fit, but the peak stays within a few temporaries.
    assert tuned["peak"] < default["peak"] + 3 * 48


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for attribute, value in (("system", lambda: "Darwin"), ("libc_ver", lambda: ("", ""))):
        with monkeypatch.context() as patch:
            patch.setattr(platform, attribute, value)
            tune_allocator.cache_clear()
            assert tune_allocator() is False
    tune_allocator.cache_clear()
