"""The recipe for a new problem is true: its sketch, put where it says, passes the contract tests.

The package is laid out once more in a temporary folder, by links, with the files of the sketch in
their places. The contract tests then find the new problem there by themselves.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"```python\n# (rl4co/\S+\.py)\n(.*?)```", re.DOTALL)


def sketch() -> dict[str, str]:
    """The files of the sketch in CONTRIBUTING: path → text."""
    return dict(FILE.findall((ROOT / "CONTRIBUTING.md").read_text()))


def link_package(target: Path, source: Path, files: dict[str, str]) -> None:
    """A folder of links to everything in another one, with some further files below it."""
    target.mkdir()
    below = {name.partition("/")[0] for name in files}
    assert not {name for name in files if "/" not in name and (source / name).exists()}
    for entry in source.iterdir() if source.is_dir() else ():
        if entry.name not in below:
            (target / entry.name).symlink_to(entry)
    for name in sorted(below):
        inner = {
            path.partition("/")[2]: text
            for path, text in files.items()
            if path.startswith(f"{name}/")
        }
        if inner:
            link_package(target / name, source / name, inner)
        else:
            (target / name).write_text(files[name])


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the flow-time problem in it."""
    folder = tmp_path_factory.mktemp("recipe") / "repository"
    link_package(folder, ROOT, sketch())
    return folder


def run(folder: Path, *arguments: str) -> str:
    """Output of Python in the extended repository; fails if it does."""
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    return result.stdout


def test_the_sketch_names_all_its_files():
    assert sorted(sketch()) == [
        "rl4co/envs/scheduling/flow_time/__init__.py",
        "rl4co/envs/scheduling/flow_time/cases.py",
        "rl4co/envs/scheduling/flow_time/env.py",
        "rl4co/envs/scheduling/flow_time/generator.py",
        "rl4co/models/embeddings/flow_time.py",
    ]


@pytest.mark.slow
def test_the_sketch_passes_the_contract_tests(extended: Path):
    """All of them that are about this problem; training a model on it is one."""
    options = ("-v", "-p", "no:cacheprovider", "-k", "flow_time or scheduling_problem")
    folders = ("tests/contract", "tests/configs")
    output = run(extended, "-m", "pytest", *options, *folders)
    assert int(re.search(r"(\d+) passed", output)[1]) > 30, output
    for test in (
        "test_environment_keeps_the_contract[flow_time]",
        "test_classes_are_importable[flow_time]",
        "test_cases_cover_the_problem[flow_time]",
        "test_training_improves[flow_time]",
        "test_every_configured_scheduling_problem_has_an_experiment",
    ):
        assert f"{test} PASSED" in output, output


def test_the_sketch_is_well_formed(extended: Path):
    """By the same rules as the rest of the package."""
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.is_file():
        pytest.skip("no ruff")
    files = [str(extended / name) for name in sketch()]
    for command in (["check"], ["format", "--check"]):
        settings = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
        result = subprocess.run([ruff, *command, *settings, *files], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout
