"""Was anything lost, doubled, swapped, crossed, mischarged or left behind? Read from what people sent and received, and from the books.

Values in, violations out: knows neither processes nor databases. It believes what people saw. What Hermes itself reports (doubts, dead
letters) only ever excuses what that report explains: a second copy where a doubt was reported, a missing answer that lies among the dead
letters with its credit given back.

    an answer carries its message's mark        heard:z003n0007 after:z003n0006
    each word of a long one its number too      z003n0007.0 z003n0007.1 …
    what Hermes says for itself carries none    sorry, sign up, credits used up; which message it is for, its place tells
    nor does a tool's result as it came         that is an answer, and is paid for"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tests.storm.history import History, Turn

MARK = r"z\d+n\d+"
HEARD = re.compile(rf"\bheard:({MARK})\b")
PIECE = re.compile(rf"\b({MARK})\.(\d+)\b")
ANY_MARK = re.compile(rf"\b{MARK}\b")


class Wrong(StrEnum):
    """The ways in which it can be wrong."""

    LOST = "lost"
    """Acknowledged, and neither answered nor apologised for, nor among the dead letters."""
    TORN = "torn"
    """A part of an answer is missing."""
    DOUBLED = "doubled"
    """More copies than doubts were reported, or two turns for one message."""
    SWAPPED = "swapped"
    CROSSED = "crossed"
    """Somebody reads what belongs to another chat."""
    STRANGE = "strange"
    """Somebody reads what nobody can have said."""
    MISCHARGED = "mischarged"
    UNDRAINED = "undrained"
    UNTAKEN = "untaken"
    """Its platform offered it for as long as it does, and nobody took it."""
    UNEXPLAINED = "unexplained"
    """A dead letter that is not listed, or does not say why."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong, and whose message it is."""

    wrong: Wrong
    about: str
    """A message's mark; a chat or a queue where there is none."""
    why: str

    def __str__(self) -> str:
        return f"{self.wrong}: {self.about}: {self.why}"


def check(history: History) -> list[Violation]:
    """Everything that is wrong; nothing, if all is well."""
    books = Books(history)
    chats = sorted({sent.chat for sent in history.sent} | {received.chat for received in history.received})
    return [
        *(violation for chat in chats for violation in Chat(books, chat).check()),
        *money(books),
        *(Violation(Wrong.UNDRAINED, queue, f"{count} left") for queue, count in history.left.items() if count),
    ]


