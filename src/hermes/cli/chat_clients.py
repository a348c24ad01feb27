"""A chat in the terminal talks to a Hermes: to one that answers HTTP, here; to one in this process, in local_chat.py."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, Protocol
from uuid import UUID

import aiohttp

from hermes.app.home import CHAT_KEY_FILE, EVERY_ADDRESS, home_of, local_url
from hermes.app.tables import open_tables
from hermes.cli.output import BAD_INPUT, CANNOT_RUN
from hermes.config import Settings
from hermes.ports.errors import PortError
from hermes.ports.processes import ProcessRole, ProcessState
from hermes.turn import AgentResponse, response_json

TERMINAL_ACCOUNT = "terminal"
"""The account of all terminal chats. A terminal user is not linked to a user of any other account."""
ANSWER_TIMEOUT_S = 600.0
POLL_S = 1.0
PROBE_TIMEOUT_S = 2.0
KEY_TAKEN, KEY_REFUSED = 200, 401


class ChatError(Exception):
    """A message could not be sent, or got no answer. Has a message of one line and an exit code."""

    def __init__(self, message: str, code: int = CANNOT_RUN) -> None:
        super().__init__(message)
        self.code = code


class HermesClient(Protocol):
    """A Hermes that the chat can talk to."""

    async def ask(self, text: str, channel: str) -> AgentResponse:
        """Send a message and wait for its answer. Raises ChatError. A caller that stops waiting does not cancel the turn."""
        ...

    async def why(self, response: AgentResponse) -> Mapping[str, Any]:
        """Return how an answer was made, as `interactions.meta` records it. Over HTTP only the part that the API shows."""
        ...

    async def news(self, channel: str) -> Sequence[str]:
        """Return the proactive messages since the last call, such as reminders."""
        ...


@dataclass(slots=True)
class RemoteHermes:
    """A Hermes that answers HTTP."""

    session: aiohttp.ClientSession
    url: str
    name: str
    seen: int = 0
    """The id of the last proactive message that was shown."""

    async def ask(self, text: str, channel: str) -> AgentResponse:
        body = {"text": text, "user": self.name, "channel": channel}
        status, answer = await self._request("POST", "/v1/messages", json=body)
        until = time.monotonic() + ANSWER_TIMEOUT_S
        while status == 202:
            if time.monotonic() > until:
                raise_no_answer()
            await asyncio.sleep(POLL_S)
            status, answer = await self._request("GET", f"/v1/messages/{answer['turn_id']}")
        known = {each.name for each in fields(AgentResponse)}
        return AgentResponse(**{name: value for name, value in answer.items() if name in known} | {"turn_id": UUID(answer["turn_id"])})

    async def why(self, response: AgentResponse) -> Mapping[str, Any]:
        values = response_json(response)
        return {**values, "llm_backend": response.backend, "llm_cache_hit": response.cache_hit}

    async def news(self, channel: str) -> Sequence[str]:
        asked = {"user": self.name, "channel": channel, "after": str(self.seen)}
        try:
            async with self.session.get(f"{self.url}/v1/news", params=asked, allow_redirects=False) as response:
                found = (await response.json(content_type=None)).get("news", ()) if response.status == 200 else ()
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return ()  # the next call returns them
        self.seen = max([self.seen, *(each["id"] for each in found)])
        return [each["text"] for each in found]

    async def try_key(self) -> int | None:
        """Return the status with which the server answers our key: another Hermes may be at this address. None if it does not answer."""
        limit = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        try:
            async with self.session.get(f"{self.url}/v1/news", allow_redirects=False, timeout=limit) as response:
                return response.status
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def _request(self, method: str, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        try:
            async with self.session.request(method, self.url + path, allow_redirects=False, **body) as response:
                answer = await response.json(content_type=None)
                if response.status < 300 and isinstance(answer, dict) and "turn_id" in answer:
                    return response.status, answer
        except aiohttp.ClientConnectorError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise ChatError(f"cannot reach {self.url}: {reason}") from None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ChatError(f"{self.url} does not answer as Hermes does: {type(error).__name__}") from None
        refused = answer.get("error") if isinstance(answer, dict) else None
        reason = refused.get("message") if isinstance(refused, dict) else f"status {response.status}"
        raise ChatError(f"{self.url} refuses: {reason}", BAD_INPUT if 400 <= response.status < 500 else CANNOT_RUN)


@asynccontextmanager
async def open_remote_hermes(url: str, key: str, name: str) -> AsyncIterator[RemoteHermes]:
    """Open a client for the Hermes at an address as long as the block lasts."""
    limits = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=ANSWER_TIMEOUT_S)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}, timeout=limits) as session:
        yield RemoteHermes(session, url, name)


def raise_no_answer() -> NoReturn:
    raise ChatError(f"there is no answer after {ANSWER_TIMEOUT_S:.0f} s; it will come into the conversation")


# --- the Hermes that runs on this machine


@asynccontextmanager
async def open_running_hermes(settings: Settings, name: str) -> AsyncIterator[RemoteHermes | None]:
    """Open a client for the Hermes that `hermes up` or `hermes serve` runs with these settings; None if none answers.

    The first time it makes an API key of its own, which only the owner of the home can read."""
    web, url = settings.web, local_url(settings.web)
    file = home_of(settings) / CHAT_KEY_FILE
    async with AsyncExitStack() as stack:
        client, status = None, None
        if await is_listening(EVERY_ADDRESS.get(web.host, web.host), web.port):
            status = KEY_REFUSED
            if key := read_chat_key(file):
                client = await stack.enter_async_context(open_remote_hermes(url, key, name))
                status = await client.try_key()
            # A server that is slow or ill keeps its key: only one that is refused is replaced.
            if status == KEY_REFUSED and (key := await make_chat_key(settings, file)):
                client = await stack.enter_async_context(open_remote_hermes(url, key, name))
                status = await client.try_key()
        yield client if status == KEY_TAKEN else None


async def is_listening(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def read_chat_key(file: Path) -> str | None:
    """The key that an earlier chat made."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return None


async def make_chat_key(settings: Settings, file: Path) -> str | None:
    """Make a key in the store of the settings, and keep it for the next chat. None if the store cannot be used, or if no web process of
    that store lives: then the server at the port of the settings is not ours, and gets no key."""
    try:
        async with open_tables(settings) as tables, tables.database.begin() as tx:
            found = await tables.processes.all(tx)
            webs = [process.state(settings.work.stalled_after_s) for process in found if process.role is ProcessRole.SERVE]
            if ProcessState.LIVE not in webs:
                return None
            _, secret = await tables.api_keys.create(tx, "hermes chat", TERMINAL_ACCOUNT, scopes=("messages",))
        keep_secret(file, secret)
    except (PortError, OSError):
        return None
    return secret


def keep_secret(file: Path, secret: str) -> None:
    """Write a secret to a file that only its owner can read, also if the file was readable for others."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as kept:
        kept.write(secret)
