"""Rows of every shape: what is short enough keeps its bytes, and what is compressed keeps everything but its middle."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import MessageGraph
from hermes.trajectories.calls import SamplePolicies, read_calls
from hermes.trajectories.compress.row_change import change_of
from hermes.trajectories.compress.rows import read_row
from hermes.trajectories.compress.sharegpt_rows import estimate_row
from hermes.trajectories.compress.token_counter import BYTES_PER_TOKEN, TOKENS_PER_MESSAGE, EstimateCounter
from hermes.trajectories.compress.token_scale import TokenScale
from hermes.trajectories.compress.worker import ChunkOutcome, RowStatus, compress_lines
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.formats.sharegpt import line_of, read_messages
from hermes.trajectories.imports import import_file
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.sharegpt_turns import to_turns
from hermes.trajectories.source import ExportSession, read_sessions
from hermes.trajectories.text_rows import text_rows
from hermes.trajectories.verify import verify
from tests.unit.trajectories.compress.chats import chat_of, words
from tests.unit.trajectories.compress.job_files import agent_row, compressed, graph_line, messages, openai_row, rows, turns, work, write

REASON = "a summary stands for turns that the later answers were sampled with"


def one(line: str, **values: Any) -> tuple[dict[str, Any], ChunkOutcome]:
    """Compress one line; return the row and all that was done."""
    done = compress_lines([line.encode() + b"\n"], work(**values), name="t.jsonl")
    [outcome] = done.outcomes
    assert outcome.status is RowStatus.WRITTEN, done.problems
    row: dict[str, Any] = json.loads(outcome.line)
    return row, done


@pytest.mark.parametrize(
    "line",
    [
        b'{ "conversations" : [ {"from":"human","value":"hi"} ],\t"x": 1e3, "x": 2 }\n',
        '{"conversations": [{"from": "user", "value": "grüß dich"}]}\r\n'.encode(),
        b'{"conversations": [{"from": "human", "value": "\\ud83d"}]}',
        b"\n",
        b"  \t\n",
        agent_row(1).encode(),
        openai_row(1).encode(),
        graph_line(1).encode(),
    ],
)
def test_what_is_short_enough_keeps_its_bytes(line: bytes) -> None:
    [outcome] = compress_lines([line], work(), name="t.jsonl").outcomes
    assert (outcome.status, outcome.line) == (RowStatus.WRITTEN, line)


def test_a_row_of_hermes_agent_keeps_its_keys_its_ends_and_its_bytes_there() -> None:
    line = agent_row(12, prompt_index=7, metadata={"a": 1}).replace('"completed": true', '"completed":true, "cost": 1e3')
    row, done = one(line)
    before = json.loads(line)
    said, was = row["conversations"], before["conversations"]
    [summary] = [place for place, turn in enumerate(said) if turn["value"].startswith("[CONTEXT SUMMARY]:")]
    gone = len(was) - len(said)
    assert (done.totals.compressed, done.totals.turns_removed, summary) == (1, gone, 4)
    assert said[:summary] == was[:4]
    assert said[summary + 1 :] == was[4 + gone + 1 :]
    assert said[summary]["from"] == "human"
    late = [place for place, turn in enumerate(said) if turn["from"] == "gpt" and place > summary]
    assert (row["on_policy"], row["off_policy"]) == (False, f"{REASON} (turns {', '.join(map(str, late))})")
    added = {"conversations", "on_policy", "off_policy", "compression_metrics"}
    assert {key: row[key] for key in row if key not in added} == {key: before[key] for key in before if key != "conversations"}
    [outcome] = compress_lines([line.encode()], work(), name="t.jsonl").outcomes
    assert b'"cost": 1e3' in outcome.line, "numbers are not written anew"
    metrics = row["compression_metrics"]
    assert (metrics["original_turns"], metrics["compressed_turns"], metrics["off_policy_turns"]) == (len(was), len(said), late)
    assert metrics["compressed_tokens"] <= 500 < metrics["original_tokens"]
    assert (metrics["was_compressed"], metrics["still_over_limit"], metrics["summary"]) == (True, False, "extractive")


def test_without_metrics_of_each_trajectory_the_row_says_only_that_it_is_off_policy() -> None:
    row, _ = one(agent_row(12), metrics={"per_trajectory": False})
    assert set(row) - set(json.loads(agent_row(12))) == {"on_policy", "off_policy"}


def test_a_row_that_speaks_of_users_and_trains_by_turn_gets_a_summary_in_its_own_words() -> None:
    names = {"human": "user", "gpt": "assistant"}
    said = [{"from": names.get(turn["from"], turn["from"]), "value": turn["value"], "train": True} for turn in turns(12)]
    row, _ = one(json.dumps({"conversations": said}))
    [summary] = [turn for turn in row["conversations"] if "SUMMARY" in turn["value"]]
    assert (summary["from"], summary["train"]) == ("user", False)


def test_a_giant_result_is_cut_inside_its_envelope() -> None:
    said = turns(4)
    said[5]["value"] = (
        "<tool_response>\n" + json.dumps({"tool_call_id": "c1", "name": "look", "content": words(900)}) + "\n</tool_response>"
    )
    row, _ = one(json.dumps({"conversations": said, "timestamp": "t", "completed": True}), trim_keep_tokens=60)
    value = row["conversations"][5]["value"]
    content = json.loads(value.removeprefix("<tool_response>\n").removesuffix("\n</tool_response>"))
    assert (content["tool_call_id"], content["name"]) == ("c1", "look")
    assert content["content"].startswith("word0 word1")
    assert len(content["content"]) < 3_000
    assert [turn for place, turn in enumerate(row["conversations"]) if place != 5] == [
        turn for place, turn in enumerate(said) if place != 5
    ]
    assert row["off_policy"] == "tool results are shorter than the later answers were sampled with (turns 6, 8, 10)"


def test_a_bare_result_and_one_of_several_are_cut_where_they_stand() -> None:
    said = turns(4)
    said[5]["value"] = words(900)
    row, _ = one(json.dumps({"conversations": said}), target=800, trim_keep_tokens=60)
    assert row["conversations"][5]["value"].startswith("word0 word1")
    call = json.dumps({"name": "look", "arguments": {}})
    said[4]["value"] = f"<tool_call>\n{call}\n</tool_call>\n<tool_call>\n{call}\n</tool_call>"
    said[5]["value"] = f"<tool_response>\nshort\n</tool_response>\n<tool_response>\n{words(900)}\n</tool_response>"
    row, _ = one(json.dumps({"conversations": said}), target=800, trim_keep_tokens=60)
    value = row["conversations"][5]["value"]
    assert value.startswith("<tool_response>\nshort\n</tool_response>\n<tool_response>\nword0 word1")
    assert value.endswith("\n</tool_response>")
    assert value.count("<tool_response>") == 2


def test_nothing_is_off_policy_where_nothing_was_sampled_behind_the_change() -> None:
    said = [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}, *({"from": "human", "value": words(60)} for _ in range(8))]
    row, done = one(json.dumps({"conversations": said}), protected_turns={"last_n_turns": 1})
    assert (done.totals.compressed, done.totals.off_policy) == (1, 0)
    assert not {"on_policy", "off_policy"} & set(row)


def exported(folder: Path, *rounds: int) -> Path:
    """Our own ShareGPT rows."""
    sessions = [ExportSession(f"s{each}", chat_of(messages(each), f"s{each}")) for each in rounds]
    export(sessions, folder, ExportSettings(format="sharegpt"), FORMATS)
    return folder / "sharegpt.jsonl"


def test_a_row_of_our_own_export_is_one_afterwards_and_says_what_it_is(tmp_path: Path) -> None:
    file = exported(tmp_path / "out", 1, 12)
    short, before = rows(file)
    compressed(file)
    kept, row = rows(tmp_path / "out" / "sharegpt_compressed.jsonl")
    assert kept == short
    assert set(row) - {"compression_metrics"} == set(before), "readers infer the columns from the first rows"
    assert row["on_policy"] is False
    assert row["hermes"]["off_policy"].startswith(f"{before['hermes']['off_policy']}; {REASON} (turns ")
    said = read_messages(row)
    gone = len(messages(12)) - len(said)
    assert said[:4] == messages(12)[:4]
    assert said[5:] == messages(12)[4 + gone + 1 :]
    trained = [turn for turn in row["conversations"] if turn["train"]]
    assert len(row["hermes"]["responses"]) == len(trained) < len(before["hermes"]["responses"])
    assert set(row["hermes"]["responses"]) < set(before["hermes"]["responses"])
    imported = list(import_file(tmp_path / "out" / "sharegpt_compressed.jsonl"))
    assert [each.findings for each in imported] == [(), ()], "not even altered"  # type: ignore[union-attr]  # no line is broken


def test_a_result_that_was_cut_in_a_row_of_our_own_comes_back_too(tmp_path: Path) -> None:
    said = messages(4)
    said[5]["content"] = f"</tool_response> {words(900)}"
    export([ExportSession("s", chat_of(said))], tmp_path / "out", ExportSettings(format="sharegpt"), FORMATS)
    compressed(tmp_path / "out" / "sharegpt.jsonl", work(trim_keep_tokens=60))
    [row] = rows(tmp_path / "out" / "sharegpt_compressed.jsonl")
    now = read_messages(row)
    assert [message for place, message in enumerate(now) if place != 5] == [message for place, message in enumerate(said) if place != 5]
    assert now[5]["content"].startswith("</tool_response> word0")


def test_an_altered_row_of_our_own_is_read_as_anybody_elses(tmp_path: Path) -> None:
    file = exported(tmp_path / "out", 12)
    [row] = rows(file)
    row["conversations"][3]["value"] = "changed"
    now, _ = one(json.dumps(row))
    assert (now["on_policy"], now["off_policy"].startswith(REASON)) == (False, True)


def test_an_openai_row_gets_no_key_that_the_service_would_refuse() -> None:
    row, done = one(openai_row(12))
    before = json.loads(openai_row(12))["messages"]
    assert list(row) == ["messages"]
    gone = len(before) - len(row["messages"])
    assert row["messages"][:4] == before[:4]
    assert set(row["messages"][4]) == {"role", "content"}
    assert row["messages"][5:] == before[4 + gone + 1 :]
    [outcome] = compress_lines([openai_row(12).encode()], work(), name="t.jsonl").outcomes
    late = [place for place, message in enumerate(row["messages"]) if message["role"] == "assistant" and place > 4]
    assert json.loads(outcome.metrics)["off_policy_turns"] == late
    assert done.totals.off_policy == 1


def test_a_graph_keeps_both_versions_and_every_sample_is_trained_in_its_own_context(tmp_path: Path) -> None:
    file = write(tmp_path / "graphs.jsonl", [graph_line(1, "a"), graph_line(12, "b")])
    compressed(file)
    short, line = (tmp_path / "graphs_compressed.jsonl").read_text().splitlines()
    assert short == graph_line(1, "a")
    chat = MessageGraph.from_json(line)
    assert chat.previous == messages(12)
    assert [edge.kind for edge in chat.edges() if edge.kind != "sequential"] == ["compaction"]
    assert chat.verify()
    before = [response.id for response in MessageGraph.from_json(graph_line(12, "b")).responses()]
    assert [response.id for response in chat.responses()] == before
    sessions = list(read_sessions([tmp_path / "graphs_compressed.jsonl"]))
    summary = export(sessions, tmp_path / "out", ExportSettings(format="sharegpt"), FORMATS)
    assert (summary.broken, summary.trained, summary.manifest["samples"]) == ((), 2 + 13, 2 + 13)
    assert verify(tmp_path / "out", [tmp_path / "graphs_compressed.jsonl"]).problems == ()


def test_a_graph_is_compressed_again_and_still_has_every_sample_in_its_own_context() -> None:
    once, _ = one(graph_line(24), target=1_500)
    twice, done = one(json.dumps(once), target=600)
    first, second = MessageGraph.from_json(json.dumps(once)), MessageGraph.from_json(json.dumps(twice))
    assert (done.totals.compressed, done.totals.failed, done.totals.off_policy) == (1, 0, 1)
    assert (len(second) < len(first), len(second.versions), len(first.versions)) == (True, 2, 2)
    assert second.previous == messages(24)
    assert second.verify()
    assert [response.id for response in second.responses()] == [response.id for response in first.responses()]
    late = [place for place, message in enumerate(second) if message["role"] == "assistant" and place > 4]
    assert json.loads(done.outcomes[0].metrics)["off_policy_turns"] == late != []


def test_a_graph_in_which_nothing_was_sampled_has_nothing_that_is_off_policy() -> None:
    for rounds in (12, 20):
        row, done = one(MessageGraph(messages(rounds)).to_json())
        assert (done.totals.compressed, done.totals.off_policy, len(MessageGraph.from_json(json.dumps(row)).versions)) == (1, 0, 1)


texts = st.text(st.sampled_from('ab"\\\\ \\n{}<>é漢😀'), max_size=30)
arguments = st.dictionaries(texts, st.one_of(texts, st.lists(texts, max_size=3), st.integers()), max_size=3)


@st.composite
def drawn_turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns of every kind: thoughts, calls, results with and without envelope, of hermes-agent and of others."""
    turns = []
    for _ in range(draw(st.integers(1, 6))):
        match draw(st.sampled_from(["human", "gpt", "tool"])):
            case "human":
                turns.append({"from": "human", "value": draw(texts)})
            case "gpt":
                calls = [
                    json.dumps({"name": "f", "arguments": draw(arguments)}, ensure_ascii=draw(st.booleans()))
                    for _ in range(draw(st.integers(0, 3)))
                ]
                thought = f"<think>{draw(texts)}</think>" if draw(st.booleans()) else ""
                turns.append({"from": "gpt", "value": thought + draw(texts) + "".join(f"<tool_call>{call}</tool_call>" for call in calls)})
            case "tool":
                results = [
                    json.dumps({"tool_call_id": draw(texts), "name": "f", "content": draw(texts)}) if draw(st.booleans()) else draw(texts)
                    for _ in range(draw(st.integers(0, 3)))
                ]
                turns.append(
                    {"from": "tool", "value": "\\n".join(f"<tool_response>{each}</tool_response>" for each in results) or draw(texts)}
                )
    return turns


