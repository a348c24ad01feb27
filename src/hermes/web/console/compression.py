"""Compresses the console's pages and files. The rest of the web is left as it is: answers of the API are small, and streams must not wait.

A compressed page must not repeat a secret beside text that a stranger chose (BREACH): form tokens are other bytes in each response."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

CONSOLE_PATH = "/console"
COMPRESSION_LEVEL = 6
"""Level 9 takes twice as long for one percent."""


class PageCompression:
    """Sends what is below `/console` with gzip to browsers that take it; Starlette's middleware leaves event streams alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain, self._compressed = app, GZipMiddleware(app, compresslevel=COMPRESSION_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and scope["path"].startswith(CONSOLE_PATH)
        await (self._compressed if is_page else self._plain)(scope, receive, send)
