"""Hot copies in Redis: recent histories, the base of souls, and answers. Every value is a Fernet token under the user's own key.

Redis is here for speed only: the source of truth is elsewhere, and no failure of Redis is an error here, but for a soul that cannot be
dropped. `redis` returns bytes, has short timeouts and does not retry by itself."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import structlog
from redis.asyncio import Redis

from hermes.graph import MessageError
from hermes.graph.message import METADATA, check_message, compact_json, thaw
from hermes.ports.errors import StoreUnavailable, UserErased
from hermes.ports.memories import CachedSoul
from hermes.ports.models import CachedValue
from hermes.ports.runtime import Transactions
from hermes.ports.session import Session
from hermes.ports.sessions import Graphs, RecentHistory
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.counters import ScriptBatch
from hermes.stores.seal import DataKeys, FernetCipher, SealBroken, SealError

log = structlog.get_logger()

CACHE_ERRORS = (*REDIS_ERRORS, UserErased, StoreUnavailable, SealError)
NO_MARK = b"-"
NO_TOKEN = b""
"""In place of the last token of a history that has none."""

PlainMessage = dict[str, Any]
"""A message without metadata, in plain values."""


# --- histories


class RedisHistories:
    """The port Histories: the last messages of each session, one token per message.

    A token holds its session and its place in the list; the last token also holds the head of the list. So a copy that is old, cut short,
    reordered or from another session is noticed, and the graph store, which is the source of truth, is read instead."""

    def __init__(
        self,
        redis: Redis,
        transactions: Transactions,
        graphs: Graphs,
        keyring: Keyring,
        *,
        ttl_s: int = 43_200,
        keep_messages: int = 20,
        batch: ScriptBatch | None = None,
    ) -> None:
        self._redis, self._transactions, self._graphs, self._keyring = redis, transactions, graphs, keyring
        self._batch = batch or ScriptBatch(redis)
        self._ttl_s, self._keep = ttl_s, keep_messages
        self._extension = redis.register_script(EXTEND_SCRIPT)

    async def read(self, conversation_key: str, session: Session) -> RecentHistory:
        if session.length == 0:
            return RecentHistory((), session.head, mark=NO_TOKEN)
        tokens = (await find_keys(self._keyring, self._transactions, session.user_id)).history(conversation_key)
        cached = decode_history(await self._stored(session.id), tokens, session, self._keep)
        if cached is not None:
            return cached
        async with self._transactions.begin() as tx:
            graph = await self._graphs.load(tx, session.id)
        start = first_kept_index(len(graph), self._keep)
        history = RecentHistory(tuple(plain_message(message) for message in graph[start:]), graph.head, start)
        copy = encode_history(history.messages, start, history.head, tokens, session.id)
        await self._replace(session.id, copy)
        return replace(history, mark=copy[-1] if copy else NO_TOKEN)

    async def append(
        self, conversation_key: str, session: Session, before: RecentHistory, messages: Sequence[Mapping[str, Any]], *, head: str
    ) -> None:
        if not messages:
            return
        try:
            tokens = (await find_keys(self._keyring, self._transactions, session.user_id)).history(conversation_key)
            await self._extend(session.id, before, [check_plain_message(message) for message in messages], head, tokens)
        except (UserErased, MessageError, StoreUnavailable, *REDIS_ERRORS) as error:
            # The copy no longer has its session's head, so no reader uses it: it need not be dropped.
            log.warning("hot_history_not_extended", session_id=str(session.id), error=type(error).__name__)

    async def drop(self, session_ids: Sequence[UUID]) -> None:
        if not session_ids:
            return
        try:
            await self._redis.delete(*map(history_key, session_ids))
        except REDIS_ERRORS as error:
            log.warning("hot_history_not_dropped", sessions=len(session_ids), error=type(error).__name__)

    async def _stored(self, session_id: UUID) -> list[bytes]:
        """The tokens of a session, and renew their time to live. An empty list if Redis cannot be reached."""
        try:
            key = history_key(session_id)
            found, _ = await self._batch.execute_all(("LRANGE", key, 0, -1), ("EXPIRE", key, self._ttl_s))
        except REDIS_ERRORS as error:
            log.warning("hot_history_not_read", session_id=str(session_id), error=type(error).__name__)
            return []
        return list(found)

    async def _replace(self, session_id: UUID, tokens: Sequence[bytes]) -> None:
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.delete(history_key(session_id))
                if tokens:
                    pipe.rpush(history_key(session_id), *tokens)
                    pipe.expire(history_key(session_id), self._ttl_s)
                await pipe.execute()
        except REDIS_ERRORS as error:
            log.warning("hot_history_not_written", session_id=str(session_id), error=type(error).__name__)

    async def _extend(
        self, session_id: UUID, before: RecentHistory, messages: Sequence[PlainMessage], head: str, tokens: FernetCipher
    ) -> None:
        """Extend the copy if it has the head `before.head`, else drop it. Atomic: if another process changed the copy meanwhile, it is
        dropped."""
        key = history_key(session_id)
        if before.mark is not None:
            last, count, length = before.mark, len(before.messages), before.offset + len(before.messages)
        else:
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.lindex(key, -1)
                pipe.llen(key)
                stored, count = await pipe.execute()
            known = 0 if stored is None and not before.messages else length_at(stored, before.head, tokens, session_id)
            if known is None:
                await self._redis.delete(key)
                return
            last, length = stored or NO_TOKEN, known
        start = first_kept_index(length + len(messages), self._keep)
        added = encode_history(messages, length, head, tokens, session_id)
        await self._batch.run(self._extension, [key], [last, max(0, start - (length - count)), self._ttl_s, *added])


EXTEND_SCRIPT = """
if (redis.call('LINDEX', KEYS[1], -1) or '') ~= ARGV[1] then
    redis.call('DEL', KEYS[1])
    return