@given(
    turns=drawn_turns(), is_agents=st.booleans(), tools=st.lists(st.fixed_dictionaries({"name": texts}), max_size=2), as_text=st.booleans()
)
def test_at_a_glance_no_row_is_taken_for_shorter_than_it_is(turns: list[Any], is_agents: bool, tools: list[Any], as_text: bool) -> None:
    listed = json.dumps(tools, separators=(",", ":")) if as_text else tools
    value = {"conversations": turns, "tools": listed, **({"timestamp": "t", "completed": True} if is_agents else {})}
    seen = estimate_row(value, BYTES_PER_TOKEN, TOKENS_PER_MESSAGE)
    row = read_row(b"", value)
    assert seen is not None
    assert TokenScale(work().settings, EstimateCounter(), row.tools).count(row.messages) <= seen[1]


@given(rounds=st.integers(0, 6), size=st.integers(1, 60))
def test_nor_is_one_of_our_own(rounds: int, size: int) -> None:
    [call] = [
        call
        for call in read_calls(ExportSession("s", chat_of(messages(rounds, size))), SamplePolicies())
        if len(call.response.prefix) == 2 * rounds + 2
    ]
    [row] = text_rows([call])
    value = json.loads(line_of(0, row, to_turns(row.messages), "x").text)
    seen = estimate_row(value, BYTES_PER_TOKEN, TOKENS_PER_MESSAGE)
    assert seen is not None
    read = read_row(b"", value)
    assert TokenScale(work().settings, EstimateCounter(), read.tools).count(read.messages) <= seen[1]


