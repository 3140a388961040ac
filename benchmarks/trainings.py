"""What the benchmarks of short trainings share: a clock that ends them, and a record of rows.

The clock counts the time that the process computes, so a run that is paused or has to share the
machine trains as long as one that is not.

A record is stored after every row, so an interrupted run goes on where it was, and several
processes can work on the rows of one record.
"""

from __future__ import annotations

import argparse
import json
import math
import time

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.table import Table

from benchmarks import report
from rl4co.models.rl.base import RL4COLitModule
from rl4co.training.trainer import RL4COTrainer


def seconds_of_computing() -> float:
    """CPU time of this process per thread of torch: on an idle machine about the time of day."""
    return time.process_time() / torch.get_num_threads()


class Limit(Callback):
    """Ends a training after some minutes or gradient steps.

    Attributes:
        marks: Seconds and gradient steps after each batch, the first before all of them.
    """

    def __init__(self, minutes: float = math.inf, steps: float = math.inf) -> None:
        self.seconds, self.steps = 60 * minutes, steps
        self.marks: list[tuple[float, int]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Starts the clock."""
        self.marks = [(seconds_of_computing(), 0)]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Looks at the clock."""
        self.marks.append((seconds_of_computing(), trainer.global_step))
        late = self.minutes * 60 > self.seconds
        trainer.should_stop = late or trainer.global_step >= self.steps

    @property
    def minutes(self) -> float:
        """How long the training took."""
        return (self.marks[-1][0] - self.marks[0][0]) / 60

    def seconds_per_step(self, warm_up: int) -> float:
        """Mean time of a gradient step, of the batches after some steps of warm-up."""
        first = next(mark for mark in self.marks if mark[1] >= warm_up)
        last = self.marks[-1]
        return (last[0] - first[0]) / (last[1] - first[1])


def fit(model: RL4COLitModule, limit: Limit) -> int:
    """Trains until the limit; returns the number of gradient steps."""
    trainer = RL4COTrainer(
        max_epochs=1_000_000,  # the limit ends the training
        accelerator="cpu",
        precision="32-true",
        logger=False,
        callbacks=[limit],
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
    )
    trainer.fit(model)
    return trainer.global_step


class Record:
    """Rows of a table, with the facts of the run.

    Args:
        name: Name of the benchmark: of its module, its file and its section of the README.
        arguments: Its command line.
        settings: Arguments that decide what the rows are worth; rows made with others are dropped.
    """

    def __init__(self, name: str, arguments: argparse.Namespace, settings: Sequence[str]) -> None:
        self.name, self.path = name, arguments.results / f"{name}.json"
        options = [f"--{key.replace('_', '-')} {getattr(arguments, key)}" for key in settings]
        command = " ".join([f"python -m benchmarks.{name}", *options])
        self.content: dict[str, Any] = {
            "meta": report.machine_facts(command, arguments.threads),
            "rows": [],
        }
        self.load()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows so far."""
        rows: list[dict[str, Any]] = self.content["rows"]
        return rows

    def load(self) -> None:
        """Takes over what has been stored with the same settings."""
        if self.path.exists():
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["meta"]["command"] == self.content["meta"]["command"]:
                self.content = stored

    def has(self, **key: Any) -> bool:
        """Whether there is a row with these values."""
        return any(all(row[name] == value for name, value in key.items()) for row in self.rows)

    def add(self, *rows: dict[str, Any], **facts: Any) -> None:
        """Stores rows, and facts about all of them; others may have stored theirs meanwhile."""
        self.load()
        self.rows.extend(rows)
        self.content.update(facts)
        report.write_json(self.path, self.content)


Cells = Callable[[dict[str, Any]], list[list[str]]]


def show(record: Record, title: str, columns: Sequence[str], cells: Cells) -> None:
    """Prints the table."""
    table = Table(*columns, title=title)
    for row in cells(record.content):
        table.add_row(*row)
    Console().print(table)


def render(name: str, folder: Path, columns: list[str], cells: Cells, below: str = "") -> None:
    """Rewrites the section of the README from the stored rows.

    Args:
        name: Name of the benchmark.
        folder: Folder of results; only that of the repository is shown.
        columns: Heads of the table.
        cells: What is stored → rows of the table.
        below: Markdown below the table: a plot, or what the table does not say.
    """
    path = folder / f"{name}.json"
    if folder != report.RESULTS or not path.exists():
        return
    content = json.loads(path.read_text(encoding="utf-8"))
    meta = content["meta"]
    facts = f"`{meta['command']}` · {meta['date']} · {meta['cpu']}, {meta['threads']} threads"
    parts = [report.markdown_table(columns, cells(content)), below, facts]
    report.update_readme(name, "\n\n".join(part for part in parts if part))


def add_common_options(parser: argparse.ArgumentParser, threads: int) -> None:
    """Options that all these benchmarks have."""
    add = parser.add_argument
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=threads)
    add("--results", type=Path, default=report.RESULTS, help="folder for the JSON file")
    add("--render", action="store_true", help="only rewrite README.md from the stored results")