end
redis.call('RPUSH', KEYS[1], unpack(ARGV, 4))
redis.call('LTRIM', KEYS[1], ARGV[2], -1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
"""
"""Extends a copy if its last token is still the one that was read; drops it otherwise."""


def history_key(session_id: UUID) -> str:
    return f"hermes:history:{session_id}"


def first_kept_index(length: int, keep: int) -> int:
    """Where the kept end of a list begins: `keep` to 2 * `keep` - 1 messages are kept, once there are so many.

    It moves by `keep` at a time. If it moved with every message, each prompt would start differently from the prompt before, and no
    backend's prompt cache would recognise it."""
    return max(0, (length // keep - 1) * keep)


def encode_history(messages: Sequence[Mapping[str, Any]], start: int, head: str, tokens: FernetCipher, session_id: UUID) -> list[bytes]:
    """The tokens of messages that stand in a list from `start` on; `head` is the head of the list."""
    last = len(messages) - 1
    pieces = (
        {"session": session_id.hex, "place": start + at, "head": head if at == last else None, "message": message}
        for at, message in enumerate(messages)
    )
    return [tokens.encode(compact_json(piece).encode("ascii")) for piece in pieces]


def decode_history(stored: Sequence[bytes], tokens: FernetCipher, session: Session, keep: int) -> RecentHistory | None:
    """Read a copy; None unless it is complete, of this session and at its head."""
    if not stored:
        return None
    last = decode_piece(stored[-1], tokens)
    length = length_of(last, session.head, session.id)
    if length is None or length - len(stored) != first_kept_index(length, keep):
        return None
    pieces = [*(decode_piece(token, tokens) for token in stored[:-1]), last]
    expected = [(session.id.hex, place) for place in range(length - len(stored), length)]
    if [(piece.get("session"), piece.get("place")) for piece in pieces] != expected:
        return None
    return RecentHistory(tuple(piece["message"] for piece in pieces), session.head, length - len(stored), mark=stored[-1])


def length_at(last: bytes | None, head: str, tokens: FernetCipher, session_id: UUID) -> int | None:
    """The length of the list that ends with this token; None unless the token is of this session and has this head."""
    return None if last is None else length_of(decode_piece(last, tokens), head, session_id)


def length_of(piece: Mapping[str, Any], head: str, session_id: UUID) -> int | None:
    """The length of the list that ends with this piece; None unless it is of this session and has this head."""
    if (piece.get("session"), piece.get("head")) != (session_id.hex, head):
        return None
    length: int = piece["place"] + 1
    return length


def decode_piece(token: bytes, tokens: FernetCipher) -> dict[str, Any]:
    """The fields of a token; none if it was not made under this label."""
    try:
        piece: dict[str, Any] = json.loads(tokens.decode(token))
    except SealBroken:
        return {}
    return piece


def check_plain_message(message: Mapping[str, Any]) -> PlainMessage:
    """A message as the graph holds it, without metadata. Raises MessageError if it is not a message."""
    return plain_message(check_message(message, "message", lambda _side, _path: None))


def plain_message(message: Mapping[str, Any]) -> PlainMessage:
    return {key: thaw(value) for key, value in message.items() if key != METADATA}


# --- souls


class RedisSoulCache:
    """The port SoulCache: one token per user, for an hour.

    Each has a mark that every drop changes. A base that a worker read before a drop and puts after it would show old facts for an hour; its
    mark is no longer the current one, so it is not stored."""

    def __init__(
        self, redis: Redis, transactions: Transactions, keyring: Keyring, *, ttl_s: int = 3_600, batch: ScriptBatch | None = None
    ) -> None:
        self._redis, self._transactions, self._keyring, self._ttl_s = redis, transactions, keyring, ttl_s
        self._batch = batch or ScriptBatch(redis)
        self._put = redis.register_script(PUT_SCRIPT)

    @property
    def ttl_s(self) -> int:
        return self._ttl_s

    async def get(self, user_id: UUID) -> CachedSoul:
        mark: bytes | None = None
        try:
            found: list[Any] = await self._batch.execute("MGET", base_key(user_id), mark_key(user_id))
            token, mark = found[0], found[1] or NO_MARK
            return CachedSoul(None if token is None else (await self._tokens(user_id)).decode(token), mark)
        except CACHE_ERRORS as error:
            log.info("soul_not_read", user_id=str(user_id), error=type(error).__name__)
            return CachedSoul(None, mark)

    async def put(self, user_id: UUID, value: bytes, mark: bytes | None) -> None:
        if mark is None:
            return
        try:
            token = (await self._tokens(user_id)).encode(value)
            await self._put(keys=[base_key(user_id), mark_key(user_id)], args=[token, mark, NO_MARK, self._ttl_s])
        except CACHE_ERRORS as error:
            log.info("soul_not_cached", user_id=str(user_id), error=type(error).__name__)

    async def drop(self, user_id: UUID) -> None:
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                # Lives longer than any base that a worker is making now.
                pipe.set(mark_key(user_id), secrets.token_hex(8), ex=self._ttl_s)
                pipe.delete(base_key(user_id))
                await pipe.execute()
        except REDIS_ERRORS as error:
            raise StoreUnavailable(f"Redis cannot be used: {type(error).__name__}") from error

    async def _tokens(self, user_id: UUID) -> FernetCipher:
        return (await find_keys(self._keyring, self._transactions, user_id)).history(f"soul/{user_id}")


PUT_SCRIPT = """
if (redis.call('GET', KEYS[2]) or ARGV[3]) == ARGV[2] then
    redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[4])
end
"""
"""Puts a base if its mark is still the current one."""


def base_key(user_id: UUID) -> str:
    return f"soul:{user_id}:base"


def mark_key(user_id: UUID) -> str:
    return f"soul:{user_id}:mark"


# --- answers


class RedisAnswerCache:
    """The port AnswerCache."""

    def __init__(self, redis: Redis, transactions: Transactions, keyring: Keyring, *, ttl_s: int = 3_600) -> None:
        self._redis, self._transactions, self._keyring, self._ttl_s = redis, transactions, keyring, ttl_s
        self._get_or_claim = redis.register_script(GET_OR_CLAIM_SCRIPT)

    async def get_or_claim(self, user_id: UUID, key: str, *, lease_s: float) -> CachedValue:
        try:
            keys = [cache_key(user_id, key), claim_key(user_id, key)]
            token, is_claimed = await self._get_or_claim(keys=keys, args=[round(lease_s * 1_000)])
            return CachedValue((await self._tokens(user_id, key)).decode(token) if token else None, bool(is_claimed))
        except CACHE_ERRORS as error:
            log.info("cache_not_read", error=type(error).__name__)
            return CachedValue(None, is_claimed=True)

    async def put(self, user_id: UUID, key: str, value: bytes) -> None:
        try:
            token = (await self._tokens(user_id, key)).encode(value)
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.set(cache_key(user_id, key), token, ex=self._ttl_s)
                pipe.delete(claim_key(user_id, key))
                await pipe.execute()
        except CACHE_ERRORS as error:
            log.info("cache_not_written", error=type(error).__name__)

    async def release(self, user_id: UUID, key: str) -> None:
        try:
            await self._redis.delete(claim_key(user_id, key))
        except REDIS_ERRORS as error:
            log.info("cache_not_released", error=type(error).__name__)

    async def _tokens(self, user_id: UUID, key: str) -> FernetCipher:
        """The key is part of the label: a token moved to another question does not open."""
        return (await find_keys(self._keyring, self._transactions, user_id)).history(f"cache/{key}")


GET_OR_CLAIM_SCRIPT = """
local value = redis.call('GET', KEYS[1])
if value then return {value, 0} end
return {'', redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[1]) and 1 or 0}
"""
"""Returns the value, or whether this caller makes it."""


def cache_key(user_id: UUID, key: str) -> str:
    return f"hermes:cache:{user_id}:{key}"


def claim_key(user_id: UUID, key: str) -> str:
    return f"hermes:cache:{user_id}:{key}:claim"


# --- keys


async def find_keys(keyring: Keyring, transactions: Transactions, user_id: UUID) -> DataKeys:
    """The user's keys, mostly from the keyring's cache. Raises UserErased and StoreUnavailable."""
    known = keyring.known(user_id)
    if known is not None:
        return known
    async with transactions.begin() as tx:
        return await keyring.of(tx, user_id)