class Books:
    """The history, sorted."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sent = {sent.mark: sent for sent in history.sent}
        self.turns: dict[str, list[Turn]] = defaultdict(list)
        for turn in history.turns:
            for mark in turn.marks:
                self.turns[mark].append(turn)
        self.marked: set[str] = set()
        """Marks that their own people read in an answer."""
        for received in history.received:
            self.marked |= {mark for mark in answered(received.text) if mark in self.sent and self.sent[mark].chat == received.chat}

    def turn(self, mark: str) -> Turn | None:
        return next(iter(self.turns.get(mark, ())), None)

    def is_own(self, text: str) -> bool:
        """Whether Hermes says it without a mark: for itself, or what a tool brought."""
        return text.startswith(tuple(self.history.own_words)) or self.is_raw(text)

    def is_raw(self, text: str) -> bool:
        return text.startswith(tuple(self.history.raw_words))

    def is_taken(self, turn: Turn) -> bool:
        """Whether anybody knows of this turn that it is there. Who was cut off before that comes for no answer."""
        return any(self.sent[mark].taken_at is not None for mark in turn.marks if mark in self.sent)


def answered(text: str) -> set[str]:
    """The marks of the messages that a text answers."""
    return {*HEARD.findall(text), *(mark for mark, _ in PIECE.findall(text))}


def is_dead(turn: Turn) -> bool:
    return any(parcel.state == "dead" for parcel in turn.parcels)


def was_given_up(turn: Turn) -> bool:
    """Whether a part of it was a dead letter because two tries were in doubt, and a receipt took it off the list: it stays refunded."""
    return "refund" in turn.entries and any(parcel.state == "sent" and parcel.doubts > 1 for parcel in turn.parcels)


class Chat:
    """One conversation, as its person sees it."""

    def __init__(self, books: Books, chat: str) -> None:
        self.settlement, self.chat = books, chat
        self.sent = [sent for sent in books.history.sent if sent.chat == chat]
        self.received = [received for received in books.history.received if received.chat == chat]
        turns = {turn.id: turn for sent in self.sent for turn in books.turns.get(sent.mark, ())}
        self.turns = sorted(turns.values(), key=lambda turn: turn.seq)

    def check(self) -> Iterator[Violation]:
        yield from self.taken()
        yield from self.foreign()
        yield from self.whole()
        yield from self.copies()
        yield from self.intake_order()
        if self.chat not in self.settlement.history.fetched:
            yield from self.order()
        yield from self.letters()

    def taken(self) -> Iterator[Violation]:
        """Every message that was acknowledged is one turn of its own chat; every turn has an answer, or a reason."""
        for sent in self.sent:
            turns = self.settlement.turns.get(sent.mark, [])
            if sent.tried_at is not None and sent.taken_at is None and self.chat not in self.settlement.history.fetched:
                yield Violation(Wrong.UNTAKEN, sent.mark, "its platform offered it in vain")
            if sent.taken_at is not None and not turns:
                yield Violation(Wrong.LOST, sent.mark, "acknowledged, and the books do not know it")
            if len(turns) > 1:
                yield Violation(Wrong.DOUBLED, sent.mark, f"it has {len(turns)} turns")
            for turn in turns:
                if turn.chat != self.chat:
                    yield Violation(Wrong.CROSSED, sent.mark, f"the books have it in the chat {turn.chat}")
        own, owed = self.apologies(), self.owed()
        excused = [turn for turn in self.turns if not self.is_marked(turn) and turn not in owed]
        if own < len(owed):
            names = ", ".join(mark for turn in owed for mark in turn.marks)
            yield Violation(Wrong.LOST, owed[0].marks[0], f"no answer, and only {own} apologies for {len(owed)} messages: {names}")
        most = len(owed) + sum(1 + doubts(turn) for turn in excused) + sum(map(doubts, owed))
        if own > most:
            yield Violation(Wrong.DOUBLED, self.chat, f"{own} apologies, and no more than {most} can be explained")

    def apologies(self) -> int:
        """How often this person read what Hermes says for itself."""
        return sum(self.settlement.is_own(received.text) for received in self.received)

    def owed(self) -> list[Turn]:
        """The turns without an answer, and without anything that explains it: each must have had an apology."""
        unexplained = [turn for turn in self.turns if not is_dead(turn) and self.settlement.is_taken(turn)]
        return [turn for turn in unexplained if not self.is_marked(turn)]

    def is_marked(self, turn: Turn) -> bool:
        return any(mark in self.settlement.marked for mark in turn.marks)

    def foreign(self) -> Iterator[Violation]:
        """Nobody reads another's marks, nor what nobody can have said."""
        theirs = {sent.mark for sent in self.sent}
        for received in self.received:
            strange = set(ANY_MARK.findall(received.text)) - theirs
            if strange:
                yield Violation(Wrong.CROSSED, min(strange), f"read by {self.chat}: {received.text[:120]!r}")
            elif not answered(received.text) and not self.settlement.is_own(received.text):
                yield Violation(Wrong.STRANGE, self.chat, f"{received.text[:120]!r}")

    def whole(self) -> Iterator[Violation]:
        """Of a long answer every numbered word is there, unless a part of it is known to be missing."""
        for sent in self.sent:
            turn = self.settlement.turn(sent.mark)
            if sent.pieces and turn is not None and sent.mark in self.settlement.marked and not is_dead(turn):
                numbers = {int(number) for received in self.received for mark, number in PIECE.findall(received.text) if mark == sent.mark}
                if missing := sorted(set(range(sent.pieces)) - numbers):
                    yield Violation(Wrong.TORN, sent.mark, f"{len(missing)} of {sent.pieces} words are missing, from {missing[0]} on")

    def copies(self) -> Iterator[Violation]:
        """No part comes more often than doubts were reported of its turn."""
        counted: dict[str, Counter[str]] = defaultdict(Counter)
        for received in self.received:
            for mark in answered(received.text):
                counted[mark][received.text] += 1
        for mark, texts in counted.items():
            turn = self.settlement.turn(mark)
            extra = sum(count - 1 for count in texts.values())
            reported = doubts(turn) if turn is not None else 0
            if extra > reported:
                yield Violation(Wrong.DOUBLED, mark, f"{extra} copies too many, and {reported} doubts reported")

    def intake_order(self) -> Iterator[Violation]:
        """What was acknowledged before another message was first offered comes before it in the books."""
        known = [(sent, turn) for sent in self.sent if (turn := self.settlement.turn(sent.mark)) is not None]
        for earlier, first in known:
            for later, second in known:
                is_before = earlier.taken_at is not None and later.tried_at is not None and earlier.taken_at < later.tried_at
                if is_before and first.seq > second.seq:
                    yield Violation(Wrong.SWAPPED, later.mark, f"taken in before {earlier.mark}, which had been acknowledged by then")

    def order(self) -> Iterator[Violation]:
        """The first copies come in the order of the messages, and what carries no mark in the place of the message that it is for.

        But for what was given up: a try of that which was thought dead may still arrive."""
        places = {mark: turn.seq for turn in self.turns for mark in turn.marks if not is_dead(turn) and not was_given_up(turn)}
        seen: dict[str, tuple[int, int, str]] = {}
        firsts: list[tuple[int, int, str]] = []
        for received in self.received:
            for mark in sorted(answered(received.text) & places.keys()):
                if received.text not in seen:
                    starts = [int(number) for found, number in PIECE.findall(received.text) if found == mark]
                    seen[received.text] = (places[mark], min(starts, default=0), mark)
                    firsts.append(seen[received.text])
        swapped = [(one, other) for one, other in pairwise(firsts) if other < one]
        if swapped:
            (_, _, one), (_, _, other) = swapped[0]
            yield Violation(Wrong.SWAPPED, other, f"answered behind {one}")
        else:
            yield from self.apologies_in_place()

    def apologies_in_place(self) -> Iterator[Violation]:
        """Walk through what came, from one expected thing to the next: they must all be found, in this order."""
        if self.apologies() < len(self.owed()):
            return  # it is lost: then its place says nothing
        rest = iter(self.received)
        for turn in {turn.marks: turn for turn in self.turns if not is_dead(turn) and not was_given_up(turn)}.values():
            texts = {received.text: None for received in self.received if answered(received.text) & {*turn.marks}}
            for text in texts or (None,):
                if not any(received.text == text if text else self.settlement.is_own(received.text) for received in rest):
                    yield Violation(
                        Wrong.SWAPPED, turn.marks[0], "its answer, or the apology for it, came before that of an earlier message"
                    )
                    return

    def letters(self) -> Iterator[Violation]:
        for turn in self.turns:
            for parcel in turn.parcels:
                if parcel.state == "dead" and not parcel.reason:
                    yield Violation(Wrong.UNEXPLAINED, turn.marks[0], "a dead letter that nobody sees, or without a reason")


