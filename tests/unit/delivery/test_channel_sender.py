"""One outbox message on its way: what is tried, how often, after which waits, and what has become of it in the end."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, cast
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from hermes.delivery.channel_sender import ChannelSender
from hermes.delivery.outbox_delivery import OutboxDelivery, SettlementWriter
from hermes.delivery.platform_limits import MessageTemplate
from hermes.ports.channels import Channel, MaybeSent, NotSent, PlatformRequest, PlatformResponse, SendOutcome
from hermes.ports.inbox import Claim
from hermes.ports.outbox import ChannelName, DeliveryResult, OutboxMessage, OutboxState
from hermes.router.outbox import render_text
from hermes.testing.memory import MemoryBreakers, MemoryCredits, MemoryJournal, MemoryOutbox, MemoryTransactions
from hermes.turn import Envelope, MessageEvent, Platform
from tests.fakes.simple_channel import SimpleChannel, TemplateChannel
from tests.flows.directory import Directory

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
BOT = ChannelName(Platform.TELEGRAM, "bali")

Act = tuple[int, Mapping[str, Any]] | Exception
OK: Act = (200, {"ok": True, "result": {"message_id": 7}})
DOWN: Act = (502, {"ok": False, "description": "Bad Gateway"})
BLOCKED: Act = (403, {"ok": False, "description": "bot was blocked by the user"})
WRONG_TOKEN: Act = (401, {"ok": False, "description": "Unauthorized"})
UNPARSED: Act = (400, {"ok": False, "description": "can't parse entities"})
TOO_LONG: Act = (400, {"ok": False, "description": "message is too long"})
CLOSED: Act = (451, {"ok": False, "description": "nobody wrote for a day"})
NOWHERE, LOST = NotSent("cannot connect"), MaybeSent("the connection broke")


def limited(seconds: int) -> Act:
    return (429, {"ok": False, "description": "Too Many Requests", "parameters": {"retry_after": seconds}})


@dataclass
class House:
    """Dispatch around a platform that answers as it is told to, in a time that passes only where somebody waits."""

    acts: list[Act] = field(default_factory=list)
    channel: Channel = field(default_factory=SimpleChannel)
    now: float = 0.0
    calls: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    """When each was made, and its body."""
    counted: list[tuple[str, str]] = field(default_factory=list)
    alerted: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    ended: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    shown: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = cast("Any", type("Clock", (), {"now": lambda _: NOON + timedelta(seconds=self.now)})())
        self.breakers = MemoryBreakers(self.clock)
        self.credits, self.journal = MemoryCredits(), MemoryJournal()

    async def send(self, call: PlatformRequest, *, timeout_s: float) -> PlatformResponse:
        assert timeout_s == 10.0
        self.calls.append((self.now, call.json or {}))
        act = self.acts.pop(0) if self.acts else OK
        if isinstance(act, Exception):
            raise act
        status, body = act
        return PlatformResponse(status=status, headers={}, body=json.dumps(body).encode())

    async def pause(self, seconds: float) -> None:
        assert 0 < seconds <= 10.0, "nobody sleeps for longer in a worker"
        self.now += seconds

    def count_ignored(self, platform: str, reason: str) -> None:
        raise AssertionError("a sender ignores no webhook")

    def count_send(self, platform: str, outcome: str) -> None:
        self.counted.append((platform, outcome))

    def show_breaker(self, platform: str, account: str, open_s: float) -> None:
        self.shown.append(open_s)

    def alert(self, event: str, **facts: object) -> None:
        self.alerted.append((event, facts))

    def end(self, event: str, **facts: object) -> None:
        self.ended.append((event, facts))

    @property
    def dispatch(self) -> ChannelSender:
        return ChannelSender(
            channels=Directory([self.channel]),
            post=self,
            breakers=self.breakers,
            alerts=self,
            meter=self,
            clock=self.clock,
            pause=self.pause,
            timer=lambda: self.now,
            jitter=lambda wait_s: wait_s,
        )

    @property
    def settlement(self) -> SettlementWriter:
        return SettlementWriter(self.credits, self.journal, self)

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.calls]


def parcel(**fields: Any) -> OutboxMessage:
    where = ("bali", fields.pop("platform", Platform.TELEGRAM), "42")
    body = fields.pop("body", {"text": "hello"})
    known = {"taken_at": NOON, "last_inbound_at": NOON - timedelta(minutes=1), **fields}
    return OutboxMessage(1, uuid4(), uuid4(), 1, 0, *where, body, 1, **known)


# --- the table


async def test_what_the_platform_takes_is_sent_with_its_id() -> None:
    house = House()
    sending = await house.dispatch.send(parcel(thread="9"))
    assert sending == DeliveryResult(state=OutboxState.SENT, outcome=SendOutcome.SENT, message_id="7")
    assert house.calls == [(0.0, {"text": "hello", "chat_id": "42", "message_thread_id": "9"})]
    assert house.counted == [("telegram", "sent")]


@pytest.mark.parametrize("failure", [DOWN, NOWHERE])
async def test_what_is_proven_not_sent_is_tried_at_0_1_4_and_13_s_and_then_put_back_for_a_minute(failure: Act) -> None:
    house = House([failure] * 9)
    sending = await house.dispatch.send(parcel())
    assert house.times == [0.0, 1.0, 4.0, 13.0]
    assert (sending.state, sending.retry_in_s, sending.is_failure, sending.is_doubtful) == (OutboxState.PENDING, 60.0, True, False)


@pytest.mark.parametrize(("failures", "retry_in_s"), [(0, 60.0), (1, 300.0), (2, 1_500.0)])
async def test_the_queue_waits_longer_each_time(failures: int, retry_in_s: float) -> None:
    sending = await House([DOWN] * 4).dispatch.send(parcel(failures=failures))
    assert (sending.state, sending.retry_in_s) == (OutboxState.PENDING, retry_in_s)


async def test_after_three_times_in_the_queue_it_is_given_up_with_the_platforms_words() -> None:
    sending = await House([DOWN] * 4).dispatch.send(parcel(failures=3))
    assert sending == DeliveryResult(state=OutboxState.DEAD, outcome=SendOutcome.SERVICE_UNAVAILABLE, reason="502 Bad Gateway")


async def test_a_second_try_that_works_is_all_it_takes() -> None:
    house = House([DOWN, NOWHERE, OK])
    assert (await house.dispatch.send(parcel())).state is OutboxState.SENT
    assert (house.times, house.counted) == (
        [0.0, 1.0, 4.0],
        [("telegram", "service_unavailable"), ("telegram", "network_timeout"), ("telegram", "sent")],
    )


async def test_a_short_stated_time_is_waited_for_here_and_a_long_one_in_the_queue() -> None:
    house = House([limited(5)])
    assert (await house.dispatch.send(parcel())).state is OutboxState.SENT
    assert house.times == [0.0, 5.0]
    sending = await House([limited(77)]).dispatch.send(parcel())
    assert (sending.state, sending.outcome, sending.retry_in_s) == (OutboxState.PENDING, SendOutcome.RATE_LIMITED, 77.0)


async def test_what_may_have_arrived_is_put_back_once_in_doubt_and_given_up_the_second_time() -> None:
    house = House([LOST])
    sending = await house.dispatch.send(parcel())
    assert sending == DeliveryResult(
        state=OutboxState.PENDING, outcome=SendOutcome.AMBIGUOUS, reason="the connection broke", retry_in_s=60.0, is_doubtful=True
    )
    assert len(house.calls) == 1, "never at once"
    sending = await House([LOST]).dispatch.send(parcel(doubts=1))
    assert (sending.state, sending.outcome, sending.is_doubtful) == (OutboxState.DEAD, SendOutcome.AMBIGUOUS, True)


async def test_a_retry_that_is_proven_not_sent_does_not_count_as_one() -> None:
    sending = await House([DOWN] * 4).dispatch.send(parcel(doubts=1))
    assert (sending.state, sending.is_failure) == (OutboxState.PENDING, True)


async def test_two_doubts_are_enough_without_another_call() -> None:
    house = House()
    sending = await house.dispatch.send(parcel(doubts=2))
    assert (sending.state, sending.outcome, sending.is_doubtful, house.calls) == (OutboxState.DEAD, SendOutcome.AMBIGUOUS, False, [])


async def test_what_a_receipt_told_of_is_not_sent_again() -> None:
    house = House()
    sending = await house.dispatch.send(parcel(doubts=1, confirmed_by="wamid.9"))
    assert (sending.state, sending.message_id, house.calls) == (OutboxState.SENT, "wamid.9", [])


@pytest.mark.parametrize(
    ("act", "outcome"),
    [(BLOCKED, SendOutcome.INVALID_RECIPIENT), (WRONG_TOKEN, SendOutcome.UNAUTHORIZED), (TOO_LONG, SendOutcome.REJECTED)],
)
async def test_what_no_retry_can_mend_is_given_up_after_one_call(act: Act, outcome: SendOutcome) -> None:
    house = House([act])
    sending = await house.dispatch.send(parcel())
    assert (sending.state, sending.outcome, len(house.calls)) == (OutboxState.DEAD, outcome, 1)


async def test_markup_that_the_platform_cannot_read_is_left_out_once() -> None:
    house = House([UNPARSED])
    sending = await house.dispatch.send(parcel(body={"text": "hello", "entities": [{"type": "bold"}]}))
    assert sending.state is OutboxState.SENT
    assert [body for _, body in house.calls] == [
        {"text": "hello", "entities": [{"type": "bold"}], "chat_id": "42"},
        {"text": "hello", "chat_id": "42"},
    ]
    assert (await House([UNPARSED] * 2).dispatch.send(parcel())).state is OutboxState.DEAD


async def test_a_group_that_moved_is_followed_and_its_new_id_is_told() -> None:
    moved: Act = (400, {"ok": False, "description": "upgraded", "parameters": {"migrate_to_chat_id": -10042}})
    house = House([moved])
    sending = await house.dispatch.send(parcel())
    assert (sending.state, sending.moved_to) == (OutboxState.SENT, "-10042")
    assert [body["chat_id"] for _, body in house.calls] == ["42", "-10042"]


async def test_somebody_who_left_is_not_called_again() -> None:
    house = House()
    sending = await house.dispatch.send(parcel(is_reachable=False))
    assert (sending.state, sending.outcome, house.calls) == (OutboxState.DEAD, SendOutcome.INVALID_RECIPIENT, [])


# --- window


async def test_outside_the_window_nothing_is_sent_unless_there_is_a_template() -> None:
    house, late = House(channel=TemplateChannel()), parcel(platform=Platform.WHATSAPP, last_inbound_at=NOON - timedelta(hours=24))
    sending = await house.dispatch.send(late)
    assert (sending.state, sending.outcome, house.calls) == (OutboxState.DEAD, SendOutcome.WINDOW_CLOSED, [])
    with_template = replace(house.dispatch, templates={Platform.WHATSAPP: MessageTemplate("news", "id")})
    assert (await with_template.send(late)).state is OutboxState.SENT
    assert house.calls == [(0.0, {"template": "news", "language": "id", "text": "hello", "chat_id": "42"})]
    too_long = replace(late, body={"text": "x" * 100})
    assert (await with_template.send(too_long)).outcome is SendOutcome.WINDOW_CLOSED


async def test_where_only_the_platform_knows_that_the_window_is_closed_the_template_follows() -> None:
    house = House([CLOSED, OK], channel=TemplateChannel())
    dispatch = replace(house.dispatch, templates={Platform.WHATSAPP: MessageTemplate("news", "id")})
    assert (await dispatch.send(parcel(platform=Platform.WHATSAPP))).state is OutboxState.SENT
    assert [body.get("template") for _, body in house.calls] == [None, "news"]
    twice = House([CLOSED, CLOSED, CLOSED], channel=TemplateChannel())
    sending = await replace(twice.dispatch, templates=dispatch.templates).send(parcel(platform=Platform.WHATSAPP))
    assert (sending.state, sending.outcome, len(twice.calls)) == (OutboxState.DEAD, SendOutcome.WINDOW_CLOSED, 2)


async def test_inside_the_window_the_template_is_not_used() -> None:
    house = House(channel=TemplateChannel())
    dispatch = replace(house.dispatch, templates={Platform.WHATSAPP: MessageTemplate("news")})
    await dispatch.send(parcel(platform=Platform.WHATSAPP))
    assert house.calls == [(0.0, {"text": "hello", "chat_id": "42"})]


# --- the breaker


async def test_ten_failures_open_the_breaker_and_what_comes_then_waits_without_using_up_a_try() -> None:
    house = House([DOWN] * 99)
    dispatch = house.dispatch
    sendings = [await dispatch.send(replace(parcel(), channel_id=str(chat))) for chat in range(3)]
    assert len(house.calls) == 10
    assert [(sending.state, sending.is_failure) for sending in sendings] == [
        (OutboxState.PENDING, True),
        (OutboxState.PENDING, True),
        (OutboxState.PENDING, False),
    ]
    [(event, facts)] = house.alerted
    resets_at = NOON + timedelta(seconds=house.times[-1] + 120)
    expected = {"platform": "telegram", "account": "bali", "failures": 10, "retries_in_s": 120, "resets_at": resets_at.isoformat()}
    assert (event, facts) == ("breaker_opened", expected)
    assert sendings[2].events == (("breaker_opened", expected),)
    later = await dispatch.send(parcel())
    assert (later.state, later.outcome, later.is_failure, len(house.calls)) == (
        OutboxState.PENDING,
        SendOutcome.SERVICE_UNAVAILABLE,
        False,
        10,
    )
    assert later.retry_in_s == 120 - (house.now - house.times[-1])
    assert house.shown[-1] == later.retry_in_s


async def test_the_probe_that_succeeds_closes_it_and_the_one_that_fails_goes_back_to_wait() -> None:
    house = House([DOWN] * 99)
    dispatch = house.dispatch
    for chat in range(3):
        await dispatch.send(replace(parcel(), channel_id=str(chat)))
    house.now += 120
    probe = await dispatch.send(parcel())
    assert (probe.state, probe.is_failure, len(house.calls)) == (OutboxState.PENDING, False, 11)
    assert [event for event, _ in house.alerted] == ["breaker_opened"] * 2, "the same alert goes on; the operator is told once in a window"
    house.now += 120
    house.acts.clear()
    assert (await dispatch.send(parcel())).state is OutboxState.SENT
    assert (await dispatch.send(replace(parcel(), channel_id="1"))).state is OutboxState.SENT
    assert house.shown[-1] == 0.0
    account = {"platform": "telegram", "account": "bali"}
    assert house.ended == [("breaker_opened", account), ("channel_unauthorized", account)]


async def test_a_token_that_is_rejected_while_the_breaker_is_open_is_an_alert_too() -> None:
    house = House([DOWN] * 99)
    dispatch = house.dispatch
    for chat in range(3):
        await dispatch.send(replace(parcel(), channel_id=str(chat)))
    house.now += 120
    house.acts[:] = [WRONG_TOKEN]
    await dispatch.send(parcel())
    assert [event for event, _ in house.alerted] == ["breaker_opened", "channel_unauthorized"]


async def test_ten_people_who_left_open_no_breaker() -> None:
    house = House([BLOCKED] * 20)
    dispatch = house.dispatch
    for chat in range(20):
        assert (await dispatch.send(replace(parcel(), channel_id=str(chat)))).outcome is SendOutcome.INVALID_RECIPIENT
    assert (len(house.calls), house.alerted) == (20, [])


async def test_a_wrong_token_stops_the_line_and_calls_a_person_once() -> None:
    house = House([WRONG_TOKEN] * 9)
    dispatch = house.dispatch
    assert (await dispatch.send(parcel())).state is OutboxState.DEAD
    waiting = await dispatch.send(replace(parcel(), channel_id="43"))
    assert (waiting.state, waiting.is_failure, waiting.retry_in_s, len(house.calls)) == (OutboxState.PENDING, False, 300.0, 1)
    house.now += 300
    assert (await dispatch.send(replace(parcel(), channel_id="44"))).state is OutboxState.DEAD
    assert [event for event, _ in house.alerted] == ["channel_unauthorized"] * 2, "one alert that goes on"


# --- pace


async def test_a_chat_is_not_written_to_faster_than_it_may_be_and_long_waits_go_to_the_queue() -> None:
    house = House()
    dispatch = house.dispatch
    for _ in range(4):
        await dispatch.send(parcel())
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(house.times))
    for _ in range(12):
        dispatch.pacer.turn(BOT, "42", house.now, max_s=1_000)
    sending = await dispatch.send(parcel())
    assert (sending.state, sending.outcome, sending.is_failure) == (OutboxState.PENDING, None, False)
    assert sending.retry_in_s > 10.0


# --- accounts that are not set up


async def test_an_account_that_is_not_set_up_has_its_tries_and_calls_a_person() -> None:
    house = House(channel=SimpleChannel(account="lombok"))
    sending = await house.dispatch.send(parcel())
    assert (sending.state, sending.outcome, sending.retry_in_s) == (OutboxState.PENDING, SendOutcome.UNAUTHORIZED, 60.0)
    assert (await house.dispatch.send(parcel(failures=3))).state is OutboxState.DEAD
    assert house.alerted[0] == ("channel_missing", {"platform": "telegram", "account": "bali"})


async def test_what_was_promised_as_text_is_rendered_when_it_is_sent() -> None:
    house = House()
    assert (await house.dispatch.send(parcel(body="*hello*"))).state is OutboxState.SENT
    assert house.calls[0][1]["text"] == "hello"
    assert (await house.dispatch.send(parcel(body="one\n\ntwo"))).outcome is SendOutcome.REJECTED


# --- with a courier, in memory


async def test_the_courier_brings_an_answer_and_the_books_say_so() -> None:
    house, outbox, claim = House(), MemoryOutbox(), new_claim()
    await outbox.put(None, claim, render_text(claim.envelope, "one\n\ntwo", Directory([house.channel])))
    await OutboxDelivery(MemoryTransactions(), outbox, house.dispatch.send, house.settlement).deliver(claim.conversation_id)
    assert [body["text"] for _, body in house.calls] == ["one", "two"]
    assert [event.type for event in outbox.inbox.events[claim.turn_id]] == ["response_delivered"] * 2
    answer = await outbox.answer(None, claim.turn_id)
    assert answer is not None
    assert answer.text == "one\ntwo"


async def test_an_answer_that_is_given_up_gives_its_credit_back_once_and_news_give_nothing_back() -> None:
    house, claim = House([TOO_LONG] * 3), new_claim()
    await house.credits.grant(None, claim.user_id, 5, "signup")
    await house.credits.reserve(None, claim.user_id, claim.turn_id)
    await house.credits.post(None, claim.turn_id)
    dispatch, letter = house.dispatch, replace(parcel(), turn_id=claim.turn_id)
    with capture_logs() as lines:
        for each in (replace(letter, news="reminder/1"), letter, replace(letter, part=1)):
            sending = await dispatch.send(each)
            await house.settlement.note(None, each, sending, sending.state)
    assert (await house.credits.balance(None, claim.user_id)).available == 5
    assert [facts["is_refunded"] for _, facts in house.journal.notes] == [False, True, False]
    assert [line["event"] for line in lines] == ["outbox_message_died"] * 3


async def test_an_overflow_calls_a_person() -> None:
    house, each = House([DOWN] * 4), parcel()
    sending = await house.dispatch.send(each)
    await house.settlement.note(None, each, sending, OutboxState.DEAD)
    facts = {"platform": "telegram", "account": "bali", "outcome": "service_unavailable"}
    assert house.alerted == [("failed_sends_overflowed", facts)]


def new_claim() -> Claim:
    event = MessageEvent(platform=Platform.TELEGRAM, sender_id="42", text="hi")
    envelope = Envelope(event=event, account="bali", channel_id="42", event_key="k")
    return Claim(uuid4(), uuid4(), uuid4(), seq=1, epoch=1, attempt=1, envelope=envelope, age_s=0.0)


def test_an_account_has_one_channel_at_a_platform() -> None:
    directory = Directory([SimpleChannel(), SimpleChannel(account="lombok")])
    assert directory.get(Platform.TELEGRAM, "lombok") == SimpleChannel(account="lombok")
    assert (directory.get(Platform.WHATSAPP, "bali"), directory.get(Platform.TELEGRAM, "ubud")) == (None, None)
    with pytest.raises(ValueError, match="telegram has two channels of the account 'bali'"):
        Directory([SimpleChannel(), SimpleChannel()])
