"""What replays are made of, without stores: how answers are compared, how a batch is read, what a form says; and that a dry run cannot
send."""

import ast
import csv
import dataclasses
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints
from uuid import UUID, uuid4

import pytest

from hermes.console import replay_diff, replay_progress, replay_record, replay_run, replay_work
from hermes.console.replay_diff import DiffPiece, call_key, diff_calls, diff_words, likeness, same_calls
from hermes.console.replay_forms import read_change, read_cursor, read_filter, read_moment, read_number, read_sampling, write_cursor
from hermes.console.replay_progress import ReplayProgress, ReplayTool
from hermes.console.replay_record import ReplayPrompt
from hermes.console.replay_run import DryRunner
from hermes.console.replay_table import build_table, percentile
from hermes.console.replays import ReplayInvalid
from hermes.ports.replays import (
    CallRows,
    EffectReader,
    GraphReader,
    ReadingTools,
    Replay,
    ReplayBatch,
    ReplayChange,
    ReplayModels,
    Replays,
    ReplaySource,
    ReplayState,
)
from hermes.ports.runtime import Clock, Transactions
from hermes.ports.tools import ToolCall, ToolResult
from hermes.router.effects import JournaledAnswer

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


# --- a dry run cannot send, charge, remember or write a conversation


DRY_RUN = (replay_run, replay_record, replay_progress, replay_diff, replay_work)
FORBIDDEN_MODULES = (
    "hermes.ports.outbox",
    "hermes.ports.memories",
    "hermes.ports.channels",
    "hermes.ports.users",
    "hermes.delivery",
    "hermes.channels",
)
FORBIDDEN_NAMES = {
    "Outbox",
    "Courier",
    "Credits",
    "Budgets",
    "Memories",
    "Notebook",
    "Sessions",
    "Histories",
    "Graphs",
    "Journal",
    "Inbox",
    "Services",
}


def imports_of(text: str) -> set[tuple[str, str]]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
    return found


def ways_out(text: str) -> list[str]:
    """What a module imports that sends, charges, remembers or writes conversations."""
    return sorted(
        f"{module}.{name}" for module, name in imports_of(text) if module.startswith(FORBIDDEN_MODULES) or name in FORBIDDEN_NAMES
    )


def test_the_modules_of_the_dry_run_import_nothing_that_sends_charges_or_remembers() -> None:
    assert {module.__name__: ways_out(Path(module.__file__ or "").read_text(encoding="utf-8")) for module in DRY_RUN} == {
        module.__name__: [] for module in DRY_RUN
    }
    assert ways_out("from hermes.ports.credits import Credits\nfrom hermes.ports.outbox import x") == [
        "hermes.ports.credits.Credits",
        "hermes.ports.outbox.x",
    ]


def test_a_dry_run_is_made_of_readers_models_and_tools_that_only_read() -> None:
    hints = get_type_hints(DryRunner)
    assert {hints[field.name] for field in dataclasses.fields(DryRunner)} == {
        Transactions,
        Replays,
        replay_record.RecordedRequests,
        ReplayModels,
        CallRows,
        ReadingTools,
        Clock,
    }
    records = get_type_hints(replay_record.RecordedRequests)
    assert set(records.values()) == {EffectReader, GraphReader}


# --- comparing answers


def test_a_changed_phrase_stays_whole_in_the_diff() -> None:
    pieces = diff_words("Two cafes are open now.", "Three cafes are closed today.")
    assert pieces == [
        DiffPiece("del", "Two"),
        DiffPiece("ins", "Three"),
        DiffPiece("same", " cafes are "),
        DiffPiece("del", "open now."),
        DiffPiece("ins", "closed today."),
    ]
    assert diff_words("same text", "same text") == [DiffPiece("same", "same text")]
    assert diff_words("", "new") == [DiffPiece("ins", "new")]


