"""Checks API keys: each is looked up once, and cached for a few seconds.

Wrong keys never cause the refusal of a right one: no key is refused before its look-up, and only a key that was not found counts as a
guess. Wrong keys cannot flood the database either: one look-up runs at a time, and takes every key that was waiting when it began. So a key
waits for two look-ups at most, however many wrong ones come at the same time."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from hermes.ports.errors import StoreUnavailable
from hermes.ports.runtime import Transactions
from hermes.ports.users import OPERATOR_SCOPES, ApiKey, ApiKeys
from hermes.web.errors import ApiError
from hermes.web.limits import RateLimit, too_many_requests

MAX_SECRET_CHARS = 200
MAX_CACHED_KEYS = 1_024
MAX_KEYS_PER_LOOKUP = 1_000
"""The most keys in one look-up."""
LOOKUP_TIMEOUT_S = 10.0
"""For one look-up. After that time its connection is dead, and the next keys would wait for the same."""


class ApiAuth:
    """Finds the API key of a request. Each process still accepts a revoked key for at most `remember_s`."""

    def __init__(
        self,
        transactions: Transactions,
        api_keys: ApiKeys,
        *,
        guesses: RateLimit,
        remember_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`guesses` limits how often an address gets 401 for an unknown key; beyond that it gets 429 and the time to wait."""
        self._transactions, self._api_keys, self._remember_s, self._clock = transactions, api_keys, remember_s, clock
        self._guesses = guesses
        self._known: dict[bytes, tuple[ApiKey, float]] = {}
        """By digest, so that no secret is kept; in the order of the look-ups, so that the first is the oldest."""
        self._waiting: dict[str, asyncio.Future[ApiKey | None]] = {}
        """By secret: the look-ups that requests wait for, first the running one, then the next."""
        self._looking: asyncio.Task[None] | None = None

    async def admit(self, secret: str | None, scope: str, address: str) -> ApiKey:
        """Return the key of a secret. Raises ApiError: 401 for an unknown secret, 429 if its address keeps guessing, 403 for a key without
        the scope. Fails closed, with StoreUnavailable."""
        if not secret:
            raise unauthorized_error("This needs an API key: send `Authorization: Bearer hk_…`.", "Bearer")
        known = self._known.get(digest_of(secret))
        key = known[0] if known and self._clock() < known[1] else await self._find(secret)
        if key is None:
            if wait_s := self._guesses.wait_s(address):
                raise too_many_requests(wait_s)
            raise unauthorized_error("This API key is unknown, or was revoked.", 'Bearer error="invalid_token"')
        if not key.has_scope(scope):
            raise ApiError(403, "wrong_scope", f"This API key lacks the scope {scope}; {describe_scopes(key)}")
        return key

    async def _find(self, secret: str) -> ApiKey | None:
        """Wait for the look-up of a secret, which all requests with that secret share."""
        if len(secret) > MAX_SECRET_CHARS:
            return None
        if secret not in self._waiting:
            self._waiting[secret] = asyncio.get_running_loop().create_future()
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look_up())
        return await asyncio.shield(self._waiting[secret])  # the cancellation of one request does not stop the look-up for the others

    async def _look_up(self) -> None:
        """Look up the waiting secrets, until none is left."""
        while self._waiting:
            secrets = list(islice(self._waiting, MAX_KEYS_PER_LOOKUP))
            until = self._clock() + self._remember_s
            try:
                async with asyncio.timeout(LOOKUP_TIMEOUT_S), self._transactions.begin() as tx:
                    found = await self._api_keys.find(tx, secrets)
            except TimeoutError:
                self._fail(StoreUnavailable(f"API keys could not be looked up within {LOOKUP_TIMEOUT_S:g} s"))
            except Exception as error:  # noqa: BLE001  # the waiting requests raise it
                self._fail(error)
            else:
                self._answer(secrets, found, until)

    def _fail(self, error: Exception) -> None:
        """Fail all waiting requests, also those of the next look-up: they would only wait for the same database."""
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.set_exception(error)

    def _answer(self, secrets: Sequence[str], found: Mapping[str, ApiKey], until: float) -> None:
        for secret in secrets:
            self._remember(secret, found.get(secret), until)
            self._waiting.pop(secret).set_result(found.get(secret))

    def _remember(self, secret: str, key: ApiKey | None, until: float) -> None:
        digest = digest_of(secret)
        self._known.pop(digest, None)
        if key is None:
            return  # unknown keys are not cached: a new key works at once
        while len(self._known) >= MAX_CACHED_KEYS:
            del self._known[next(iter(self._known))]
        self._known[digest] = (key, until)


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def describe_scopes(key: ApiKey) -> str:
    if key.scopes is None:
        return f"it has all but {', '.join(sorted(OPERATOR_SCOPES))}."
    return f"it has {', '.join(key.scopes) or 'none'}."


def allowed_channel(key: ApiKey, channel: str) -> str:
    """Return the channel if the key may use it; raise ApiError with 403 if not."""
    if key.channels is not None and channel not in key.channels:
        raise ApiError(403, "wrong_channel", f"This API key is for the channels {', '.join(key.channels)}.", param="channel")
    return channel


def unauthorized_error(message: str, challenge: str) -> ApiError:
    return ApiError(401, "invalid_api_key", message, headers={"WWW-Authenticate": challenge})
