"""`rl4co ...` as real processes that need not import torch each.

One process imports the library and then forks for every command. So each command is a process with
a folder, standard streams, an environment, limits and an exit code of its own, and takes as long as
the command itself. What measures the start of a program, or ends it from outside, starts one.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]

#: Seconds after which a command is ended, and bytes of its address space.
PATIENCE, MEMORY = 240, 6 * 2**30
_STREAMS = ("stdin", "stdout", "stderr")


def slack() -> float:
    """Seconds that something may come late: two, and two for a slow machine, if it has a core.

    Tests run side by side, so it is longer the more processes wait for a core just now.
    """
    runnable = int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
    return 4.0 * max(1.0, runnable / (os.cpu_count() or 1))


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a command answered.

    Attributes:
        code: Its exit code; negative: the signal that ended it.
        stdout: What it printed.
        stderr: What it said beside.
        seconds: How long it took.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def json(self) -> Any:
        """What it printed, with `--json`."""
        return json.loads(self.stdout)

    @property
    def error(self) -> str:
        """The message of the error that it printed, with `--json`."""
        message: str = self.json["error"]["message"]
        return message


class Commands:
    """Runs commands, one after the other, while a block lasts."""

    def __enter__(self) -> Commands:
        path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.commands"],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __call__(
        self, *arguments: object, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> Answer:
        """What `rl4co ARGUMENTS` answers in the current folder.

        Args:
            arguments: Arguments of the command.
            stdin: What it can read.
            env: Further variables of its environment.
        """
        return self._run({"arguments": [*map(str, arguments)], "env": {**(env or {})}}, stdin)

    def python(self, code: str) -> Answer:
        """What `python -c CODE` answers in the current folder."""
        return self._run({"arguments": [], "code": code, "env": {}})

    def _run(self, job: dict[str, Any], stdin: bytes = b"") -> Answer:
        assert self._server.stdin is not None and self._server.stdout is not None
        with tempfile.TemporaryDirectory(prefix="rl4co-command-") as folder:
            (Path(folder) / "stdin").write_bytes(stdin)
            line = json.dumps({**job, "cwd": os.getcwd(), "streams": folder})
            print(line, file=self._server.stdin, flush=True)
            code, seconds = json.loads(self._server.stdout.readline())
            out, err = ((Path(folder) / name).read_bytes().decode() for name in _STREAMS[1:])
        return Answer(code, out, err, seconds)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()


def serve() -> None:
    """Forks for each line of stdin; the fork becomes the command."""
    # What commands import when they begin to work.
    import rl4co.tasks.benchmark
    import rl4co.tasks.eval
    import rl4co.tasks.solve
    import rl4co.tasks.train  # noqa: F401

    from rl4co.cli import main
    from rl4co.core.registry import ENVS, MODELS, SOLVERS

    for registry in (ENVS, MODELS, SOLVERS):
        dict(registry)
    gc.collect()
    gc.freeze()  # forks would copy all that a collection of garbage looks at
    while line := sys.stdin.readline():
        began = time.perf_counter()
        child = os.fork()
        if not child:
            job = json.loads(line)
            _become(job)
            # Either ends the process with its exit code.
            return exec(job["code"], {"__name__": "__main__"}) if "code" in job else main()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([code, time.perf_counter() - began]), flush=True)
    return None


def _become(job: dict[str, Any]) -> None:
    """Makes of this process what a shell would make of a command."""
    for number, name in enumerate(_STREAMS):
        mode = os.O_RDONLY if name == "stdin" else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(os.path.join(job["streams"], name), mode, 0o600), number)
    sys.stdin = os.fdopen(0)  # the other one has read from the pipe
    os.chdir(job["cwd"])
    os.environ.update({"COLUMNS": "400", **job["env"]})
    sys.argv = ["rl4co", *job["arguments"]]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.alarm(PATIENCE)


if __name__ == "__main__":
    serve()
