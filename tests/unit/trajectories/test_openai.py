"""OpenAI fine-tuning JSONL: weights, tools, what the service demands of a message, and the row's facts in a file beside it."""

import json
from pathlib import Path

from hermes import CallRecord, MessageGraph
from hermes.trajectories.formats.openai import OpenAiWriter, record
from hermes.trajectories.text_rows import text_digest, text_rows
from tests.unit.trajectories.text_sessions import (
    ODD,
    TOOLS,
    answer,
    call,
    calls_of,
    forked_session,
    ledger,
    lines,
    nested_session,
    result,
    sampled,
    tool_session,
    user,
    write,
)


def test_a_tool_session_comes_out_as_the_service_takes_it(tmp_path: Path) -> None:
    write(tmp_path / "out", OpenAiWriter, tool_session())
    [line] = lines(tmp_path / "out" / "openai.jsonl")
    assert line == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            user("2+3?"),
            answer(None, tool_calls=[call("add", ODD, "c1"), call("ask", "{}", "c2")], weight=1),
            result("c2", "six"),
            result("c1", "5"),
            answer("5", weight=1),
        ],
        "tools": TOOLS,
        "parallel_tool_calls": True,
    }
    [about] = lines(tmp_path / "out" / "openai.rows.jsonl")
    responses = [response.id for response in tool_session().responses()]
    assert about == {
        "row": 0,
        "session": "s0",
        "rollout": "s0",
        "responses": responses,
        "on_policy": False,
        "off_policy": "ephemeral prompt left out; no token ids; reasoning left out",
        "left_out": {"ephemeral": 1, "notes": 0},
    }


def test_context_has_weight_0_and_the_ledger_finds_every_sample(tmp_path: Path) -> None:
    summary = write(tmp_path / "out", OpenAiWriter, tool_session(), forked_session(), nested_session())
    assert summary.manifest["rows"] == 9
    rows = lines(tmp_path / "out" / "openai.jsonl")
    weights = [[message["weight"] for message in row["messages"] if "weight" in message] for row in rows]
    assert weights == [[1, 1], [1, 1], [0, 1], [0, 1], [1, 1], [1], [1], [1, 1], [1]]
    assert {name: (at["row"], at["turn"]) for name, at in ledger(tmp_path / "out").items()} == {
        "calls": (0, 2),
        "final": (0, 5),
        "A": (1, 1),
        "B": (1, 3),
        "B-twin": (2, 3),
        "C": (3, 3),
        "main-1": (4, 1),
        "main-2": (4, 3),
        "main-3": (5, 2),
        "summary": (6, 1),
        "sub-1": (7, 1),
        "sub-2": (7, 3),
        "deep": (8, 1),
    }
    for line in lines(tmp_path / "out" / "ledger.jsonl")[1:]:
        [place] = line["trained"]
        assert place["sha256"] == text_digest(rows[place["row"]]["messages"][place["turn"]])
    assert [about["row"] for about in lines(tmp_path / "out" / "openai.rows.jsonl")] == list(range(9))


def test_a_message_gets_what_the_service_demands() -> None:
    chat = MessageGraph([{"role": "user", "content": "Q", "timestamp": 1}], seed="s")
    chat.append(answer(None, tool_calls=[{"function": {"name": "add", "arguments": {"a": 1}}}]), sampled=False)
    chat.append({"role": "tool", "content": "1"})
    sampled(chat, "1", {"role": "assistant", "reasoning": "hm", "tool_calls": [], "refusal": None})
    [row] = text_rows(calls_of(chat))
    line, differences = record(row)
    assert line == {
        "messages": [
            user("Q"),
            answer(None, tool_calls=[call("add", '{"a": 1}', "call_1_0")], weight=0),
            result("call_1_0", "1"),
            answer("", weight=1),
        ]
    }
    assert differences == ["no token ids", "reasoning left out"]


def test_a_recorded_parallel_tool_calls_is_kept() -> None:
    chat = MessageGraph([user("Q")], seed="s")
    chat.commit(chat.prepare(tools=TOOLS), answer("a"), CallRecord(sample_id="1", sampling={"parallel_tool_calls": False}))
    [row] = text_rows(calls_of(chat))
    assert record(row)[0]["parallel_tool_calls"] is False


def test_a_sampled_user_message_is_listed_as_not_trainable_here(tmp_path: Path) -> None:
    chat = MessageGraph([{"role": "system", "content": "Play the user."}], seed="s")
    chat.append(user("Hello?"), sampled=True, call=CallRecord(sample_id="user"))
    sampled(chat, "1", answer("Hi."))
    write(tmp_path / "out", OpenAiWriter, chat)
    assert ledger(tmp_path / "out") == {"user": ["no token ids"], "1": {"row": 0, "turn": 2}}
    assert len(lines(tmp_path / "out" / "openai.jsonl")) == 1


def test_half_a_surrogate_pair_is_replaced_and_said(tmp_path: Path) -> None:
    chat = MessageGraph([user("x\ud800")], seed="s")
    sampled(chat, "1", answer("a"))
    write(tmp_path / "out", OpenAiWriter, chat)
    [line] = lines(tmp_path / "out" / "openai.jsonl")
    assert line["messages"][0] == user("x\ufffd")
    [about] = lines(tmp_path / "out" / "openai.rows.jsonl")
    assert (about["on_policy"], about["off_policy"]) == (False, "no token ids; half a surrogate pair replaced")


def test_the_same_graphs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, OpenAiWriter, tool_session(), nested_session())
    for file in ("openai.jsonl", "openai.rows.jsonl", "ledger.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert json.loads((tmp_path / "one" / "ledger.jsonl").read_bytes().splitlines()[0])["rows"] == 6
