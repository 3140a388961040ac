"""The Python code of the documentation runs; shortened where it would train for hours."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shlex

from pathlib import Path

import pytest
import typer

from rl4co.cli import app
from rl4co.core.registry import DECODING, FORMULATIONS
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs import Generator, RL4COEnvBase
from rl4co.models import ConstructiveDecoder, REINFORCEBaseline

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(<!-- not run: .+ -->\n)?```python\n(.*?)```", re.DOTALL)

#: What is replaced so that a page runs in seconds.
SHORTER = {
    "num_loc=100": "num_loc=10",
    "train_data_size=9_600, val_data_size=500": "train_data_size=64, val_data_size=8",
    'max_epochs=2, accelerator="cpu"': "max_epochs=1, logger=False, enable_checkpointing=False",
    "epochs=10, ": "epochs=1, limit_train_batches=2, limit_val_batches=1, logger=False, "
    "enable_checkpointing=False, ",
}
#: Page → the optional package that it is about.
NEEDS_PACKAGE = {"gymnasium.md": "gymnasium"}
#: Calls that need a file from elsewhere, or a server.
NEEDS_MORE = ("load_original_weights(", "httpx.Client(")

LISTING = """\
from rl4co.envs.routing import TSPEnv, TSPGenerator
from rl4co.models import AttentionModelPolicy, POMO
from rl4co.utils import RL4COTrainer
# Instantiate generator and environment
generator = TSPGenerator(num_loc=100, loc_distribution="uniform")
env = TSPEnv(generator)
# Create policy and RL model
policy = AttentionModelPolicy(env_name=env.name)
model = POMO(env, policy, batch_size=64)
# Instantiate Trainer and fit
trainer = RL4COTrainer(epochs=10, precision="16-mixed")
trainer.fit(model)
"""


def blocks(page: Path) -> list[str]:
    """Python blocks of a page, without those that say why they are not run."""
    return [code for skipped, code in BLOCK.findall(page.read_text()) if not skipped]


def test_the_papers_listing_is_printed_in_the_readme():
    """Word for word, up to blank lines."""
    without_blank_lines = [
        "".join(line for line in code.splitlines(keepends=True) if line.strip())
        for code in blocks(ROOT / "README.md")
    ]
    assert LISTING in without_blank_lines


def test_the_readme_is_short():
    """At most 900 words, without the BibTeX entry."""
    text = re.sub(r"```bibtex\n.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(text.split()) <= 900


@pytest.mark.filterwarnings("ignore:.*16-mixed.*")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All blocks of a page, one after the other in one namespace."""
    if package := NEEDS_PACKAGE.get(page.name):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    # What a page registers is gone after it; all others are loaded before, and stay.
    for registry in (FORMULATIONS, DECODING):
        monkeypatch.setattr(registry, "_entries", dict(registry.items()))
    namespace: dict[str, object] = {}
    for code in blocks(page):
        if any(call in code for call in NEEDS_MORE):
            compile(code, str(page), "exec")
            continue
        for long, short in SHORTER.items():
            code = code.replace(long, short)
        exec(compile(code, str(page), "exec"), namespace)


# ---------------------------------------------------------------- what tables say

MIGRATION = (ROOT / "docs" / "migration.md").read_text()
#: Call in the second column of a row: `name(arguments)`, with the object it belongs to.
CALL = re.compile(r"^\|[^|]*\|[^|]*?`(?:(\w+)\.)?(\w+)\(([\w, ]*)\)`", re.MULTILINE)
OWNERS = {
    "": RL4COEnvBase,
    "generator": Generator,
    "decoder": ConstructiveDecoder,
    "choose": DecodingStrategy,
    "forward": REINFORCEBaseline,
    "setup": REINFORCEBaseline,
    "epoch_callback": REINFORCEBaseline,
}


@pytest.mark.parametrize(("owner", "name", "arguments"), CALL.findall(MIGRATION))
def test_migration_page_knows_the_hooks(owner: str, name: str, arguments: str):
    """What it says to write has this name and these arguments."""
    if owner in ("env", "policy"):
        return  # calls of objects, which the blocks of the page make
    cls = OWNERS[owner or (name if name in OWNERS else "")]
    method = cls.forward if name == "decoder" else getattr(cls, name)
    found = [key for key in inspect.signature(method).parameters if key != "self"]
    assert found[: len(arguments.split(", "))] == arguments.split(", ")


def test_migration_page_knows_the_modules():
    """Those in the right column of the import paths are there."""
    section = MIGRATION.partition("## Import paths")[2].partition("\n## ")[0]
    homes = re.findall(r"`(rl4co[\w.]*)`", "".join(re.findall(r"\|([^|]*)\|$", section, re.M)))
    assert len(homes) > 8
    assert all(importlib.util.find_spec(home) for home in homes)


# ---------------------------------------------------------------- the command line

SHELL_BLOCK = re.compile(r"```(?:bash|console)\n(.*?)```", re.DOTALL)
COMMANDS = [
    (page.name, line.removeprefix("$ "))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
    for block in SHELL_BLOCK.findall(page.read_text())
    for line in block.splitlines()
    if line.removeprefix("$ ").startswith("rl4co ")
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_parse(page: str, line: str):
    """Commands, options and arguments are known; nothing is run."""
    words = shlex.split(line, comments=True)[1:]
    name, *arguments = words
    command = typer.main.get_command(app).commands[name]
    given = command.make_context(name, arguments).params
    if name == "benchmark":
        # Both parse, but only one of them says what to compare.
        by_arguments = bool(given["instances"]) and bool(given["method"])
        assert by_arguments != (given["spec"] is not None), f"{page}: {line}"


def test_commands_are_found():
    """Otherwise nothing would be tested above."""
    assert {line.split()[1] for _, line in COMMANDS} == {
        "benchmark", "collect", "eval", "generate", "list", "models", "reproduce", "serve", "solve",
        "train", "tune",
    }  # fmt: skip


def test_all_families_of_the_paper_are_listed():
    """Every family that the command knows is named on the page of reproductions, and no other."""
    page = (ROOT / "docs" / "reproduce.md").read_text().partition("## Figures and tables")[2]
    section = page.partition("\n## ")[0]
    families = {path.stem for path in (ROOT / "rl4co" / "configs" / "reproduce").glob("*.yaml")}
    commands = set(re.findall(r"rl4co reproduce (\w+)", section))
    assert commands <= families
    assert all(f"`{family}`" in section for family in families - commands)