@pytest.mark.parametrize(("first", "second"), [("a b c", "a c b"), ("", "x"), ("x  y\n z", "x y z"), ("um\u200b", "um"), ("a", "")])
def test_the_pieces_of_a_diff_are_both_texts(first: str, second: str) -> None:
    pieces = diff_words(first, second)
    assert "".join(piece.text for piece in pieces if piece.kind != "ins") == first
    assert "".join(piece.text for piece in pieces if piece.kind != "del") == second


def test_likeness_is_between_nothing_and_the_same() -> None:
    assert likeness("a b c", "a b c") == 1.0
    assert likeness("a b", "c d") == 0.0
    assert likeness("", "") == 1.0
    assert 0.0 < likeness("a b c", "a b d") < 1.0


def test_calls_are_equal_however_their_arguments_are_spelled() -> None:
    first, second = ToolCall("1", "search", '{"a": 1, "b": [2]}'), ToolCall("2", "search", '{"b":[2],"a":1}')
    assert call_key(first) == call_key(second)
    assert same_calls([first, ToolCall("3", "x", "{}")], [ToolCall("4", "x", "{}"), second])
    assert not same_calls([first], [first, first])
    assert call_key(ToolCall("1", "search", "no json")) == ("search", "no json")


def test_tool_calls_are_paired_by_name() -> None:
    old = [ToolCall("1", "search", '{"q": "cafe"}'), ToolCall("2", "book", "{}")]
    new = [ToolCall("3", "search", '{"q": "bar"}'), ToolCall("4", "pay", "{}")]
    assert [(tool.name, tool.is_same, [piece.kind for piece in tool.pieces]) for tool in diff_calls(old, new)] == [
        ("search", False, ["same", "del", "ins", "same"]),
        ("book", False, ["del"]),
        ("pay", False, ["ins"]),
    ]
    assert diff_calls([old[0]], [old[0]])[0].is_same


# --- what is stored


def answer(text: str = "hi", **more: Any) -> JournaledAnswer:
    message = {"role": "assistant", "content": text, **more}
    facts: dict[str, Any] = {
        "backend": "b",
        "finish_reason": "stop",
        "tokens_in": 1,
        "tokens_out": 2,
        "micro_usd": 3,
        "rate": {},
        "latency_ms": 4,
    }
    return JournaledAnswer(message=message, call_id="c", model="m", attempts=[], **facts)


def test_progress_is_read_as_it_was_written() -> None:
    call = ToolCall("1", "search", "{}")
    tools = (
        ReplayTool(call=call, result=ToolResult("1", "search", "found", is_error=False, ms=5), is_recorded=True),
        ReplayTool(call=call, result=None),
    )
    progress = ReplayProgress().with_answer(answer()).with_tools(tools)
    assert ReplayProgress.from_bytes(progress.to_bytes()) == ReplayProgress(answers=(answer(),), tools=tools)
    assert ReplayProgress.from_bytes(None) == ReplayProgress()
    assert progress.not_run == [call]


def prompt(**more: Any) -> ReplayPrompt:
    tools = [{"type": "function", "function": {"name": name}} for name in ("search", "book")]
    return ReplayPrompt(system="Be kind.", messages=[{"role": "user", "content": "hi"}], tools=tools, sampling={}, goes_on=True, **more)


def test_only_what_is_changed_changes() -> None:
    assert prompt().changed(ReplayChange()) == prompt()
    changed = prompt(tool_choice={"type": "function", "function": {"name": "book"}}).changed(ReplayChange(system="", tools=("search",)))
    assert (changed.first(), changed.tool_names, changed.tool_choice) == ([{"role": "user", "content": "hi"}], ["search"], None)


# --- forms


def test_a_form_changes_only_what_differs() -> None:
    form = {"system": "Be kind.", "has_tools": "1", "offer.search": "on", "offer.book": "on", "temperature": " ", "run.search": "on"}
    assert read_change(form, prompt()) == ReplayChange(run_tools=("search",))
    form |= {"system": "Be\r\nrude.", "temperature": "0.5", "max_tokens": "9"}
    del form["offer.book"]
    expected = ReplayChange(system="Be\nrude.", tools=("search",), sampling={"temperature": 0.5, "max_tokens": 9}, run_tools=("search",))
    assert read_change(form, prompt()) == expected


