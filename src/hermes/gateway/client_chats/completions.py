"""Chat completions for clients: the end user, the models they may use, and their answers: one or several, whole or as a stream."""

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
from hermes.ports.backends import Delta, ModelRequest
from hermes.ports.errors import PortError
from hermes.ports.models import Answer, AnswerStarted, Caller, CallSource
from hermes.ports.runtime import Transactions
from hermes.ports.sessions import ClientChats, Graphs
from hermes.ports.users import ApiKey, User, Users, UserState
from hermes.tasks import end_tasks, stop_if_cancelled
from hermes.turn import Platform

ANY_MODEL = "hermes"
"""The model name with which a client asks for the whole chain of its tier, in its order."""
END_USER_TTL_S = 5.0
MAX_CACHED_END_USERS = 10_000


class UnknownModel(LookupError):
    """The tier has no such model."""


@dataclass(frozen=True, slots=True)
class EndUser:
    """An end user behind an API key. Equal names behind two keys are two end users, who share nothing."""

    user: User
    account: str
    tier: str


@dataclass(frozen=True, slots=True)
class ChoicePiece:
    """A piece of one of the answers: the model that answers, then deltas, and last of all the answer itself."""

    choice: int
    piece: AnswerStarted | Delta | Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletions:
    """Chat completions for clients that send the whole chat with each request."""

    gateway: Gateway
    people: Users
    chats: ClientChats
    graphs: Graphs
    transactions: Transactions
    tier: str
    """The tier of keys that have none of their own."""
    deadline_s: float
    _end_users: dict[tuple[UUID, str], tuple[float, EndUser]] = field(default_factory=dict, init=False, repr=False)

    async def end_user(self, key: ApiKey, name: str) -> EndUser:
        """Return the end user that a client calls by this name. A new one is created, and trained on only if the key's owner allowed it.

        Cached for END_USER_TTL_S: a deleted user may be served that much longer. What they write then cannot be read later: their keys are
        gone."""
        known = self._end_users.get((key.id, name))
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        async with self.transactions.begin() as tx:
            user, is_new = await self.people.find_or_create(
                tx, key.account, Platform.COMPLETIONS, f"{key.id}/{name}", state=UserState.ACTIVE
            )
            if is_new and key.trains:
                await self.people.allow_training(tx, user.id, trains=True)
        while len(self._end_users) >= MAX_CACHED_END_USERS:
            del self._end_users[next(iter(self._end_users))]
        end_user = EndUser(user, key.account, key.tier or self.tier)
        self._end_users.pop((key.id, name), None)
        self._end_users[key.id, name] = (time.monotonic() + END_USER_TTL_S, end_user)
        return end_user

    def models(self, tier: str) -> list[str]:
        """The model names that a client of this tier may ask for."""
        return [ANY_MODEL, *self.gateway.catalogue.tier(tier).chain]

    def chain(self, model: str, tier: str) -> list[str]:
        """The models to try: first the one that the client asked for, by our name or the vendor's, then the others of the tier in order.

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

    async def complete(self, request: ChatRequest, end_user: EndUser, session: str | None = None) -> list[Answer]:
        """Return as many answers as the client asked for. Raises what Gateway.complete raises, and UnknownModel.

        Several answers are sampled at the same time; when one of them fails, the others are cancelled."""
        caller, recorder = self._caller(request, end_user), self._recorder(request, end_user, session)
        ask = request.ask(str(end_user.user.id))
        if request.choices == 1:
            return [await self.gateway.complete(ask, caller, recorder)]
        async with self._open_chat(recorder):
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self.gateway.complete(ask, caller, recorder)) for _ in range(request.choices)]
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from None
            return [task.result() for task in tasks]

    async def stream(self, request: ChatRequest, end_user: EndUser, session: str | None = None) -> AsyncGenerator[ChoicePiece]:
        """Yield the pieces of all answers as they come. Raises as `complete` does, and CutShort. Close it (`aclosing`) to give up."""
        caller, recorder = self._caller(request, end_user), self._recorder(request, end_user, session)
        ask = request.ask(str(end_user.user.id))
        if request.choices == 1:
            async with aclosing(self.gateway.stream(ask, caller, recorder)) as pieces:
                async for piece in pieces:
                    yield ChoicePiece(0, piece)
            return
        async with self._open_chat(recorder), aclosing(self._merge_streams(request.choices, ask, caller, recorder)) as merged:
            async for choice_piece in merged:
                yield choice_piece

    async def _merge_streams(self, choices: int, ask: ModelRequest, caller: Caller, recorder: ChatRecorder) -> AsyncGenerator[ChoicePiece]:
        """Merge several streams into one."""
        # A queue of one: a client that reads slowly is answered slowly, and nothing piles up.
        queue: asyncio.Queue[ChoicePiece | BaseException | None] = asyncio.Queue(1)

        async def follow(choice: int) -> None:
            try:
                async with aclosing(self.gateway.stream(ask, caller, recorder)) as pieces:
                    async for piece in pieces:
                        await queue.put(ChoicePiece(choice, piece))
                await queue.put(None)
            except Exception as error:  # noqa: BLE001  # raised again where the pieces are read
                stop_if_cancelled()  # a cancelled stream has no reader, so nothing would empty the queue
                await queue.put(error)

        following = [asyncio.create_task(follow(choice)) for choice in range(choices)]
        try:
            left = choices
            while left:
                piece = await queue.get()
                if isinstance(piece, BaseException):
                    raise piece
                if piece is None:
                    left -= 1
                else:
                    yield piece
        finally:
            await end_tasks(*following)

    def _caller(self, request: ChatRequest, end_user: EndUser) -> Caller:
        return Caller(
            user_id=end_user.user.id,
            account=end_user.account,
            tier=end_user.tier,
            source=CallSource.COMPLETIONS,
            may_use_cache=False,  # samples are independent
            models=self.chain(request.model, end_user.tier),
            deadline_s=self.deadline_s,
        )

    def _recorder(self, request: ChatRequest, end_user: EndUser, session: str | None) -> ChatRecorder:
        account, user_id, limits = end_user.account, end_user.user.id, self.gateway.catalogue.limits
        return ChatRecorder(request, self.chats, self.graphs, account=account, user_id=user_id, name=session, limits=limits)

    @asynccontextmanager
    async def _open_chat(self, recorder: ChatRecorder) -> AsyncIterator[None]:
        """Choose the chat for several answers. A chat that was begun for them and got none is removed again."""
        async with self.transactions.begin() as tx:
            await recorder.open(tx)
        try:
            yield
        except BaseException:
            await asyncio.shield(self._give_up(recorder))
            raise

    async def _give_up(self, recorder: ChatRecorder) -> None:
        # This waits for no recording: an answer that is being recorded locks the chat's row, and a chat with an answer is not empty.
        with suppress(PortError):
            async with self.transactions.begin() as tx:
                await recorder.give_up(tx)
