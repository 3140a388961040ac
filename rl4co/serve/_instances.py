"""Instances and solutions between the API's JSON and the library; used in worker processes only."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import json
import re
import tempfile
import warnings

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl4co.core.errors import ConfigError, InputSizeError, RL4COError
from rl4co.data.formats import Benchmark, BenchmarkInstance, BenchmarkMedian, BenchmarkShop
from rl4co.data.formats.plain import to_plain
from rl4co.data.formats.read import read_instance

if TYPE_CHECKING:
    from rl4co.tasks.trace import TracedDecision

#: Leading candidates of a decision.
NUM_CANDIDATES = 10


class TooLargeError(RL4COError):
    """An instance beyond the limits of the service."""


class FieldError(RL4COError):
    """An error in a field of the request.

    Args:
        message: What is wrong.
        field: The field, such as `methods.0.name`.
    """

    def __init__(self, message: str, field: str) -> None:
        self.field = field
        super().__init__(message)


@contextlib.contextmanager
def field(name: str) -> Iterator[None]:
    """Errors in the block name a field of the request.

    Args:
        name: The field.
    """
    try:
        yield
    except (TooLargeError, InputSizeError, FieldError):
        raise
    except (RL4COError, OSError) as error:
        raise FieldError(str(error), name) from error


@dataclasses.dataclass(frozen=True)
class ClientInstance:
    """An instance of a client, who may number nodes in another order than the environment.

    Attributes:
        benchmark: The instance.
        plain: The instance as JSON, as the client sees it.
        nodes: The client's number of each node of the environment; None: the same.
        notes: Warnings of the reader.
    """

    benchmark: Benchmark
    plain: dict[str, Any]
    nodes: list[int] | None = None
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_client(self, actions: Sequence[int]) -> list[int]:
        """Actions (or nodes) of the environment in the client's numbers."""
        if self.nodes is None:
            return list(actions)
        return [self.nodes[action] for action in actions]

    def from_client(self, actions: Sequence[int], name: str) -> list[int]:
        """Actions in the client's numbers as those of the environment.

        Args:
            actions: Actions.
            name: The field of the request.
        """
        if self.nodes is None:
            return list(actions)
        position = {node: k for k, node in enumerate(self.nodes)}
        for action in actions:
            if action not in position:
                raise FieldError(
                    f"expected actions from 0 to {len(position) - 1}, got {action}; give another",
                    name,
                )
        return [position[action] for action in actions]

    def solution_record(self, solution: Any) -> dict[str, Any]:
        """A solution in the form of the API."""
        benchmark = self.benchmark
        actions = benchmark.to_actions(solution)[0].tolist()
        record: dict[str, Any] = {
            "cost": benchmark.objective(solution),
            "feasible": _is_feasible(benchmark, solution),
            "actions": self.to_client(actions),
        }
        if isinstance(benchmark, BenchmarkShop):
            record["schedule"] = [
                {"job": job, "operation": number, **operation}
                for job, row in enumerate(benchmark.record(solution)["schedule"])
                for number, operation in enumerate(row)
            ]
        elif isinstance(benchmark, BenchmarkMedian):
            record["chosen"] = list(solution)
        elif isinstance(benchmark, BenchmarkInstance):
            routes = [self.to_client(route) for route in solution]
            if benchmark.layout.has_depot:
                record["routes"] = routes
            else:
                record["tour"] = routes[0] if routes else []
        return record

    def decision_record(self, decision: TracedDecision) -> dict[str, Any]:
        """A decision in the form of the API."""
        candidates = decision.candidates(NUM_CANDIDATES)
        return {
            "step": decision.step,
            "action": self.to_client([decision.action])[0],
            "forced": decision.forced,
            "probability": float(decision.probabilities[decision.action]),
            "candidates": [(self.to_client([action])[0], p) for action, p in candidates],
            "mask": self.to_client(decision.mask.nonzero().flatten().tolist()),
        }


