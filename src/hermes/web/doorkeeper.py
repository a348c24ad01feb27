"""Who is at the door: API keys, looked up once and remembered for a few seconds."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from hermes.ports.api_keys import ApiKey, ApiKeys
from hermes.ports.transactions import Transactions
from hermes.web.errors import Refused
from hermes.web.limits import Limit, too_many

LONGEST_SECRET = 200
MOST_REMEMBERED = 1_024


class Doorkeeper:
    """Finds the key that a request came with. A key that was revoked is let in for at most `remember_s` more, in each process."""

    def __init__(
        self,
        transactions: Transactions,
        api_keys: ApiKeys,
        *,
        guesses: Limit,
        remember_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`guesses` is how often an address may come with a key that is not known here yet."""
        self._transactions, self._api_keys, self._remember_s, self._clock = transactions, api_keys, remember_s, clock
        self._guesses = guesses
        self._known: dict[bytes, tuple[ApiKey, float]] = {}
        """By digest, so that no secret is kept; in the order of looking up, so that the first is the oldest."""

    async def admit(self, secret: str | None, door: str, address: str) -> ApiKey:
        """Return the key of a secret; raise Refused: with 401 for one that nobody knows, with 403 for one that opens another door, with
        429 for an address that keeps guessing. Fails closed, with StoreUnavailable."""
        key = await self._known_or_found(secret, address)
        if key.doors is not None and door not in key.doors:
            raise Refused(403, "wrong_door", f"This API key opens {', '.join(key.doors) or 'nothing'}, and not {door}.")
        return key

    async def _known_or_found(self, secret: str | None, address: str) -> ApiKey:
        if not secret:
            raise refused("This needs an API key: send `Authorization: Bearer hk_…`.", "Bearer")
        digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
        if (known := self._known.get(digest)) and self._clock() < known[1]:
            return known[0]
        if self._known.pop(digest, None) is None and (wait_s := self._guesses.wait_s(address)):
            raise too_many(wait_s)
        key = await self._look_up(secret)
        if key is None:
            raise refused("This API key is not known, or was revoked.", 'Bearer error="invalid_token"')
        while len(self._known) >= MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[digest] = (key, self._clock() + self._remember_s)
        return key

    async def _look_up(self, secret: str) -> ApiKey | None:
        if len(secret) > LONGEST_SECRET:
            return None
        async with self._transactions.begin() as tx:
            return await self._api_keys.find(tx, secret)


def within(key: ApiKey, channel: str) -> str:
    """Return the channel that a key may use; raise Refused with 403 for one that it may not."""
    if key.channels is not None and channel not in key.channels:
        raise Refused(403, "wrong_channel", f"This API key is for the channels {', '.join(key.channels)}.", param="channel")
    return channel


def refused(message: str, challenge: str) -> Refused:
    return Refused(401, "invalid_api_key", message, headers={"WWW-Authenticate": challenge})
