"""A client that goes away before its request is whole is no fault of Hermes, whichever way its request takes."""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from hermes.ops.metrics import AsgiMessage, Metrics, RequestCounter
from hermes.web.completions import CHAT_PATH, CompletionsShortcut
from hermes.web.errors import install_error_handlers


async def leave(_: Request) -> Response:
    raise ClientDisconnect


async def count_of(is_shortcut: bool) -> tuple[float | None, float | None]:
    pages = FastAPI()
    pages.post(CHAT_PATH)(leave)
    install_error_handlers(pages)
    metrics = Metrics()

    async def receive() -> AsgiMessage:
        return {"type": "http.disconnect"}

    async def send(_: AsgiMessage) -> None:
        """Uvicorn drops what is sent to a client that has gone."""

    app = CompletionsShortcut(pages, {CHAT_PATH: leave}) if is_shortcut else pages
    scope = {"type": "http", "method": "POST", "path": CHAT_PATH, "query_string": b"", "headers": [], "client": ("10.0.0.7", 1)}
    await RequestCounter(app, metrics)(scope, receive, send)
    value = metrics.registry.get_sample_value
    labels = {"method": "POST", "route": CHAT_PATH}
    return value("hermes_request_count_total", {**labels, "status": "499"}), value("hermes_request_errors_total", labels)


async def test_fastapis_way() -> None:
    assert await count_of(is_shortcut=False) == (1, None)


async def test_the_shortcut() -> None:
    assert await count_of(is_shortcut=True) == (1, None)
