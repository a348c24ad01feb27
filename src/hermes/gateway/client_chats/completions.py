"""Who is at the door, which models they get, and their answers: one or several, whole or as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from uuid import UUID

from hermes.gateway.client_chats.recording import ChatRecorder
from hermes.gateway.client_chats.request import ChatRequest
from hermes.gateway.gateway import Gateway
from hermes.ports.api_keys import ApiKey
from hermes.ports.backends import Delta, ModelRequest
from hermes.ports.client_chats import ClientChats
from hermes.ports.errors import PortError
from hermes.ports.graphs import Graphs
from hermes.ports.model_calls import CallSource
from hermes.ports.models import Answer, AnswerStarted, Caller
from hermes.ports.transactions import Transactions
from hermes.ports.users import User, Users, UserState
from hermes.tasks import end_tasks, stop_if_cancelled
from hermes.turn import Platform

ANY_MODEL = "hermes"
"""What a client calls the whole chain of its tier, in its order."""
END_USER_TTL_S = 5.0
MAX_CACHED_END_USERS = 10_000


class UnknownModel(LookupError):
    """The tier has no such model."""


@dataclass(frozen=True, slots=True)
class EndUser:
    """An end user behind an API key. Two of them share nothing, whatever they are called behind other keys."""

    user: User
    account: str
    tier: str


@dataclass(frozen=True, slots=True)
class ChoicePiece:
    """A piece of one of the answers: who began, deltas, and last of all the answer itself."""

    choice: int
    piece: AnswerStarted | Delta | Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletions:
    """Chat completions for programs that send the whole chat each time."""

    gateway: Gateway
    people: Users
    chats: ClientChats
    graphs: Graphs
    transactions: Transactions
    tier: str
    """Of keys that have none of their own."""
    deadline_s: float
    _guests: dict[tuple[UUID, str], tuple[float, EndUser]] = field(default_factory=dict, init=False, repr=False)

    async def end_user(self, key: ApiKey, name: str) -> EndUser:
        """Return the end user that a client calls so; a new one is met now, and trained on only if the key's owner said so.

        Remembered for a few seconds: that long a user who was deleted may still be served, and what they say then can be read by nobody."""
        known = self._guests.get((key.id, name))
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        async with self.transactions.begin() as tx:
            user, is_new = await self.people.find_or_create(
                tx, key.account, Platform.COMPLETIONS, f"{key.id}/{name}", state=UserState.ACTIVE
            )
            if is_new and key.trains:
                await self.people.allow_training(tx, user.id, trains=True)
        while len(self._guests) >= MAX_CACHED_END_USERS:
            del self._guests[next(iter(self._guests))]
        guest = EndUser(user, key.account, key.tier or self.tier)
        self._guests.pop((key.id, name), None)
        self._guests[key.id, name] = (time.monotonic() + END_USER_TTL_S, guest)
        return guest

    def models(self, tier: str) -> list[str]:
        """What a client of this tier may ask for."""
        return [ANY_MODEL, *self.gateway.catalogue.tier(tier).chain]

    def chain(self, model: str, tier: str) -> list[str]:
        """The models to try: the one that was asked for, by our name or its vendor's, and behind it the others of the tier as they come.

        Raises UnknownModel."""
        own = list(self.gateway.catalogue.tier(tier).chain)
        if model == ANY_MODEL:
            return own
        models = self.gateway.catalogue.models
        first = next((name for name in own if model in (name, models[name].id, models[name].stands_for)), None)
        if first is None:
            known = [ANY_MODEL, *own]
            near = (get_close_matches(model, known, n=1) or known)[0]
            raise UnknownModel(f"there is no model of this name here; did you mean {near}? GET /v1/models lists them")
        return [first, *(name for name in own if name != first)]

    async def complete(self, request: ChatRequest, guest: EndUser, session: str | None = None) -> list[Answer]:
        """Return as many answers as were asked for. Raises what Gateway.complete raises, and UnknownModel.

        Several are asked for at once; when one of them fails, the others are given up."""
        caller, recording = self._caller(request, guest), self._recording(request, guest, session)
        ask = request.ask(str(guest.user.id))
        if request.choices == 1:
            return [await self.gateway.complete(ask, caller, recording)]
        async with self._opened(recording):
            try:
                async with asyncio.TaskGroup() as group:
                    asked = [group.create_task(self.gateway.complete(ask, caller, recording)) for _ in range(request.choices)]
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from None
            return [one.result() for one in asked]

    async def stream(self, request: ChatRequest, guest: EndUser, session: str | None = None) -> AsyncGenerator[ChoicePiece]:
        """Yield the pieces of all answers as they come. Raises as `complete` does, and CutShort. Close it (`aclosing`) to give up."""
        caller, recording = self._caller(request, guest), self._recording(request, guest, session)
        ask = request.ask(str(guest.user.id))
        if request.choices == 1:
            async with aclosing(self.gateway.stream(ask, caller, recording)) as pieces:
                async for piece in pieces:
                    yield ChoicePiece(0, piece)
            return
        async with self._opened(recording), aclosing(self._together(request.choices, ask, caller, recording)) as merged:
            async for said in merged:
                yield said

    async def _together(self, choices: int, ask: ModelRequest, caller: Caller, recording: ChatRecorder) -> AsyncGenerator[ChoicePiece]:
        """Several streams as one."""
        # A queue of one: who reads slowly is answered slowly, and nothing piles up.
        queue: asyncio.Queue[ChoicePiece | BaseException | None] = asyncio.Queue(1)

        async def follow(choice: int) -> None:
            try:
                async with aclosing(self.gateway.stream(ask, caller, recording)) as pieces:
                    async for piece in pieces:
                        await queue.put(ChoicePiece(choice, piece))
                await queue.put(None)
            except Exception as error:  # noqa: BLE001  # raised again where the pieces are read
                stop_if_cancelled()  # then there is no reader any more, and nothing empties the queue
                await queue.put(error)

        following = [asyncio.create_task(follow(choice)) for choice in range(choices)]
        try:
            left = choices
            while left:
                said = await queue.get()
                if isinstance(said, BaseException):
                    raise said
                if said is None:
                    left -= 1
                else:
                    yield said
        finally:
            await end_tasks(*following)

    def _caller(self, request: ChatRequest, guest: EndUser) -> Caller:
        return Caller(
            user_id=guest.user.id,
            account=guest.account,
            tier=guest.tier,
            source=CallSource.COMPLETIONS,
            may_use_cache=False,  # samples are independent
            models=self.chain(request.model, guest.tier),
            deadline_s=self.deadline_s,
        )

    def _recording(self, request: ChatRequest, guest: EndUser, session: str | None) -> ChatRecorder:
        limits = self.gateway.catalogue.limits
        return ChatRecorder(request, self.chats, self.graphs, account=guest.account, user_id=guest.user.id, name=session, limits=limits)

    @asynccontextmanager
    async def _opened(self, recording: ChatRecorder) -> AsyncIterator[None]:
        """Settle the chat for several answers; one that was begun and got none is taken away again."""
        async with self.transactions.begin() as tx:
            await recording.open(tx)
        try:
            yield
        except BaseException:
            await asyncio.shield(self._give_up(recording))
            raise

    async def _give_up(self, recording: ChatRecorder) -> None:
        # Nobody is waited for: an answer that is being recorded holds the chat's row, and a chat that has one is not empty.
        with suppress(PortError):
            async with self.transactions.begin() as tx:
                await recording.give_up(tx)
