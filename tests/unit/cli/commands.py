"""`rl4co solve` inside the process of a test."""

from __future__ import annotations

import json

from typing import Any

from typer.testing import CliRunner

from rl4co.cli import app


def run(*arguments: str) -> Any:
    """What the command gives and prints."""
    return CliRunner().invoke(app, ["solve", *arguments], env={"COLUMNS": "200"})


def run_json(*arguments: str) -> list[dict[str, Any]]:
    """The results of a command that has to succeed."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    results: list[dict[str, Any]] = json.loads(result.stdout)["results"]
    return results
