"""The data model of the HTTP API; `/api/openapi.json` is generated from it."""

from __future__ import annotations

import json

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

#: Lists in lists of an instance.
MAX_DEPTH = 6


def _check_values(instance: dict[str, Any]) -> dict[str, Any]:
    """The instance; raises if it is nested too deep, or if responses could not have its values."""
    level: list[Any] = [instance]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise ValueError(f"expected at most {MAX_DEPTH} lists in each other, got more")
    for key, value in instance.items():
        try:
            json.dumps({key: value}, allow_nan=False, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError(f"expected text, got half of a character in {key!a:.60}") from None
        except ValueError:
            message = f"{key}: expected finite numbers, got NaN or infinity; correct the instance"
            raise ValueError(message) from None
    return instance


#: An instance as `rl4co solve` reads it from JSON: keys with lists of one entry per node.
Instance = Annotated[
    dict[str, Any],
    AfterValidator(_check_values),
    Field(examples=[{"coordinates": [[0, 0], [3, 0], [3, 4]]}]),
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Action = Annotated[int, Field(ge=0, le=2**31 - 1)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
ResultFormat = Literal["json", "csv", "coordinates", "png"]


class Request(BaseModel):
    """Base of everything that clients send: unknown keys, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


# ---------------------------------------------------------------- catalogue


class Option(BaseModel):
    """An option of random instances, for instance the variant of the multi-task VRP."""

    name: str
    title: str
    kind: Literal["choice", "integer"]
    default: str | int | None
    values: list[str] = []
    minimum: int | None = None
    maximum: int | None = None


class Key(BaseModel):
    """A key of instances: its shape ("N", "N 2", ... ; "" is one value) and its meaning."""

    name: str
    shape: str
    title: str
    required: bool


class Problem(BaseModel):
    """A problem that can be edited and drawn."""

    name: str
    title: str
    area: Literal["routing", "scheduling", "graph"]
    size_name: str = Field(description="What the size counts, e.g. customers.")
    size_range: tuple[int, int]
    default_size: int
    value_name: str = Field(description="What `cost` of a solution is: cost, prize, makespan.")
    maximize: bool
    options: list[Option]
    keys: list[Key]
    actions: str = Field(description="What an action means.")


class Model(BaseModel):
    """A trained model."""

    name: str
    problem: str
    problems: list[str] = Field(description="All problems whose instances it solves.")
    size: int | None = Field(description="Size of the instances that it was trained on.")
    method: str
    decodings: list[str]
    card: str = Field(description="Description in Markdown; may be empty.")


class Solver(BaseModel):
    """A classical solver."""

    name: str
    title: str
    available: bool = Field(description="Whether the packages that it needs are installed.")
    default: bool = Field(description="Whether it is the default of the problem.")


# ---------------------------------------------------------------- instances


class RandomInstance(Request):
    """A random instance."""

    problem: Name
    size: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: Seed = 0
    options: dict[str, str | int] = {}


class File(Request):
    """The content of a file in any format that `rl4co solve` reads, also compressed (.gz)."""

    filename: Name
    content: str
    encoding: Literal["text", "base64"] = "text"


class FileOfProblem(File):
    """A file, and perhaps the problem that it must be an instance of."""

    problem: Name | None = None


class InstanceOfProblem(BaseModel):
    """An instance and the problem that it belongs to."""

    problem: str
    instance: Instance


class ParsedInstance(InstanceOfProblem):
    """The instance of a file."""

    best_known: float | None
    notes: list[str] = Field(description="Warnings of the reader, and facts about the file.")


# ---------------------------------------------------------------- solutions


class Operation(BaseModel):
    """An operation of a schedule; everything counts from 0."""

    job: int
    operation: int
    machine: int
    start: float
    end: float


class Solution(BaseModel):
    """A solution, ready to draw. Nodes are numbered as in the lists of the instance.

    One of `tour` (problems without a depot), `routes` (without the depot), `schedule` and `chosen`
    is present.
    """

    cost: float = Field(description="Cost, prize of orienteering or makespan, in original units.")
    feasible: bool
    actions: list[int]
    tour: list[int] | None = None
    routes: list[list[int]] | None = None
    schedule: list[Operation] | None = None
    chosen: list[int] | None = None


class Decision(BaseModel):
    """One decision of a policy."""

    step: int
    action: int
    forced: bool
    probability: float
    candidates: list[tuple[int, float]] = Field(description="Leading actions, the best first.")
    mask: list[int] = Field(description="Actions that are allowed.")


# ---------------------------------------------------------------- jobs


class Method(Request):
    """How to solve: a model with a decoding, or a classical solver."""

    kind: Literal["model", "solver"]
    name: Name
    decoding: Name | None = None
    samples: Annotated[int, Field(ge=1, le=1280)] | None = None
    seed: Seed | None = None


class SolveRequest(Request):
    """A job: one instance, one or more methods."""

    problem: Name | None = None
    instance: Instance | None = None
    file: File | None = None
    methods: Annotated[list[Method], Field(min_length=1)]
    max_runtime: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="Seconds of each method; default: 10, or the server's limit if smaller."
    )
    trace: bool = False


class JobId(BaseModel):
    """The id of a new job."""

    id: str


class MethodResult(BaseModel):
    """A method of a job and its result so far."""

    kind: Literal["model", "solver"]
    name: str
    decoding: str | None
    samples: int | None
    seed: int | None
    state: JobState
    cost: float | None = None
    gap: float | None = Field(
        None, description="To the best-known value, else to the best method of the job; 0.01 is 1 %"
    )
    seconds: float | None = None
    bound: float | None = Field(None, description="Lower bound that the solver has proven.")
    solver: str | None = Field(None, description="What found the solution.")
    solution: Solution | None = None
    incumbents: list[tuple[float, float]] = Field([], description="Seconds and cost.")
    remarks: list[str] = []
    error: str | None = None


class Job(BaseModel):
    """A job and its results so far."""

    id: str
    state: JobState
    problem: str
    instance: Instance
    best_known: float | None
    max_runtime: float
    methods: list[MethodResult]


# ---------------------------------------------------------------- what if, errors


class DecideRequest(Request):
    """What a model decides after forced actions, without forbidden ones in the next step."""

    problem: Name
    instance: Instance
    model: Name
    forced: list[Action] = []
    forbidden: list[Action] = []


class DecideResponse(BaseModel):
    """All decisions, and the solution that they construct."""

    decisions: list[Decision]
    solution: Solution


class ErrorBody(BaseModel):
    """The message of the command line, and the field of the request if known."""

    message: str
    field: str | None = None


class Error(BaseModel):
    """The body of every response that is not a success."""

    error: ErrorBody
