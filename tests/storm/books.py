"""What the books say after a storm, as the checker wants it; and the whole story of one message, for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hermes.router.replies import ReplyKind
from hermes.router.replies.catalogue import LANGUAGES, load_catalogue
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresOutbox
from tests.storm.checker import ANY_MARK
from tests.storm.history import Parcel, Purse, Turn

TURNS = """
select turn_id, joined_to, conversations.account_id || '/' || channel_id, inbox.seq,
    array(select kind from credit_entries as entry where entry.turn_id = inbox.turn_id order by id),
    array(select array[part::text, outbox.state, outbox.doubts::text] from outbox
          where outbox.turn_id = inbox.turn_id and news = '' order by part)
from inbox join conversations on conversations.id = conversation_id
order by conversation_id, inbox.seq"""

PURSES = """
select conversations.account_id || '/' || channel_id,
    (select coalesce(sum(amount), 0) from credit_entries as entry where entry.user_id = conversations.user_id and kind = 'grant'),
    coalesce(available, 0), coalesce(reserved, 0)
from conversations left join credit_balances using (user_id)"""

LEFT = """
select 'inbox', count(*) from inbox where state = 'waiting'
union all select 'outbox', count(*) from outbox where state in ('pending', 'attempting')
union all select 'jobs: ' || queue_name, count(*) from procrastinate_jobs where status in ('todo', 'doing') group by queue_name
union all select 'failed jobs: ' || queue_name, count(*) from procrastinate_jobs where status = 'failed' group by queue_name
union all select 'reserves', count(*) from open_reserves"""

SENDS = "select state, count(*), sum(doubts)::int, coalesce(sum(tries), 0)::int from outbox group by state"
OUTCOMES = "select meta ->> 'outcome', count(*) from interactions group by 1 order by 1"

STORY: Mapping[str, str] = {
    "inbox": "select seq, state, attempts, reason, received_at, ended_at, event_key from inbox where turn_id = %s",
    "journal": "select started_at, step, index, type, attempt, done_at, facts from run_events where turn_id = %s order by id",
    "outbox": "select part, state, tries, failures, doubts, doubted_at, outcome, reason, message_id, rank, touched_at, not_before, is_late "
    "from outbox where turn_id = %s order by id",
    "credits": "select created_at, kind, amount, attempt from credit_entries where turn_id = %s order by id",
    "early receipts": "select message_id, rank, received_at from early_receipts "
    "where channel_id = (select channel_id from outbox where turn_id = %s limit 1)",
}


def beginnings(*kinds: ReplyKind) -> tuple[str, ...]:
    """How Hermes begins to say these things, in all its languages."""
    return tuple(load_catalogue(language).parts[kind][0] for language in LANGUAGES for kind in kinds)


RAW_WORDS, POOR_WORDS = beginnings(ReplyKind.TOOL_DISCLAIMER), beginnings(ReplyKind.UPGRADE)
OWN_WORDS = beginnings(*(set(ReplyKind) - {ReplyKind.TOOL_DISCLAIMER}))
"""What it says instead of an answer."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the database of a storm that is over."""

    database: Database
    keyring: Keyring

    async def turns(self) -> list[Turn]:
        rows = await self._rows(TURNS)
        marks, letters = await self._marks([row[0] for row in rows]), await self._letters()
        joined: dict[UUID, dict[str, None]] = {}
        for turn_id, joined_to, *_ in rows:
            joined.setdefault(joined_to or turn_id, {}).update(dict.fromkeys(marks[turn_id]))
        return [
            Turn(
                id=str(turn_id),
                chat=chat,
                marks=tuple(joined[turn_id]),
                seq=seq,
                entries=tuple(entries),
                parcels=tuple(
                    Parcel(state=state, doubts=int(doubts), reason=letters.get((turn_id, int(part)), "")) for part, state, doubts in parcels
                ),
            )
            for turn_id, joined_to, chat, seq, entries, parcels in rows
            if joined_to is None
        ]

    async def purses(self) -> dict[str, Purse]:
        rows = await self._rows(PURSES)
        return {chat: Purse(granted=int(granted), available=available, reserved=reserved) for chat, granted, available, reserved in rows}

    async def left(self) -> dict[str, int]:
        return {queue: count for queue, count in await self._rows(LEFT) if count}

    async def sends(self) -> dict[str, tuple[int, int, int]]:
        """For each state of a parcel: how many there are, their doubts, and how often they were given out."""
        return {state: tuple(numbers) for state, *numbers in await self._rows(SENDS)}

    async def outcomes(self) -> dict[str, int]:
        return dict(await self._rows(OUTCOMES))

    async def story(self, mark: str) -> str:
        """All that is known of a message inside Hermes."""
        ids = [row[0] for row in await self._rows("select turn_id from inbox")]
        marks = await self._marks(ids)
        lines: list[str] = []
        for turn_id in (turn_id for turn_id in ids if mark in marks[turn_id]):
            lines.append(f"turn {turn_id}")
            for name, query in STORY.items():
                lines += [f"  {name}: {shown(row)}" for row in await self._rows(query, [turn_id])]
        return "\n".join(lines) or "  no turn"

    async def _marks(self, turns: Sequence[UUID]) -> dict[UUID, list[str]]:
        """The marks that each message has in its text."""
        inbox, found = PostgresInbox(self.keyring), {}
        async with self.database.begin() as tx:
            for turn_id in turns:
                said = await inbox.message_of(tx, turn_id)
                found[turn_id] = ANY_MARK.findall(said.envelope.event.text) if said else []
        return found

    async def _letters(self) -> dict[tuple[UUID, int], str]:
        """The reason of every dead letter that is listed."""
        async with self.database.begin() as tx:
            listed = await PostgresOutbox(self.keyring).dead_letters.list(tx, limit=1_000_000)
        return {(letter.turn_id, letter.part): letter.reason for letter in listed if not letter.news}

    async def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        async with self.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode(), values)).fetchall()


def shown(row: Sequence[Any]) -> str:
    return " | ".join(value.strftime("%H:%M:%S.%f")[:-3] if hasattr(value, "strftime") else str(value) for value in row)
