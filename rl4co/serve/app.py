"""The HTTP API and the page."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException

from rl4co.serve import schemas
from rl4co.serve._jobs import FINAL, Jobs
from rl4co.serve._problems import PROBLEMS
from rl4co.serve._protection import Protection
from rl4co.serve._workers import RequestError, Workers
from rl4co.serve.limits import Limits

STATIC = Path(__file__).parent / "static"
#: Seconds of a method, unless the request has them.
DEFAULT_SECONDS = 10.0
#: Seconds between checks for new events of a job.
_POLL_INTERVAL = 0.05

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Error, "description": text}
    for status, text in {
        400: "Not JSON",
        401: "No token, or another one",
        403: "From another site",
        404: "No such job",
        408: "Out of time",
        413: "Too large",
        422: "Invalid",
        429: "Too many requests",
        500: "A worker process failed",
    }.items()
}


def create_app(limits: Limits | None = None, token: str | None = None) -> FastAPI:
    """The application.

    Args:
        limits: Limits of requests.
        token: What clients must know; None: requests come from this machine.
    """
    limits = limits or Limits()
    workers = Workers(limits)
    jobs = Jobs(workers)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # The first worker imports what it needs while the page loads.
        threading.Thread(target=workers.warm, daemon=True).start()
        yield
        jobs.shutdown()

    app = FastAPI(
        title="RL4CO",
        version="1",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page loads scripts from the network
        redoc_url=None,
        lifespan=lifespan,
        responses=_ERRORS,
    )
    app.state.jobs = jobs
    app.add_middleware(Protection, token=token, max_body=limits.max_body)
    _add_error_handlers(app)
    _add_catalogue(app, workers)
    _add_instances(app, workers)
    _add_jobs(app, workers, jobs)
    if STATIC.is_dir():
        app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app


# ---------------------------------------------------------------- errors


def _add_error_handlers(app: FastAPI) -> None:
    """Every answer that is no success has the form of :class:`schemas.Error`."""

    def answer(status: int, message: str, field: str | None = None) -> JSONResponse:
        headers = {"retry-after": "2"} if status == 429 else None
        content = {"error": {"message": message, "field": field}}
        return JSONResponse(content, status_code=status, headers=headers)

    @app.exception_handler(RequestError)
    async def request_error(request: Request, error: RequestError) -> JSONResponse:
        return answer(error.status, error.message, error.field)

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
        if first["type"] == "json_invalid":
            text = first.get("ctx", {}).get("error", first["msg"])
            return answer(422, f"expected JSON, got: {text}; correct the request")
        field = ".".join(place) or None
        if first["type"] == "value_error":  # raised by the library
            return answer(422, str(first["ctx"]["error"]), field)
        message = f"expected a valid request, got: {first['msg']}"
        where = f" ({field})" if field else ""
        return answer(422, f"{message}{where}; see /api/openapi.json", field)

    @app.exception_handler(Exception)
    async def failure(request: Request, error: Exception) -> JSONResponse:
        return answer(500, "expected an answer, got a failure of the server; its log has more")

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        return answer(
            error.status_code,
            f"expected a request in /api/openapi.json, got {request.method} {request.url.path}: "
            f"{error.detail}",
        )


# ---------------------------------------------------------------- catalogue


def _add_catalogue(app: FastAPI, workers: Workers) -> None:
    @app.get("/api/problems")
    async def problems() -> list[schemas.Problem]:
        """Problems that can be edited and drawn."""
        return list(PROBLEMS)

    @app.get("/api/models")
    def models() -> list[schemas.Model]:
        """Trained models."""
        return [schemas.Model(**row) for row in workers.ask("models", {})]

    @app.get("/api/solvers")
    def solvers(problem: Annotated[schemas.Name, Query()]) -> list[schemas.Solver]:
        """Classical solvers of a problem, the default one first."""
        return [schemas.Solver(**row) for row in workers.ask("solvers", {"problem": problem})]


# ---------------------------------------------------------------- instances


def _add_instances(app: FastAPI, workers: Workers) -> None:
    @app.post("/api/instances/random")
    def random(request: schemas.RandomInstance) -> schemas.InstanceOfProblem:
        """A random instance."""
        return schemas.InstanceOfProblem(**workers.ask("random", request.model_dump()))

    @app.post("/api/instances/parse")
    def parse(request: schemas.FileOfProblem) -> schemas.ParsedInstance:
        """The instance of a file in any format that `rl4co solve` reads."""
        return schemas.ParsedInstance(**workers.ask("parse", request.model_dump()))

    @app.post("/api/decide")
    def decide(request: schemas.DecideRequest) -> schemas.DecideResponse:
        """What a model decides after forced actions, without forbidden ones in the next step."""
        return schemas.DecideResponse(**workers.ask("decide", request.model_dump()))


# ---------------------------------------------------------------- jobs


def _add_jobs(app: FastAPI, workers: Workers, jobs: Jobs) -> None:
    limits = workers.limits

    @app.post("/api/solve", status_code=202)
    def solve(request: schemas.SolveRequest) -> schemas.JobId:
        """Start a job."""
        if (request.instance is None) == (request.file is None):
            raise RequestError("expected an instance or a file, got both or none", 422, "instance")
        if len(request.methods) > limits.max_methods:
            raise RequestError(
                f"expected at most {limits.max_methods} methods, got {len(request.methods)}",
                422,
                "methods",
            )
        seconds = request.max_runtime or min(DEFAULT_SECONDS, limits.max_seconds)
        if seconds > limits.max_seconds:
            raise RequestError(
                f"expected at most {limits.max_seconds:g} seconds, got {seconds:g}",
                422,
                "max_runtime",
            )
        payload = {**request.model_dump(), "max_runtime": seconds}
        jobs.require_place()
        return schemas.JobId(id=jobs.submit(payload, workers.ask("check", payload)).id)

    @app.get("/api/jobs/{job_id}")
    async def get_job(job_id: str) -> schemas.Job:
        """A job and its results so far."""
        return schemas.Job(**jobs.get(job_id).record())

    @app.delete("/api/jobs/{job_id}")
    async def cancel(job_id: str) -> schemas.Job:
        """Cancel a job; its processes end within two seconds."""
        job = jobs.get(job_id)
        job.cancel()
        return schemas.Job(**job.record())

    @app.get("/api/jobs/{job_id}/events", response_class=EventSourceResponse)
    async def events(request: Request, job_id: str) -> EventSourceResponse:
        """Server-sent events: state, incumbent, solution, decision, error and, at last, done.

        `Last-Event-ID` continues after an event.
        """
        job = jobs.get(job_id)
        text = request.headers.get("last-event-id", "0")
        first = min(int(text[:12]), len(job.events)) if text.isdecimal() else 0

        async def stream() -> AsyncIterator[dict[str, Any]]:
            position = first
            while True:
                for event in job.events[position:]:
                    position += 1
                    yield {"id": str(position), "event": event.name, "data": event.data}
                is_complete = position == len(job.events) and job.events[-1].name == "done"
                if is_complete or await request.is_disconnected():
                    return
                await asyncio.sleep(_POLL_INTERVAL)

        return EventSourceResponse(stream(), ping=15)

    @app.get("/api/jobs/{job_id}/result", response_class=Response)
    def result(
        job_id: str,
        format: schemas.ResultFormat = "json",
        method: Annotated[int, Query(ge=0, le=1000)] = 0,
    ) -> Response:
        """The solution of a method as a file."""
        job = jobs.get(job_id)
        if method >= len(job.methods):
            raise RequestError(
                f"expected a method from 0 to {len(job.methods) - 1}, got {method}",
                422,
                "method",
            )
        actions = job.actions[method]
        if actions is None:
            is_final = job.methods[method]["state"] in FINAL
            text = "it ended without one" if is_final else "try again when it has ended"
            raise RequestError(f"expected a method with a solution, got none; {text}", 404)
        row = job.methods[method]
        payload = {
            "problem": job.checked["problem"],
            "instance": job.checked["instance"],
            "actions": actions,
            "format": format,
            "title": f"{row['name']} · {row['cost']:.6g}",
        }
        file = workers.ask("result", payload)
        return Response(base64.b64decode(file["content"]), media_type=file["media_type"])
