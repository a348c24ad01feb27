"""Limits the size of request bodies, with and without a Content-Length."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException

from hermes.ops.metrics import AsgiApp, AsgiMessage, AsgiReceive, AsgiScope, AsgiSend

BODILESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimit:
    """ASGI middleware that refuses a body with 413 as soon as it is too large; it never reads more than the limit."""

    def __init__(self, app: AsgiApp, max_bytes: int, wider: Mapping[str, int] | None = None) -> None:
        """`wider` are paths with a limit of their own; a path that ends with a slash is for all paths below it."""
        self._app, self._max_bytes, self._wider = app, max_bytes, wider or {}

    def _limit(self, path: str) -> int:
        limits = (limit for prefix, limit in self._wider.items() if prefix.endswith("/") and path.startswith(prefix))
        return self._wider.get(path) or next(limits, self._max_bytes)

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] != "http" or scope["method"] in BODILESS_METHODS:
            await self._app(scope, receive, send)
            return
        declared, read, limit = declared_length(scope), 0, self._limit(scope["path"])

        async def limited() -> AsgiMessage:
            nonlocal read
            # Raised while the route reads, so that the error has the route's shape and is counted under it.
            if declared > limit:
                raise too_large(limit)
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise too_large(limit)
            return message

        await self._app(scope, limited, send)


def too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"The body is larger than {limit} bytes.")


def declared_length(scope: AsgiScope) -> int:
    """Return the Content-Length of a request; 0 if it has none."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
