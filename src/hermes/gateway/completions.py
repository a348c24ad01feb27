"""Chat completions for clients: the end user, the models they may use, and their answers: one or several, whole or as a stream.

web/completions  →  here  →  gateway  →  chain  →  backend;  then gateway  →  client_chats, which records the answer"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from uuid import UUID

from hermes.gateway.catalogue import ModelSpec
from hermes.gateway.chat_request import ChatRequest, InvalidChatRequest
from hermes.gateway.client_chats import ChatRecorder, ChatStores
from hermes.gateway.embeddings_request import EmbeddingsRequest
from hermes.gateway.fleet import Adapter
from hermes.gateway.gateway import Gateway, no_adapter
from hermes.gateway.key_guard import allowed_models
from hermes.gateway.request_fields import show_value
from hermes.ports.backends import Delta, ModelRequest
from hermes.ports.key_limits import NO_LIMITS, KeyLimits
from hermes.ports.key_use import check_user_name, person_forbidden
from hermes.ports.models import Answer, AnswerStarted, Caller, CallPurpose, CallSource
from hermes.ports.runtime import Transaction
from hermes.ports.users import DEFAULT_USER, ApiKey, User, UserChannel, Users, UserState
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
    limits: KeyLimits = NO_LIMITS
    """The limits of the key."""


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
    adapter_on: Callable[[str], Adapter | None] = no_adapter
    """The adapter of the agent that answers on an account; None: the chain."""
    embedding_model: str | None = None
    """The name of the model that gives vectors; None: there is none."""
    embedding_dimension: int = 0
    _end_users: dict[tuple[UUID, str], tuple[float, EndUser]] = field(default_factory=dict, init=False, repr=False)

    async def end_user(self, key: ApiKey, name: str) -> EndUser:
        """Return the end user that a client calls by this name; an empty one stands for DEFAULT_USER. A new one is created, and trained on
        only if the key's owner allowed it. Raises KeyForbids for a name that the key may not use.

        Cached for END_USER_TTL_S: a deleted user may be served that much longer. What they write then cannot be read later: their keys are
        gone."""
        name = name or DEFAULT_USER
        check_user_name(key.limits, name)
        known = self._end_users.get((key.id, name))
        if known is not None and time.monotonic() < known[0]:
            return known[1] if known[1].limits == key.limits else replace(known[1], limits=key.limits)
        async with self.stores.transactions.begin() as tx:
            await self._refuse_person(tx, key, name)
            user, is_new = await self.people.find_or_create(
                tx, key.account, Platform.COMPLETIONS, f"{key.id}/{name}", state=UserState.ACTIVE
            )
            if is_new and key.trains:
                await self.people.allow_training(tx, user.id, trains=True)
        while len(self._end_users) >= MAX_CACHED_END_USERS:
            del self._end_users[next(iter(self._end_users))]
        end_user = EndUser(user, key.account, key.tier or self.tier, key.id, key.limits)
        self._end_users.pop((key.id, name), None)
        self._end_users[key.id, name] = (time.monotonic() + END_USER_TTL_S, end_user)
        return end_user

    async def may_name(self, key: ApiKey, user_id: UUID) -> bool:
        """Whether a key may still name this end user of its own: an operator may have narrowed its patterns since."""
        if key.limits.users is None:
            return True
        async with self.stores.transactions.begin() as tx:
            channels = (await self.people.channels(tx, [user_id])).get(user_id, ())
        own = [channel.sender_id.removeprefix(f"{key.id}/") for channel in channels if channel.sender_id.startswith(f"{key.id}/")]
        return any(key.limits.allows_user(name) for name in own)

    async def _refuse_person(self, tx: Transaction, key: ApiKey, name: str) -> None:
        """Raise KeyForbids if the operator has linked this end user to a person, and the key's own patterns do not name them."""
        channel = UserChannel(key.account, Platform.COMPLETIONS, f"{key.id}/{name}")
        if key.limits.users is None and await self.people.is_person(tx, channel):
            raise person_forbidden(name)

    def models(self, tier: str, limits: KeyLimits = NO_LIMITS) -> list[str]:
        """The model names that a client of this tier, with a key of these limits, may ask for."""
        models, planned = self.gateway.catalogue.models, self.gateway.choose_chains(lambda: "").chains.get(tier, ())
        known = [name for name in (*self.gateway.catalogue.tier(tier).chain, *planned) if name in models]
        return list(dict.fromkeys([ANY_MODEL, *(name for name in known if limits.allows_model(name, models[name].id))]))

    def chain(self, model: str, tier: str, limits: KeyLimits = NO_LIMITS, planned: Sequence[str] | None = None) -> list[str]:
        """The models to try: first the one that the client asked for, by our name or the vendor's, then the others of the tier in order.
        Only models that the key's limits allow.

        `planned` is the chain of the plan, if there is one. A model that the plan took out of the tier's chain may still be asked for: then
        the plan's chain answers, in its order. Raises UnknownModel, and KeyForbids if the key may not use the model that the client asked
        for."""
        settings, models = self.gateway.catalogue.tier(tier).chain, self.gateway.catalogue.models
        own = list(settings if planned is None else planned)
        if model == ANY_MODEL:
            return list(allowed_models(own, limits, models))
        first = next((name for name in (*own, *settings) if name in models and model in model_names(name, models[name])), None)
        if first is None:
            known = [ANY_MODEL, *settings]
            near = (get_close_matches(model, known, n=1) or known)[0]
            raise UnknownModel(f"there is no model {show_value(model)} here; did you mean {near}? GET /v1/models lists them")
        allowed_models([first], limits, models)
        return list(allowed_models([first, *(name for name in own if name != first)] if first in own else own, limits, models))

    async def complete(self, request: ChatRequest, end_user: EndUser, session: str | None = None) -> list[Answer]:
        """Return as many answers as the client asked for. Raises what Gateway.complete raises, and UnknownModel.

        Several answers are sampled at the same time; when one of them fails, the others are cancelled."""
        ask, caller, recorder = self._prepare(request, end_user, session)
        with self.gateway.tracer.request(caller) as span:
            caller = caller if span.traceparent is None else replace(caller, traceparent=span.traceparent)
            answers = await self._sample(ask, caller, recorder, request.choices)
            span.note(session_id=answers[0].session_id)
        return answers

    async def _sample(self, ask: ModelRequest, caller: Caller, recorder: ChatRecorder, choices: int) -> list[Answer]:
        if choices == 1:
            with recorder.look_ahead():
                return [await self.gateway.complete(ask, caller, recorder.record, recorder.place)]
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
            with recorder.look_ahead():
                async with aclosing(self.gateway.stream(ask, caller, recorder.record, recorder.place)) as pieces:
                    async for piece in pieces:
                        yield ChoicePiece(0, piece)
            return
        async with recorder.open_chat():
            streams = [self.gateway.stream(ask, caller, recorder.record) for _ in range(choices)]
            async with aclosing(merge_streams(streams)) as merged:
                async for choice_piece in merged:
                    yield choice_piece

    async def embed(self, request: EmbeddingsRequest, end_user: EndUser) -> Answer:
        """Return the vectors of a client's texts, in the answer's `extra`. Raises as `complete`, and InvalidChatRequest."""
        if self.embedding_model is None or request.model not in (ANY_MODEL, self.embedding_model):
            raise UnknownModel(f"there is no embedding model of this name here; did you mean {self.embedding_model or 'another address'}?")
        if request.dimensions not in (None, self.embedding_dimension):
            raise InvalidChatRequest(
                "dimensions", f"{self.embedding_model} gives vectors of {self.embedding_dimension} numbers", request.dimensions
            )
        caller = self._caller(end_user, CallPurpose.EMBEDDINGS, [self.embedding_model])
        with self.gateway.tracer.request(caller) as span:
            return await self.gateway.complete(request.ask(str(end_user.user.id)), replace(caller, traceparent=span.traceparent))

    def _prepare(self, request: ChatRequest, end_user: EndUser, session: str | None) -> tuple[ModelRequest, Caller, ChatRecorder]:
        user_id, limits, name = end_user.user.id, self.gateway.catalogue.limits, session or request.session_name
        chosen = self.gateway.choose_chains(lambda: chat_name(request, user_id, name))
        models = self.chain(request.model, end_user.tier, end_user.limits, chosen.chains.get(end_user.tier))
        ask = request.ask(str(user_id))
        adapter = self.adapter_on(end_user.account) if request.model == ANY_MODEL else None
        if adapter is not None:
            models = [adapter.model, *(name for name in models if name != adapter.model)]
            ask = replace(ask, cwd=Path(adapter.cwd)) if adapter.cwd is not None else ask
        caller = self._caller(end_user, CallPurpose.COMPLETIONS, models, chosen.plan)
        recorder = ChatRecorder(request, self.stores, account=end_user.account, user_id=user_id, name=name, limits=limits)
        return ask, caller, recorder

    def _caller(self, end_user: EndUser, purpose: CallPurpose, models: Sequence[str], plan: int | None = None) -> Caller:
        return Caller(
            user_id=end_user.user.id,
            account=end_user.account,
            tier=end_user.tier,
            source=CallSource.COMPLETIONS,
            purpose=purpose,
            platform=Platform.COMPLETIONS,
            api_key_id=end_user.api_key_id,
            may_use_cache=False,  # samples are independent
            models=models,
            plan=plan,
            deadline_s=self.deadline_s,
        )


def model_names(name: str, model: ModelSpec) -> tuple[str | None, ...]:
    """The names by which a client may ask for a model."""
    return name, model.id, model.stands_for


def chat_name(request: ChatRequest, user_id: UUID, name: str | None) -> str:
    """What stays the same while a client's chat grows: its own name for it, or else what it begins with."""
    if name is not None:
        return f"{user_id}:{name}"
    first = next((at for at, message in enumerate(request.messages) if message.get("role") == "user"), 0)
    return f"{user_id}:{json.dumps(list(request.messages[: first + 1]), sort_keys=True, default=str)}"


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