def test_running_it_again_changes_nothing(tmp_path: Path) -> None:
    lines = [agent_row(12), openai_row(12), graph_line(12), agent_row(1)]
    write(tmp_path / "t.jsonl", lines)
    compressed(tmp_path / "t.jsonl")
    compressed(tmp_path / "t_compressed.jsonl")
    assert (tmp_path / "t_compressed_compressed.jsonl").read_bytes() == (tmp_path / "t_compressed.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON (Expecting property name"),
        (b"[1]", "expected an object, got list"),
        (b"\xff\xfe{}", "not JSON ("),
        (b'{"text": "no turns"}', "no list of conversations in it"),
        (b'{"conversations": [], "error": "timed out"}', "no turns in it (timed out)"),
        (b'{"conversations": [{"from": "narrator", "value": "x"}]}', "turn 0 has an unknown speaker 'narrator'"),
        (b'{"messages": []}', "no messages in it"),
        (b'{"format": "hermes.graph", "version": 1, "graphs": []}', "not a message graph (graphs: empty"),
    ],
)
def test_what_cannot_be_read_is_named_and_kept(line: bytes, reason: str) -> None:
    done = compress_lines([b"\n", line], work(), name="t.jsonl", first=7)
    assert [(outcome.status, outcome.line) for outcome in done.outcomes] == [(RowStatus.WRITTEN, b"\n"), (RowStatus.REJECTED, line)]
    [problem] = done.problems
    assert problem.startswith(f"t.jsonl, line 8: {reason}")
    assert json.loads(done.outcomes[1].metrics)["trajectory"] == "t.jsonl:8"


def test_a_graph_that_was_altered_is_rejected_where_it_would_have_to_be_changed() -> None:
    line = graph_line(12).replace("saw3_1 ", "SAW3_1 ", 1).encode()
    done = compress_lines([line], work(), name="t.jsonl")
    assert done.outcomes[0].status is RowStatus.REJECTED
    assert "altered after it was recorded" in done.problems[0]


def test_what_became_of_a_list_that_is_no_shorter_form_of_it_is_refused() -> None:
    before = messages(3)
    assert change_of(before, before).changed == frozenset()
    for after in (before[:-1], [*before, {"role": "user", "content": "more"}], [{"role": "user", "content": "else"}, *before[1:]]):
        with pytest.raises(ValueError, match="compressed conversation"):
            change_of(before, after)


def test_what_became_of_a_long_list_takes_no_more_memory_than_the_list() -> None:
    before = [{"role": "user", "content": "x"}] * 8_000
    tracemalloc.start()
    assert change_of(before, before).changed == frozenset()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20_000_000
