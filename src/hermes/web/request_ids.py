"""Every response has an `x-request-id`: the client's own, if it is a plain one, or else a new one. Every log line of the request has it."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable

from structlog.contextvars import bind_contextvars

from hermes.ops.metrics import AsgiApp, AsgiMessage, AsgiReceive, AsgiScope, AsgiSend
from hermes.web.hosts import PEER

REQUEST_ID_HEADER = b"x-request-id"
PLAIN_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
"""What a client's id may look like. Any other is replaced: it would be copied into logs and headers."""


class RequestIds:
    """ASGI middleware. It stands outside of the app, so that responses to unexpected errors have an id too; and outside of what reads proxy
    headers, so that it can note who really connects."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        scope[PEER] = scope.get("client")
        request_id = client_id(scope) or b"req_" + os.urandom(16).hex().encode()

        def send_with_id(message: AsgiMessage) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", ()) if header[0] != REQUEST_ID_HEADER]
                message = {**message, "headers": [*headers, (REQUEST_ID_HEADER, request_id)]}
            return send(message)

        bind_contextvars(request_id=request_id.decode())  # the task of this request ends with it, and its context too
        return self._app(scope, receive, send_with_id)  # no coroutine of its own, as in HostGuard


def client_id(scope: AsgiScope) -> bytes | None:
    """The first plain id that the client sent."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER and PLAIN_ID.fullmatch(value):
            return bytes(value)
    return None
