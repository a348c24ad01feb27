"""Clients for a chat in the terminal: for a Hermes in this process, and for one that answers HTTP."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any, NoReturn, Protocol
from uuid import UUID, uuid4

import aiohttp

from hermes.app import Hermes, open_hermes
from hermes.cli.errors import BAD_INPUT
from hermes.cli.local_turns import LocalTurns
from hermes.cli.runtime import CANNOT_RUN
from hermes.config import Settings
from hermes.ports.errors import PortError
from hermes.ports.users import UserState
from hermes.turn import AgentResponse, Envelope, MessageEvent, Platform
from hermes.web.answers import TurnAnswers, response_json

TERMINAL_ACCOUNT = "terminal"
"""The account of all terminal chats. A terminal user is not linked to a user of any other account."""
ANSWER_TIMEOUT_S = 600.0
POLL_S = 1.0


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


# --- a Hermes in this process


@dataclass(slots=True)
class LocalHermes:
    """The Hermes of this process. It answers only the messages of this chat; workers answer all others."""

    hermes: Hermes
    answers: TurnAnswers
    driving: LocalTurns
    name: str
    seen: int = 0
    """The id of the last proactive message that was shown."""

    async def ask(self, text: str, channel: str) -> AgentResponse:
        event = MessageEvent(platform=Platform.REST, sender_id=self.name, text=text)
        envelope = Envelope(event=event, account=TERMINAL_ACCOUNT, channel_id=channel, event_key=str(uuid4()))
        try:
            receipt = await self.driving.intake.accept(envelope, newcomer=UserState.ACTIVE)
            self.driving.start(receipt)
            response = await self.answers.wait(receipt.turn_id, ANSWER_TIMEOUT_S)
        except PortError as error:
            raise ChatError(str(error)) from None
        return response or raise_no_answer()

    async def why(self, response: AgentResponse) -> Mapping[str, Any]:
        try:
            async with self.hermes.database.begin() as tx:
                answer = await self.hermes.adapters.outbox.answer(tx, response.turn_id)
        except PortError as error:
            raise ChatError(str(error)) from None
        return dict(answer.meta) if answer else {}

    async def news(self, channel: str) -> Sequence[str]:
        try:
            async with self.hermes.database.begin() as tx:
                found = await self.hermes.adapters.outbox.proactive_messages(tx, TERMINAL_ACCOUNT, Platform.REST, channel, after=self.seen)
        except PortError:
            return ()  # the next call returns them
        self.seen = max([self.seen, *(each.id for each in found)])
        return [each.text for each in found]


@asynccontextmanager
async def open_local_hermes(settings: Settings, name: str) -> AsyncIterator[LocalHermes]:
    """Open a Hermes in this process as long as the block lasts."""
    async with open_hermes(settings) as hermes:
        parts = hermes.adapters
        answers = TurnAnswers(hermes.database, parts.inbox, parts.outbox, parts.replies, ping_s=ANSWER_TIMEOUT_S, closing=asyncio.Event())
        driving = LocalTurns(hermes)
        try:
            yield LocalHermes(hermes, answers, driving, name)
        finally:
            await driving.drain(settings.work.drain_s)


# --- a Hermes elsewhere


@dataclass(frozen=True, slots=True)
class RemoteHermes:
    """A Hermes that answers HTTP."""

    session: aiohttp.ClientSession
    url: str
    name: str

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

    async def news(self, channel: str) -> Sequence[str]:  # noqa: ARG002  # the protocol's signature; this client does not ask for them over HTTP
        return ()

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
