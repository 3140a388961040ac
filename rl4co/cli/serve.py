"""`rl4co serve`: starts the playground."""

from __future__ import annotations

from typing import Annotated

import typer

from rl4co.cli._frame import DebugFlag, app, reports_errors, stderr
from rl4co.core.errors import ConfigError, MissingDependencyError

_LOCAL = ("127.0.0.1", "localhost", "::1")


@app.command()
@reports_errors
def serve(
    port: Annotated[int, typer.Option(help="Port; 0: any free one.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address; others than this machine's own require --token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="RL4CO_TOKEN", help="Secret that clients must send, at least 16 characters."
        ),
    ] = None,
    max_nodes: Annotated[int, typer.Option(help="Nodes or operations of an instance.")] = 1000,
    max_seconds: Annotated[float, typer.Option(help="Seconds of each method of a job.")] = 60.0,
    max_jobs: Annotated[int, typer.Option(help="Jobs at the same time.")] = 2,
    max_queue: Annotated[int, typer.Option(help="Jobs that wait.")] = 16,
    max_memory: Annotated[float, typer.Option(help="GiB of memory of each process.")] = 4.0,
    max_body: Annotated[float, typer.Option(help="MiB of a request.")] = 8.0,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.")
    ] = False,
    debug: DebugFlag = False,
) -> None:
    """Start the playground: watch policies and solvers in a browser, or use them by HTTP."""
    if host not in _LOCAL and token is None:
        raise ConfigError(
            f"expected --token with --host {host}, got none; others could use this machine"
        )
    if token is not None and len(token) < 16:
        raise ConfigError(f"expected --token of at least 16 characters, got {len(token)}")
    try:
        import fastapi  # noqa: F401
        import sse_starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingDependencyError(str(error.name), "serve") from error
    from rl4co.serve.app import create_app
    from rl4co.serve.limits import Limits

    limits = Limits(
        max_nodes=max_nodes,
        max_seconds=max_seconds,
        max_jobs=max_jobs,
        max_queue=max_queue,
        max_memory=int(max_memory * 2**30),
        max_body=int(max_body * 2**20),
    )
    config = uvicorn.Config(
        create_app(limits, token), host, port, log_level="warning", timeout_graceful_shutdown=1
    )
    listener = config.bind_socket()
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{listener.getsockname()[1]}/" + (f"?token={token}" if token else "")
    stderr().print(f"RL4CO playground: {url} (Ctrl-C ends it)", highlight=False, markup=False)
    if open_browser:
        import webbrowser

        webbrowser.open(url)
    uvicorn.Server(config).run(sockets=[listener])
