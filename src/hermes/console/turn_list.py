"""The list of turns, for all faces: reads a filter as a person or a program writes it, and joins turns, buried messages and calls that
belong to no turn into one list by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from uuid import UUID

from hermes.console.masking import show_identifier
from hermes.console.moments import parse_moment
from hermes.ports.operators import Operator
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.timeline import PLOT
from hermes.ports.turn_list import MAX_ID, ListedKind, ListedTurn, OpenTurn, TurnFilter, TurnList, TurnListCursor, TurnScan, TurnStatus

PAGE_ROWS = 50
MAX_ROWS = 500
MAX_OPEN = 200
"""Waiting and running turns that a list shows above the others."""
MAX_SCANNED, MAX_SCANNED_SLOWLY = 10_000, 5_000
"""Rows that one page looks through for those that its filter wants; fewer if a row has to be looked up in another table too."""
SLOW_FIELDS = ("model", "only_purpose", "key")
DEFAULT_SINCE = "24h"
COMPLETIONS_PURPOSE = "completions"
MAX_VALUE_CHARS = 200

TEXT_FIELDS = ("agent", "model", "platform", "tier", "tool", "purpose", "account")
ID_FIELDS = ("key", "user")
FILTER_FIELDS = ("status", *TEXT_FIELDS, *ID_FIELDS, "since", "until")


class FilterInvalid(ValueError):
    """A filter has a value that cannot be read. The message says what was expected, in one line."""


@dataclass(frozen=True, slots=True)
class TurnListPage:
    """One page, newest first."""

    rows: Sequence[ListedTurn]
    next: TurnListCursor | None
    """Where the next page begins; None: there are no older rows in the time of the filter."""
    looked_through: int | None = None
    """The page may be short: after so many rows it stopped to look for more that match. None: it is complete."""
    open: Sequence[OpenTurn] = ()
    """Turns that have not ended, the oldest first. Only on the first page."""


def parse_when(text: str, now: datetime, name: str = "since") -> datetime:
    """Read a moment, `2026-11-15T12:00` (UTC unless it has an offset), or a time before now, `24h`. Raises FilterInvalid."""
    try:
        return parse_moment(text, now)
    except ValueError as error:
        raise FilterInvalid(f"{name} {error}") from None


def parse_filter(fields: Mapping[str, str], now: datetime, operator: Operator) -> TurnFilter:
    """Read a filter from the fields of an address or a command; an empty field counts as left out. Raises FilterInvalid."""
    values = {name: text.strip() for name, text in fields.items() if name in FILTER_FIELDS and text.strip()}
    if long := next((name for name, text in values.items() if len(text) > MAX_VALUE_CHARS or "\0" in text), None):
        raise FilterInvalid(f"{long} is too long, or no text")
    return TurnFilter(
        status=parse_status(values.get("status", TurnStatus.ALL)),
        since=parse_when(values.get("since", DEFAULT_SINCE), now),
        until=parse_when(values["until"], now, "until") if "until" in values else None,
        accounts=operator.accounts,
        **{name: values.get(name) for name in TEXT_FIELDS},
        key=parse_id(values, "key"),
        user=parse_id(values, "user"),
    )


def parse_status(text: str) -> TurnStatus:
    try:
        return TurnStatus(text)
    except ValueError:
        known = [str(status) for status in TurnStatus]
        near = get_close_matches(text, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; expected one of {', '.join(known)}"
        raise FilterInvalid(f"status {text[:50]!r} is unknown{hint}") from None


def parse_id(values: Mapping[str, str], name: str) -> UUID | None:
    try:
        return UUID(values[name]) if name in values else None
    except ValueError:
        raise FilterInvalid(f"{name} {values[name][:50]!r} is not an id; expected a UUID") from None


def parse_list_cursor(text: str | None) -> TurnListCursor | None:
    """Read `before`. Raises FilterInvalid."""
    try:
        return TurnListCursor.parse(text) if text else None
    except (ValueError, OverflowError) as error:
        raise FilterInvalid(f"before {error}") from None


@dataclass(frozen=True, slots=True)
class TurnLists:
    """Reads pages of the list."""

    transactions: Transactions
    turns: TurnList

    async def page(self, wanted: TurnFilter, *, before: TurnListCursor | None = None, limit: int = PAGE_ROWS) -> TurnListPage:
        """Return a page. Raises StoreUnavailable."""
        limit = min(limit, MAX_ROWS)
        start = before or TurnListCursor(wanted.until or datetime.max.replace(tzinfo=UTC), MAX_ID)
        async with self.transactions.begin() as tx:
            is_first = before is None and wanted.until is None
            open_turns = await self.turns.open(tx, wanted, limit=MAX_OPEN) if is_first and shows_open(wanted) else ()
            scans = [] if wanted.status is TurnStatus.WAITING else await self._scan(tx, wanted, start, limit + 1)
            page = join_scans(scans, limit, looked_through=rows_looked_through(wanted))
            steps = await self.turns.steps(tx, [row.id for row in page.rows if row.kind is ListedKind.TURN])
        return replace(page, rows=[replace(row, steps=steps.get(row.id, {})) for row in page.rows], open=open_turns)

    async def find(self, wanted: TurnFilter, turn_ids: Sequence[UUID]) -> Sequence[ListedTurn]:
        """Return those of these turns that have ended and match, newest first. Raises StoreUnavailable."""
        async with self.transactions.begin() as tx:
            rows = await self.turns.find(tx, wanted, turn_ids)
            steps = await self.turns.steps(tx, [row.id for row in rows])
        return [replace(row, steps=steps.get(row.id, {})) for row in rows]

    async def _scan(self, tx: Transaction, wanted: TurnFilter, start: TurnListCursor, limit: int) -> list[TurnScan]:
        scans: list[TurnScan] = []
        if wanted.status is not TurnStatus.COMPLETIONS:
            scans.append(await self.turns.turns(tx, wanted, start, limit=limit, max_scanned=rows_looked_through(wanted)))
            if len(scans[0].rows) == limit:  # what is older than a whole page of turns is not on it
                wanted = replace(wanted, since=max(wanted.since, scans[0].rows[-1].at - timedelta(microseconds=1)))
        if shows_buried(wanted):
            scans.append(await self.turns.buried(tx, wanted, start, limit=limit))
        if shows_calls(wanted):
            purpose = wanted.only_purpose if wanted.purpose else COMPLETIONS_PURPOSE
            scans.append(await self.turns.calls(tx, wanted, start, purpose=purpose, limit=limit, max_scanned=MAX_SCANNED))
        return scans


def rows_looked_through(wanted: TurnFilter) -> int:
    """How many turns a page looks through at most."""
    is_slow = wanted.status in {TurnStatus.SLOW, TurnStatus.FELL_OVER} or any(getattr(wanted, name) for name in SLOW_FIELDS)
    return MAX_SCANNED_SLOWLY if is_slow else MAX_SCANNED


def shows_open(wanted: TurnFilter) -> bool:
    """Whether turns that have not ended may match: of those it is not known yet which agent, model or tool they have."""
    is_narrow = any(getattr(wanted, name) for name in ("agent", "model", "tier", "tool", "only_purpose", "key"))
    return wanted.status in {TurnStatus.ALL, TurnStatus.WAITING} and not is_narrow


def shows_buried(wanted: TurnFilter) -> bool:
    """Whether messages that could not be opened may match: they have no agent, model or tool."""
    is_narrow = any(getattr(wanted, name) for name in ("agent", "model", "tier", "tool", "only_purpose"))
    return wanted.status in {TurnStatus.ALL, TurnStatus.FAILED, TurnStatus.UNANSWERED} and not is_narrow


def shows_calls(wanted: TurnFilter) -> bool:
    """Whether calls without a turn may match: they have no tools, no attempts and no delivery."""
    if wanted.status is TurnStatus.COMPLETIONS:
        return True
    has_calls = {TurnStatus.ALL, TurnStatus.FAILED, TurnStatus.UNANSWERED, TurnStatus.FELL_OVER, TurnStatus.SLOW}
    return wanted.status in has_calls and wanted.tool is None


def join_scans(scans: Sequence[TurnScan], limit: int, *, looked_through: int = MAX_SCANNED) -> TurnListPage:
    """Join what several readers found into one page. If one of them stopped early, the page ends where it did: older rows of the others
    would hide that some are missing."""
    cut = max((scan.cut for scan in scans if scan.cut is not None), default=None)
    rows = sorted(
        (row for scan in scans for row in scan.rows if cut is None or row.cursor >= cut), key=lambda row: row.cursor, reverse=True
    )
    if len(rows) > limit:
        return TurnListPage(rows[:limit], rows[limit - 1].cursor)
    return TurnListPage(rows, cut, None if cut is None else looked_through)


# --- as JSON, for the API and the command line


def turn_json(row: ListedTurn, operator: Operator) -> dict[str, object]:
    """Write a row. The sender is masked as the operator's role demands."""
    return {
        "kind": str(row.kind),
        "id": str(row.id),
        "at": row.at.isoformat(),
        "outcome": row.outcome,
        "error": row.error,
        "step": row.step,
        "account": row.account,
        "platform": row.platform,
        "user_id": text_of(row.user_id),
        "sender": None if row.sender is None else show_identifier(row.sender, operator),
        "conversation_id": text_of(row.conversation_id),
        "session_id": text_of(row.session_id),
        "api_key_id": text_of(row.api_key_id),
        "agent": row.agent,
        "tier": row.tier,
        "model": row.model,
        "purpose": row.purpose,
        "attempts": row.attempts,
        "fell_over": row.fell_over,
        "tools": list(row.tools),
        "calls": row.calls,
        "tokens": row.tokens,
        "micro_usd": row.micro_usd,
        "ms": row.ms,
        "delivery": row.delivery,
        "steps_us": {step: row.steps[step] for step in PLOT if step in row.steps},
    }


def open_json(turn: OpenTurn, operator: Operator) -> dict[str, object]:
    """Write a turn that has not ended."""
    return {
        "kind": "turn",
        "id": str(turn.turn_id),
        "state": "running" if turn.is_running else "waiting",
        "received_at": turn.received_at.isoformat(),
        "age_s": round(turn.age_s, 3),
        "running_s": None if turn.running_s is None else round(turn.running_s, 3),
        "step": turn.step,
        "account": turn.account,
        "platform": turn.platform,
        "user_id": str(turn.user_id),
        "sender": None if turn.sender is None else show_identifier(turn.sender, operator),
        "conversation_id": str(turn.conversation_id),
        "attempts": turn.attempts,
        "worker": text_of(turn.worker),
    }


def text_of(identity: UUID | None) -> str | None:
    return None if identity is None else str(identity)
