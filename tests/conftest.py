"""Settings and fixtures of all tests: one thread, fixed seeds, optional benchmark instances."""

from __future__ import annotations

import json
import os
import sys

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

# Both are read once, when torch and matplotlib are imported. The first keeps oneDNN away from AMX
# instructions, which some virtual machines announce but do not have.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch

from hypothesis import HealthCheck, settings

from tests.commands import Commands
from tests.seeds import original_seeds, shift_seeds

REPOSITORY = Path(__file__).resolve().parent.parent
SEED = 1234

# Test processes run side by side, so each one gets a single core.
torch.set_num_threads(int(os.environ.get("RL4CO_TEST_THREADS", "1")))

# Timing on a shared machine says nothing, and a failure must be the same one on every machine.
settings.register_profile(
    "rl4co",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "rl4co"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stability", "what depends on seeds and on the processor")
    group.addoption(
        "--seed-shift", type=int, default=0, metavar="N", help="add N to all seeds of the tests"
    )
    group.addoption(
        "--measured", type=Path, metavar="FILE",
        help="append what learning tests measured to a file, one JSON object per line",
    )  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Keeps test modules with rewritten asserts in `__pycache__`.

    With PYTHONDONTWRITEBYTECODE every process would rewrite them anew: a third of the collection.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before


def pytest_configure(config: pytest.Config) -> None:
    if shift := config.getoption("seed_shift"):
        shift_seeds(shift)


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


@pytest.fixture(scope="session")
def command() -> Iterator[Commands]:
    """Runs `rl4co ...` in real processes, see :mod:`tests.commands`."""
    with Commands() as commands:
        yield commands


@pytest.fixture(autouse=True)
def _seed_global_generator(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes each test independent of those that ran before it in the same process."""
    fixed = request.node.get_closest_marker("fixed_seed") is not None
    with original_seeds() if fixed else nullcontext():
        torch.manual_seed(SEED)
        yield


@pytest.fixture
def rng() -> torch.Generator:
    """A fresh random stream with a fixed seed."""
    return torch.Generator().manual_seed(SEED)


@pytest.fixture
def require(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Requires a measured number to be on the right side of a bound, and notes it on request.

    Bounds of learning tests stand at least three standard deviations away from what seeds and
    processors give. `--measured FILE` collects the numbers, and `make stability` their margins.
    """

    def check(
        what: str, value: float, *, below: float | None = None, above: float | None = None
    ) -> None:
        bound, sign = (below, 1) if below is not None else (above, -1)
        assert bound is not None, "expected a bound, below or above"
        if file := request.config.getoption("measured"):
            entry = {"test": request.node.nodeid, "what": what, "value": value, "bound": bound}
            with file.open("a") as lines:
                lines.write(json.dumps({**entry, "below": sign > 0}) + "\n")
        relation = "below" if sign > 0 else "above"
        assert sign * value < sign * bound, f"{what}: {value:.4f}, expected {relation} {bound}"

    return check