def _is_feasible(benchmark: Benchmark, solution: Any) -> bool:
    try:
        benchmark.check(solution)
    except RL4COError:
        return False
    return True


def _require_size(instance: Benchmark, max_nodes: int) -> None:
    """Raises if an instance is larger than the service solves."""
    machines = instance.shop.num_machines if isinstance(instance, BenchmarkShop) else 0
    if max(instance.size, machines) > max_nodes:
        raise TooLargeError(
            f"expected at most {max_nodes} nodes or operations, got {instance.size_text}; give a "
            "smaller instance, or use `rl4co solve`"
        )


# ---------------------------------------------------------------- reading


def read_plain(plain: Mapping[str, Any], problem: str | None, max_nodes: int) -> ClientInstance:
    """The instance that a client sends as JSON."""
    fields = {key: value for key, value in plain.items() if key != "nodes"}
    stated = fields.setdefault("problem", problem)
    if problem is not None and stated != problem:
        raise FieldError(
            f"expected an instance of {problem}, got one of {stated!r}; correct one of them",
            "instance.problem",
        )
    for value in fields.values():
        if isinstance(value, list) and len(value) > max(max_nodes, 1):
            raise TooLargeError(
                f"expected lists of at most {max_nodes} entries, got {len(value)}; give a smaller "
                "instance, or use `rl4co solve`"
            )
    content = json.dumps({key: value for key, value in fields.items() if value is not None})
    with field("instance"):
        benchmark, notes = _read("instance.json", content.encode())
        _require_size(benchmark, max_nodes)
    pairs = fields.get("pairs")
    nodes = None if pairs is None else [0, *(p for p, _ in pairs), *(d for _, d in pairs)]
    return ClientInstance(benchmark, dict(plain), nodes, notes)


def read_file(file: Mapping[str, Any], problem: str | None, max_nodes: int) -> ClientInstance:
    """The instance of a file whose content a client sends."""
    # Its name serves to recognise the format; it never names a place on this machine.
    name = re.sub(r"[^\w.+-]", "_", re.split(r"[/\\]", file["filename"])[-1]).lstrip(".-")[-80:]
    content = file["content"].encode("utf-8", "surrogatepass")
    if file["encoding"] == "base64":
        try:
            content = base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise FieldError(
                f"expected base64, got: {error}; encode the bytes", "content"
            ) from None
    with field("content"):
        benchmark, notes = _read(name or "instance", content)
        if problem is not None:
            benchmark = benchmark.as_problem(problem)
        _require_size(benchmark, max_nodes)
        return ClientInstance(benchmark, to_plain(benchmark), None, notes)


def _read(name: str, content: bytes) -> tuple[Benchmark, list[str]]:
    """The instance of a file with this name and content, and what the reader warns about."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = Path(folder, name)
        path.write_bytes(content)
        try:
            benchmark = _without_folder(read_instance(path))
        except (RL4COError, OSError) as error:
            # Messages name the file as the client does.
            kind = InputSizeError if isinstance(error, InputSizeError) else ConfigError
            raise kind(str(error).replace(f"{folder}/", "")) from error
    notes = [str(warning.message).replace(f"{folder}/", "") for warning in caught]
    return benchmark, notes


def _without_folder(instance: Benchmark) -> Benchmark:
    """The instance with its best-known value, but independent of the folder of its file."""
    changes: dict[str, Any] = {"stated_best_known": instance.best_known, "solution_file": None}
    if isinstance(instance, BenchmarkShop):
        source = instance.source and Path(instance.source.name)
        shop = dataclasses.replace(instance.shop, source=source)
        return dataclasses.replace(instance, shop=shop, **changes)
    assert isinstance(instance, BenchmarkInstance | BenchmarkMedian)
    source = instance.source and Path(instance.source.name)
    if isinstance(instance, BenchmarkInstance):
        changes["solution"] = None
    return dataclasses.replace(instance, source=source, **changes)
