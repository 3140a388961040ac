"""A server with small models, shared by the tests of the API and of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.serve.server import Server, save_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_models(folder)
    return folder


@pytest.fixture(scope="session")
def server(models: Path) -> Iterator[Server]:
    limits = {"nodes": "200", "seconds": "60", "jobs": "1", "queue": "2"}
    options = [word for name, value in limits.items() for word in (f"--max-{name}", value)]
    running = Server(models, *options)
    yield running
    running.close()
