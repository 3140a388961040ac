"""Settings and fixtures of all tests: one thread, fixed seeds, optional benchmark instances."""

from __future__ import annotations

import os

from pathlib import Path

# Both are read once, when torch and matplotlib are imported. The first keeps oneDNN away from AMX
# instructions, which some virtual machines announce but do not have.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch

from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parent.parent
SEED = 1234

# Test processes run side by side, so each one gets a single core.
torch.set_num_threads(1)

# Timing on a shared machine says nothing, and a failure must be the same one on every machine.
settings.register_profile(
    "rl4co",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "rl4co"))


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder with public benchmark instances; tests that need it are skipped where it is absent.

    It is `RL4CO_SHARED_DIR` if that is set, otherwise the folder `shared` beside the repository.
    """
    named = os.environ.get("RL4CO_SHARED_DIR")
    folder = Path(named) if named else REPOSITORY.parent / "shared"
    if not folder.is_dir():
        if named:
            pytest.fail(
                f"expected a folder in RL4CO_SHARED_DIR, got {named!r}; correct or unset it"
            )
        pytest.skip(
            "no folder 'shared' beside the repository; set RL4CO_SHARED_DIR to point to one"
        )
    return folder


@pytest.fixture
def rng() -> torch.Generator:
    """A fresh random stream with a fixed seed."""
    return torch.Generator().manual_seed(SEED)


@pytest.fixture(autouse=True)
def _seed_global_generator() -> None:
    """Makes each test independent of those that ran before it in the same process."""
    torch.manual_seed(SEED)
