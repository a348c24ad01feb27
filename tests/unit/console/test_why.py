"""Why a turn went as it did: one sentence for each way that a turn can go."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hermes.console.turn_plot import RowState, plot_turn
from hermes.console.turn_view import narrow_timeline, narrow_turn, price_lines
from hermes.console.why import explain_turn
from hermes.gateway.prices import TokenRate
from hermes.ports.backends import Usage
from hermes.ports.channels import ReceiptRank
from hermes.ports.models import CallAttempt, CallOutcome, CallPurpose, CallSource, ModelCall
from hermes.ports.sessions import JournalEvent
from hermes.ports.timeline import PLOT, AttemptEnd, TimelineEffect, TimelineStep, TurnAttempt, TurnTimeline
from hermes.ports.turn_record import CreditRecord, DeliveryRecord, ProcessName, RecordedCall, TurnRecord
from hermes.turn import Platform

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
TURN, OTHER, WORKER = (UUID(int=number, version=4) for number in (1, 0x3F2A91BC << 96, 0xB69E5B4B << 96))
ANSWERED = CallAttempt("claude-haiku", "anthropic", "claude-haiku-4-5", "answered", 1_200)
TIMED_OUT = CallAttempt("claude-sonnet", "anthropic", "claude-sonnet-4-6", "Unreachable", 45_000)
BROKEN = CallAttempt("claude-sonnet", "anthropic", "claude-sonnet-4-6", "Overloaded", 80, 500)
CUT = CallAttempt("claude-sonnet", "anthropic", "claude-sonnet-4-6", "CancelledError", 900)
TOOL = {"name": "search_venues", "is_error": False, "ms": 12}


def call(*attempts: CallAttempt, micro_usd: int = 2_100, **more: Any) -> ModelCall:
    fields: dict[str, Any] = {
        "purpose": CallPurpose.ANSWER,
        "outcome": CallOutcome.ANSWERED,
        "usage": Usage(tokens_in=600, tokens_out=20),
        **more,
    }
    place = {
        "id": TURN,
        "day": NOON.date(),
        "account_id": "shop",
        "source": CallSource.ROUTER,
        "tier": "free",
        "model": "claude-sonnet-4-6",
    }
    return ModelCall(**place, latency_ms=1_200, attempts=attempts, micro_usd=micro_usd, **fields)


CONCLUDED = call(ANSWERED, purpose=CallPurpose.CONCLUDE)


def part(**more: Any) -> DeliveryRecord:
    place = {
        "id": 1,
        "part": 0,
        "news": "",
        "failures": 0,
        "doubts": 0,
        "reason": "",
        "message_id": None,
        "died_at": None,
        "is_late": False,
    }
    times = {"ranked_at": None, "put_at": NOON, "touched_at": NOON, "not_before": NOON}
    return DeliveryRecord(**{"state": "sent", "tries": 1, "outcome": "sent", "rank": ReceiptRank.SENT, **place, **times, **more})


FETCHED = part(tries=0, outcome=None, rank=None)


def turn(*calls: ModelCall, meta: dict[str, Any] | None = None, parts: Sequence[DeliveryRecord] = (FETCHED,), **more: Any) -> TurnRecord:
    record = TurnRecord(
        turn_id=TURN,
        account_id="shop",
        platform=Platform.TELEGRAM,
        channel_id="42",
        sender_id="42",
        conversation_id=TURN,
        session_id=TURN,
        user_id=TURN,
        is_shared=False,
        is_erased=False,
        seq=1,
        state="done",
        attempts=1,
        reason=None,
        received_at=NOON,
        ended_at=NOON + timedelta(seconds=2),
        stopped_at=None,
        now=NOON + timedelta(seconds=40),
        meta={"outcome": "answered", **({"calls": ["a"]} | (meta or {}))},
        calls=[RecordedCall(each, NOON) for each in calls],
        deliveries=parts,
        live_workers=1,
    )
    return replace(record, **more)


def waiting(**more: Any) -> TurnRecord:
    return replace(turn(parts=()), state="waiting", ended_at=None, meta={}, **more)


def attempt(end: AttemptEnd, number: int = 1, *, step: str | None = None, error: str | None = None, steps: Any = ()) -> TurnAttempt:
    return TurnAttempt(number, number, WORKER, NOON + timedelta(seconds=1), end, steps, step=step, error=error)


CUT_OFF = attempt(AttemptEnd.CUT_OFF, step="call_model")
ENDED = attempt(AttemptEnd.ENDED, 2)
AT_MODEL = attempt(AttemptEnd.RUNNING, steps=[TimelineStep("call_model", 10, None, {})])

CASES: list[tuple[str, TurnRecord, list[TurnAttempt]]] = [
    (
        "scripted (in place of claude-haiku) answered; $0.00; fetched by its client",
        turn(call(ANSWERED, micro_usd=0, backend="scripted", answered_by="scripted")),
        [],
    ),
    ("claude-haiku answered; $0.0021; fetched by its client", turn(call(ANSWERED)), [attempt(AttemptEnd.ENDED)]),
    (
        "claude-haiku answered after claude-sonnet timed out; 1 tool; $0.0042; delivered at try 2",
        turn(call(TIMED_OUT, ANSWERED), CONCLUDED, meta={"tools": [TOOL], "calls": ["a", "b"]}, parts=[part(tries=2)]),
        [],
    ),
    (
        (
            "claude-haiku called the tools after claude-sonnet failed with 500, then claude-sonnet answered; 2 tools, 1 failed; $0.0042; "
            "read at try 1"
        ),
        turn(
            call(BROKEN, ANSWERED),
            call(replace(TIMED_OUT, outcome="answered"), purpose=CallPurpose.CONCLUDE),
            meta={"tools": [TOOL, {**TOOL, "is_error": True}], "calls": ["a", "b"]},
            parts=[part(rank=ReceiptRank.READ)],
        ),
        [],
    ),
    (
        "claude-haiku answered; attempt 1 was cut off at call_model; $0.0021; fetched by its client",
        turn(call(CUT, outcome=CallOutcome.CANCELLED, micro_usd=0), call(ANSWERED)),
        [CUT_OFF, ENDED],
    ),
    (
        "claude-haiku answered; attempt 1 failed at load_soul (LookupError); $0.0021; fetched by its client",
        turn(call(ANSWERED)),
        [attempt(AttemptEnd.FAILED, step="load_soul", error="LookupError"), ENDED],
    ),
    (
        "the cache answered with an earlier answer of claude-sonnet-4-6, which saved $0.0021; $0.00; fetched by its client",
        turn(call(micro_usd=0, cache_hit=True), meta={"llm_cache_hit": True, "saved_usd": 0.0021}),
        [],
    ),
    (
        (
            "the user got the tools' output as it is: no model answered after them (claude-sonnet timed out); 1 tool; $0.0021; "
            "fetched by its client"
        ),
        turn(
            call(ANSWERED),
            call(TIMED_OUT, purpose=CallPurpose.CONCLUDE, outcome=CallOutcome.FAILED, micro_usd=0),
            meta={"tools": [TOOL], "calls": ["a"]},
        ),
        [],
    ),
    (
        "no answer: the user is out of credit (OutOfCredit at take_credit); the user got the reply upgrade; $0.00; delivered at try 1",
        turn(meta={"outcome": "upgrade", "error": "OutOfCredit", "step": "take_credit"}, parts=[part()]),
        [],
    ),
    (
        (
            "no answer: claude-sonnet timed out, claude-haiku was skipped (it takes no images) (ChainFailed at call_model); "
            "the user got the reply retry_later; $0.00; fetched by its client"
        ),
        turn(
            call(TIMED_OUT, replace(ANSWERED, outcome="skipped: it takes no images"), outcome=CallOutcome.FAILED, micro_usd=0),
            meta={"outcome": "retry_later", "error": "ChainFailed", "step": "call_model"},
        ),
        [],
    ),
    (
        "no answer: model calls are paused (CallsPaused at call_model); the user got the reply paused; $0.00; fetched by its client",
        turn(meta={"outcome": "paused", "error": "CallsPaused", "step": "call_model"}),
        [],
    ),
    (
        (
            "gave up at attempt 6 after 12 s; the user got an apology; 3 attempts before it; the last one: attempt 3 failed at record "
            "(StaleHead); $0.00; delivered at try 1"
        ),
        turn(meta={"outcome": "apologised"}, state="dead", reason="gave up at attempt 6 after 12 s", parts=[part()]),
        [*(attempt(AttemptEnd.FAILED, number, step="record", error="StaleHead") for number in (1, 2, 3)), attempt(AttemptEnd.ENDED, 6)],
    ),
    ("buried: its sender was deleted; $0.00", turn(meta={"outcome": None}, state="dead", reason="its sender was deleted", parts=()), []),
    ("stopped by its client after 3 s", turn(meta={"outcome": None}, stopped_at=NOON + timedelta(seconds=3), parts=()), []),
    (
        "stopped by its client after 3 s; $0.0021",
        turn(call(ANSWERED), meta={"outcome": None}, stopped_at=NOON + timedelta(seconds=3), parts=()),
        [],
    ),
    ("joined to turn 3f2a91bc: they have one answer", turn(joined_to=OTHER), []),
    ("has waited 40 s: behind turn 3f2a91bc of the same conversation", waiting(behind=OTHER), []),
    ("has waited 40 s: no worker is alive", waiting(live_workers=0), []),
    ("has waited 40 s for a free worker", waiting(), []),
    (
        "has waited 40 s: attempt 1 failed at load_soul (LookupError), and it is tried again",
        waiting(),
        [attempt(AttemptEnd.FAILED, step="load_soul", error="LookupError")],
    ),
    ("attempt 1 has run for 39 s at call_model; received 40 s ago", waiting(), [AT_MODEL]),
    ("has waited 40 s: no worker is alive", waiting(live_workers=0, workers=[ProcessName(WORKER, "vm", 7, is_live=False)]), [AT_MODEL]),
    (
        "attempt 1 has run for 39 s at call_model; received 40 s ago",
        waiting(live_workers=0, workers=[ProcessName(WORKER, "vm", 7, is_live=True)]),
        [AT_MODEL],
    ),
    (
        "claude-haiku answered; $0.0021; not delivered: given up after 5 tries (invalid_recipient: the user left)",
        turn(call(ANSWERED), parts=[part(), part(state="dead", tries=5, outcome="invalid_recipient", reason="the user left")]),
        [],
    ),
    (
        "claude-haiku answered; $0.0021; not delivered yet after try 3 (service_unavailable: the breaker is open)",
        turn(call(ANSWERED), parts=[part(state="pending", tries=3, outcome="service_unavailable", reason="the breaker is open")]),
        [],
    ),
    (
        (
            "no answer: claude-haiku answered nothing after claude-sonnet timed out (EmptyAnswer at call_model); the user got the reply "
            "retry_later; $0.0021; fetched by its client"
        ),
        turn(call(TIMED_OUT, ANSWERED), meta={"outcome": "retry_later", "error": "EmptyAnswer", "step": "call_model"}),
        [],
    ),
    (
        (
            "no answer: model calls are paused by the kill switch (CallsPaused at call_model); the user got the reply paused; $0.00; "
            "fetched by its client"
        ),
        turn(
            call(outcome=CallOutcome.REFUSED, error="CallsPaused: kill switch", micro_usd=0, usage=Usage()),
            meta={"outcome": "paused", "error": "CallsPaused", "step": "call_model"},
        ),
        [],
    ),
    (
        ("claude-haiku answered; an operator revived it after attempt 3 had given up; $0.0021; fetched by its client"),
        turn(call(ANSWERED)),
        [attempt(AttemptEnd.FAILED, 2, step="record", error="StaleHead"), attempt(AttemptEnd.ENDED, 3), attempt(AttemptEnd.ENDED, 4)],
    ),
    (
        "has waited 10 s for a free worker",
        waiting(received_at=NOON - timedelta(days=3), revived_at=NOON + timedelta(seconds=30)),
        [attempt(AttemptEnd.ENDED, 3)],
    ),
    (
        "has waited 40 s: the worker of attempt 1 gives no sign of life, and another one takes over",
        waiting(workers=[ProcessName(WORKER, "vm", 7, is_live=False)]),
        [AT_MODEL],
    ),
    ("claude-haiku answered; $0.0021; being sent, try 1", turn(call(ANSWERED), parts=[part(state="attempting", outcome=None)]), []),
]


@pytest.mark.parametrize(("sentence", "record", "attempts"), CASES, ids=[sentence[:60] for sentence, _, _ in CASES])
def test_the_sentence(sentence: str, record: TurnRecord, attempts: list[TurnAttempt]) -> None:
    timeline = TurnTimeline(TURN, "running" if record.state == "waiting" else "done", attempts, ()) if attempts else None
    assert explain_turn(record, timeline).sentence == sentence


def test_the_causes_are_in_the_order_of_time_and_name_their_steps() -> None:
    saved = JournalEvent("memory_saved", 0, "memory_saved", 1, NOON, NOON, {"added": 2})
    timeline = TurnTimeline(TURN, "done", [CUT_OFF, ENDED], [saved])
    record = turn(
        call(TIMED_OUT, ANSWERED),
        call(purpose=CallPurpose.COMPACT, outcome=CallOutcome.REFUSED, error="BudgetSpent: day", micro_usd=0, usage=Usage()),
        meta={"tools": [TOOL]},
        parts=[part(), part(news="reminder/7KQ2", tries=2)],
        credits=[CreditRecord("reserve", 1, 1, NOON), CreditRecord("post", 1, 1, NOON)],
        joined=[OTHER],
    )
    assert [(cause.text, cause.step) for cause in explain_turn(record, timeline).causes] == [
        ("waited 1.0 s before its first attempt", None),
        ("1 more message joined to it: one answer for all", None),
        ("attempt 1 was cut off at call_model by worker b69e5b4b", "call_model"),
        ("attempt 2 ended the turn by worker b69e5b4b", None),
        (
            "answer: claude-sonnet timed out (45.0 s), claude-haiku answered (1.2 s); 600 tokens in, 20 out; $0.0021",
            "call_model",
        ),
        ("compact: BudgetSpent: day; $0.00", "load_history"),
        ("tool search_venues ended after 12 ms", "run_tools"),
        ("credit: 1 held", "take_credit"),
        ("credit: 1 charged", "take_credit"),
        ("part 1: delivered at try 1", "record"),
        ("reminder/7KQ2: delivered at try 2", "record"),
        ("learned from it afterwards: 2 facts", None),
    ]


def test_a_cause_names_the_stand_in_as_the_sentence_does() -> None:
    causes = explain_turn(turn(call(ANSWERED, micro_usd=0, backend="scripted", answered_by="scripted")), None).causes
    assert [cause.text for cause in causes if "answered" in cause.text] == [
        "answer: scripted (in place of claude-haiku) answered (1.2 s); 600 tokens in, 20 out; $0.00"
    ]


def test_a_call_that_was_cut_off_or_found_no_slot_did_not_answer() -> None:
    busy = CallAttempt("claude-haiku", "anthropic", "claude-haiku-4-5", "NoCapacity", 300)
    record = turn(
        call(CUT, outcome=CallOutcome.CANCELLED, error="CancelledError", micro_usd=0, usage=Usage()),
        call(outcome=CallOutcome.CANCELLED, error="CancelledError", micro_usd=0, usage=Usage()),
        call(busy, outcome=CallOutcome.REFUSED, error="NoCapacity", micro_usd=0, usage=Usage()),
        stopped_at=NOON + timedelta(seconds=3),
    )
    timeline = TurnTimeline(TURN, "done", [attempt(AttemptEnd.ENDED)], [])
    assert [cause.text for cause in explain_turn(record, timeline).causes][1:5] == [
        "attempt 1 was stopped: the client withdrew the message",
        "answer: claude-sonnet was cut off (900 ms); $0.00",
        "answer: was cut off; $0.00",
        "answer: claude-haiku had no free slot (300 ms); $0.00",
    ]


def test_the_causes_of_a_revived_turn_say_which_attempt_gave_up() -> None:
    timeline = TurnTimeline(TURN, "done", [attempt(AttemptEnd.ENDED, 3), attempt(AttemptEnd.ENDED, 4)], [])
    record = turn(call(ANSWERED), credits=[CreditRecord("reserve", 1, 1, NOON), CreditRecord("void", 1, 1, NOON)])
    texts = [cause.text for cause in explain_turn(record, timeline).causes]
    assert texts[1:3] == [
        "attempt 3 gave up; an operator revived the message",
        "attempt 4 ended the turn by worker b69e5b4b",
    ]
    assert texts[4:6] == ["credit: 1 held", "credit: 1 given back"]


def test_the_plot_has_ten_rows_for_every_attempt_whatever_it_reached() -> None:
    steps = [
        TimelineStep("resolve_user", 0, 1_000, {"agent": "hermes", "tier": "free", "language": "en"}),
        TimelineStep(
            "call_model", 2_000, None, {}, effects=[TimelineEffect("call_model", 0, "llm_called", NOON, None, None, {}, has_content=True)]
        ),
    ]
    cut = replace(CUT_OFF, steps=steps)
    [first, second] = plot_turn(TurnTimeline(TURN, "running", [cut, attempt(AttemptEnd.RUNNING, 2)], ()))
    assert (first.title, second.title) == ("cut off at call_model by worker b69e5b4b", "runs by worker b69e5b4b")
    assert [row.step for row in first.rows] == [row.step for row in second.rows] == list(PLOT)
    states = [RowState.DONE, *[RowState.UNRECORDED] * 6, RowState.CUT_OFF, RowState.UNREACHED, RowState.UNREACHED]
    assert [row.state for row in first.rows] == states
    assert (first.rows[0].facts, first.rows[7].effects[0].label) == ("hermes · free · en", "call has not ended")
    assert all(row.bar_x >= 0 and row.bar_x + row.bar_width <= 1_000 for row in first.rows)
    [unclaimed] = plot_turn(None)
    assert {row.state for row in unclaimed.rows} == {RowState.UNREACHED}


def test_the_plot_names_the_models_that_failed_in_a_step() -> None:
    steps = [
        TimelineStep("call_model", 0, 1_000, {}),
        TimelineStep("run_tools", 1_000, 1_000, {}),
        TimelineStep("load_history", 0, 1_000, {}),
    ]
    once = replace(ENDED, steps=steps)
    calls = [
        call(TIMED_OUT, BROKEN, ANSWERED),
        call(BROKEN, ANSWERED, purpose=CallPurpose.CONCLUDE),
        call(CUT, purpose=CallPurpose.COMPACT),
    ]
    [plotted] = plot_turn(TurnTimeline(TURN, "done", [once], ()), calls)
    told = {row.step: [(effect.label, effect.ms, effect.is_error) for effect in row.effects] for row in plotted.rows if row.effects}
    assert told == {
        "call_model": [("claude-sonnet timed out", 45_000, True), ("claude-sonnet failed with 500", 80, True)],
        "run_tools": [("claude-sonnet failed with 500", 80, True)],
    }
    again = plot_turn(TurnTimeline(TURN, "done", [CUT_OFF, once], ()), calls)
    assert [row.effects for row in again[1].rows if row.effects] == [], "no record says which attempt made a call"


def test_a_message_that_was_buried_before_any_attempt_says_so() -> None:
    buried = turn(state="dead", reason="gave up at attempt 2")
    assert [cause.text for cause in explain_turn(buried, None).causes][:1] == ["waited 2.0 s; no attempt is recorded"]


def test_an_attempt_that_was_cut_off_before_its_first_note_still_shows_where() -> None:
    [plotted] = plot_turn(TurnTimeline(TURN, "running", [CUT_OFF], ()))
    assert [row.step for row in plotted.rows if row.state is RowState.CUT_OFF] == ["call_model"]
    assert plotted.total_ms == 0


def test_a_viewer_sees_neither_identifiers_nor_a_platforms_words_about_a_message() -> None:
    refused = part(state="dead", tries=3, outcome="rejected", reason="the word sunset is not allowed", message_id="wamid.6281234567431")
    waits = part(state="pending", outcome="service_unavailable", reason="the breaker is open")
    seen = narrow_turn(turn(parts=[refused, waits], channel_id="+6281234567431", sender_id="+6281234567431"))
    assert not [word for word in ("sunset", "6281234567431") if word in repr(seen)]
    assert (seen.sender_id, [each.reason for each in seen.deliveries]) == ("+62•••431", ["", "the breaker is open"])
    facts = {"outcome": "rejected", "reason": "the word sunset is not allowed"}
    failed = JournalEvent("delivery_failed", 0, "delivery_failed", 1, NOON, NOON, facts)
    assert narrow_timeline(TurnTimeline(TURN, "done", [], [failed])).later[0].facts == {"outcome": "rejected"}


def test_tokens_times_rate_is_what_the_call_cost() -> None:
    rate = TokenRate.usd(3.0, 15.0, read=0.3, write=3.75, hour=6.0)
    usage = Usage(tokens_in=1_003, tokens_out=21, cache_read=500, cache_write=101, cache_write_1h=7)
    made = call(ANSWERED, usage=usage, rate=rate.to_dict(), micro_usd=rate.cost(usage))
    lines = price_lines(made)
    assert [(line.kind, line.tokens) for line in lines] == [
        ("in", 395),
        ("cache read", 500),
        ("cache write", 101),
        ("cache write 1 h", 7),
        ("out", 21),
    ]
    assert 0 <= made.micro_usd - sum(line.micro_usd for line in lines) < 1, "rounded up, never down"
    assert price_lines(call(cache_hit=True, micro_usd=0)) == []