@pytest.mark.parametrize("given", [{"temperature": "hot"}, {"temperature": "3"}, {"top_p": "nan"}, {"max_tokens": "0"}, {"seed": "1.5"}])
def test_wrong_sampling_is_named(given: dict[str, str]) -> None:
    with pytest.raises(ReplayInvalid, match=next(iter(given))):
        read_sampling(given)


def test_a_filter_is_read_and_its_faults_are_named() -> None:
    user = uuid4()
    wanted = read_filter({"status": "failed", "agent": " bali ", "user": str(user), "since": "2026-11-15"}, frozenset({"shop"}))
    assert (wanted.status, wanted.agent, wanted.user, wanted.accounts) == ("failed", "bali", user, frozenset({"shop"}))
    assert wanted.since == datetime(2026, 11, 15, tzinfo=UTC)
    for wrong in ({"status": "sad"}, {"user": "ada"}, {"since": "soon"}, {"agent": "a\0b"}, {"tool": "a" * 201}):
        with pytest.raises(ReplayInvalid):
            read_filter(wrong, None)
    with pytest.raises(ReplayInvalid):
        read_number("-1", "last")
    assert read_moment("2h") is not None


def test_a_cursor_is_read_as_it_was_written() -> None:
    found = replay("m")
    assert read_cursor(write_cursor(found)) == (found.created_at, found.id)
    assert read_cursor("") is None
    with pytest.raises(ReplayInvalid):
        read_cursor("2026")


# --- batches


TURN = UUID(int=1)


def source(**more: Any) -> ReplaySource:
    known: dict[str, Any] = {"turn_id": TURN, "call_id": None, "session_id": uuid4(), "conversation_id": uuid4(), "user_id": uuid4()}
    known |= {"account": "shop", "at": NOW, "context_id": "", "outcome": "answered", "model": "=cmd()", "language": "en", "why_not": ""}
    known |= {"tokens_in": 10, "tokens_out": 5, "micro_usd": 7, "latency_ms": 100, **more}
    return ReplaySource(**known)


def replay(model: str, **more: Any) -> Replay:
    known: dict[str, Any] = {field.name: None for field in dataclasses.fields(Replay)}
    known |= {"id": uuid4(), "turn_id": TURN, "user_id": uuid4(), "account_id": "shop", "context_id": "", "by": "olga", "model": model}
    known |= {"state": ReplayState.DONE, "attempt": 1, "created_at": NOW, **more}
    return Replay(**known)


def test_a_batch_is_a_row_for_each_turn_and_its_csv_runs_no_formula() -> None:
    batch = ReplayBatch(
        id=uuid4(), by="olga", models=("a", "b"), title="", state="done", total=2, ended=2, micro_usd=9, created_at=NOW, ended_at=NOW
    )
    done = replay(
        "a", is_diverged=False, same_tools=True, same_text=False, likeness=0.5, latency_ms=30, tokens_in=3, tokens_out=4, micro_usd=9
    )
    refused = replay("b", state=ReplayState.REFUSED, error="-expired")
    table = build_table(batch, [done, refused, replay("a", turn_id=uuid4())], {TURN: source()})
    assert [row.cells for row in table.rows] == [[done, refused]]
    assert [(sums.model, sums.answered, sums.refused, sums.p95_ms) for sums in table.sums] == [("a", 2, 0, 30), ("b", 0, 1, None)]
    [row] = csv.DictReader(io.StringIO(table.to_csv()))
    assert (row["turn_id"], row["model"], row["a likeness"], row["a usd"], row["b error"]) == (
        str(TURN),
        "'=cmd()",
        "0.500",
        "0.000009",
        "'-expired",
    )


def test_percentiles_are_values_that_occur() -> None:
    assert [percentile(range(1, 101), each) for each in (50, 95, 100)] == [50, 95, 100]
    assert percentile([7], 50) == 7
    assert percentile([], 50) is None
