"""What worker processes of the service do; :func:`run` is their target.

Results and errors are plain values: a worker that fails is an answer, not a traceback.
"""

from __future__ import annotations

import os
import sys

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rl4co.core.errors import InputSizeError, RL4COError, StoppedError

if TYPE_CHECKING:
    from rl4co.serve._instances import ClientInstance

#: Status of errors; all others that users can correct have 422.
TOO_LARGE, TOO_SLOW, INVALID = 413, 408, 422


def run(task: str, payload: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a task, as `{"result": ...}` or `{"error": message, "status": status}`.

    Args:
        task: Name of a task.
        payload: Its input.
        limits: :class:`~rl4co.serve.limits.Limits` as a mapping.
    """
    _limit_process(limits)
    try:
        return {"result": _TASKS[task](payload, limits)}
    except (RL4COError, OSError) as error:
        from rl4co.serve._instances import TooLargeError

        is_large = isinstance(error, TooLargeError | InputSizeError)
        status = TOO_LARGE if is_large else TOO_SLOW if isinstance(error, StoppedError) else INVALID
        return {"error": str(error), "status": status, "field": getattr(error, "field", None)}
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        limit = limits["max_memory"] / 2**30
        message = (
            f"expected an instance that {limit:g} GiB of memory suffice for, got a larger one; "
            "solve a smaller one"
        )
        return {"error": message, "status": TOO_LARGE, "field": None}


_is_limited = False


def _limit_process(limits: Mapping[str, Any]) -> None:
    """Limits the memory and the inputs of this process and of those that it starts."""
    global _is_limited
    if _is_limited:
        return
    _is_limited = True
    os.environ["RL4CO_MAX_INPUT"] = str(limits["max_content"])
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (limits["max_memory"], limits["max_memory"]))
    import torch

    torch.set_num_threads(1)


# ---------------------------------------------------------------- short requests


def _warm(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
    """Imports what the other tasks need."""
    from rl4co.models.zoo import am  # noqa: F401
    from rl4co.serve import _methods, _random, _results  # noqa: F401


def _models(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> list[dict[str, Any]]:
    from rl4co.serve._models import list_models

    return [model.model_dump() for model in list_models()]


def _solvers(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> list[dict[str, Any]]:
    from rl4co.serve._methods import solvers_of

    return solvers_of(payload["problem"])


def _random(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    from rl4co.serve._random import random_instance

    instance = random_instance(
        payload["problem"],
        payload["size"],
        payload["seed"],
        payload["options"],
        limits["max_nodes"],
    )
    return {"problem": payload["problem"], "instance": instance.plain}


def _parse(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    from rl4co.serve._instances import read_file

    instance = read_file(payload, payload["problem"], limits["max_nodes"])
    return {
        "problem": instance.benchmark.problem,
        "instance": instance.plain,
        "best_known": instance.benchmark.best_known,
        "notes": instance.notes,
    }


def _instance(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> ClientInstance:
    """The instance of a request."""
    from rl4co.serve._instances import read_plain

    return read_plain(payload["instance"], payload["problem"], limits["max_nodes"])


def _check(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the instance of a job and checks its methods, so that errors come before the job."""
    from rl4co.serve._instances import field, read_file
    from rl4co.serve._methods import check_method
    from rl4co.tasks.approaches import environment_of

    if payload["file"] is None:
        instance = _instance(payload, limits)
    else:
        instance = read_file(payload["file"], payload["problem"], limits["max_nodes"])
    benchmark = instance.benchmark
    with field("instance"):
        environment_of(benchmark).reset(benchmark.to_tensordict(normalize=False))
    for number, method in enumerate(payload["methods"]):
        with field(f"methods.{number}"):
            check_method(method, benchmark)
    return {
        "problem": benchmark.problem,
        "instance": instance.plain,
        "best_known": benchmark.best_known,
        "maximize": benchmark.maximize,
    }


def _decide(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    from rl4co.serve._instances import field
    from rl4co.serve._methods import traced_decisions

    instance = _instance(payload, limits)
    forced = instance.from_client(payload["forced"], "forced")
    forbidden = instance.from_client(payload["forbidden"], "forbidden")
    with field("model"):
        return traced_decisions(instance, payload["model"], forced, forbidden)


def _result(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    from rl4co.serve._results import result_file

    instance = _instance(payload, limits)
    return result_file(instance, payload["actions"], payload["format"], payload["title"])


# ---------------------------------------------------------------- jobs


def _solve(payload: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Solves by one method; sends events while it does."""
    from rl4co.serve._methods import solve
    from rl4co.solvers._job_report import report_incumbent

    record, actions = solve(
        _instance(payload, limits), payload, lambda event, data: report_incumbent((event, data))
    )
    return {"record": record, "actions": actions}


_TASKS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Any]] = {
    "warm": _warm,
    "models": _models,
    "solvers": _solvers,
    "random": _random,
    "parse": _parse,
    "check": _check,
    "decide": _decide,
    "result": _result,
    "solve": _solve,
}
