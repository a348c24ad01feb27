"""How a filter is read, how several readers become one page, and what the search makes of a text."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from hermes.console.search import id_range
from hermes.console.turn_list import MAX_SCANNED, FilterInvalid, join_scans, parse_filter, parse_list_cursor, parse_when
from hermes.ports.operators import Operator, Role
from hermes.ports.turn_list import ListedKind, ListedTurn, TurnListCursor, TurnScan, TurnStatus

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
OPERATOR = Operator(id=uuid4(), name="ann", role=Role.VIEWER, accounts=frozenset({"bali"}), created_at=NOW, created_by="test")


def row(minutes: int) -> ListedTurn:
    at = NOW - timedelta(minutes=minutes)
    return ListedTurn(kind=ListedKind.TURN, id=uuid4(), at=at, account="bali", user_id=None, outcome="answered")


def minutes_of(rows: Sequence[ListedTurn]) -> list[float]:
    return [(NOW - found.at) / timedelta(minutes=1) for found in rows]


def test_a_page_joins_readers_by_time_and_ends_where_one_of_them_stopped() -> None:
    turns, calls = [row(1), row(3), row(5)], [row(2), row(4)]
    page = join_scans([TurnScan(turns), TurnScan(calls)], limit=4)
    assert minutes_of(page.rows) == [1, 2, 3, 4]
    assert (page.next, page.looked_through) == (calls[1].cursor, None)
    assert join_scans([TurnScan(turns), TurnScan(calls)], limit=5).next is None
    cut = TurnListCursor(NOW - timedelta(minutes=3, seconds=30), uuid4())
    page = join_scans([TurnScan(turns), TurnScan(calls, cut)], limit=10)
    assert minutes_of(page.rows) == [1, 2, 3]  # the call of minute 4 may not be the only one there
    assert (page.next, page.looked_through) == (cut, MAX_SCANNED)


def test_a_cursor_reads_as_it_was_written() -> None:
    cursor = row(7).cursor
    assert TurnListCursor.parse(str(cursor)) == cursor
    assert parse_list_cursor("") is None
    for text in ("x", "1.2", f"{10**18}.{'0' * 32}", f"{10**17 - 1}.{'f' * 33}"):
        with pytest.raises(FilterInvalid, match="cursor"):
            parse_list_cursor(text)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("90m", NOW - timedelta(minutes=90)),
        ("2w", NOW - timedelta(weeks=2)),
        ("2026-11-15", datetime(2026, 11, 15, tzinfo=UTC)),
        ("2026-11-15T10:00+02:00", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("2026-11-15T10:00 02:00", datetime(2026, 11, 15, 8, tzinfo=UTC)),
    ],
)
def test_times_of_an_address(text: str, at: datetime) -> None:
    assert parse_when(text, NOW) == at


def test_a_filter_has_the_accounts_of_its_reader_and_refuses_what_it_cannot_read() -> None:
    wanted = parse_filter({"status": "failed", "agent": " spa ", "model": "", "part": "rows"}, NOW, OPERATOR)
    assert (wanted.status, wanted.agent, wanted.model, wanted.accounts) == (TurnStatus.FAILED, "spa", None, frozenset({"bali"}))
    assert wanted.since == NOW - timedelta(hours=24)
    for fields, said in (
        ({"status": "fialed"}, "did you mean failed"),
        ({"since": "yesterday"}, "is not a time"),
        ({"until": "999999w"}, "until '999999w' is not a time"),
        ({"user": "ann"}, "is not an id"),
        ({"agent": "x\0"}, "agent"),
        ({"tool": "x" * 201}, "too long"),
    ):
        with pytest.raises(FilterInvalid, match=said):
            parse_filter(fields, NOW, OPERATOR)


def test_a_beginning_of_an_id_is_a_range() -> None:
    assert id_range("ABCDEF01") == (UUID("abcdef01-0000-0000-0000-000000000000"), UUID("abcdef01-ffff-ffff-ffff-ffffffffffff"))
    whole = uuid4()
    assert id_range(str(whole)) == (whole, whole)
    assert id_range("abcdef0") is None
    assert id_range("+62812345") is None
