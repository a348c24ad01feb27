"""The search box: any id or the beginning of one, a sender, a referral code; and the page of each thing that was found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hermes.ports.operators import Operator, Role
from hermes.ports.runtime import Transactions
from hermes.ports.search import HitKind, SearchHit, SearchIndex

MIN_ID_CHARS = 8
"""The beginning of an id that pages show. A shorter one would match too much."""
MIN_SENDER_CHARS = 3
MAX_QUERY_CHARS = 200
MAX_HITS = 20
HEX = re.compile(r"[0-9a-f]{8,32}")
ID_DIGITS = 32


@dataclass(frozen=True, slots=True)
class ConsoleSearch:
    """Finds what an operator may see."""

    transactions: Transactions
    index: SearchIndex

    async def find(self, text: str, operator: Operator) -> Sequence[SearchHit]:
        """Return what a text may stand for, each thing once. Only operators search for senders: a viewer could find a number by trying.
        Raises StoreUnavailable."""
        words, accounts = text.strip()[:MAX_QUERY_CHARS].replace("\0", ""), operator.accounts
        if not words:
            return []
        found: list[SearchHit] = []
        async with self.transactions.begin() as tx:
            if (bounds := id_range(words)) is not None:
                found += await self.index.by_id(tx, *bounds, accounts=accounts, limit=MAX_HITS)
            found += await self.index.by_code(tx, words, accounts=accounts)
            if operator.role.covers(Role.OPERATOR) and len(words) >= MIN_SENDER_CHARS:
                found += await self.index.by_sender(tx, words, accounts=accounts, limit=MAX_HITS)
        return list({(hit.kind, hit.id): hit for hit in found}.values())


def id_range(text: str) -> tuple[UUID, UUID] | None:
    """The first and the last id that begin with a text; None if no id does, or if the text is too short."""
    digits = text.lower().removeprefix("urn:uuid:").replace("-", "")
    if not HEX.fullmatch(digits):
        return None
    return UUID(digits.ljust(ID_DIGITS, "0")), UUID(digits.ljust(ID_DIGITS, "f"))


def page_of(hit: SearchHit) -> str:
    """The address of the page that shows a hit."""
    pages = {
        HitKind.TURN: f"/console/turns/{hit.id}",
        HitKind.CONVERSATION: f"/console/conversations/{hit.id}",
        HitKind.CALL: f"/console/calls/{hit.id}",
        HitKind.USER: f"/console/people/{hit.id}",
        HitKind.KEY: f"/console/turns?key={hit.id}&since=30d",
        HitKind.PROCESS: f"/console/workers#{hit.id}",
    }
    return pages[hit.kind]
