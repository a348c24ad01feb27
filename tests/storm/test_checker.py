"""The checker finds everything that can be wrong in a world, and nothing in one where all is well."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.storm.checker import Violation, Wrong, check
from tests.storm.history import History, Parcel, Purse, Received, Sent, Turn

SORRY = "Sorry, I couldn't come up with an answer just now."
RAW = "Here's the result just as it came:"
POOR = "You've used up your credits."
PAID, UNPAID, REFUNDED = ("reserve", "post"), ("reserve", "void"), ("reserve", "post", "refund")
SENT = (Parcel(state="sent"),)


def good() -> History:
    """Ada asks four things, one of which has a long answer and one of which fails; Bob asks one; Cy fetches the answer to one."""
    ada, bob, cy = "telegram/1", "whatsapp/2", "shop/3"
    said = [("z1n0", ada, 0), ("z1n1", ada, 6), ("z1n2", ada, 0), ("z1n3", ada, 0), ("z2n0", bob, 0), ("z3n0", cy, 0)]
    heard = [
        (ada, "heard:z1n0"),
        (bob, "heard:z2n0"),
        (ada, "heard:z1n1 z1n1.0 z1n1.1 z1n1.2"),
        (ada, "z1n1.3 z1n1.4 z1n1.5"),
        (ada, f"{SORRY} Please send that again."),
        (ada, "heard:z1n3 after:z1n1"),
        (cy, "heard:z3n0"),
    ]
    return History(
        sent=[
            Sent(mark=mark, chat=chat, at=at, tried_at=at + 0.1, taken_at=at + 0.2, pieces=pieces)
            for at, (mark, chat, pieces) in enumerate(said)
        ],
        received=[Received(chat=chat, text=text, at=10.0 + at) for at, (chat, text) in enumerate(heard)],
        turns=[
            Turn(id="t0", chat=ada, marks=("z1n0",), seq=1, entries=PAID, parcels=SENT),
            Turn(id="t1", chat=ada, marks=("z1n1",), seq=2, entries=PAID, parcels=SENT * 2),
            Turn(id="t2", chat=ada, marks=("z1n2",), seq=3, entries=UNPAID, parcels=SENT),
            Turn(id="t3", chat=ada, marks=("z1n3",), seq=4, entries=PAID, parcels=SENT),
            Turn(id="t4", chat=bob, marks=("z2n0",), seq=1, entries=PAID, parcels=SENT),
            Turn(id="t5", chat=cy, marks=("z3n0",), seq=1, entries=PAID, parcels=SENT),
        ],
        purses={
            ada: Purse(granted=10, available=7, reserved=0),
            bob: Purse(granted=10, available=9, reserved=0),
            cy: Purse(granted=10, available=9, reserved=0),
        },
        left={"inbox": 0, "outbox": 0},
        own_words=[SORRY, POOR],
        raw_words=[RAW],
        poor_words=[POOR],
        fetched=frozenset({cy}),
    )


def test_a_world_in_which_all_is_well() -> None:
    assert check(good()) == []


# --- how a world is forged


def unheard(history: History, text: str) -> History:
    return replace(history, received=[received for received in history.received if text not in received.text])


def heard(history: History, chat: str, text: str, at: int | None = None) -> History:
    """Somebody reads something more: at the end, or before what they have at that place."""
    received = list(history.received)
    received.insert(len(received) if at is None else at, Received(chat=chat, text=text, at=99.0))
    return replace(history, received=received)


def booked(history: History, id_: str, **other: Any) -> History:
    return replace(history, turns=[replace(turn, **other) if turn.id == id_ else turn for turn in history.turns])


def sent(history: History, mark: str, **other: Any) -> History:
    return replace(history, sent=[replace(one, **other) if one.mark == mark else one for one in history.sent])


def swapped(history: History, one: int, other: int) -> History:
    received = list(history.received)
    received[one], received[other] = received[other], received[one]
    return replace(history, received=received)


def purse(history: History, chat: str, **other: Any) -> History:
    return replace(history, purses={**history.purses, chat: replace(history.purses[chat], **other)})


DEAD, DOUBTFUL = (Parcel(state="dead", reason="blocked"),), (Parcel(state="dead", doubts=2, reason="2 tries may have arrived"),)
CONFIRMED_LATE = (Parcel(state="sent", doubts=2),)

FORGED: dict[str, tuple[Callable[[History], History], set[tuple[Wrong, str]]]] = {
    "an answer is lost": (lambda h: unheard(h, "z2n0"), {(Wrong.LOST, "z2n0"), (Wrong.MISCHARGED, "z2n0")}),
    "an answer is left in doubt, neither listed nor given back": (
        lambda h: booked(unheard(h, "z2n0"), "t4", parcels=(Parcel(state="ambiguous", doubts=1),)),
        {(Wrong.LOST, "z2n0"), (Wrong.MISCHARGED, "z2n0")},
    ),
    "an answer in doubt is listed, and not given back": (
        lambda h: booked(unheard(h, "z2n0"), "t4", parcels=DOUBTFUL),
        {(Wrong.MISCHARGED, "z2n0")},
    ),
    "an apology is lost": (lambda h: unheard(h, "Sorry"), {(Wrong.LOST, "z1n2")}),
    "an answer that somebody would have fetched is lost": (
        lambda h: unheard(h, "z3n0"),
        {(Wrong.LOST, "z3n0"), (Wrong.MISCHARGED, "z3n0")},
    ),
    "a message is acknowledged and forgotten": (
        lambda h: replace(unheard(purse(h, "whatsapp/2", available=10), "z2n0"), turns=[turn for turn in h.turns if turn.id != "t4"]),
        {(Wrong.LOST, "z2n0")},
    ),
    "a part of a long answer is lost": (lambda h: unheard(h, "z1n1.4"), {(Wrong.TORN, "z1n1")}),
    "an answer comes twice, and nobody doubted": (lambda h: heard(h, "whatsapp/2", "heard:z2n0"), {(Wrong.DOUBLED, "z2n0")}),
    "an answer comes three times, and one doubt is reported": (
        lambda h: heard(
            heard(booked(h, "t4", parcels=(Parcel(state="sent", doubts=1),)), "whatsapp/2", "heard:z2n0"), "whatsapp/2", "heard:z2n0"
        ),
        {(Wrong.DOUBLED, "z2n0")},
    ),
    "an apology comes twice": (lambda h: heard(h, "telegram/1", SORRY), {(Wrong.DOUBLED, "telegram/1")}),
    "a message becomes two turns": (
        lambda h: replace(
            purse(h, "whatsapp/2", available=8),
            turns=[*h.turns, Turn(id="t9", chat="whatsapp/2", marks=("z2n0",), seq=2, entries=PAID, parcels=SENT)],
        ),
        {(Wrong.DOUBLED, "z2n0")},
    ),
    "two answers are swapped": (lambda h: swapped(h, 0, 5), {(Wrong.SWAPPED, "z1n1")}),
    "the parts of an answer are swapped": (lambda h: swapped(h, 2, 3), {(Wrong.SWAPPED, "z1n1")}),
    "an apology comes between the parts of an answer": (lambda h: swapped(h, 3, 4), {(Wrong.SWAPPED, "z1n2")}),
    "an apology comes before the answer to an earlier message": (lambda h: swapped(h, 0, 4), {(Wrong.SWAPPED, "z1n0")}),
    "a message overtakes one that was acknowledged before it was there": (
        lambda h: booked(booked(swapped(h, 0, 0), "t2", seq=4), "t3", seq=3),
        {(Wrong.SWAPPED, "z1n3"), (Wrong.SWAPPED, "z1n2")},
    ),
    "somebody reads another's answer": (lambda h: heard(h, "telegram/1", "heard:z2n0"), {(Wrong.CROSSED, "z2n0")}),
    "somebody reads another's past": (
        lambda h: heard(unheard(h, "z2n0"), "whatsapp/2", "heard:z2n0 after:z1n0"),
        {(Wrong.CROSSED, "z1n0")},
    ),
    "a message is booked in another's chat": (
        lambda h: purse(purse(booked(h, "t4", chat="telegram/1"), "telegram/1", available=6), "whatsapp/2", available=10),
        {(Wrong.CROSSED, "z2n0")},
    ),
    "somebody reads what nobody can have said": (lambda h: heard(h, "telegram/1", "<html>"), {(Wrong.STRANGE, "telegram/1")}),
    "an answer is not charged": (
        lambda h: purse(booked(h, "t4", entries=UNPAID), "whatsapp/2", available=10),
        {(Wrong.MISCHARGED, "z2n0")},
    ),
    "an apology is charged": (
        lambda h: purse(booked(h, "t2", entries=PAID), "telegram/1", available=6),
        {(Wrong.MISCHARGED, "z1n2")},
    ),
    "an apology for a message with a tool is charged": (
        lambda h: purse(booked(sent(h, "z1n2", has_tool=True), "t2", entries=PAID), "telegram/1", available=6),
        {(Wrong.MISCHARGED, "z1n2")},
    ),
    "one result of a tool is charged twice": (
        lambda h: purse(
            booked(
                heard(unheard(sent(sent(h, "z1n2", has_tool=True), "z1n3", has_tool=True), "heard:z1n3"), "telegram/1", RAW),
                "t2",
                entries=PAID,
            ),
            "telegram/1",
            available=6,
        ),
        {(Wrong.MISCHARGED, "z1n3")},
    ),
    "an answer is charged twice": (
        lambda h: purse(booked(h, "t4", entries=(*PAID, *PAID)), "whatsapp/2", available=8),
        {(Wrong.MISCHARGED, "z2n0")},
    ),
    "a delivered answer is refunded": (
        lambda h: purse(booked(h, "t4", entries=REFUNDED), "whatsapp/2", available=10),
        {(Wrong.MISCHARGED, "z2n0")},
    ),
    "a dead letter is not refunded": (lambda h: booked(unheard(h, "z2n0"), "t4", parcels=DEAD), {(Wrong.MISCHARGED, "z2n0")}),
    "a dead letter does not say why": (
        lambda h: purse(booked(unheard(h, "z2n0"), "t4", parcels=(Parcel(state="dead"),), entries=REFUNDED), "whatsapp/2", available=10),
        {(Wrong.UNEXPLAINED, "z2n0")},
    ),
    "a reserve stays open": (lambda h: booked(h, "t2", entries=("reserve",)), {(Wrong.MISCHARGED, "z1n2")}),
    "a balance does not fit its ledger": (lambda h: purse(h, "whatsapp/2", available=8), {(Wrong.MISCHARGED, "whatsapp/2")}),
    "a credit stays reserved": (lambda h: purse(h, "whatsapp/2", available=8, reserved=1), {(Wrong.MISCHARGED, "whatsapp/2")}),
    "somebody with credits is turned away": (
        lambda h: heard(unheard(h, "Sorry"), "telegram/1", POOR, at=4),
        {(Wrong.MISCHARGED, "telegram/1")},
    ),
    "a queue does not drain": (lambda h: replace(h, left={"outbox": 3}), {(Wrong.UNDRAINED, "outbox")}),
    "a message is never taken": (
        lambda h: replace(
            sent(unheard(purse(h, "whatsapp/2", available=10), "z2n0"), "z2n0", taken_at=None),
            turns=[turn for turn in h.turns if turn.id != "t4"],
        ),
        {(Wrong.UNTAKEN, "z2n0")},
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_world_is_caught(forged: str) -> None:
    forge, expected = FORGED[forged]
    assert {(violation.wrong, violation.about) for violation in check(forge(good()))} == expected


EXCUSED: dict[str, Callable[[History], History]] = {
    "a second copy where a doubt is reported": lambda h: heard(
        booked(h, "t4", parcels=(Parcel(state="sent", doubts=1),)), "whatsapp/2", "heard:z2n0"
    ),
    "a late second copy": lambda h: heard(booked(h, "t0", parcels=(Parcel(state="sent", doubts=1),)), "telegram/1", "heard:z1n0"),
    "an answer that lies among the dead letters": lambda h: purse(
        booked(unheard(h, "z2n0"), "t4", parcels=DEAD, entries=REFUNDED), "whatsapp/2", available=10
    ),
    "an answer in doubt that is listed and given back": lambda h: purse(
        booked(unheard(h, "z2n0"), "t4", parcels=DOUBTFUL, entries=REFUNDED), "whatsapp/2", available=10
    ),
    "an answer in doubt that is listed and given back, and came late": lambda h: purse(
        heard(booked(unheard(h, "heard:z1n0"), "t0", parcels=DOUBTFUL, entries=REFUNDED), "telegram/1", "heard:z1n0"),
        "telegram/1",
        available=8,
    ),
    "an answer that a receipt took off the list stays given back": lambda h: purse(
        booked(h, "t4", parcels=CONFIRMED_LATE, entries=REFUNDED), "whatsapp/2", available=10
    ),
    "an apology in place of an answer": lambda h: purse(
        booked(heard(unheard(h, "heard:z1n3"), "telegram/1", SORRY), "t3", entries=UNPAID), "telegram/1", available=8
    ),
    "a tool's result as it came": lambda h: heard(unheard(sent(h, "z2n0", has_tool=True), "z2n0"), "whatsapp/2", RAW),
    "a request that was taken in, and nobody was there any more to be told": lambda h: sent(unheard(h, "z3n0"), "z3n0", taken_at=None),
    "somebody without credits is turned away": lambda h: purse(
        heard(unheard(h, "Sorry"), "telegram/1", POOR, at=4), "telegram/1", granted=3, available=0
    ),
    "a request that nobody acknowledged": lambda h: purse(
        replace(sent(unheard(h, "z3n0"), "z3n0", taken_at=None), turns=[turn for turn in h.turns if turn.id != "t5"]),
        "shop/3",
        available=10,
    ),
    "two messages that overlapped on their way in": lambda h: sent(
        replace(swapped(booked(booked(h, "t2", seq=4), "t3", seq=3), 4, 5)), "z1n3", tried_at=2.15
    ),
    "messages that were joined": lambda h: purse(
        replace(
            unheard(h, "heard:z1n0"),
            turns=[replace(turn, marks=("z1n0", "z1n1")) if turn.id == "t1" else turn for turn in h.turns if turn.id != "t0"],
        ),
        "telegram/1",
        available=8,
    ),
}


@pytest.mark.parametrize("excused", EXCUSED)
def test_what_is_explained_is_no_fault(excused: str) -> None:
    assert check(EXCUSED[excused](good())) == []


def test_a_violation_says_what_is_wrong_in_one_line() -> None:
    assert str(Violation(Wrong.LOST, "z1n0", "no answer")) == "lost: z1n0: no answer"
