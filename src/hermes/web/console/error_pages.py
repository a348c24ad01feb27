"""Errors of the console as pages: a person who follows a link gets a sentence and a way back, not JSON.

The errors themselves are made where all errors of the web are made; a script that fetches a part of a page still gets JSON."""

from __future__ import annotations

import json

from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.ports.errors import DataDamaged
from hermes.web.console.compression import CONSOLE_PATH
from hermes.web.console.pages import ConsolePages
from hermes.web.errors import OPERATORS_PATH, ApiError, api_error_response

UNREADABLE_WORDS = "This cannot be opened: its key is missing, or its bytes were changed; `hermes doctor` says more."
UNAVAILABLE = "A store cannot be reached at the moment. Load the page again in a few seconds."


def install_unreadable(app: FastAPI) -> None:
    """Say of content that its key is missing or its bytes were changed, where operators read content."""

    @app.exception_handler(DataDamaged)
    async def say_unreadable(request: Request, error: DataDamaged) -> Response:
        if not request.url.path.startswith((f"{CONSOLE_PATH}/", OPERATORS_PATH)):
            raise error
        return api_error_response(ApiError(409, "content_unreadable", UNREADABLE_WORDS))


class ErrorPages:
    """Renders JSON errors below `/console` for browsers."""

    def __init__(self, app: ASGIApp, *, pages: ConsolePages) -> None:
        self._app, self._pages = app, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = (
            scope["type"] == "http" and scope["path"].startswith(CONSOLE_PATH) and "text/html" in Headers(scope=scope).get("accept", "")
        )
        if not is_page:
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def hold_errors(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and is_json_error(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await self._render(start["status"], body)(scope, receive, send)

        await self._app(scope, receive, hold_errors)

    def _render(self, status: int, body: bytes) -> Response:
        message = UNAVAILABLE if status == 503 else json.loads(body)["error"]["message"]
        return self._pages.render("error.html", {"status": status, "message": message}, status=status)


def is_json_error(message: Message) -> bool:
    """Whether a response begins that is an error in the shape of the API."""
    return message["status"] >= 400 and Headers(raw=message["headers"]).get("content-type", "").startswith("application/json")
