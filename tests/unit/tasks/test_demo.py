"""The demonstration runs from end to end."""

from __future__ import annotations

import os
import subprocess
import sys

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def test_demo(tmp_path: Path):
    """A pretrained model, a second of training, the table, and three plots that are images."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    result = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / "demo.py"), "--seconds", "1",
         "--num-loc", "8", "--instances", "8"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "nearest neighbour" in result.stdout and "model, greedy" in result.stdout
    assert "capitals: a tour of" in result.stdout
    for name in ("capitals.png", "tours.png", "learning_curve.png"):
        assert (tmp_path / "demo" / name).read_bytes().startswith(b"\x89PNG")
