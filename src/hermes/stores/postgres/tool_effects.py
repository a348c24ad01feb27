"""The effects of tools, by turn and index, and their offers, on PostgreSQL."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable

from hermes.ports.errors import NotFound
from hermes.ports.runtime import Transaction
from hermes.ports.tools import EffectRecord, PendingOffer, ToolUser
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("tool_effects")
CODE_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without letters and digits that look alike, so that a user can read a code and type it correctly."""
CODE_LENGTH = 6


class PostgresEffectRecords:
    """The port EffectRecords. The primary key makes a second `begin` of one effect wait for the first one's transaction, and then find
    its row."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def begin(self, tx: Transaction, user: ToolUser, index: int, name: str) -> EffectRecord:
        keys = await self._keyring.of(tx, user.user_id)
        row = {"turn_id": user.turn_id, "index": index, "user_id": user.user_id, "tool": name}
        if await (await connection_of(tx).execute(SQL["begin"], row)).fetchone() is not None:
            return EffectRecord(is_new=True, text=None)
        known = await (await connection_of(tx).execute(SQL["known"], row)).fetchone()
        if known is None:
            raise NotFound(f"turn {user.turn_id} belongs to another user")
        return EffectRecord(is_new=False, text=None if known[0] is None else keys.open(seal_label(user, index), known[0]).decode())

    async def finish(self, tx: Transaction, user: ToolUser, index: int, text: str) -> None:
        keys = await self._keyring.of(tx, user.user_id)
        sealed = keys.seal(seal_label(user, index), text.encode("utf-8", "replace"))
        await connection_of(tx).execute(SQL["finish"], {"turn_id": user.turn_id, "index": index, "user_id": user.user_id, "result": sealed})


class PostgresOffers:
    """The port Offers. `take` holds the row of the offer until the transaction ends, so an offer is taken once."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def put(self, tx: Transaction, user: ToolUser, pending: PendingOffer, *, valid_s: float) -> str:
        keys = await self._keyring.of(tx, user.user_id)

        async def add(code: str) -> bool:
            terms = keys.seal(f"offers/{code}", json.dumps(dict(pending.terms)).encode())
            row = {"user_id": user.user_id, "code": code, "turn_id": user.turn_id, "tool": pending.tool, "terms": terms}
            return await (await connection_of(tx).execute(SQL["put"], {**row, "now": user.now, "valid_s": valid_s})).fetchone() is not None

        return await add_with_new_code(add)

    async def take(self, tx: Transaction, user: ToolUser, tool: str, code: str) -> PendingOffer:
        row = {"user_id": user.user_id, "code": code.strip().upper(), "turn_id": user.turn_id, "now": user.now}
        found = await (await connection_of(tx).execute(SQL["find"], row)).fetchone()
        if found is None or found[0] != tool:
            raise NotFound(f"there is no offer {code[:12]!r} of {tool}; make a new one by calling it without a code")
        _, terms, is_same_turn, is_taken, is_old = found
        if is_same_turn:
            raise NotFound(f"the user has not answered offer {code} yet; ask them, and wait for their next message")
        if is_taken:
            raise NotFound(f"offer {code} was carried out before; do not repeat it")
        if is_old:
            raise NotFound(f"offer {code} is too old; make a new one by calling {tool} without a code")
        await connection_of(tx).execute(SQL["take"], row)
        keys = await self._keyring.of(tx, user.user_id)
        return PendingOffer(tool, json.loads(keys.open(f"offers/{row['code']}", terms)))


def seal_label(user: ToolUser, index: int) -> str:
    return f"tools/{user.turn_id}/{index}"


async def add_with_new_code(add: Callable[[str], Awaitable[bool]]) -> str:
    """Add a row under a code that this user has not had. Of 700 million codes the first try is free, unless a user has very many."""
    while True:
        code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
        if await add(code):
            return code
