"""Import: our own files come back as they were; each defect of hermes-agent's files has its name; a broken line is not the end."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import MessageGraph
from hermes.trajectories.errors import SourceError, TrajectorySettingsError
from hermes.trajectories.foreign_sharegpt import FINDINGS, HERMES_AGENT
from hermes.trajectories.formats.openai import OpenAiWriter
from hermes.trajectories.formats.sharegpt import ShareGptWriter
from hermes.trajectories.imports import ImportedConversation, import_file, import_files
from tests.unit.trajectories.text_sessions import (
    ODD,
    TOOLS,
    answer,
    call,
    forked_session,
    ledger,
    nested_session,
    result,
    sampled,
    tool_session,
    user,
    write,
)

PREAMBLE = (
    "You are a function calling AI model.\n<tools>\n"
    '[{"name": "add", "description": "", "parameters": {"required": ["a"]}, "required": null}]\n</tools>\n'
    "Answer within <tool_call></tool_call>, e.g. <tool_call>\n{'name': 'add'}\n</tool_call>"
)
SAVED = {"timestamp": "2026-01-30T07:54:51", "model": "m", "completed": True}


def turn(speaker: str, value: str, **more: Any) -> dict[str, Any]:
    return {"from": speaker, "value": value, **more}


def block(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def response(of: str, name: str, content: Any) -> str:
    return f"<tool_response>\n{json.dumps({'tool_call_id': of, 'name': name, 'content': content})}\n</tool_response>"


def saved(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A row as save_trajectory writes it."""
    return {"conversations": list(turns), **SAVED, **more}


def read(folder: Path, *rows: Any, name: str = "t.jsonl", shape: str | None = None) -> list[ImportedConversation]:
    file = folder / name
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    found = list(import_file(file, shape))
    for one in found:
        assert isinstance(one, ImportedConversation), one
    return [one for one in found if isinstance(one, ImportedConversation)]


def names(imported: ImportedConversation) -> list[tuple[int | None, str]]:
    return [(finding.turn, finding.name) for finding in imported.findings]


def samples(graph: MessageGraph) -> list[tuple[int, str]]:
    """Index and sample id of each response; without the mark that tells files of one name apart."""
    return [(one.index, re.sub("#[0-9a-f]{12}", "", one.sample_id)) for one in graph.responses()]


# Round trips -----------------------------------------------------------------------------------------------------


def test_our_own_sharegpt_comes_back_with_every_message(tmp_path: Path) -> None:
    write(tmp_path / "out", ShareGptWriter, tool_session(), forked_session(), nested_session())
    found = list(import_file(tmp_path / "out" / "sharegpt.jsonl"))
    assert all(isinstance(one, ImportedConversation) and one.shape == "hermes" and one.findings == () for one in found)
    graphs = [one.graph for one in found if isinstance(one, ImportedConversation)]
    assert graphs[0] == tool_session()
    assert samples(graphs[0]) == [(2, "sharegpt.jsonl:1:2"), (5, "sharegpt.jsonl:1:4")]
    assert next(graphs[0].responses()).overlay.tools == TOOLS
    assert graphs[2] == [user("Q"), answer("a"), user("V"), answer("b")]
    assert samples(graphs[2]) == [(3, "sharegpt.jsonl:3:3")]
    assert [one.call.token_ids for graph in graphs for one in graph.responses() if one.call is not None] == [None] * 13


