"""Slack, Discord, Telegram and a server of Standard Webhooks, as far as alerts reach them: over HTTP, strict, and with faults to inject.

Written from the vendors' pages and the specification, and uses nothing of what it checks."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

SLACK_PATH = "/services/T000/B000/slack-secret"
DISCORD_PATH = "/api/webhooks/123/discord-secret"
TOKEN = "123456789:AAH-telegram-secret"  # noqa: S105  # of a fake
CHAT = "-100777"
KEY = base64.b64decode("c2VjcmV0LXNlY3JldC1zZWNyZXQ=")
SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="  # noqa: S105  # of a fake
SECRETS = ("slack-secret", "discord-secret", "telegram-secret", "c2VjcmV0")
OLD_S = 300


@dataclass
class Fault:
    """What happens to the next request instead of its answer: a status with a body, or no answer at all."""

    status: int = 500
    body: str = "oops"
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False


@dataclass
class AlertReceivers:
    """All four receivers at one address: what arrived, and the faults that are still to come."""

    url: str = ""
    arrived: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"slack": [], "discord": [], "telegram": [], "webhook": []})
    asked: list[str] = field(default_factory=list)
    """Every request, also those that failed."""
    refused: list[str] = field(default_factory=list)
    """What a request did wrong. A test that ends with an entry here has found a bug."""
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: {name: deque() for name in ("slack", "discord", "telegram", "webhook")})
    is_down: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for(self, name: str, count: int, timeout_s: float = 20.0) -> list[dict[str, Any]]:
        """Wait until so many messages have arrived at a receiver."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(lambda: len(self.arrived[name]) >= count)
        return self.arrived[name]

    async def wait_asked(self, count: int, timeout_s: float = 20.0) -> None:
        """Wait until so many requests have come, whatever became of them."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(lambda: len(self.asked) >= count)

    async def receive(self, name: str, body: dict[str, Any], reply: web.Response) -> web.Response:
        async with self.changed:
            self.asked.append(name)
            self.changed.notify_all()
        fault = self.faults[name].popleft() if self.faults[name] else None
        if self.is_down:
            fault = Fault(status=503, body="down")
        if fault is not None and fault.hangs:
            await self.freed.wait()
        if fault is not None:
            return web.Response(status=fault.status, text=fault.body, headers=fault.headers)
        async with self.changed:
            self.arrived[name].append(body)
            self.changed.notify_all()
        return reply

    def refuse(self, why: str, status: int = 400, text: str = "invalid_payload") -> web.Response:
        self.refused.append(why)
        return web.Response(status=status, text=text)

    # --- Slack: https://hooks.slack.com/services/T…/B…/… takes JSON, and answers 200 with "ok"

    async def slack(self, request: web.Request) -> web.Response:
        body = await request.json()
        if request.content_type != "application/json" or not isinstance(body.get("text"), str) or not body["text"]:
            return self.refuse("slack: no text", text="no_text")
        if set(body) - {"text", "blocks"}:
            return self.refuse("slack: unknown key", text="invalid_payload")
        for block in body.get("blocks", []):
            text = block["text"]
            if block["type"] != "section" or text["type"] not in {"plain_text", "mrkdwn"} or not 0 < len(text["text"]) <= 3000:
                return self.refuse("slack: bad block", text="invalid_blocks")
        if "<" in body["text"] or ">" in body["text"]:
            return self.refuse("slack: text is not escaped", text="invalid_payload")
        return await self.receive("slack", body, web.Response(text="ok"))

    # --- Discord: 204 without a body; 429 with JSON

    async def discord(self, request: web.Request) -> web.Response:
        body = await request.json()
        if set(body) - {"content", "allowed_mentions", "username"} or not 0 < len(body.get("content", "")) <= 2000:
            return self.refuse("discord: bad content", text=json.dumps({"message": "Invalid Form Body", "code": 50035}))
        if body.get("allowed_mentions") != {"parse": []}:
            return self.refuse("discord: it could mention everyone")
        return await self.receive("discord", body, web.Response(status=204))

    # --- Telegram: POST /bot<token>/sendMessage

    async def telegram(self, request: web.Request) -> web.Response:
        if request.match_info["token"] != TOKEN:
            return web.json_response({"ok": False, "error_code": 401, "description": "Unauthorized"}, status=401)
        body = await request.json()
        if body.get("chat_id") != CHAT:
            return web.json_response({"ok": False, "error_code": 400, "description": "Bad Request: chat not found"}, status=400)
        if not 0 < len(body.get("text", "")) <= 4096:
            return self.refuse(
                "telegram: bad text", text='{"ok":false,"error_code":400,"description":"Bad Request: message text is empty"}'
            )
        return await self.receive("telegram", body, web.json_response({"ok": True, "result": {"message_id": 1}}))

    # --- Standard Webhooks

    async def webhook(self, request: web.Request) -> web.Response:
        raw = await request.read()
        message_id, sent_at = request.headers.get("webhook-id", ""), request.headers.get("webhook-timestamp", "")
        signed = hmac.new(KEY, f"{message_id}.{sent_at}.".encode() + raw, hashlib.sha256).digest()
        if f"v1,{base64.b64encode(signed).decode()}" not in request.headers.get("webhook-signature", "").split():
            return self.refuse("webhook: wrong signature", status=401)
        if abs(time.time() - int(sent_at)) > OLD_S:
            return self.refuse("webhook: old timestamp", status=401)
        body = json.loads(raw)
        if set(body) != {"type", "timestamp", "data"}:
            return self.refuse("webhook: bad body")
        return await self.receive("webhook", {**body, "id": message_id}, web.Response(status=204))


@asynccontextmanager
async def open_receivers() -> AsyncIterator[AlertReceivers]:
    """Serve all receivers on a free port until the block ends."""
    receivers = AlertReceivers()
    app = web.Application()
    app.router.add_post(SLACK_PATH, receivers.slack)
    app.router.add_post(DISCORD_PATH, receivers.discord)
    app.router.add_post("/bot{token}/sendMessage", receivers.telegram)
    app.router.add_post("/hook", receivers.webhook)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    receivers.url = f"http://127.0.0.1:{port}"
    try:
        yield receivers
    finally:
        receivers.freed.set()
        await runner.cleanup()
