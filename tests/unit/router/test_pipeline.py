"""The ten steps with no store at all: what is said, what it costs, what is recorded, and what happens when a step fails."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from hermes.ports.backends import Overloaded
from hermes.ports.credits import BudgetSpent, BudgetWindow, CallsPaused, PauseReason
from hermes.ports.errors import StoreUnavailable, UserErased
from hermes.ports.memories import Soul
from hermes.ports.models import ChainFailed, NoCapacity
from hermes.ports.runtime import Transaction
from hermes.ports.tools import GatedTools, ImagePrompt, ImageTooLarge, ImageUnreadable, ToolCall, ToolResult, ToolUser
from hermes.ports.users import UserState
from hermes.router.pipeline import FALLBACKS, handle_message
from hermes.router.replies import ReplyKind, reply
from hermes.testing import ScriptedModel
from hermes.testing.memory import MemoryGraphs, MemoryTransactions, RouterHarness
from hermes.turn import Platform

SCHEMA = {"type": "function", "function": {"name": "venue_search", "parameters": {"type": "object"}}}
MORNING = datetime(2026, 11, 16, tzinfo=UTC)


@dataclass
class Knows:
    """A soul that is always the same."""

    note: str | None = "<context>\nIt is morning.\n</context>"
    error: Exception | None = None

    async def load(self, *_: object, **__: object) -> Soul:
        if self.error:
            raise self.error
        return Soul("You are Hermes.", self.note, is_recall_used=True, load_ms=3)

    async def for_room(self, *_: object, **__: object) -> Soul:
        return Soul("You are Hermes, in a room.", "<context>\nIt is noon.\n</context>", is_recall_used=False, load_ms=0)

    async def invalidate(self, _: object) -> None:
        return


@dataclass
class Does:
    """Tools that bring what they are told to."""

    brings: str = "Old Man's, open until 1 am"
    ran: list[tuple[str, int, str]] = field(default_factory=list)
    warm: list[str | None] = field(default_factory=list)

    def gate(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> GatedTools:
        self.warm.append(warm)
        return GatedTools("none", []) if text == "hi" else GatedTools("venue", [SCHEMA])

    def for_room(self) -> "Does":
        return self

    async def run(self, call: ToolCall, index: int, user: ToolUser) -> ToolResult:
        self.ran.append((call.name, index, user.language))
        return ToolResult(call.id, call.name, self.brings, is_error=False, ms=7)


@dataclass
class Sees:
    """Looks at pictures."""

    picture: ImagePrompt | None = None
    error: Exception | None = None

    async def look(self, *_: object, **__: object) -> ImagePrompt | None:
        if self.error:
            raise self.error
        return self.picture


def house(*answers: Any, **parts: Any) -> RouterHarness:
    models = ScriptedModel([*answers], name="anthropic")
    made = RouterHarness(**{"models": models, "souls": Knows(), "tools": Does(), "images": Sees(), **parts})
    made.credits.available[made.user.id] = 3
    return made


def asked(made: RouterHarness, at: int = 0) -> Sequence[Mapping[str, Any]]:
    models = made.models
    assert isinstance(models, ScriptedModel)
    return models.requests[at].messages


CALLS = {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "venue_search", "arguments": "{}"}}]}


async def test_a_message_is_answered_charged_and_recorded_in_ten_steps() -> None:
    made = house("Hello!")
    claim = made.claim("hi")
    ended = await handle_message(claim, made.services)
    assert (ended.text, ended.outcome) == ("Hello!", "answered")
    assert made.outbox.answers == {claim.turn_id: ["Hello!"]}
    assert made.inbox.finished == [claim.turn_id]
    assert (made.credits.available[made.user.id], made.credits.turns[claim.turn_id][1]) == (2, "posted")
    question = {"role": "user", "content": "<context>\nIt is morning.\n</context>\n\nhi"}
    assert list(asked(made)) == [{"role": "system", "content": "You are Hermes."}, question]
    [graph] = made.graphs.graphs.values()
    [response] = graph.responses()
    assert response.context == [{"role": "system", "content": "You are Hermes."}, question]
    assert graph == [question, {"role": "assistant", "content": "Hello!"}], "the soul is beside the list"
    row = made.interactions.rows[claim.turn_id]
    expected = {"soul_load_ms": 3, "semantic_recall_used": True, "llm_backend": "anthropic", "tokens_in": 10, "tokens_out": 2, "tools": []}
    assert {name: row[name] for name in expected} == expected
    assert row["cost_usd"] == 0.00002
    assert [type_ for type_, _ in made.journal.notes] == [
        "call_model",
        "user_resolved",
        "credit_reserved",
        "soul_loaded",
        "history_loaded",
        "intent_classified",
        "messages_built",
        "tools_gated",
        "model_answered",
        "tools_finished",
        "credit_posted",
        "turn_recorded",
    ]
    assert (row["agent"], row["tier"], row["intent"]) == ("hermes", "free", "none")
    assert row["head"] == row["nodes"][-1] == graph.head
    assert (len(row["nodes"]), row["context_ids"]) == (2, [response.context_id])
    assert (made.meter.turns, made.learnt_from) == ([("answered", "none")], [claim.turn_id])
    assert made.meter.steps == [
        "resolve_user",
        "take_credit",
        "load_soul",
        "load_history",
        "route_image",
        "build_messages",
        "gate_tools",
        "call_model",
        "run_tools",
        "record",
    ]


async def test_the_next_message_goes_on_where_the_last_one_ended() -> None:
    made = house("one", "two")
    for text in ("hi", "and now?"):
        await handle_message(made.claim(text), made.services)
    [graph] = made.graphs.graphs.values()
    assert len(graph.versions) == 1
    assert [len(response.context) for response in graph.responses()] == [2, 4]
    assert isinstance(made.tools, Does)
    assert made.tools.warm == [None, None], "each `services` has a memory of its own"


async def test_tools_run_once_and_the_model_says_what_came_of_it() -> None:
    made = house(CALLS, "Try Old Man's.")
    claim = made.claim("a sunset bar in Canggu")
    ended = await handle_message(claim, made.services)
    assert ended.text == "Try Old Man's."
    assert made.tools.ran == [("venue_search", 0, "en")]  # type: ignore[attr-defined]
    result = {"role": "tool", "tool_call_id": "c1", "content": "Old Man's, open until 1 am"}
    assert list(asked(made, 1))[-1] == result
    assert made.models.requests[1].tool_choice == "none"  # type: ignore[attr-defined]
    [graph] = made.graphs.graphs.values()
    assert [message["role"] for message in graph] == ["user", "assistant", "tool", "assistant"]
    assert [response.call.tools for response in graph.responses() if response.call] == [[SCHEMA], [SCHEMA]]
    row = made.interactions.rows[claim.turn_id]
    assert (row["tools"], row["tool_exec_ms"], row["tokens_in"]) == ([{"name": "venue_search", "is_error": False, "ms": 7}], 7, 20)


async def test_where_the_model_cannot_say_it_the_user_hears_what_the_tools_brought_and_pays() -> None:
    made = house(CALLS, ChainFailed((), None))
    claim = made.claim("a sunset bar in Canggu")
    ended = await handle_message(claim, made.services)
    assert ended.text == f"{reply(ReplyKind.TOOL_DISCLAIMER, 'en')}\nOld Man's, open until 1 am"
    assert made.credits.turns[claim.turn_id][1] == "posted"
    [graph] = made.graphs.graphs.values()
    assert len(list(graph.responses())) == 1, "what Hermes says itself, no model sampled"


async def test_a_turn_whose_chain_failed_names_the_last_error_and_no_words_of_the_vendor() -> None:
    last = Overloaded("alice said hi", backend="anthropic", model="claude-haiku-4-5", status=529)
    made = house(ChainFailed((), last))
    claim = made.claim("hi")
    await handle_message(claim, made.services)
    row = made.interactions.rows[claim.turn_id]
    assert (row["error"], row["last_error"]) == (
        "ChainFailed",
        {"error": "Overloaded", "backend": "anthropic", "model": "claude-haiku-4-5", "status": 529},
    )


async def test_a_turn_that_is_driven_again_pays_no_model_twice_and_keeps_what_was_asked() -> None:
    made = house("Hello!")
    claim = made.claim("hi")
    with pytest.raises(StoreUnavailable):
        await handle_message(claim, replace(made.services, graphs=Away(made.graphs.graphs)))
    made.souls.note = "<context>\nIt is noon.\n</context>"  # type: ignore[attr-defined]
    assert (await handle_message(replace(claim, attempt=2), made.services)).text == "Hello!"
    assert len(made.models.requests) == 1  # type: ignore[attr-defined]
    assert "noon" not in json.dumps([dict(message) for graph in made.graphs.graphs.values() for message in graph])


class Away(MemoryGraphs):
    """Graphs whose store is away."""

    async def append(self, *_: object) -> str:
        raise StoreUnavailable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BudgetSpent(BudgetWindow.DAY, MORNING), ReplyKind.DAY_BUDGET),
        (BudgetSpent(BudgetWindow.MONTH, MORNING), ReplyKind.MONTH_BUDGET),
        (CallsPaused(PauseReason.KILL_SWITCH, None), ReplyKind.PAUSED),
        (NoCapacity("full"), ReplyKind.BUSY),
        (ChainFailed((), None), ReplyKind.RETRY_LATER),
        (StoreUnavailable(), ReplyKind.RETRY_LATER),
        ("", ReplyKind.RETRY_LATER),
        (TimeoutError(), ReplyKind.RETRY_LATER),
    ],
)
async def test_a_model_that_does_not_answer_costs_nothing_and_is_never_silence(error: Any, kind: ReplyKind) -> None:
    made = house(error)
    claim = made.claim("hi")
    ended = await handle_message(claim, made.services)
    assert ended.outcome == kind
    assert made.outbox.answers[claim.turn_id] == [ended.text]
    assert ended.text
    assert (made.credits.available[made.user.id], made.credits.turns[claim.turn_id][1]) == (3, "voided")
    assert all(not len(graph) for graph in made.graphs.graphs.values())
    assert made.interactions.rows[claim.turn_id]["outcome"] == kind


@pytest.mark.parametrize(("state", "kind"), [(UserState.STRANGER, ReplyKind.SIGNUP), (UserState.INVITED, ReplyKind.ACTIVATION)])
async def test_who_is_not_active_is_told_how_to_be(state: UserState, kind: ReplyKind) -> None:
    made = house()
    made.user = replace(made.user, state=state, language="id")
    claim = made.claim("hi")
    assert (await handle_message(claim, made.services)).outcome == kind
    assert claim.turn_id not in made.credits.turns


@dataclass
class FailingOnce(MemoryTransactions):
    """Transactions of which the first cannot be opened: the one that reads the user."""

    error: Exception | None

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Transaction]:
        error, self.error = self.error, None
        if error is not None:
            raise error
        yield self


async def test_a_user_whose_store_hangs_is_told_to_try_later_by_the_first_step_and_pays_nothing() -> None:
    made = house("Hello!")
    claim = made.claim("hi")
    ended = await handle_message(claim, replace(made.services, transactions=FailingOnce(TimeoutError())))
    assert (ended.outcome, ended.text) == (ReplyKind.RETRY_LATER, reply(ReplyKind.RETRY_LATER, "en"))
    assert made.outbox.answers == {claim.turn_id: [ended.text]}
    assert made.meter.steps == ["resolve_user", "record"]
    assert made.meter.turns == [("retry_later", "unknown")]
    row = made.interactions.rows[claim.turn_id]
    assert (row["outcome"], row["step"], row["error"], row["language"]) == ("retry_later", "resolve_user", "TimeoutError", "en")
    assert [type_ for type_, _ in made.journal.notes] == ["fallback_used", "credit_voided", "turn_recorded"]
    expected = {"kind": "retry_later", "step": "resolve_user", "error": "TimeoutError"}
    assert {name: made.journal.notes[0][1][name] for name in expected} == expected
    assert (row["intent"], "agent" in row) == ("unknown", False), "the user could not be read"
    assert (made.inbox.finished, made.credits.available[made.user.id], made.credits.turns) == ([claim.turn_id], 3, {})


async def test_a_message_whose_user_cannot_be_read_is_not_answered_and_is_driven_again() -> None:
    made = house("Hello!")
    claim = made.claim("hi")
    with pytest.raises(StoreUnavailable):
        await handle_message(claim, replace(made.services, transactions=FailingOnce(StoreUnavailable())))
    assert (made.outbox.answers, made.inbox.finished, made.credits.turns, made.interactions.rows) == ({}, [], {}, {})
    assert (made.meter.steps, made.meter.turns) == (["resolve_user"], []), "the time of the failed step is measured too"
    assert (await handle_message(replace(claim, attempt=2), made.services)).text == "Hello!"
    assert (made.credits.available[made.user.id], made.credits.turns[claim.turn_id][1]) == (2, "posted")


async def test_a_deleted_user_is_not_answered() -> None:
    made = house("Hello!")
    made.user = replace(made.user, state=UserState.DELETED)
    with pytest.raises(UserErased):
        await handle_message(made.claim("hi"), made.services)
    assert made.meter.steps == ["resolve_user"]


async def test_a_refused_user_is_answered_in_their_language_with_their_referral_code() -> None:
    made = house()
    made.user = replace(made.user, language="id")
    claim = made.claim("hi")
    claim = replace(claim, recent=31, envelope=replace(claim.envelope, event=replace(claim.envelope.event, platform=Platform.TELEGRAM)))
    ended = await handle_message(claim, made.services)
    assert (ended.outcome, ended.text) == (
        ReplyKind.TOO_MANY_MESSAGES,
        reply(ReplyKind.TOO_MANY_MESSAGES, "id", retry_in=timedelta(minutes=1)),
    )
    assert made.interactions.rows[claim.turn_id]["language"] == "id"
    assert made.meter.steps == ["resolve_user", "record"]
    assert (await handle_message(replace(claim, recent=30), house("Hello!", user=made.user, credits=made.credits).services)).outcome != (
        ReplyKind.TOO_MANY_MESSAGES
    )


async def test_without_credit_there_is_the_way_to_more_of_it() -> None:
    made = house()
    made.credits.available[made.user.id] = 0
    ended = await handle_message(made.claim("hi"), made.services)
    assert ended.outcome == ReplyKind.UPGRADE
    assert "friend-1" in ended.text


async def test_a_picture_goes_to_the_model_with_its_question() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,x"}}
    made = house("A bowl of nasi goreng.", images=Sees(ImagePrompt("calorie_scan", [part], "How many calories?")))
    await handle_message(made.claim("lunch", media_url="https://example.com/x.png"), made.services)
    *_, question = asked(made)
    assert question["content"][0] == part
    assert question["content"][1]["text"].endswith("How many calories?\n\nlunch")


@pytest.mark.parametrize(
    ("error", "kind"), [(ImageTooLarge(5), ReplyKind.IMAGE_TOO_LARGE), (ImageUnreadable(), ReplyKind.IMAGE_UNREADABLE)]
)
async def test_a_bad_picture_gets_a_clear_reply(error: Exception, kind: ReplyKind) -> None:
    made = house(images=Sees(error=error))
    assert (await handle_message(made.claim("look"), made.services)).outcome == kind
    assert made.models.requests == []  # type: ignore[attr-defined]


async def test_what_the_model_was_not_shown_is_taken_off_the_list_and_kept_for_what_saw_it() -> None:
    made = house(*(str(at) for at in range(6)), keep=4)
    made.credits.available[made.user.id] = 6
    for at in range(6):
        await handle_message(made.claim(f"question {at}"), made.services)
    [graph] = made.graphs.graphs.values()
    assert len(list(graph.responses())) == 6
    assert graph.verify()
    assert "compaction" in {edge.kind for edge in graph.edges()}
    *_, last = graph.responses()
    assert last.context == list(asked(made, 5))


async def test_a_copy_out_of_the_cache_is_context_and_names_its_sample() -> None:
    first = uuid4()
    models = ScriptedModel(["Hello!"], copy_of=first)
    made = house(models=models)
    claim = made.claim("hi")
    await handle_message(claim, made.services)
    [graph] = made.graphs.graphs.values()
    assert list(graph.responses()) == []
    assert graph[1]["metadata"]["copy_of"] == str(first)
    assert made.interactions.rows[claim.turn_id]["llm_cache_hit"] is True


async def test_only_the_first_attempt_may_be_answered_from_the_cache() -> None:
    """An attempt that was cut off may have left its own answer there: a copy of it would be the copy of a sample that is in no graph."""
    models = ScriptedModel(["Hello!", "Hello again!"])
    made = house(models=models)
    await handle_message(made.claim("hi"), made.services)
    await handle_message(replace(made.claim("hi"), attempt=2), made.services)
    assert [caller.may_use_cache for caller in models.callers] == [True, False]


def test_every_error_of_the_table_has_a_reply_of_its_own_or_a_more_general_one() -> None:
    assert set(FALLBACKS.values()) == set(ReplyKind) - {
        ReplyKind.MONTH_BUDGET,
        ReplyKind.TOOL_DISCLAIMER,
        ReplyKind.APOLOGY,
        ReplyKind.OFFER,
        ReplyKind.OFFER_HOW,
        ReplyKind.OFFER_APPROVE_BUTTON,
        ReplyKind.OFFER_REFUSE_BUTTON,
        ReplyKind.OFFER_REFUSED,
        ReplyKind.OFFER_USED,
    }
    types = list(FALLBACKS)
    assert all(not issubclass(later, earlier) for at, earlier in enumerate(types) for later in types[at + 1 :]), (
        "the first that fits is the nearest"
    )
