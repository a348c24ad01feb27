"""Offers on PostgreSQL: what a tool would do for a user, sealed, until the user approves or refuses it.

The row of an offer is held until the transaction ends, so that it is taken once. Each change of its state is also an event of the turn that
made it, written in the same transaction. The digest covers the tool, the words that the user was shown and the terms; they are compared
before an offer is carried out, so that what is done is what was shown."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.errors import DataDamaged
from hermes.ports.runtime import Transaction
from hermes.ports.tools import NewOffer, OfferNotice, OfferNotOpen, OfferState, OfferView, TakenOffer, ToolUser
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys

SQL, JOURNAL = load_queries("offers"), load_queries("journal")
CODE_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without letters and digits that look alike, so that a user can read a code and type it correctly."""
CODE_LENGTH = 6
SHOWN_DIGEST_CHARS = 16
"""Of a digest, in the journal: enough to see that two events are of one offer."""
EVENTS: Mapping[OfferState, str] = {state: f"offer_{state}" for state in OfferState} | {OfferState.OFFERED: "offer_made"}


class PostgresOffers:
    """The port Offers."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def put(self, tx: Transaction, user: ToolUser, index: int, offer: NewOffer, *, valid_s: float) -> OfferNotice:
        keys = await self._keyring.of(tx, user.user_id)
        content = {"text": offer.text, "terms": dict(offer.terms), "salt": secrets.token_hex(16)}
        digest, expires_at = digest_of(offer.tool, content), user.now + timedelta(seconds=valid_s)
        row = {"user_id": user.user_id, "turn_id": user.turn_id, "index": index, "tool": offer.tool, "digest": digest}

        async def add(code: str) -> bool:
            sealed = keys.seal(offer_label(code), json.dumps(content).encode())
            return await execute(tx, SQL["put"], {**row, "code": code, "sealed": sealed, "expires_at": expires_at}) > 0

        code = await add_with_new_code(add)
        await note_state(tx, user.turn_id, OfferState.OFFERED, offer.tool, digest, expires_at=expires_at.isoformat())
        return OfferNotice(code, offer.tool, offer.text, expires_at)

    async def look(self, tx: Transaction, user: ToolUser, code: str) -> OfferView | None:
        found = await fetch_row(tx, OfferRow, SQL["look"], offer_key(user, code))
        if found is None:
            return None
        content = found.open(await self._keyring.of(tx, user.user_id), code)
        return OfferView(found.tool, content["text"], found.state_for(user))

    async def take(self, tx: Transaction, user: ToolUser, code: str) -> TakenOffer:
        found = await self._settle(tx, user, code, OfferState.APPROVED)
        keys = await self._keyring.of(tx, user.user_id)
        content, key = found.open(keys, code), f"{found.turn_id}/{found.call_index}"
        result = None if found.result is None else keys.open(result_label(code), found.result).decode()
        return TakenOffer(found.tool, content["terms"], key, is_new=found.state == OfferState.OFFERED, result=result)

    async def finish(self, tx: Transaction, user: ToolUser, code: str, result: str) -> None:
        keys = await self._keyring.of(tx, user.user_id)
        sealed = keys.seal(result_label(code), result.encode("utf-8", "replace"))
        await execute(tx, SQL["finish"], {**offer_key(user, code), "result": sealed})

    async def refuse(self, tx: Transaction, user: ToolUser, code: str) -> None:
        await self._settle(tx, user, code, OfferState.REFUSED)

    async def expire(self, tx: Transaction, now: datetime, *, limit: int = 500) -> int:
        old = await fetch_rows(tx, ExpiredOffer, SQL["expire"], {"now": now, "limit": limit})
        for offer in old:
            await note_state(tx, offer.turn_id, OfferState.EXPIRED, offer.tool, offer.digest)
        return len(old)

    async def _settle(self, tx: Transaction, user: ToolUser, code: str, state: OfferState) -> OfferRow:
        """Move an open offer into a state, and return the row as it was; a repeated call of the turn that moved it changes nothing."""
        row = offer_key(user, code)
        found = await fetch_row(tx, OfferRow, SQL["hold"], row)
        # The turn that made the offer cannot settle it: between the two, its user must have seen the offer.
        if found is None or found.turn_id == user.turn_id:
            raise OfferNotOpen(None)
        if (found.state, found.settled_by) == (state, user.turn_id):
            return found
        if found.state_for(user) is not OfferState.OFFERED:
            raise OfferNotOpen(found.state_for(user))
        await execute(tx, SQL["settle"], {**row, "state": state, "turn_id": user.turn_id})
        await note_state(tx, found.turn_id, state, found.tool, found.digest, by_turn=str(user.turn_id))
        return found


class OfferRow(NamedTuple):
    """An offer as it is stored."""

    tool: str
    sealed: bytes
    digest: bytes
    turn_id: UUID
    call_index: int
    state: str
    settled_by: UUID | None
    result: bytes | None
    is_old: bool

    def state_for(self, user: ToolUser) -> OfferState:
        """The state as this turn sees it: still open if this turn approved it and was cut off."""
        state = OfferState(self.state)
        if state is OfferState.APPROVED and self.settled_by == user.turn_id:
            return OfferState.OFFERED
        return OfferState.EXPIRED if state is OfferState.OFFERED and self.is_old else state

    def open(self, keys: DataKeys, code: str) -> dict[str, Any]:
        """The words and the terms. Raises DataDamaged if they are not those that the digest was made of."""
        content: dict[str, Any] = json.loads(keys.open(offer_label(code), self.sealed))
        if not hmac.compare_digest(digest_of(self.tool, content), self.digest):
            raise DataDamaged(f"offer {code}: what is stored is not what was offered")
        return content


class ExpiredOffer(NamedTuple):
    """An offer that was just found to be too old."""

    turn_id: UUID
    tool: str
    digest: bytes


async def note_state(tx: Transaction, turn_id: UUID, state: OfferState, tool: str, digest: bytes, **facts: str) -> None:
    """Add the event to the journal of the turn that made the offer. No words and no code: operators read it without opening the chat."""
    shown = {"tool": tool, "offer": digest.hex()[:SHOWN_DIGEST_CHARS], **facts}
    await execute(tx, JOURNAL["add"], {"turn_id": turn_id, "type": EVENTS[state], "facts": Jsonb(shown)})


def digest_of(tool: str, content: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps([tool, content], sort_keys=True, separators=(",", ":")).encode()).digest()


def offer_key(user: ToolUser, code: str) -> dict[str, Any]:
    return {"user_id": user.user_id, "code": code, "now": user.now}


def offer_label(code: str) -> str:
    return f"offers/{code}"


def result_label(code: str) -> str:
    return f"offers/{code}/result"


async def add_with_new_code(add: Callable[[str], Awaitable[bool]]) -> str:
    """Add a row under a code that this user has not had. Of 600 million codes the first try is free, unless a user has very many."""
    while True:
        code = new_code()
        if await add(code):
            return code


def new_code() -> str:
    """A code with at least one digit: one of letters alone may be a word, and would be read as a word of some language."""
    while True:
        code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
        if not code.isalpha():
            return code
