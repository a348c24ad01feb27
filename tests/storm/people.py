"""The people of a storm: with a phone at a platform, or with a program that talks to our API, or with a browser.

Each of them says what the weather has for them, and keeps what they got. A phone leaves the rest to its platform; a program and a browser
send again what Hermes did not acknowledge, under the same key, and then ask for their answer until they have it."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import aiohttp

from hermes.testing.platforms import FakePerson
from hermes.testing.platforms import FakePlatform as Fake
from hermes.web.visitors import VISITOR_COOKIE, visitor_id
from tests.storm.history import Received
from tests.storm.weather import Message, Talker

ACCOUNT = "shop"
BY_HAND = "by hand"
"""What a person of ours wrote, past Hermes."""
ASK_AGAIN_S = 0.4
UNSTEADY = 6
"""Every so many messages of a program are sent once and never again, whatever becomes of them."""


@dataclass(slots=True)
class Said:
    """One message on its way."""

    message: Message
    chat: str
    at: float
    tried_at: float | None = None
    taken_at: float | None = None


class Somebody(ABC):
    """One talker."""

    def __init__(self, talker: Talker) -> None:
        self.talker = talker
        self.said: dict[str, Said] = {}

    @property
    @abstractmethod
    def chat(self) -> str:
        """The account and the channel, as the books name them."""

    @property
    @abstractmethod
    def received(self) -> list[Received]: ...

    @abstractmethod
    def say(self, message: Message) -> None:
        """Say it, and do not wait."""

    @property
    def waits(self) -> int:
        """Messages that this talker still has to see to."""
        return 0

    async def talk(self, began: float) -> None:
        """Say everything at its time."""
        for message in self.talker.messages:
            await asyncio.sleep(max(0.0, began + message.at_s - time.monotonic()))
            self.said[message.mark] = Said(message, self.chat, time.monotonic())
            self.say(message)


class Phone(Somebody):
    """Somebody at a platform."""

    def __init__(self, talker: Talker, person: FakePerson, opened_at: float) -> None:
        """`opened_at` is when the platform's time began, of our own clock."""
        super().__init__(talker)
        self.person, self._opened_at = person, opened_at

    @property
    def fake(self) -> Fake:
        return self.person.platform

    @property
    def chat(self) -> str:
        return f"{self.talker.line}/{self.person.id}"

    @property
    def received(self) -> list[Received]:
        speed = self.fake.world.clock.speed
        ours = (got for got in self.person.received if got.kind != BY_HAND)
        return [Received(chat=self.chat, text=got.text, at=self._opened_at + got.at / speed) for got in ours]

    def say(self, message: Message) -> None:
        self.person.say(message.text)


class Client(Somebody):
    """Somebody who speaks HTTP to us."""

    def __init__(self, talker: Talker, http: aiohttp.ClientSession, url: str) -> None:
        super().__init__(talker)
        self._http, self._url = http, url
        self._got: list[Received] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def received(self) -> list[Received]:
        return list(self._got)

    @property
    def waits(self) -> int:
        return len(self._tasks)

    def say(self, message: Message) -> None:
        task = asyncio.create_task(self._see_to(self.said[message.mark]))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _see_to(self, said: Said) -> None:
        """Send it until somebody has it, and fetch the answer."""
        said.tried_at = time.monotonic()
        is_unsteady = int(said.message.mark.rpartition("n")[2]) % UNSTEADY == UNSTEADY - 1
        while True:
            status, body = await self._send(said.message)
            if status in (200, 202, 409):
                said.taken_at = said.taken_at or time.monotonic()
            if status == 200:
                return self._get(body["text"])
            if status == 202:
                return await self._fetch(body["turn_id"])
            if is_unsteady and status != 409:
                return None
            await asyncio.sleep(ASK_AGAIN_S)

    async def _fetch(self, turn_id: str) -> None:
        while True:
            status, body = await self._ask("GET", self._place(turn_id))
            if status == 200:
                return self._get(body["text"])
            await asyncio.sleep(ASK_AGAIN_S)

    def _get(self, text: str) -> None:
        self._got.append(Received(chat=self.chat, text=text, at=time.monotonic()))

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[int | None, Any]:
        """What was answered; nothing where nobody was there."""
        headers = {**self._headers(), **options.pop("headers", {})}
        try:
            async with asyncio.timeout(5), self._http.request(method, self._url + path, headers=headers, **options) as response:
                is_json = response.content_type == "application/json"
                return response.status, await response.json() if is_json else None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return None, None

    @abstractmethod
    async def _send(self, message: Message) -> tuple[int | None, Any]: ...

    @abstractmethod
    def _place(self, turn_id: str) -> str: ...

    @abstractmethod
    def _headers(self) -> Mapping[str, str]: ...


class Program(Client):
    """Somebody behind a program with an API key."""

    def __init__(self, talker: Talker, http: aiohttp.ClientSession, url: str, key: str) -> None:
        super().__init__(talker, http, url)
        self._key, self._name = key, f"user-{talker.number}"

    @property
    def chat(self) -> str:
        return f"{ACCOUNT}/{self._name}"

    async def _send(self, message: Message) -> tuple[int | None, Any]:
        headers = {"Idempotency-Key": f"key of {message.mark}", "Prefer": "respond-async"}
        return await self._ask("POST", "/v1/messages", json={"text": message.text, "user": self._name}, headers=headers)

    def _place(self, turn_id: str) -> str:
        return f"/v1/messages/{turn_id}"

    def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._key}"}


class Visitor(Client):
    """Somebody at the chat page."""

    def __init__(self, talker: Talker, http: aiohttp.ClientSession, url: str, cookie: str) -> None:
        super().__init__(talker, http, url)
        self._cookie = cookie

    @property
    def chat(self) -> str:
        return f"web/{visitor_id(self._cookie)}"

    async def _send(self, message: Message) -> tuple[int | None, Any]:
        return await self._ask("POST", "/web/messages", json={"text": message.text, "id": str(uuid5(NAMESPACE_URL, message.mark))})

    def _place(self, turn_id: str) -> str:
        return f"/web/messages/{turn_id}"

    def _headers(self) -> Mapping[str, str]:
        return {"Cookie": f"{VISITOR_COOKIE.name}={self._cookie}"}
