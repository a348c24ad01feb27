"""Who is at the door: API keys, looked up once and remembered for a few seconds.

A right key is never refused because of wrong ones: nothing is refused before it was looked up, and only a key that was looked up and not
found counts as a guess. Wrong keys cannot flood the database either: one look-up is under way at a time, and takes along every key that
was waiting when it began. So a key waits for two look-ups at most, however many wrong ones come beside it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from hermes.ports.api_keys import ApiKey, ApiKeys
from hermes.ports.errors import StoreUnavailable
from hermes.ports.transactions import Transactions
from hermes.web.errors import ApiError
from hermes.web.rate_limit import RateLimit, too_many_requests

MAX_SECRET_CHARS = 200
MAX_CACHED_KEYS = 1_024
MAX_KEYS_PER_LOOKUP = 1_000
"""Keys in one look-up."""
LOOKUP_TIMEOUT_S = 10.0
"""For one look-up: beyond that its connection is dead, and the keys behind it would wait for the same."""


class ApiAuth:
    """Finds the key that a request came with. A key that was revoked is let in for at most `remember_s` more, in each process."""

    def __init__(
        self,
        transactions: Transactions,
        api_keys: ApiKeys,
        *,
        guesses: RateLimit,
        remember_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`guesses` is how often an address is told that a key is not known (401); beyond that it is told when to come again (429)."""
        self._transactions, self._api_keys, self._remember_s, self._clock = transactions, api_keys, remember_s, clock
        self._guesses = guesses
        self._known: dict[bytes, tuple[ApiKey, float]] = {}
        """By digest, so that no secret is kept; in the order of looking up, so that the first is the oldest."""
        self._waiting: dict[str, asyncio.Future[ApiKey | None]] = {}
        """By secret: what requests wait for, first what is being looked up, then what will be."""
        self._looking: asyncio.Task[None] | None = None

    async def admit(self, secret: str | None, scope: str, address: str) -> ApiKey:
        """Return the key of a secret; raise Refused: with 401 for one that is not known, or 429 where its address keeps guessing, and with
        403 for one without the scope. Fails closed, with StoreUnavailable."""
        if not secret:
            raise unauthorized_error("This needs an API key: send `Authorization: Bearer hk_…`.", "Bearer")
        known = self._known.get(digest_of(secret))
        key = known[0] if known and self._clock() < known[1] else await self._found(secret)
        if key is None:
            if wait_s := self._guesses.wait_s(address):
                raise too_many_requests(wait_s)
            raise unauthorized_error("This API key is not known, or was revoked.", 'Bearer error="invalid_token"')
        if key.scopes is not None and scope not in key.scopes:
            raise ApiError(403, "wrong_scope", f"This API key lacks the scope {scope}; it has {', '.join(key.scopes) or 'none'}.")
        return key

    async def _found(self, secret: str) -> ApiKey | None:
        """Wait for the look-up of a secret, which all requests with it share."""
        if len(secret) > MAX_SECRET_CHARS:
            return None
        if secret not in self._waiting:
            self._waiting[secret] = asyncio.get_running_loop().create_future()
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look_up())
        return await asyncio.shield(self._waiting[secret])  # a request that is cancelled takes nothing from the others

    async def _look_up(self) -> None:
        """Look up what is waited for, until nothing is."""
        while self._waiting:
            taken = list(islice(self._waiting, MAX_KEYS_PER_LOOKUP))
            until = self._clock() + self._remember_s
            try:
                async with asyncio.timeout(LOOKUP_TIMEOUT_S), self._transactions.begin() as tx:
                    found = await self._api_keys.find(tx, taken)
            except TimeoutError:
                self._fail(StoreUnavailable(f"API keys could not be looked up within {LOOKUP_TIMEOUT_S:g} s"))
            except Exception as error:  # noqa: BLE001  # the requests get it
                self._fail(error)
            else:
                self._answer(taken, found, until)

    def _fail(self, error: Exception) -> None:
        """Tell all requests; those that would go next too, for they would only wait for the same database."""
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
            return  # a key that is made now may be used now
        while len(self._known) >= MAX_CACHED_KEYS:
            del self._known[next(iter(self._known))]
        self._known[digest] = (key, until)


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def allowed_channel(key: ApiKey, channel: str) -> str:
    """Return the channel that a key may use; raise Refused with 403 for one that it may not."""
    if key.channels is not None and channel not in key.channels:
        raise ApiError(403, "wrong_channel", f"This API key is for the channels {', '.join(key.channels)}.", param="channel")
    return channel


def unauthorized_error(message: str, challenge: str) -> ApiError:
    return ApiError(401, "invalid_api_key", message, headers={"WWW-Authenticate": challenge})
