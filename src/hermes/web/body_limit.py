"""No request body is larger than it may be, whether it says its length or not."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException

from hermes.ops.metrics import AsgiApp, AsgiMessage, AsgiReceive, AsgiScope, AsgiSend

BODILESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimit:
    """ASGI middleware that refuses a body with 413 as soon as it is known to be too large; what is read never exceeds the limit."""

    def __init__(self, app: AsgiApp, max_bytes: int, wider: Mapping[str, int] | None = None) -> None:
        """`wider` are paths with a limit of their own; one that ends with a slash is for all below it."""
        self._app, self._max_bytes, self._wider = app, max_bytes, wider or {}

    def _most(self, path: str) -> int:
        above = (limit for prefix, limit in self._wider.items() if prefix.endswith("/") and path.startswith(prefix))
        return self._wider.get(path) or next(above, self._max_bytes)

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] != "http" or scope["method"] in BODILESS_METHODS:
            await self._app(scope, receive, send)
            return
        announced, read, most = declared_length(scope), 0, self._most(scope["path"])

        async def limited() -> AsgiMessage:
            nonlocal read
            # Raised where the route reads, so that the answer has its shape and is counted under its route.
            if announced > most:
                raise too_large(most)
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise too_large(most)
            return message

        await self._app(scope, limited, send)


def too_large(most: int) -> HTTPException:
    return HTTPException(413, f"The body is larger than {most} bytes.")


def declared_length(scope: AsgiScope) -> int:
    """The length that a request says it has; 0 when it does not say."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
