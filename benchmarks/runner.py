"""Running two contenders in turns: worker processes, alternation, medians."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import tempfile
import time

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.cases import IMPORT_COMMANDS
from benchmarks.published import clean_environment

WORKER = Path(__file__).with_name("worker.py")


class ContenderError(RuntimeError):
    """A contender cannot do what it was asked; the text goes into the table."""


@dataclass(frozen=True)
class Sample:
    """One repetition."""

    value: float
    steps: float | None = None  # decoding steps
    cost: float | None = None  # mean cost of the solutions


@dataclass
class Outcome:
    """All repetitions of one contender on one case, or the reason why there are none."""

    values: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Fields for the results file."""
        if self.error is not None:
            return {"error": self.error}
        return {"values": self.values, "steps": self.steps, "costs": self.costs}


@dataclass(frozen=True)
class Schedule:
    """How many repetitions: `repeats`, fewer if `budget` seconds are over, never below `least`."""

    repeats: int = 7
    warmup: int = 2
    budget: float = 180.0
    least: int = 3
    pause: float = 0.05  # lets the other contender's idle threads stop spinning


Run = Callable[[], Sample]


def alternate(
    runs: Mapping[str, Run],
    schedule: Schedule,
    on_sample: Callable[[str, int], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Outcome]:
    """Run the contenders in turns, one repetition each, never two at the same time.

    A contender that fails is left out from there on and keeps only its error; the others go on.

    Args:
        runs: name -> function that does one repetition.
        schedule: number of repetitions and of warm-up rounds.
        on_sample: called with the contender's name and the round before each repetition
            (negative rounds are warm-up).
        clock: time in seconds, for the budget.
        sleep: called between repetitions.

    Returns:
        name -> outcome, in the order of `runs`.
    """
    outcomes = {name: Outcome() for name in runs}
    start = clock()
    for number in range(-schedule.warmup, schedule.repeats):
        if number >= schedule.least and clock() - start > schedule.budget:
            break
        for name, run in runs.items():
            outcome = outcomes[name]
            if outcome.error is not None:
                continue
            if on_sample is not None:
                on_sample(name, number)
            sleep(schedule.pause)
            try:
                sample = run()
            except ContenderError as error:
                outcomes[name] = Outcome(error=str(error))
                continue
            if number >= 0:
                outcome.values.append(sample.value)
                if sample.steps is not None:
                    outcome.steps.append(sample.steps)
                if sample.cost is not None:
                    outcome.costs.append(sample.cost)
    return outcomes


@dataclass(frozen=True)
class Summary:
    """Median and spread of one contender."""

    median: float
    low: float
    high: float


def summarize(values: list[float]) -> Summary:
    """Median, minimum and maximum."""
    return Summary(statistics.median(values), min(values), max(values))


def compare_values(published: list[float], new: list[float]) -> Summary:
    """How many times less the new package needs.

    `median` is the ratio of the two medians; `low` and `high` are the extremes of the ratios of
    neighbouring repetitions, which saw the same state of the machine.
    """
    pairs = [p / n for p, n in zip(published, new, strict=False)]
    ratio = statistics.median(published) / statistics.median(new)
    return Summary(ratio, min(pairs), max(pairs))


@dataclass(frozen=True)
class Contender:
    """One side of the comparison: an interpreter and how its workers are started."""

    name: str
    python: Path
    threads: int
    hook: str = "none"
    memory_gb: float = 0.0
    timeout: float = 3600.0

    def environment(self) -> dict[str, str]:
        """Environment of a child: same thread count for every library, no foreign paths."""
        threads = str(self.threads)
        counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        return {**clean_environment(), **counts, "PYTHONWARNINGS": "ignore"}


class WorkerProcess:
    """A running `worker.py`; use as a context manager."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (see close)
        command = [str(contender.python), str(WORKER), "--threads", str(contender.threads)]
        command += ["--setup", contender.hook, "--memory-gb", str(contender.memory_gb)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=contender.environment(),
            cwd=tempfile.gettempdir(),  # the repository must not be importable by accident
        )

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            ContenderError: the worker answered with an error, died, or took too long.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            line = json.dumps({"command": command, **arguments}) + "\n"
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ContenderError(self._epitaph()) from None
        ready, _, _ = select.select([self.process.stdout], [], [], self.contender.timeout)
        if not ready:
            self.process.kill()
            raise ContenderError(f"no answer within {self.contender.timeout:.0f} s")
        answer = self.process.stdout.readline()
        if not answer:
            raise ContenderError(self._epitaph())
        result: dict[str, Any] = json.loads(answer)
        if "error" in result:
            raise ContenderError(result["error"])
        return result

    def run(self, metric: str = "seconds") -> Sample:
        """One repetition of the case that was set up."""
        answer = self.request("run")
        return Sample(answer[metric], answer["steps"], answer["cost"])

    def close(self) -> None:
        """End the process by closing its input."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def _epitaph(self) -> str:
        code = self.process.wait()
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        self.log.seek(0)
        lines = [line for line in self.log.read().splitlines() if line.strip()]
        return f"exit code {code}: {lines[-1][:200] if lines else 'no message'}"


def peak_memory_run(contender: Contender, spec: dict[str, Any]) -> Sample:
    """One repetition in a process of its own, because a peak can only be reached once."""
    with WorkerProcess(contender) as worker:
        worker.request("setup", spec=spec)
        return worker.run("peak_mib")


def import_run(contender: Contender, label: str) -> Sample:
    """Wall time of one fresh process: an import, or a command of the console script."""
    arguments = IMPORT_COMMANDS[label]
    command = [str(contender.python), *arguments]
    if arguments[0] != "-c":
        script = contender.python.with_name("rl4co.exe" if os.name == "nt" else "rl4co")
        if not script.exists():
            raise ContenderError("has no command line")
        command = [str(script), *arguments]
    start = time.perf_counter()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=contender.environment(),
        cwd=tempfile.gettempdir(),
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ContenderError(f"exit code {done.returncode}: {lines[-1][:200]}")
    return Sample(seconds)