def test_export_import_export_gives_the_same_conversations(tmp_path: Path) -> None:
    write(tmp_path / "one", ShareGptWriter, nested_session(), forked_session())
    found = [one.graph for one in import_file(tmp_path / "one" / "sharegpt.jsonl") if isinstance(one, ImportedConversation)]
    write(tmp_path / "two", ShareGptWriter, *found)
    first, second = (
        [json.loads(line)["conversations"] for line in (tmp_path / name / "sharegpt.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    )
    assert first == second
    assert len(ledger(tmp_path / "two")) == len(ledger(tmp_path / "one"))


def test_our_own_openai_comes_back_but_for_reasoning(tmp_path: Path) -> None:
    write(tmp_path / "out", OpenAiWriter, tool_session(), forked_session())
    found = [one for one in import_file(tmp_path / "out" / "openai.jsonl") if isinstance(one, ImportedConversation)]
    expected = [{key: value for key, value in message.items() if key != "reasoning"} for message in tool_session()]
    assert found[0].graph == expected
    assert [samples(one.graph) for one in found] == [
        [(2, "openai.jsonl:1:2"), (5, "openai.jsonl:1:5")],
        [(1, "openai.jsonl:2:1"), (3, "openai.jsonl:2:3")],
        [(3, "openai.jsonl:3:3")],
        [(3, "openai.jsonl:4:3")],
    ]
    assert all(one.findings == () for one in found)


words = st.text(st.sampled_from("ab<>/\\ \n\ud83d") | st.sampled_from("{}\"'"), max_size=12) | st.sampled_from(
    ["</think>", "<tool_call>", "<think>\n\n</think>\n", "<\\think>"]
)


@given(st.lists(st.tuples(words, words, words, words), min_size=1, max_size=3))
def test_any_session_survives_export_and_import(tmp_path_factory: pytest.TempPathFactory, rounds: list[tuple[str, ...]]) -> None:
    folder = tmp_path_factory.mktemp("trip")
    chat = MessageGraph(seed="s")
    for number, (question, thought, arguments, said) in enumerate(rounds):
        chat.append(user(question))
        sampled(chat, f"{number}a", answer(said, reasoning=thought, tool_calls=[call("x", arguments, "1"), call("y", ODD, "2")]))
        chat.extend([result("2", said), result("1", arguments)])
        sampled(chat, f"{number}b", answer(said))
    write(folder / "out", ShareGptWriter, chat)
    [back] = import_file(folder / "out" / "sharegpt.jsonl")
    assert isinstance(back, ImportedConversation)
    assert back.graph == chat
    assert len(samples(back.graph)) == 2 * len(rounds)


def test_an_exported_row_that_was_changed_is_read_as_any_other(tmp_path: Path) -> None:
    write(tmp_path / "out", ShareGptWriter, tool_session())
    row = json.loads((tmp_path / "out" / "sharegpt.jsonl").read_text())
    row["conversations"][3]["value"] = "five and six"
    [found] = read(tmp_path, row)
    assert (None, "altered-row") in names(found)
    assert found.graph[3]["content"] == "five and six"


# The founding shape ----------------------------------------------------------------------------------------------


def test_the_founding_shape_keeps_argument_bytes(tmp_path: Path) -> None:
    row = {
        "conversations": [
            turn("system", "S"),
            turn("human", "Q"),
            turn("gpt", f"<think>\nhm\n</think>\nLook:\n{block('add', ODD)}"),
            turn("tool", '<tool_response>\n{"results": [...]}\n</tool_response>'),
            turn("gpt", "done", train=False),
        ],
        "tools": json.dumps(TOOLS),
        "source": "hermes-agent",
    }
    [found] = read(tmp_path, row)
    assert (found.name, found.shape, found.findings) == ("t.jsonl:1", "founding", ())
    assert found.graph == [
        {"role": "system", "content": "S"},
        user("Q"),
        answer("Look:", reasoning="hm", tool_calls=[call("add", ODD, "call_2_0")]),
        result("call_2_0", '{"results": [...]}'),
        answer("done"),
    ]
    assert samples(found.graph) == [(2, "t.jsonl:1:2")]
    assert next(found.graph.responses()).overlay.tools == TOOLS


# hermes-agent's shapes and their defects -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "shape"),
    [
        (saved(turn("human", "Q"), turn("gpt", "a")), "save_trajectory"),
        (saved(turn("human", "Q"), turn("gpt", "a"), query="Q"), "save_sample"),
        ({"prompt_index": 0, "conversations": [turn("human", "Q"), turn("gpt", "a")], "metadata": {"model": "m"}}, "batch_runner"),
        ({"conversations": [turn("human", "Q"), turn("gpt", "a")], "metadata": {"model": "m", "env_type": "local"}}, "mini_swe"),
    ],
)
def test_each_shape_is_known_by_its_keys(tmp_path: Path, row: dict[str, Any], shape: str) -> None:
    [found] = read(tmp_path, row)
    assert (found.shape, found.findings, samples(found.graph)) == (shape, (), [(1, "t.jsonl:1:1")])
    [one] = found.graph.responses()
    assert one.call is not None
    assert one.call.model == "m"
    assert shape in HERMES_AGENT


def test_a_sample_file_is_one_indented_document(tmp_path: Path) -> None:
    file = tmp_path / "sample_0a1b2c3d.json"
    file.write_text(json.dumps(saved(turn("human", "Q"), turn("gpt", "a"), query="Q"), indent=2))
    [found] = import_files([file])
    assert isinstance(found, ImportedConversation)
    assert (found.name, found.shape, samples(found.graph)) == (file.name, "save_sample", [(1, f"{file.name}:1:1")])


GPT = "<think>\nhm\n</think>\n"
TWO = GPT + block("add", '{"a": 1}') + "\n" + block("ask")


@pytest.mark.parametrize(
    ("turns", "more", "found"),
    [
        ([turn("gpt", "<think>\n</think>\na")], {}, [(1, "empty-think")]),
        ([turn("gpt", "a")], {"compression_metrics": {"was_compressed": False}}, [(None, "compression-metrics")]),
        ([turn("human", "[CONTEXT SUMMARY]: …"), turn("gpt", GPT + "a")], {}, [(1, "compressed-middle")]),
        ([turn("gpt", GPT + "a")], {"completed": False}, [(None, "not-completed")]),
        ([turn("gpt", GPT + "a")], {"partial": True}, [(None, "not-completed")]),
        ([turn("gpt", "<think>\na </think> b\n</think>\nc")], {}, [(1, "broken-envelope")]),
        ([turn("gpt", "<think>\na <tool_call> b\n</think>\nc")], {}, [(1, "broken-envelope")]),
        ([turn("gpt", block("add", "{'a': 1}"))], {}, [(1, "unparsable-tool-call")]),
        ([turn("gpt", block("add", '{"a": 1000.0}'))], {}, [(1, "rewritten-numbers")]),
        ([turn("gpt", block("add"))], {"tools": TOOLS}, [(1, "arguments-lost")]),
        ([turn("gpt", block("ask") + "\nand so on")], {}, [(1, "text-between-calls")]),
        ([turn("gpt", block("ask")), turn("human", "well?"), turn("gpt", "a")], {}, [(1, "missing-tool-result")]),
        ([turn("gpt", block("ask")), turn("tool", "bare"), turn("gpt", "a")], {}, [(2, "bare-tool-result")]),
        ([turn("tool", response("c1", "ask", "x")), turn("gpt", "a")], {}, [(1, "orphan-tool-result")]),
        ([turn("gpt", block("ask")), turn("tool", response("c1", "ask", {"x": 1}))], {}, [(2, "rewritten-result")]),
        ([turn("gpt", block("ask")), turn("tool", response("c1", "ask", "[screenshot]"))], {}, [(2, "image-replaced")]),
        ([turn("gpt", TWO), turn("tool", response("c1", "add", "1"))], {}, [(2, "missing-tool-result")]),
        (
            [turn("gpt", TWO), turn("tool", response("x", "add", "1") + "\n" + response("y", "ask", "2"))],
            {},
            [(2, "names-by-position")],
        ),
        ([turn("gpt", "a")], {"tools": "no list"}, [(None, "unparsable-tools")]),
    ],
)
def test_each_defect_has_its_name(tmp_path: Path, turns: list[Any], more: dict[str, Any], found: list[Any]) -> None:
    [imported] = read(tmp_path, saved(turn("human", "Q"), *turns, **more))
    assert names(imported) == found
    assert all(finding.line == 1 and finding.name in FINDINGS and FINDINGS[finding.name] in str(finding) for finding in imported.findings)


def test_a_regenerated_system_prompt_is_named_and_tells_which_arguments_were_lost(tmp_path: Path) -> None:
    [found] = read(tmp_path, saved(turn("system", PREAMBLE), turn("human", "Q"), turn("gpt", GPT + block("add"))))
    assert names(found) == [(0, "regenerated-system-prompt"), (2, "arguments-lost")]
    assert str(found.findings[1]).startswith("line 1, turn 2: arguments-lost: ")


def test_the_lost_first_question_leaves_the_answers_before_it_as_context(tmp_path: Path) -> None:
    [found] = read(tmp_path, saved(turn("human", "Q2"), turn("gpt", "A1"), turn("human", "Q2"), turn("gpt", "A2")))
    assert names(found) == [(0, "lost-first-question")]
    assert samples(found.graph) == [(3, "t.jsonl:1:3")]


def test_a_line_for_each_turn_counts_each_answer_once(tmp_path: Path) -> None:
    first = saved(turn("human", "Q1"), turn("gpt", "A1"))
    second = saved(turn("human", "Q2"), turn("gpt", "A1"), turn("human", "Q2"), turn("gpt", "A2"))
    found = read(tmp_path, first, second)
    assert names(found[1]) == [(0, "lost-first-question"), (1, "repeats-earlier-line")]
    assert [samples(one.graph) for one in found] == [[(1, "t.jsonl:1:1")], [(3, "t.jsonl:2:3")]]


@pytest.mark.parametrize(
    ("results", "finding"),
    [
        ([("functions.ask:1", "add", "of ask"), ("functions.add:0", "ask", "of add")], "name-swapped"),
        ([("call_1", "add", "of ask"), ("call_0", "ask", "of add")], "name-swapped"),
        ([("x", "ask", "of ask"), ("y", "add", "of add")], "results-reordered"),
    ],
)
def test_results_under_the_wrong_name_find_their_calls(tmp_path: Path, results: list[tuple[str, str, str]], finding: str) -> None:
    told = "\n".join(response(*one) for one in results)
    [found] = read(tmp_path, saved(turn("human", "Q"), turn("gpt", TWO), turn("tool", told)))
    assert names(found) == [(2, finding)]
    calls = {call["id"]: call["function"]["name"] for call in found.graph[1]["tool_calls"]}
    assert [(calls[message["tool_call_id"]], message["name"], message["content"]) for message in found.graph[2:]] == [
        ("ask", "ask", "of ask"),
        ("add", "add", "of add"),
    ]


def test_results_of_one_tool_stay_in_their_order(tmp_path: Path) -> None:
    told = response("b", "ask", "1") + "\n" + response("a", "ask", "2")
    [found] = read(tmp_path, saved(turn("human", "Q"), turn("gpt", block("ask") + "\n" + block("ask")), turn("tool", told)))
    assert found.findings == ()
    assert [call["id"] for call in found.graph[1]["tool_calls"]] == ["b", "a"]


# OpenAI ----------------------------------------------------------------------------------------------------------


def test_openai_findings(tmp_path: Path) -> None:
    row = {
        "messages": [
            user("Q"),
            answer(None, tool_calls=[call("add", "{", "c1")], weight=0),
            user("R"),
            result("c9", "?"),
            answer("a", weight=0.5),
        ]
    }
    [found] = read(tmp_path, row)
    assert names(found) == [(1, "unparsable-arguments"), (1, "missing-tool-result"), (3, "orphan-tool-result"), (4, "odd-weight")]
    assert samples(found.graph) == [(4, "t.jsonl:1:4")]
    assert "weight" not in found.graph[4]


# Broken files ----------------------------------------------------------------------------------------------------


def test_a_broken_line_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    good = json.dumps(saved(turn("human", "Q"), turn("gpt", "a")))
    rows = [
        "{",
        "[]",
        '{"conversations": [], "error": "timeout"}',
        '{"conversations": [{"from": "narrator", "value": "x"}]}',
        '{"conversations": [{"from": "gpt"}]}',
        '{"messages": []}',
        '{"messages": [{"role": "wizard", "content": ""}]}',
        '{"other": 1}',
    ]
    file.write_text("\n\n".join([good, *rows, good]))
    found = list(import_file(file))
    broken = [one for one in found if isinstance(one, SourceError)]
    assert [one.name for one in found if isinstance(one, ImportedConversation)] == ["t.jsonl:1", "t.jsonl:19"]
    assert [one.where for one in broken] == [f"{file}, line {number}" for number in range(3, 19, 2)]
    assert [one.reason.split(" (")[0] for one in broken[1:-2]] == [
        "expected an object, got list",
        "no turns in it",
        "turn 0 has an unknown speaker 'narrator'",
        "turn 0 has no text",
        "no messages in it",
    ]
    assert "unknown role 'wizard'" in broken[-2].reason


TAGS = [f"<{slash}{tag}>" for tag in ("think", "tool_call", "tool_response") for slash in ("", "/")]
BLOCKS = [TWO, block("add", '{"a": 1.0}'), response("call_1", "ask", "x"), response("functions.add:0", "ask", {"y": [1]})]
pieces = st.sampled_from([*TAGS, *BLOCKS, "\n", "a", '{"name": "x"', "{}", "[1]", "[CONTEXT SUMMARY]: "])
values = st.lists(pieces, max_size=4).map("".join)
turns_of_any_kind = st.builds(turn, st.sampled_from(["system", "human", "gpt", "tool"]), values)


@given(st.lists(turns_of_any_kind, min_size=1, max_size=5), st.booleans(), values)
def test_whatever_the_turns_say_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, turns: list[Any], is_saved: bool, tools: str
) -> None:
    row = saved(*turns, tools=tools) if is_saved else {"conversations": turns, "tools": tools}
    [found] = read(tmp_path_factory.mktemp("any"), row)
    answers = [index for index, message in enumerate(found.graph) if message["role"] == "assistant"]
    assert {index for index, _ in samples(found.graph)} <= set(answers)
    assert sum(message["role"] != "tool" for message in found.graph) == sum(one["from"] != "tool" for one in turns)


def test_a_missing_file_and_an_unknown_shape_are_said(tmp_path: Path) -> None:
    [error] = import_file(tmp_path / "none.jsonl")
    assert isinstance(error, SourceError)
    assert error.reason == "No such file or directory"
    with pytest.raises(TrajectorySettingsError, match="unknown shape 'csv'; one of sharegpt, openai"):
        list(import_file(tmp_path / "none.jsonl", "csv"))


def test_a_shape_that_was_asked_for_is_not_guessed(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps({"conversations": [turn("human", "Q")]}))
    [error] = import_file(file, "openai")
    assert isinstance(error, SourceError)
    assert error.reason == "no messages in it"


@pytest.mark.parametrize(
    "said",
    [
        ("gpt", "<tool_call>\n" * 20_000),
        ("gpt", f'<tool_call>\n{{"name": "f", "arguments": {{"a": "x{" " * 40_000}y"}}}}\n</tool_call>'),
        ("gpt", "<think>\n" * 20_000),
        ("tool", "<tool_response>\n" * 20_000),
        ("tool", f"<tool_response>\nx{chr(10) * 40_000}y\n</tool_response>"),
        ("system", "<tools>\n" * 20_000),
    ],
)
def test_what_is_opened_and_never_closed_takes_no_longer_than_anything_else(tmp_path: Path, said: tuple[str, str]) -> None:
    turns = [said, ("human", "q"), ("gpt", "a")] if said[0] == "system" else [("human", "q"), said, ("gpt", "a")]
    row = {"conversations": [{"from": speaker, "value": value} for speaker, value in turns]}
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")
    began = time.process_time()
    [imported] = import_file(tmp_path / "t.jsonl")
    assert isinstance(imported, ImportedConversation)
    assert time.process_time() - began < 5  # it was minutes
