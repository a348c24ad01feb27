"""How fast one worker brings out what was promised: at the pace that each platform allows, and as fast as the machine goes.

The answers are in the outbox before the worker starts, as after an outage, and each conversation has its delivery job. Counted is what
arrives, from the first to the last. `hermes.delivery.platform_limits` says what a platform allows; over several accounts it allows more
than one machine can send, and what is left is the machine's own limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from channels.accounts import Account, Kind
from channels.house import House, open_house, promise, say
from hermes.app.root import Hermes, open_hermes
from hermes.delivery.platform_limits import ACCOUNT_PACES, CHAT_PACES
from hermes.ports.inbox import Claim
from hermes.ports.users import UserState
from hermes.router.outbox import render_text
from hermes.turn import Envelope, MessageEvent, Platform

EACH = 4
"""Answers that wait in one conversation."""


@dataclass(frozen=True, slots=True)
class Line:
    """What is sent where."""

    name: str
    kind: Kind
    accounts: int = 1
    each: int = EACH

    @property
    def to(self) -> Sequence[Account]:
        return [Account(self.kind, number) for number in range(1, self.accounts + 1)]

    @property
    def platform(self) -> Platform:
        return Platform(self.to[0].platform)

    def count(self, seconds: float) -> int:
        """As many as one account's pace takes in so many seconds, with what may go at once."""
        pace = ACCOUNT_PACES[self.platform]
        return max(1, round(seconds / pace.every_s + pace.burst) // self.each) * self.each

    def allowed(self, count: int) -> str:
        """Messages a second that the platform's limits leave, with what may go at once."""
        pace, chat = ACCOUNT_PACES[self.platform], CHAT_PACES.get(self.platform)
        took_s = (count / self.accounts - pace.burst) * pace.every_s
        if chat is not None:
            took_s = max(took_s, (self.each - chat.burst) * chat.every_s)
        return f"{count / took_s:,.0f}" if took_s > 0 else "all at once"


LINES = (
    Line("Telegram, one bot, one answer a chat", Kind.TELEGRAM, each=1),
    Line(f"Telegram, one bot, {EACH} answers a chat", Kind.TELEGRAM),
    Line(f"WhatsApp, one number, {EACH} answers a chat", Kind.DIALOG360),
    Line(f"Instagram, one account, {EACH} answers a chat", Kind.INSTAGRAM),
    Line(f"**Instagram, four accounts, {EACH} answers a chat**: the machine", Kind.INSTAGRAM, accounts=4),
)


async def deliver(seconds: float) -> None:
    """All lines, one after the other, each with a worker of its own."""
    async with open_house([*{account for line in LINES for account in line.to}]) as house:
        print("Delivery: 1 worker empties the outbox; the platforms answer at once (our own minimal server, not the strict stand-in)\n")
        print("| to | answers | chats | platform allows/s | **messages/s** | worker CPU ms | stores CPU ms |")
        print("|---|---|---|---|---|---|---|")
        for line in LINES:
            await brought(house, line, line.count(seconds))
    print()


async def brought(house: House, line: Line, count: int) -> None:
    taken = house.taken
    taken.forget()
    say(f"delivery: {line.name}")
    async with open_hermes(house.settings) as hermes:
        for chat in range(count // line.each):
            await promised(hermes, line, chat)
    async with house.running("worker") as pids:
        await taken.until(1)
        before = house.cpu_s(pids)
        await taken.until(count)
        after = house.cpu_s(pids)
        await house.until_idle()
    rate = (count - 1) / max(1e-9, taken.last_at - taken.first_at)
    cpu = " | ".join(f"{(after[name] - before[name]) / count * 1e3:.2f}" for name in ("worker", "stores"))
    print(f"| {line.name} | {count} | {count // line.each} | {line.allowed(count)} | **{rate:.1f}** | {cpu} |", flush=True)
    unsent = await house.ask("select count(*) from outbox where state <> 'sent'")
    promise(f"{line.name}: each answer is sent; {unsent[0][0]} are not", unsent == [(0,)])
    promise(f"{line.name}: each answer arrives once; {taken.twice} came twice", taken.twice == 0)


async def promised(hermes: Hermes, line: Line, chat: int) -> None:
    """Messages of one person, each with its answer in the outbox, and the job that brings them out. As turns leave them, without turns."""
    parts, account, person = hermes.adapters, line.to[chat % line.accounts].name, str(6_281_200_000_000 + chat)
    async with hermes.database.begin() as tx:
        await parts.people.find_or_create(tx, account, line.platform, person, state=UserState.ACTIVE)
        for number in range(chat * line.each, (chat + 1) * line.each):
            event = MessageEvent(platform=line.platform, sender_id=person, text="hello")
            envelope = Envelope(event=event, account=account, channel_id=person, event_key=str(uuid4()))
            receipt = await parts.inbox.accept(tx, envelope, uuid4())
            assert receipt is not None
            claim = await parts.inbox.claim(tx, receipt.turn_id)
            assert isinstance(claim, Claim)
            text = f"I heard m{number}. That sounds lovely, tell me more about it."
            await parts.outbox.put(tx, claim, render_text(envelope, text, hermes.account_channels))
            await parts.inbox.finish(tx, claim)
            await hermes.work.defer_delivery(tx, receipt.conversation_id)  # one job, however often
