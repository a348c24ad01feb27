"""A small server that speaks as Telegram's does, for one bot: strict about what it takes, and failing as it is told to."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

KNOWN = {"chat_id", "text", "entities", "message_thread_id"}


@dataclass(slots=True)
class BotApi:
    """What its users have received, and what it will do next instead of sending."""

    url: str = ""
    received: list[tuple[str, str]] = field(default_factory=list)
    """Chat and text, in order: what people see."""
    asked: int = 0
    script: deque[tuple[str, Any]] = field(default_factory=deque)
    is_down: bool = False
    blocked: set[str] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.received]

    def refuse(self, status: int, description: str, **parameters: Any) -> None:
        self.script.append(("refuse", (status, description, parameters)))

    def lose_answer(self) -> None:
        """Deliver the next message, and drop the connection instead of saying so."""
        self.script.append(("lose", None))

    async def send_message(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        body = await request.json()
        wrong = self._fault(request, body)
        if wrong:
            return answer(400, f"Bad Request: {wrong}")
        act, details = self.script.popleft() if self.script else ("deliver", None)
        chat = str(body["chat_id"])
        if self.is_down:
            return web.Response(status=502, text="<html>502 Bad Gateway</html>")
        if act == "refuse":
            status, description, parameters = details
            return answer(status, description, parameters)
        if chat in self.moved:
            return answer(400, "Bad Request: group chat was upgraded", {"migrate_to_chat_id": int(self.moved[chat])})
        if chat in self.blocked:
            return answer(403, "Forbidden: bot was blocked by the user")
        self.received.append((chat, body["text"]))
        if act == "lose":
            assert request.transport is not None
            request.transport.abort()
            await asyncio.sleep(0.05)
        return web.json_response({"ok": True, "result": {"message_id": next(self._ids)}})

    def _fault(self, request: web.Request, body: Any) -> str | None:
        if request.content_type != "application/json" or not isinstance(body, dict):
            return "no JSON object"
        if set(body) - KNOWN:
            return f"unknown {sorted(set(body) - KNOWN)}"
        if not isinstance(body.get("text"), str) or not 0 < len(body["text"].strip()) <= 4096:
            return "message text is empty or too long"
        return None if body.get("chat_id") else "chat not found"


def answer(status: int, description: str, parameters: dict[str, Any] | None = None) -> web.Response:
    body = {"ok": False, "error_code": status, "description": description, **({"parameters": parameters} if parameters else {})}
    return web.json_response(body, status=status)


@asynccontextmanager
async def serving() -> AsyncIterator[BotApi]:
    """The server, as long as the block lasts."""
    api, app = BotApi(), web.Application()
    app.router.add_post("/botSECRET/sendMessage", api.send_message)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    yield api
    await runner.cleanup()
