"""ATIF v1.8: a document a row, results in the step of their call, subagents inside, context marked as copied."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes import MessageGraph
from hermes.trajectories.formats.atif import AtifWriter
from hermes.trajectories.text_rows import text_digest
from tests.unit.trajectories.text_sessions import (
    ODD,
    TOOLS,
    answer,
    call,
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


def documents(folder: Path) -> list[Any]:
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("trajectory-*.json"))]


def steps_of(document: Any) -> Iterator[Any]:
    """As the ledger counts them."""
    yield from document["steps"]
    for inner in document.get("subagent_trajectories", ()):
        yield from steps_of(inner)


def test_a_tool_session_is_one_document(tmp_path: Path) -> None:
    write(tmp_path / "out", AtifWriter, tool_session())
    [document] = documents(tmp_path / "out")
    calls, final = [response.id for response in tool_session().responses()]
    assert document == {
        "schema_version": "ATIF-v1.8",
        "session_id": "s0",
        "trajectory_id": "s0#0",
        "agent": {"name": "hermes-agent", "version": "unknown", "model_name": "m", "tool_definitions": TOOLS},
        "steps": [
            {"step_id": 1, "source": "system", "message": "Be brief."},
            {"step_id": 2, "source": "user", "message": "2+3?"},
            {
                "step_id": 3,
                "source": "agent",
                "message": "",
                "model_name": "m",
                "llm_call_count": 1,
                "tool_calls": [
                    {"tool_call_id": "c1", "function_name": "add", "arguments": {"a": 2}, "extra": {"hermes": {"arguments": ODD}}},
                    {"tool_call_id": "c2", "function_name": "ask", "arguments": {}},
                ],
                "observation": {"results": [{"source_call_id": "c2", "content": "six"}, {"source_call_id": "c1", "content": "5"}]},
                "metrics": {
                    "prompt_tokens": 2,
                    "completion_tokens": 1,
                    "prompt_token_ids": [1, 2],
                    "completion_token_ids": [3],
                    "logprobs": [-0.5],
                    "extra": {"policy_version": "w1"},
                },
                "extra": {"hermes": {"response": calls, "sample": "calls"}},
            },
            {
                "step_id": 4,
                "source": "agent",
                "message": "5",
                "reasoning_content": "</think> or <tool_call>?",
                "llm_call_count": 1,
                "extra": {"hermes": {"response": final, "sample": "final"}},
            },
        ],
        "extra": {
            "hermes": {
                "rollout": "s0",
                "row": 0,
                "on_policy": False,
                "off_policy": "ephemeral prompt left out; no token ids",
                "left_out": {"ephemeral": 1, "notes": 0},
            }
        },
    }


def test_subagents_are_inside_the_document_that_carries_them(tmp_path: Path) -> None:
    write(tmp_path / "out", AtifWriter, nested_session())
    main, after = documents(tmp_path / "out")
    [sub] = main["subagent_trajectories"]
    [deep] = sub["subagent_trajectories"]
    [summary] = after["subagent_trajectories"]
    assert main["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"] == [{"trajectory_id": sub["trajectory_id"]}]
    assert sub["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"] == [{"trajectory_id": deep["trajectory_id"]}]
    assert after["steps"][0]["observation"]["results"] == [{"subagent_trajectory_ref": [{"trajectory_id": summary["trajectory_id"]}]}]
    assert [step["message"] for step in (*deep["steps"], *summary["steps"])] == ["deep?", "deep.", "Summarise.", "(short)"]


def test_each_sample_is_a_step_that_is_not_copied_exactly_once(tmp_path: Path) -> None:
    summary = write(tmp_path / "out", AtifWriter, tool_session(), forked_session(), nested_session())
    found = documents(tmp_path / "out")
    assert summary.manifest["rows"] == len(found) == 6
    live = [
        step["extra"]["hermes"]["sample"]
        for document in found
        for step in steps_of(document)
        if step["source"] == "agent" and not step.get("is_copied_context")
    ]
    where = ledger(tmp_path / "out")
    assert sorted(live) == sorted(where)
    for line in lines(tmp_path / "out" / "ledger.jsonl")[1:]:
        [place] = line["trained"]
        step = list(steps_of(found[place["row"]]))[place["turn"]]
        assert step["extra"]["hermes"]["sample"] == line["sample"]
        assert place["sha256"] == text_digest(step)


def test_authored_answers_are_copied_context_and_late_results_stand_alone(tmp_path: Path) -> None:
    chat = MessageGraph([user("Q")], seed="s")
    chat.append(answer(None, tool_calls=[call("add", "not json", "c1")], name="bot"), sampled=False)
    chat.append({"role": "developer", "content": None})
    chat.append(result("c1", "late", name="add"))
    sampled(chat, "1", answer("done"))
    write(tmp_path / "out", AtifWriter, chat)
    [document] = documents(tmp_path / "out")
    assert document["steps"][1:4] == [
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "is_copied_context": True,
            "tool_calls": [{"tool_call_id": "c1", "function_name": "add", "arguments": {}, "extra": {"hermes": {"arguments": "not json"}}}],
            "extra": {"hermes": {"fields": {"name": "bot"}}},
        },
        {"step_id": 3, "source": "system", "message": "", "extra": {"hermes": {"role": "developer"}}},
        {
            "step_id": 4,
            "source": "system",
            "message": "",
            "observation": {"results": [{"content": "late", "extra": {"hermes": {"fields": {"tool_call_id": "c1", "name": "add"}}}}]},
        },
    ]


def test_images_by_address_are_images_and_others_are_kept_beside(tmp_path: Path) -> None:
    seen = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "https://x/cat.png"}}]
    inline = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    chat = MessageGraph([user(seen), user(inline)], seed="s")
    sampled(chat, "1", answer("a cat"))
    write(tmp_path / "out", AtifWriter, chat)
    [document] = documents(tmp_path / "out")
    assert document["steps"][0]["message"] == [
        {"type": "text", "text": "Look"},
        {"type": "image", "source": {"media_type": "image/png", "path": "https://x/cat.png"}},
    ]
    assert document["steps"][1]["message"] == [{"type": "text", "text": "[image_url]"}]
    assert document["steps"][1]["extra"] == {"hermes": {"content": inline}}


def test_a_chat_behind_a_message_that_no_row_holds_is_a_document_of_its_own(tmp_path: Path) -> None:
    agent = MessageGraph([user("sub?")], seed="agent")
    sampled(agent, "sub", answer("sub."))
    chat = MessageGraph([user("Q")], seed="s")
    chat.append({"role": "tool", "content": "sub.", "metadata": {"chat": agent}})
    write(tmp_path / "out", AtifWriter, chat)
    [document] = documents(tmp_path / "out")
    assert [step["message"] for step in document["steps"]] == ["sub?", "sub."]


def test_the_same_graphs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, AtifWriter, tool_session(), nested_session())
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["ledger.jsonl", "trajectory-00000.json", "trajectory-00001.json", "trajectory-00002.json"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
