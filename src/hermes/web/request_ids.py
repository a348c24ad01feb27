"""Every response has an `x-request-id`: the client's own, if it is a plain one, or else a new one. Every log line of the request has it."""

from __future__ import annotations

import re
from uuid import uuid4

import structlog

from hermes.ops.metrics import AsgiApp, AsgiMessage, AsgiReceive, AsgiScope, AsgiSend

REQUEST_ID_HEADER = b"x-request-id"
PLAIN_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
"""What a client's id may look like. Any other is replaced: it would be copied into logs and headers."""


class RequestIds:
    """ASGI middleware. It stands outside of the app, so that responses to unexpected errors have an id too."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = next((value for name, value in scope["headers"] if name == REQUEST_ID_HEADER and PLAIN_ID.fullmatch(value)), None)
        request_id = request_id or f"req_{uuid4().hex}".encode()

        async def send_with_id(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                headers = [(name, value) for name, value in message.get("headers", ()) if name.lower() != REQUEST_ID_HEADER]
                message = {**message, "headers": [*headers, (REQUEST_ID_HEADER, request_id)]}
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id.decode()):
            await self._app(scope, receive, send_with_id)
