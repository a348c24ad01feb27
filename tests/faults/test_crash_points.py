"""A worker is killed at every place of a turn where something has just been done or is about to be. Nothing is lost, nothing happens twice.

Two conversations wait: `a` with three messages, `b` with one. A worker that does one thing at a time dies within the first or the second
message of `a`; then another worker comes."""

import signal
from dataclasses import dataclass

import pytest

from hermes.turn import Platform
from tests.faults.house import House
from tests.faults.worker import Trap


@dataclass(frozen=True, slots=True)
class Point:
    """Where a worker dies. Telegram is a platform that answers are sent to; on REST they are fetched from us."""

    place: str
    is_after: bool
    turn: int
    """The first turn opens the session, the second finds one."""
    platform: Platform

    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} {self.place} ({self.platform} {self.turn})"

    @property
    def is_paid_again(self) -> bool:
        """Between the call of the model and its entry in the journal nobody can know the answer, so the model is asked again."""
        return self.place == "answer" or (self.place, self.is_after) in {("journal.finish", False), ("turn_ends.end_call", False)}

    @property
    def is_sent_again(self) -> bool:
        """Between the send and its entry in the outbox nobody can know that it arrived, so it is sent again, and marked."""
        return (self.place, self.is_after) in {
            ("send", True),
            ("outbox.settle", False),
            ("outbox.settle", True),
            ("commit:outbox.settle", False),
            ("outbox.settle_sent", False),
        }

    @property
    def is_marked(self) -> bool:
        """Whether the parcel was being sent, as far as the database knows."""
        return self.is_sent_again or (self.place, self.is_after) in {("commit:outbox.take", True), ("send", False)}


CLAIM = ["inbox.claim", "people.get", "credits.reserve"]
PREPARE = ["souls.load", "sessions.find_current", "histories.read", "images.look"]
ASK = ["journal.begin", "answer", "journal.finish"]
END = ["inbox.hold", "graphs.append", "credits.post", "interactions.add", "outbox.put", "inbox.finish", "commit:inbox.hold"]
AT_ONCE = ["turn_ends.end_call", "turn_ends.end"]
TELL = ["histories.append", "replies.announce"]
SEND = ["outbox.take", "commit:outbox.take", "send", "outbox.settle_sent", "outbox.settle", "commit:outbox.settle"]

POINTS = [
    Point(place, is_after, turn, platform)
    for turn, platform, places in (
        (2, Platform.REST, ["turn", *CLAIM, *PREPARE, *ASK, *END, *AT_ONCE, *TELL]),
        (2, Platform.TELEGRAM, SEND),
        (
            1,
            Platform.TELEGRAM,
            [
                *CLAIM,
                *("sessions.current", "commit:sessions.current"),
                *ASK,
                "commit:inbox.hold",
                *AT_ONCE,
                *("outbox.settle_sent", "commit:outbox.settle"),
            ],
        ),
    )
    for place in places
    for is_after in (False, True)
]


@pytest.mark.parametrize("point", POINTS, ids=str)
async def test_a_worker_killed_there_loses_nothing_and_repeats_nothing(point: Point, house: House) -> None:
    await house.send_all("a1", "a2", "b1", "a3", platform=point.platform)
    trap = Trap(point.place, is_after=point.is_after, turn=point.turn)
    doomed = house.worker(trap, environ={"HERMES_WORK_CONCURRENCY": "1"})
    await house.until(lambda: not doomed.is_alive, f"dies {point}", 20)
    assert (doomed.code, doomed.is_sprung) == (-signal.SIGKILL, True)
    healthy = house.worker()
    await house.until_quiet()
    struck = f"a{point.turn}"
    await house.check(calls={struck: 2} if point.is_paid_again else {})
    check_requests(house, point, struck, doomed=doomed.pid, healthy=healthy.pid)
    if point.platform is Platform.TELEGRAM:
        check_post(house, point, struck)
    assert await house.dismiss(healthy) == 0


def check_requests(house: House, point: Point, struck: str, *, doomed: int, healthy: int) -> None:
    """A request that was noted is the request that is made, whoever makes it."""
    made = [(call.pid, call.prepared_by) for call in house.calls() if call.text == struck]
    if point.is_paid_again:
        assert made == [(doomed, doomed), (healthy, doomed)]
    else:
        assert made in ([(doomed, doomed)], [(healthy, doomed)], [(healthy, healthy)])


def check_post(house: House, point: Point, struck: str) -> None:
    """Everything was sent once and in order; but for the parcel that was under way, of which the second copy says that it may be one."""
    texts = {message.receipt.turn_id: message.text for message in house.accepted.values()}
    sent = [(texts[parcel.turn_id], parcel.is_ambiguous) for parcel in house.sent()]
    expected = [(text, text == struck and point.is_marked) for text in ("a1", "a2", "a3")]
    if point.is_sent_again:
        expected.insert(expected.index((struck, True)), (struck, False))
    assert [parcel for parcel in sent if parcel[0] != "b1"] == expected
    assert [parcel for parcel in sent if parcel[0] == "b1"] == [("b1", False)]