def doubts(turn: Turn) -> int:
    return sum(parcel.doubts for parcel in turn.parcels)


# --- money


def money(books: Books) -> Iterator[Violation]:
    """Who read an answer has paid for it, once; nobody has paid for anything else."""
    spent: Counter[str] = Counter()
    raw: Counter[str] = Counter(received.chat for received in books.history.received if books.is_raw(received.text))
    for turn in books.history.turns:
        counted = Counter(turn.entries)
        net = counted["post"] - counted["refund"]
        spent[turn.chat] += net
        why = wrong_charge(books, turn, counted, net)
        if why == NO_ANSWER and raw[turn.chat] and any(books.sent[mark].has_tool for mark in turn.marks if mark in books.sent):
            raw[turn.chat] -= 1  # one such result for each that is charged
        elif why:
            yield Violation(Wrong.MISCHARGED, turn.marks[0] if turn.marks else turn.id, f"{why}; the ledger says {', '.join(turn.entries)}")
    yield from poor(books)
    for chat, purse in books.history.purses.items():
        expected = purse.granted - spent[chat]
        if (purse.available, purse.reserved) != (expected, 0):
            told = f"{purse.available} available and {purse.reserved} reserved"
            yield Violation(Wrong.MISCHARGED, chat, f"{told} of {purse.granted} granted and {spent[chat]} spent")


def poor(books: Books) -> Iterator[Violation]:
    """Who hears that their credits are used up has paid with all of them; some may have been given back since."""
    paid = Counter(turn.chat for turn in books.history.turns if "post" in turn.entries)
    told = {received.chat for received in books.history.received if received.text.startswith(tuple(books.history.poor_words))}
    for chat in sorted(told & books.history.purses.keys()):
        if paid[chat] < books.history.purses[chat].granted:
            told_of = f"{books.history.purses[chat].granted} credits"
            yield Violation(Wrong.MISCHARGED, chat, f"turned away after {paid[chat]} answers, with {told_of}")


NO_ANSWER = "charged without an answer"


def wrong_charge(books: Books, turn: Turn, counted: Counter[str], net: int) -> str:
    if counted["reserve"] != counted["post"] + counted["void"]:
        return "a reserve is still open"
    if counted["post"] > 1 or counted["refund"] > counted["post"]:
        return "charged or refunded more than once"
    has_answer = any(mark in books.marked for mark in turn.marks)
    if is_dead(turn) and net:
        return "its answer is a dead letter, and the credit was not given back"
    if has_answer and not is_dead(turn) and not was_given_up(turn) and net != 1:
        return "answered, and not charged once"
    if not has_answer and books.is_taken(turn) and net:
        return NO_ANSWER
    return ""
