"""Chat completions for clients: the end user, the models they may use, and their answers: one or several, whole or as a stream.

web/completions  →  here  →  gateway  →  chain  →  backend;  then gateway  →  client_chats, which records the answer"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from uuid import UUID

from hermes.gateway.chat_request import ChatRequest
from hermes.gateway.client_chats import ChatRecorder, ChatStores
from hermes.gateway.gateway import Gateway
from hermes.ports.backends import Delta, ModelRequest
from hermes.ports.models import Answer, AnswerStarted, Caller, CallPurpose, CallSource
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
    api_key_id: UUID | None = None


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
    stores: ChatStores
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
        async with self.stores.transactions.begin() as tx:
            user, is_new = await self.people.find_or_create(
                tx, key.account, Platform.COMPLETIONS, f"{key.id}/{name}", state=UserState.ACTIVE
            )
            if is_new and key.trains:
                await self.people.allow_training(tx, user.id, trains=True)
        while len(self._end_users) >= MAX_CACHED_END_USERS:
            del self._end_users[next(iter(self._end_users))]
        end_user = EndUser(user, key.account, key.tier or self.tier, key.id)
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
        ask, caller, recorder = self._prepare(request, end_user, session)
        with self.gateway.tracer.request(caller) as span:
            answers = await self._sample(ask, replace(caller, traceparent=span.traceparent), recorder, request.choices)
            span.note(session_id=answers[0].session_id)
        return answers

    async def _sample(self, ask: ModelRequest, caller: Caller, recorder: ChatRecorder, choices: int) -> list[Answer]:
        if choices == 1:
            return [await self.gateway.complete(ask, caller, recorder.record)]
        async with recorder.open_chat():
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self.gateway.complete(ask, caller, recorder.record)) for _ in range(choices)]
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from None
            return [task.result() for task in tasks]

    async def stream(self, request: ChatRequest, end_user: EndUser, session: str | None = None) -> AsyncGenerator[ChoicePiece]:
        """Yield the pieces of all answers as they come. Raises as `complete` does, and CutShort. Close it (`aclosing`) to give up."""
        ask, caller, recorder = self._prepare(request, end_user, session)
        with self.gateway.tracer.request(caller) as span:
            caller = replace(caller, traceparent=span.traceparent)
            async with aclosing(self._stream(ask, caller, recorder, request.choices)) as pieces:
                async for piece in pieces:
                    if isinstance(piece.piece, Answer):
                        span.note(session_id=piece.piece.session_id)
                    yield piece

    async def _stream(self, ask: ModelRequest, caller: Caller, recorder: ChatRecorder, choices: int) -> AsyncGenerator[ChoicePiece]:
        if choices == 1:
            async with aclosing(self.gateway.stream(ask, caller, recorder.record)) as pieces:
                async for piece in pieces:
                    yield ChoicePiece(0, piece)
            return
        async with recorder.open_chat():
            streams = [self.gateway.stream(ask, caller, recorder.record) for _ in range(choices)]
            async with aclosing(merge_streams(streams)) as merged:
                async for choice_piece in merged:
                    yield choice_piece

    def _prepare(self, request: ChatRequest, end_user: EndUser, session: str | None) -> tuple[ModelRequest, Caller, ChatRecorder]:
        user_id, limits = end_user.user.id, self.gateway.catalogue.limits
        caller = Caller(
            user_id=user_id,
            account=end_user.account,
            tier=end_user.tier,
            source=CallSource.COMPLETIONS,
            purpose=CallPurpose.COMPLETIONS,
            platform=Platform.COMPLETIONS,
            api_key_id=end_user.api_key_id,
            may_use_cache=False,  # samples are independent
            models=self.chain(request.model, end_user.tier),
            deadline_s=self.deadline_s,
        )
        recorder = ChatRecorder(request, self.stores, account=end_user.account, user_id=user_id, name=session, limits=limits)
        return request.ask(str(user_id)), caller, recorder


async def merge_streams(streams: Sequence[AsyncGenerator[AnswerStarted | Delta | Answer]]) -> AsyncGenerator[ChoicePiece]:
    """Merge several streams into one. They end together: with the last one, with the first error, or when the reader leaves."""
    # A queue of one: a client that reads slowly is answered slowly, and nothing piles up.
    queue: asyncio.Queue[ChoicePiece | BaseException | None] = asyncio.Queue(1)

    async def follow(choice: int, stream: AsyncGenerator[AnswerStarted | Delta | Answer]) -> None:
        try:
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    await queue.put(ChoicePiece(choice, piece))
            await queue.put(None)
        except Exception as error:  # noqa: BLE001  # raised again where the pieces are read
            stop_if_cancelled()  # a cancelled stream has no reader, so nothing would empty the queue
            await queue.put(error)

    following = [asyncio.create_task(follow(choice, stream)) for choice, stream in enumerate(streams)]
    try:
        left = len(following)
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
