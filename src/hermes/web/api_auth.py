"""Checks API keys: each is looked up once, and cached for a few seconds.

Wrong keys never cause the refusal of a right one: no key is refused before its look-up, and only a key that was not found counts as a
guess. Wrong keys cannot flood the database either: one look-up runs at a time, and takes every key that was waiting when it began. So a key
waits for two look-ups at most, however many wrong ones come at the same time."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice

from hermes.ports.errors import StoreUnavailable
from hermes.ports.inbox import TurnOrigin, client_names
from hermes.ports.key_use import KeyForbids, KeyQuotaSpent, KeyRateReached, KeyUse, check_user_name
from hermes.ports.runtime import Transactions
from hermes.ports.users import OPERATOR_SCOPES, ApiKey, ApiKeys
from hermes.web.errors import ApiError
from hermes.web.key_errors import key_api_error
from hermes.web.limits import RateLimit, too_many_requests

MAX_SECRET_CHARS = 200
MAX_CACHED_KEYS = 1_024
MAX_KEYS_PER_LOOKUP = 1_000
"""The most keys in one look-up."""
LOOKUP_TIMEOUT_S = 10.0
"""For one look-up. After that time its connection is dead, and the next keys would wait for the same."""


def utc_now() -> datetime:
    return datetime.now(UTC)


class ApiAuth:
    """Finds the API key of a request. Each process still accepts a revoked key for at most `remember_s`."""

    def __init__(
        self,
        transactions: Transactions,
        api_keys: ApiKeys,
        *,
        guesses: RateLimit,
        use: KeyUse | None = None,
        remember_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """`guesses` limits how often an address gets 401 for an unknown key; beyond that it gets 429 and the time to wait. `use` counts the
        requests of keys; None: they are not limited. `now` says whether a key has expired."""
        self._transactions, self._api_keys, self._remember_s, self._clock = transactions, api_keys, remember_s, clock
        self._guesses, self._use, self._now = guesses, use, now
        self._known: dict[bytes, tuple[ApiKey, float]] = {}
        """By digest, so that no secret is kept; in the order of the look-ups, so that the first is the oldest."""
        self._waiting: dict[str, asyncio.Future[ApiKey | None]] = {}
        """By secret: the look-ups that requests wait for, first the running one, then the next."""
        self._looking: asyncio.Task[None] | None = None

    async def admit(self, secret: str | None, scope: str, address: str, *, is_counted: bool = True) -> ApiKey:
        """Return the key of a secret: every request of every door comes through here. It counts in the key's requests a minute unless the
        door says that it only looks something up.

        Raises ApiError: 401 for an unknown secret and for a key that has expired, 429 if its address keeps guessing or the key came too
        often, 403 for a key without the scope or from another network. Fails closed, with StoreUnavailable."""
        if not secret:
            raise unauthorized_error("This needs an API key: send `Authorization: Bearer hk_…`.", "Bearer")
        known = self._known.get(digest_of(secret))
        key = known[0] if known and self._clock() < known[1] else await self._find(secret)
        if key is None:
            if wait_s := self._guesses.wait_s(address):
                raise too_many_requests(wait_s)
            raise unauthorized_error("This API key is unknown, or was revoked.", INVALID_TOKEN)
        if key.limits.expires_at is not None and self._now() >= key.limits.expires_at:
            when = f"{key.limits.expires_at.astimezone(UTC):%Y-%m-%d %H:%M}"
            raise ApiError(401, "expired_api_key", f"This API key expired on {when} UTC.", headers={"WWW-Authenticate": INVALID_TOKEN})
        if not key.limits.allows_address(address):
            raise ApiError(403, "wrong_network", "This API key may not be used from this network.")
        if not key.has_scope(scope):
            raise ApiError(403, "wrong_scope", f"This API key lacks the scope {scope}; {describe_scopes(key)}")
        if is_counted and self._use is not None:
            with key_errors():
                await self._use.count_request(key.id, key.limits)
        return key

    async def check_quota(self, key: ApiKey) -> None:
        """Refuse with 429 what would be accepted now and refused later: a message of a key whose day or month is used up."""
        if self._use is not None:
            with key_errors():
                await self._use.check_quota(key.id, key.limits)

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


INVALID_TOKEN = 'Bearer error="invalid_token"'  # noqa: S105  # a header's value


@contextmanager
def key_errors() -> Iterator[None]:
    """Turn the errors of a key that has reached a limit, or may not name a user, into responses."""
    try:
        yield
    except (KeyQuotaSpent, KeyRateReached, KeyForbids) as error:
        raise key_api_error(error) from error


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def describe_scopes(key: ApiKey) -> str:
    if key.scopes is None:
        return f"it has all but {', '.join(sorted(OPERATOR_SCOPES))}."
    return f"it has {', '.join(key.scopes) or 'none'}."


def refuse_other_channels(key: ApiKey, channel: str) -> None:
    """Raise ApiError with 403 for a channel that is not the key's."""
    if key.channels is not None and channel not in key.channels:
        raise ApiError(403, "wrong_channel", f"This API key is for the channels {', '.join(key.channels)}.", param="channel")


def refuse_other_users(key: ApiKey, name: str) -> None:
    """Raise ApiError with 403 for the name of a user that the key's patterns leave out."""
    with key_errors():
        check_user_name(key.limits, name)


def may_see(key: ApiKey, origin: TurnOrigin) -> bool:
    """Whether a key may see the turn of this origin: of its account, in its channels, of a user whom it may name. The turn of a user who
    was erased has no name any more, and no words either."""
    if origin.account != key.account or (key.channels is not None and client_names(origin.channel_id).isdisjoint(key.channels)):
        return False
    if origin.is_sender_erased:
        return True
    return not origin.is_person if key.limits.users is None else any(key.limits.allows_user(name) for name in origin.user_names)


def is_room(key: ApiKey, user: str, channel: str) -> bool:
    """Whether a channel is a shared room for this key. A key for single channels that names none of its users does not reach what is
    private of them: a channel that is not the user's own uses nothing private, as if other people read it."""
    return key.channels is not None and key.limits.users is None and channel != user


def unauthorized_error(message: str, challenge: str) -> ApiError:
    return ApiError(401, "invalid_api_key", message, headers={"WWW-Authenticate": challenge})
