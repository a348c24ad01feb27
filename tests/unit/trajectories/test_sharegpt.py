"""ShareGPT: exactly the founding format, and exactly the messages when read back."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph
from hermes.graph.message import canonical_message
from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.formats.sharegpt import ShareGptWriter, check_line, read_messages
from hermes.trajectories.sharegpt_turns import ESCAPED, JOINED, REORDERED, TurnError, arguments_of, arguments_text, to_messages, to_turns
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
    tool_session,
    user,
    write,
)


def test_the_founding_example_comes_out_as_in_the_founding_document(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "web_search"}}]
    chat = MessageGraph([{"role": "system", "content": "You are a helpful assistant..."}, user("Search for Python tutorials")], seed="f")
    turn = chat.prepare(tools=tools)
    asked = answer(None, tool_calls=[call("web_search", '{"query": "Python tutorials"}', "call_abc123")])
    chat.commit(turn, asked, CallRecord(sample_id="1"))
    chat.append(result("call_abc123", '{"results": [...]}'))
    chat.commit(chat.prepare(tools=tools), answer("Here's what I found...", reasoning="Let me think."), CallRecord(sample_id="2"))
    write(tmp_path / "out", ShareGptWriter, chat)
    [line] = lines(tmp_path / "out" / "sharegpt.jsonl")
    assert list(line) == ["conversations", "tools", "source", "id", "on_policy", "hermes"]
    assert [(turn["from"], turn["value"]) for turn in line["conversations"]] == [
        ("system", "You are a helpful assistant..."),
        ("human", "Search for Python tutorials"),
        ("gpt", '<tool_call>\n{"name": "web_search", "arguments": {"query": "Python tutorials"}}\n</tool_call>'),
        ("tool", '<tool_response>\n{"results": [...]}\n</tool_response>'),
        ("gpt", "<think>\nLet me think.\n</think>\nHere's what I found..."),
    ]
    assert [turn["train"] for turn in line["conversations"]] == [False, False, True, False, True]
    assert line["tools"] == '[{"type": "function", "function": {"name": "web_search"}}]'
    assert (line["source"], line["id"], line["on_policy"], line["hermes"]["off_policy"]) == ("hermes-agent", "s0#0", False, "no token ids")


def test_results_stand_in_the_order_of_their_calls_and_the_ephemeral_prompt_is_absent(tmp_path: Path) -> None:
    write(tmp_path / "out", ShareGptWriter, tool_session(), source="mine")
    [line] = lines(tmp_path / "out" / "sharegpt.jsonl")
    assert [turn["value"] for turn in line["conversations"]] == [
        "Be brief.",
        "2+3?",
        '<tool_call>\n{"name": "add", "arguments": ' + ODD + '}\n</tool_call>\n<tool_call>\n{"name": "ask", "arguments": {}}\n</tool_call>',
        "<tool_response>\n5\n</tool_response>\n<tool_response>\nsix\n</tool_response>",
        "<think>\n<\\/think> or <\\tool_call>?\n</think>\n5",
    ]
    assert json.loads(line["tools"]) == TOOLS
    assert (line["source"], line["on_policy"]) == ("mine", False)
    assert line["hermes"]["off_policy"] == f"ephemeral prompt left out; no token ids; {REORDERED}; {ESCAPED}"
    assert list(read_messages(line)) == tool_session()


def test_the_ledger_names_row_turn_and_digest(tmp_path: Path) -> None:
    summary = write(tmp_path / "out", ShareGptWriter, tool_session(), forked_session(), nested_session())
    assert summary.manifest["rows"] == 9
    rows = lines(tmp_path / "out" / "sharegpt.jsonl")
    where = ledger(tmp_path / "out")
    assert where == {
        "calls": {"row": 0, "turn": 2},
        "final": {"row": 0, "turn": 4},
        "A": {"row": 1, "turn": 1},
        "B": {"row": 1, "turn": 3},
        "B-twin": {"row": 2, "turn": 3},
        "C": {"row": 3, "turn": 3},
        "main-1": {"row": 4, "turn": 1},
        "main-2": {"row": 4, "turn": 3},
        "main-3": {"row": 5, "turn": 2},
        "summary": {"row": 6, "turn": 1},
        "sub-1": {"row": 7, "turn": 1},
        "sub-2": {"row": 7, "turn": 3},
        "deep": {"row": 8, "turn": 1},
    }
    for line in lines(tmp_path / "out" / "ledger.jsonl")[1:]:
        [place] = line["trained"]
        assert place["sha256"] == text_digest(rows[place["row"]]["conversations"][place["turn"]])
    marked = sorted((row, turn) for row, line in enumerate(rows) for turn, said in enumerate(line["conversations"]) if said["train"])
    assert marked == sorted((place["row"], place["turn"]) for place in where.values())


def test_the_same_graphs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, ShareGptWriter, tool_session(), forked_session(), nested_session())
    for file in ("sharegpt.jsonl", "ledger.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_model_that_plays_the_user_is_trained_and_one_that_plays_a_tool_is_not(tmp_path: Path) -> None:
    chat = MessageGraph([{"role": "system", "content": "Play."}], seed="s")
    chat.append(user("Hello?"), call=CallRecord(sample_id="user", prompt_token_ids=[1], token_ids=[2], logprobs=[-1.0]))
    played = CallRecord(sample_id="tool", prompt_token_ids=[1], token_ids=[3], logprobs=[-1.0])
    chat.append(result("c", "played"), call=played)
    chat.append(answer("Hi."), call=CallRecord(sample_id="1"))
    write(tmp_path / "out", ShareGptWriter, chat)
    assert ledger(tmp_path / "out") == {
        "user": {"row": 0, "turn": 1},
        "tool": [ShareGptWriter.untrained],
        "1": {"row": 0, "turn": 3},
    }
    [line] = lines(tmp_path / "out" / "sharegpt.jsonl")
    assert [turn["train"] for turn in line["conversations"]] == [False, True, False, True]


def test_every_row_has_keys_of_the_same_types(tmp_path: Path) -> None:
    write(tmp_path / "out", ShareGptWriter, tool_session(), forked_session(), nested_session())
    shapes = {
        json.dumps([[key, type(value).__name__] for part in (line, line["hermes"]) for key, value in part.items()])
        for line in lines(tmp_path / "out" / "sharegpt.jsonl")
    }
    assert len(shapes) == 1


def test_a_line_that_says_something_else_is_refused_with_the_session() -> None:
    [row] = text_rows(calls_of(tool_session()))
    line: dict[str, Any] = {"conversations": to_turns(row.messages).turns, "hermes": {"rest": json.dumps(to_turns(row.messages).rest)}}
    check_line(json.dumps(line).encode(), row)
    line["conversations"][1]["value"] = "2+4?"
    with pytest.raises(TrajectoryError, match="session s: a ShareGPT line was parsed to other messages"):
        check_line(json.dumps(line).encode(), row)
    line["conversations"][2]["value"] = "<think>\n"
    with pytest.raises(TrajectoryError, match="session s: a ShareGPT line could not be parsed again"):
        check_line(json.dumps(line).encode(), row)


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        (ODD, ODD),
        ('{"q": "</tool_call>"}', '{"q": "\\u003c/tool_call>"}'),
        ('{"q": "\\u003cthink>"}', '"{\\"q\\": \\"\\\\u003cthink>\\"}"'),
        ("", '""'),
        ('{"a": ', '"{\\"a\\": "'),
        ('"text"', '"\\"text\\""'),
        ("NaN", '"NaN"'),
        ("[1,\n 2]", "[1,\n 2]"),
    ],
)
def test_arguments_are_written_byte_for_byte_or_as_a_string_of_them(arguments: str, written: str) -> None:
    assert arguments_text(arguments) == written
    assert json.loads(written) == (json.loads(arguments) if not written.startswith('"') else arguments)
    assert arguments_of(written) == arguments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("</think>", "<\\/think>"),
        ("<\\/think>", "<\\\\/think>"),
        ("<tool_response>", "<\\tool_response>"),
        ("\ud83d", "<\\ud83d>"),
        ("<\\ud83d>", "<\\\\ud83d>"),
        ("<b> < think>", "<b> < think>"),
    ],
)
def test_the_escape_adds_one_backslash(text: str, value: str) -> None:
    said = to_turns([answer(text)])
    assert said.turns == [{"from": "gpt", "value": value}]
    assert to_messages(said.turns, said.rest) == [answer(text)]


def test_a_system_prompt_that_explains_the_tags_stays_as_it_is() -> None:
    prompt = "Answer within <tool_call></tool_call>."
    assert to_turns([{"role": "system", "content": prompt}]).turns == [{"from": "system", "value": prompt}]


def test_parts_are_joined_and_come_back_as_parts() -> None:
    content = [{"type": "text", "text": "Look\nhere"}, {"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": ""}]
    said = to_turns([user(content)])
    assert said.turns == [{"from": "human", "value": "Look\nhere\n[image_url]\n"}]
    assert said.differences == [JOINED]
    assert to_messages(said.turns, said.rest) == [user(content)]


def test_results_without_a_call_each_keep_their_order() -> None:
    messages = [answer(None, tool_calls=[call("a", "{}", "1"), call("b", "{}", "2")]), result("2", "two"), result("9", "nine")]
    said = to_turns(messages)
    assert said.turns[1]["value"] == "<tool_response>\ntwo\n</tool_response>\n<tool_response>\nnine\n</tool_response>"
    assert to_messages(said.turns, said.rest) == messages


@pytest.mark.parametrize(
    ("speaker", "value"),
    [
        ("gpt", "<think>\nnever closed"),
        ("gpt", "<tool_call>\n{}\n</tool_call> and more"),
        ("gpt", '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'),
        ("tool", "bare"),
        ("narrator", "Once"),
    ],
)
def test_turns_of_another_making_are_refused(speaker: str, value: str) -> None:
    with pytest.raises(TurnError):
        to_messages([{"from": speaker, "value": value}], [])


PIECES = ["<think>", "</think>", "<tool_call>\n", "\n</tool_call>", "<tool_response>", "</tool_response>", "<\\", "\\", "\n", ">", "<"]
PIECES += ["\\u003cthink>", "<\\ud83d>", "\ud83d", "\ude00", "a", '"', "{", "}", " ", "\u2028", "é"]
texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
parts = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, texts),
        st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, texts),
    ),
    max_size=3,
)
contents = st.one_of(st.none(), texts, parts)
arguments = st.one_of(
    texts,
    st.dictionaries(texts, texts, max_size=2).map(json.dumps),
    st.dictionaries(texts, texts, max_size=2).map(lambda value: json.dumps(value, ensure_ascii=False)),
    st.sampled_from([ODD, "{}", "[1e3]", " {} ", "null", "-0", '{"x": NaN}']),
)
tool_calls = st.one_of(
    st.builds(call, texts, arguments, st.sampled_from("1234")),
    st.builds(lambda text: {"id": "1", "type": "custom", "custom": {"name": "n", "input": text}}, texts),
    st.just({"id": "2", "function": {"name": "n", "arguments": {"object": 1}}}),
)
messages = st.one_of(
    st.builds(
        lambda role, content, more: {"role": role, **content, **more},
        st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]),
        st.one_of(st.just({}), contents.map(lambda content: {"content": content})),
        st.dictionaries(st.sampled_from(["name", "tool_call_id", "refusal", "reasoning"]), texts, max_size=2),
    ),
    st.builds(
        lambda content, thoughts, calls: {**answer(None), "content": content, **thoughts, "tool_calls": calls},
        contents,
        st.dictionaries(st.sampled_from(["reasoning", "reasoning_content"]), texts, max_size=2),
        st.lists(tool_calls, max_size=3),
    ),
    st.builds(result, st.sampled_from("1234"), texts),
)


@given(st.lists(messages, max_size=6))
def test_any_messages_come_back_exactly(said: list[dict[str, Any]]) -> None:
    nodes = list(MessageGraph(said).versions[-1])
    conversation = to_turns(nodes)
    text = json.dumps([conversation.turns, conversation.rest])
    turns, rest = json.loads(text)
    back = to_messages(turns, rest)
    assert [canonical_message(node) for node in MessageGraph(back).versions[-1]] == [canonical_message(node) for node in nodes]
    assert not any("\ud800" <= letter <= "\udfff" for turn in turns for letter in turn["value"])
