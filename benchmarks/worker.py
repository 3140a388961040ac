"""One contender of a comparison: a process that sets up a case and times single repetitions.

The same file runs in the environment of either package; `workloads.py` has what is timed.
It speaks JSON, one object per line: requests on stdin, one answer each on stdout. Everything
that a library prints goes to stderr.

    {"command": "hello"}                    versions, threads, the set-up hook that was called
    {"command": "setup", "spec": {...}}     build environment, policy and instances of a case
    {"command": "run"}                      one timed repetition
    {"command": "gemm", "shapes": [[m, k, n], ...]}   rates of matrix products

It is started by path (`python benchmarks/worker.py`), never as a module: with `-m` the folder
that holds this repository would come first on the import path, in both environments.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import os
import platform
import resource
import sys
import time
import traceback

from collections.abc import Callable
from typing import Any, TextIO

import torch

from workloads import KINDS, Instances, Spec, Step, TrainerStep, make_instances  # beside this file

DEFAULT_HOOK = "rl4co.training.memory:tune_allocator"
POOL = 4  # different batches of instances, used in turn


def peak_rss_mib() -> float:
    """Highest resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def gemm_rate(m: int, k: int, n: int, repeats: int) -> float:
    """Best observed float32 rate of an [m, k] x [k, n] product, in GFLOP/s."""
    left, right, out = torch.rand(m, k), torch.rand(k, n), torch.empty(m, n)
    torch.mm(left, right, out=out)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(left, right, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * m * k * n / best / 1e9


def call_hook(hook: str) -> str:
    """Call the process set-up hook `module:function` and say which one ran.

    `auto` means the allocator setting of this package's trainer if the installed package has it.
    """
    if hook == "none":
        return "none"
    name = DEFAULT_HOOK if hook == "auto" else hook
    module_name, _, function = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # only the absence of the hook's own module is expected, not a broken import inside it
        if hook == "auto" and error.name is not None and module_name.startswith(error.name):
            return "none"
        raise
    in_force = getattr(module, function)()
    return f"{name} (no effect here)" if in_force is False else name


class Worker:
    """State between requests: the case that was set up."""

    def __init__(self, hook: str) -> None:
        self.hook = hook
        self.spec: Spec | None = None
        self.step: Step | None = None
        self.pool: itertools.cycle[Instances] | None = None

    def hello(self) -> dict[str, Any]:
        """Facts about this process that belong next to the numbers."""
        import rl4co

        return {
            "rl4co": str(getattr(rl4co, "__version__", "unknown")),
            "package_folder": os.path.dirname(str(rl4co.__file__)),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "threads": torch.get_num_threads(),
            "hook": self.hook,
        }

    def setup(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Build environment, policy and instances."""
        self.spec, self.step, self.pool = Spec(**spec), None, None
        self.step = KINDS[self.spec.kind](self.spec)
        torch.manual_seed(self.spec.seed)  # afterwards: building an environment may reseed
        batches = [make_instances(self.spec, self.spec.seed + number) for number in range(POOL)]
        self.pool = itertools.cycle(batches)
        return {}

    def run(self) -> dict[str, Any]:
        """One repetition: reset of the environment up to the end of the step, timed."""
        from tensordict import TensorDict

        if self.spec is None or self.step is None or self.pool is None:
            raise RuntimeError("expected a case that was set up, got none; send 'setup' first")
        batches = [
            TensorDict(dict(next(self.pool)), batch_size=[self.spec.batch])
            for _ in range(self.spec.inner)
        ]
        rss_before = peak_rss_mib()
        start = time.perf_counter()
        outputs = [self.step(batch) for batch in batches]
        seconds = time.perf_counter() - start
        if isinstance(self.step, TrainerStep):
            seconds = self.step.seconds * self.spec.inner
        cost = -sum(reward.mean().item() for _, reward in outputs) / len(outputs)
        return {
            "seconds": seconds / self.spec.inner,
            "steps": sum(actions.shape[-1] for actions, _ in outputs) / len(outputs),
            "cost": None if math.isnan(cost) else cost,  # not all methods say
            "peak_mib": peak_rss_mib() - rss_before,
        }

    def gemm(self, shapes: list[list[int]], repeats: int = 10) -> dict[str, Any]:
        """Rates of matrix products of the given (m, k, n)."""
        return {"gflops": [gemm_rate(m, k, n, repeats) for m, k, n in shapes]}

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; an exception becomes an answer with an `error`."""
        handlers: dict[str, Callable[..., dict[str, Any]]] = {
            "hello": self.hello,
            "setup": self.setup,
            "run": self.run,
            "gemm": self.gemm,
        }
        arguments = {key: value for key, value in request.items() if key != "command"}
        try:
            return handlers[request["command"]](**arguments)
        except Exception as error:  # the driver turns it into a row of the table
            traceback.print_exc(file=sys.stderr)
            lines = str(error).strip().splitlines() or [""]
            return {"error": f"{type(error).__name__}: {lines[0]}"[:200]}


def private_stdout() -> TextIO:
    """Keep the original stdout for the protocol and send all other output to stderr."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return protocol


def main() -> None:
    """Serve requests until stdin closes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument(
        "--setup",
        default="none",
        metavar="MODULE:FUNCTION",
        help=f"function to call before anything else; 'auto' = {DEFAULT_HOOK} if importable",
    )
    parser.add_argument(
        "--memory-gb",
        type=float,
        default=0.0,
        help="limit on memory: a clean error instead of a machine out of memory (0: off)",
    )
    arguments = parser.parse_args()
    protocol = private_stdout()
    if arguments.memory_gb > 0:
        limit = int(arguments.memory_gb * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    torch.set_num_threads(arguments.threads)
    worker = Worker(call_hook(arguments.setup))
    for line in sys.stdin:
        protocol.write(json.dumps(worker.handle(json.loads(line))) + "\n")
        protocol.flush()


if __name__ == "__main__":
    main()
