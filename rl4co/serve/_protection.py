"""Checks of every request: size, origin and token."""

from __future__ import annotations

import hmac
import json

from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Names of this machine, which need no token.
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'",
    ),
]

#: How much of a body that is too large is read and dropped, in units of the limit.
_DRAINED = 4


class Protection:
    """Middleware that rejects requests from other sites, without the token, or too large.

    Args:
        app: The application.
        token: Expected as `Authorization: Bearer TOKEN` or `?token=TOKEN` by everything below
            `/api/`; None: not needed, but then requests must name this machine as their host, so
            that no web site can reach the server under another name.
        max_body: Bytes of a request.
    """

    def __init__(self, app: ASGIApp, token: str | None, max_body: int) -> None:
        self.app, self.token, self.max_body = app, token, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        fault = self._fault(scope)
        if fault is None:
            body, fault = await self._read(receive, Headers(scope=scope))
            if fault is None:
                await self.app(scope, _replay(body, receive), send_with_headers)
                return
        status, text = fault
        content = json.dumps({"error": {"message": text, "field": None}}).encode()
        headers = [(b"content-type", b"application/json")]
        await send_with_headers(
            {"type": "http.response.start", "status": status, "headers": headers}
        )
        await send({"type": "http.response.body", "body": content})

    def _fault(self, scope: Scope) -> tuple[int, str] | None:
        """Status and message if a request must not be answered."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "expected a request from the page of this server, got one from another site"
        if self.token is None:
            name = host.rpartition(":")[0] if not host.endswith("]") else host
            if (name or host) not in LOCAL_HOSTS:
                return 403, (
                    "expected localhost as the host of the request, got another name; start the "
                    "server with --token to reach it under other names"
                )
            return None
        if not scope["path"].startswith("/api/"):  # the page itself, such as /api.js, is public
            return None
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if not token:
            query = parse_qs(scope["query_string"].decode("latin-1"))
            token = query.get("token", [""])[0]
        if hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            return None
        got = "another one" if token else "none"
        return 401, f"expected the token of this server, got {got}; see its command line"

    async def _read(
        self, receive: Receive, headers: Headers
    ) -> tuple[bytes, tuple[int, str] | None]:
        """The body of a request, which is never larger than the limit."""
        fault = (
            413,
            (
                f"expected a request of at most {self.max_body:,} bytes, got a larger one; give a "
                "smaller instance"
            ),
        )
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self.max_body:
            await _drain(receive, _DRAINED * self.max_body)
            return b"", fault
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            body += message.get("body", b"")
            if len(body) > self.max_body:
                if message.get("more_body"):
                    await _drain(receive, _DRAINED * self.max_body)
                return b"", fault
            if not message.get("more_body"):
                break
        return bytes(body), None


async def _drain(receive: Receive, most: int) -> None:
    """Reads and drops the rest of a body: many clients read no answer before they sent it all."""
    while most > 0:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return
        most -= len(message.get("body", b""))


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, and then what the client does."""
    is_sent = False

    async def replay() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
