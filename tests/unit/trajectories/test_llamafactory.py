"""LLaMA-Factory's rows: turns that alternate, one row for each sample, and a verifier that writes every row again."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from hermes import CallRecord, MessageGraph
from hermes.trajectories.llamafactory_turns import to_llamafactory
from hermes.trajectories.text_rows import text_digest, text_placement
from hermes.trajectories.verify import verify
from tests.unit.trajectories.forgery import Forged, make
from tests.unit.trajectories.programs import PROGRAMS, Step, World
from tests.unit.trajectories.text_sessions import (
    TOOLS,
    answer,
    call,
    forked_session,
    hard_session,
    lines,
    nested_session,
    result,
    sampled,
    tool_session,
    user,
)

Row = dict[str, Any]
NO_IDS = "no token ids"


def exported(folder: Path, *graphs: MessageGraph) -> list[Row]:
    out, _ = make(folder, "llamafactory", graphs)
    return lines(out / "llamafactory.jsonl")


def turns(*pairs: tuple[str, str]) -> list[Row]:
    return [{"from": speaker, "value": value} for speaker, value in pairs]


def test_a_row_for_each_sample_in_exactly_its_context(tmp_path: Path) -> None:
    rows = exported(tmp_path, tool_session(), forked_session())
    complete = json.loads(json.dumps(TOOLS))
    for tool in complete:
        tool["function"]["parameters"]["properties"] = {}
    added = "arguments of calls written anew; tool schemas completed"
    calls = '[{"name": "add", "arguments": {"a": 2}}, {"name": "ask", "arguments": {}}]'
    start = [("system", "Be brief."), ("human", "2+3?"), ("function_call", calls)]
    results = ("observation", "5\n</tool_response>\n<tool_response>\nsix")
    last = ("gpt", "<think>\n<\\/think> or <\\tool_call>?\n</think>\n\n5")
    assert [row["conversations"] for row in rows] == [
        turns(*start),
        turns(*start, results, last),
        turns(("human", "Q"), ("gpt", "a")),
        turns(("human", "Q"), ("gpt", "a"), ("human", "V"), ("gpt", "b")),
        turns(("human", "Q"), ("gpt", "a"), ("human", "V"), ("gpt", "b")),
        turns(("human", "Q"), ("gpt", "a"), ("human", "W"), ("gpt", "c")),
    ]
    assert [json.loads(row["tools"]) for row in rows] == [complete, complete, [], [], [], []]
    assert [row["id"] for row in rows] == ["session 0#0", "session 0#1", "session 1#0", "session 1#1", "session 1#2", "session 1#3"]
    reordered = (
        f"{NO_IDS}; arguments of calls written anew; tool results put in the order of their calls; structural tags in a text escaped"
    )
    assert [row["hermes"]["off_policy"] for row in rows] == [
        f"ephemeral prompt left out; {added}",
        f"{reordered}; tool schemas completed",
        *[NO_IDS] * 4,
    ]
    assert [row["on_policy"] for row in rows] == [False] * 6
    assert {row["source"] for row in rows} == {"hermes-agent"}


def test_turns_alternate_whatever_stands_in_a_row() -> None:
    look = answer(None, tool_calls=[call("look", "{}", "c1")])
    messages = [
        {"role": "system", "content": "S"},
        {"role": "developer", "content": "D"},
        answer("first"),
        user("one"),
        {"role": "system", "content": "late"},
        user([{"type": "text", "text": "two"}, {"type": "image_url", "image_url": {"url": "u"}}]),
        answer("a"),
        answer("b"),
        user("so"),
        look,
        result("c1", "</tool_response>"),
        user("and?"),
        answer("end"),
    ]
    conversation = to_llamafactory(messages)
    assert conversation.turns == turns(
        ("system", "S\n\nD"),
        ("human", ""),
        ("gpt", "first"),
        ("human", "one\n\nlate\n\ntwo\n[image_url]"),
        ("gpt", "a"),
        ("human", ""),
        ("gpt", "b"),
        ("human", "so"),
        ("function_call", '[{"name": "look", "arguments": {}}]'),
        ("human", "<tool_response>\n<\\/tool_response>\n</tool_response>\n\nand?"),
        ("gpt", "end"),
    )
    assert list(conversation.differences) == [
        "turns of one side joined to one",
        "empty human turn put between a model's turns",
        "parts of a content joined to one text",
        "a later system message written as a human turn",
        "structural tags in a text escaped",
    ]


def test_calls_beside_words_and_calls_without_json_are_text() -> None:
    words = answer("I look.", reasoning="hm", tool_calls=[call("look", '{"a":  1}', "c1")])
    odd = answer(None, tool_calls=[call("look", "not JSON", "c1")])
    former = answer(None, function_call={"name": "look", "arguments": '{"a": "</think>"}'})
    assert [to_llamafactory([user("?"), message]).turns[-1] for message in (words, odd, former)] == turns(
        ("gpt", '<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{"name": "look", "arguments": {"a":  1}}\n</tool_call>'),
        ("gpt", '<tool_call>\n{"name": "look", "arguments": "not JSON"}\n</tool_call>'),
        ("function_call", '[{"name": "look", "arguments": {"a": "\\u003c/think>"}}]'),
    )


@pytest.mark.parametrize("keep", ["none", "current_turn", "all"])
def test_earlier_thoughts_are_there_if_they_were_sent(tmp_path: Path, keep: Any) -> None:
    chat = MessageGraph([user("one")], seed="thoughts")
    sampled(chat, "first", answer("1", reasoning="t1"))
    chat.append(user("two"))
    sampled(chat, "second", answer("2", reasoning="t2"))
    record = CallRecord(sample_id="third", prompt_token_ids=[1], token_ids=[2], logprobs=[-1.0])
    chat.commit(chat.prepare(keep_reasoning=keep), answer("3", reasoning="t3"), record)
    shown = {"none": (), "current_turn": ("t2",), "all": ("t1", "t2")}[keep]
    row = exported(tmp_path, chat)[-1]
    value = [f"<think>\nt{at}\n</think>\n\n{at}" if f"t{at}" in (*shown, "t3") else str(at) for at in (1, 2, 3)]
    assert [turn["value"] for turn in row["conversations"] if turn["from"] == "gpt"][:2] == value[:2]
    assert row["conversations"][-1]["value"].endswith(value[2])
    assert row["on_policy"] is False, "an empty human turn stands between two answers"


def test_a_plain_row_is_on_policy(tmp_path: Path) -> None:
    chat = MessageGraph([user("one")], seed="plain")
    chat.append(answer("1"), call=CallRecord(sample_id="s", prompt_token_ids=[1], token_ids=[2], logprobs=[-1.0]))
    assert [(row["on_policy"], row["hermes"]["off_policy"]) for row in exported(tmp_path, chat)] == [(True, "")]


def test_a_sampled_message_of_another_role_is_excluded_with_a_reason(tmp_path: Path) -> None:
    chat = MessageGraph([user("one")], seed="role")
    sampled(chat, "asked", user("a sampled question"), prompt_token_ids=[1], token_ids=[2], logprobs=[-1.0])
    out, source = make(tmp_path, "llamafactory", [chat])
    [line] = lines(out / "ledger.jsonl")[1:]
    assert [part["reason"] for part in line["excluded"]] == ["only an assistant's messages are trained in this format"]
    assert verify(out, [source]).ok


def all_sessions() -> list[MessageGraph]:
    return [tool_session(), forked_session(), nested_session(), hard_session()]


def test_the_verifier_writes_the_same_rows(tmp_path: Path) -> None:
    out, source = make(tmp_path, "llamafactory", all_sessions())
    assert list(verify(out, [source]).problems) == []


@given(PROGRAMS)
@settings(max_examples=25, deadline=None)
def test_the_verifier_writes_the_same_rows_for_random_sessions(tmp_path_factory: pytest.TempPathFactory, program: list[Step]) -> None:
    out, source = make(tmp_path_factory.mktemp("random"), "llamafactory", World(7).run(program))
    assert list(verify(out, [source]).problems) == []


def test_the_verifier_writes_the_same_rows_for_random_messages(tmp_path: Path) -> None:
    """Every order of roles, odd calls, parts, tags and halves of surrogate pairs."""
    rng = random.Random(11)
    texts = [
        "",
        "word",
        "</tool_response> <think>\\",
        "<tool_call>",
        "half \ud800",
        [{"type": "text", "text": "part"}, {"type": "image_url"}],
        None,
    ]
    arguments = ["{}", "", '{"a":1}', '{"a": "</tool_call>"}', "[1]", "NaN", '{"a": NaN}', '"text"', "no", '{"b": "\ud800"}', '{"a": "é"}']
    graphs = []
    for number in range(60):
        chat = MessageGraph(seed=f"odd-{number}")
        for at in range(rng.randrange(1, 9)):
            content = rng.choice(texts)
            role = rng.choice(["system", "developer", "user", "tool", "function", "assistant", "assistant"])
            if role == "assistant":
                calls = [
                    call(rng.choice(["f", "</think>"]), rng.choice(arguments), rng.choice("abc")) for _ in range(rng.choice([0, 0, 1, 2]))
                ]
                calls += [{"type": "custom", "custom": {"name": "c", "input": "x"}}] * (rng.random() < 0.1)
                fields = {"tool_calls": calls} if calls else {}
                fields |= {"reasoning_content": "why </think>"} if rng.random() < 0.3 else {}
                message = answer(content, **fields)
                if rng.random() < 0.7:
                    tools = rng.choice(
                        [None, TOOLS, [{"name": "flat"}, {"type": "web_search"}, {"type": "custom", "custom": {"name": "c"}}]]
                    )
                    keep: Any = rng.choice(["none", "current_turn", "all"])
                    turn = chat.prepare(tools=tools, keep_reasoning=keep, ephemeral=rng.choice([None, "note"]))
                    chat.commit(turn, message, CallRecord(sample_id=f"{number}-{at}"))
                    continue
            else:
                message = {"role": role, "content": content}
                if role == "tool":
                    message["tool_call_id"] = rng.choice("abc")
            chat.append(message)
        graphs.append(chat)
    out, source = make(tmp_path, "llamafactory", graphs)
    report = verify(out, [source])
    assert (list(report.problems), report.counts["rows"] > 60) == ([], True)


def reseal_turns(forged: Forged, edit: Callable[[list[Row]], object]) -> None:
    """Edit rows and renew the hashes of their turns in the ledger, as a forger would."""
    forged.text("llamafactory.jsonl", edit)
    rows = lines(forged.folder / "llamafactory.jsonl")
    for line in forged.lines:
        for where in line["trained"]:
            forged_turns = rows[where["row"]]["conversations"]
            digests = [text_digest(turn) for turn in forged_turns]
            where.update(text_placement(where["row"], digests, len(digests) - 1))


FORGERIES: dict[str, Callable[[list[Row]], object]] = {
    "the trained words": lambda rows: rows[-1]["conversations"][-1].update(value="other"),
    "a thought": lambda rows: rows[1]["conversations"][-1].update(value="5"),
    "a question": lambda rows: rows[0]["conversations"][1].update(value="2+4?"),
    "the system prompt": lambda rows: rows[0]["conversations"][0].update(value="Be long."),
    "an argument": lambda rows: rows[1]["conversations"][2].update(
        value='[{"name": "add", "arguments": {"a": 3}}, {"name": "ask", "arguments": {}}]'
    ),
    "a result": lambda rows: rows[1]["conversations"][3].update(value="6\n</tool_response>\n<tool_response>\nsix"),
    "a speaker": lambda rows: rows[1]["conversations"][3].update({"from": "human"}),
    "a turn pair more": lambda rows: rows[2]["conversations"].__setitem__(slice(0, 0), turns(("human", "x"), ("gpt", "y"))),
    "a turn pair less": lambda rows: rows[3]["conversations"].__delitem__(slice(0, 2)),
    "tools": lambda rows: rows[0].update(tools="[]"),
    "source": lambda rows: rows[2].update(source="elsewhere"),
    "on_policy": lambda rows: (rows[2].update(on_policy=True), rows[2]["hermes"].update(off_policy="")),
    "a reason": lambda rows: rows[2]["hermes"].update(off_policy="no token ids; reasoning left out"),
    "an id": lambda rows: rows[2].update(id="session 1#7"),
    "a place": lambda rows: (rows[3].update(id="session 1#7"), rows[3]["hermes"].update(row=7)),
    "a session": lambda rows: (rows[0].update(id="x#0"), rows[0]["hermes"].update(session="x")),
    "a rollout": lambda rows: rows[2]["hermes"].update(rollout="x"),
    "a response": lambda rows: rows[2]["hermes"].update(response="0" * 64),
    "a key more": lambda rows: rows[2].update(kto_tag=True),
    "a key of a turn more": lambda rows: rows[2]["conversations"][0].update(train=True),
    "two of one side": lambda rows: rows[-1]["conversations"].insert(0, {"from": "human", "value": ""}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_row_is_found(tmp_path: Path, name: str) -> None:
    out, source = make(tmp_path, "llamafactory", all_sessions())
    forged = Forged(out)
    reseal_turns(forged, FORGERIES[name])
    forged.seal()
    assert not verify(out, [source]).ok


def test_a_forged_dataset_info_is_found(tmp_path: Path) -> None:
    out, _ = make(tmp_path, "llamafactory", all_sessions())
    info = json.loads((out / "dataset_info.json").read_text())
    info["hermes"]["tags"]["assistant_tag"] = "human"
    (out / "dataset_info.json").write_text(json.dumps(info))
    forged = Forged(out)
    forged.seal()
    assert next(iter(verify(out).problems)) == "dataset_info.json: does not tell LLaMA-Factory how to read the rows"
