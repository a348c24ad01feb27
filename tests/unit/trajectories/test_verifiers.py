"""verifiers traces: messages as nodes, one sampled node for each sample, edges beside them."""

from pathlib import Path
from typing import Any

from hermes import CallRecord, MessageGraph
from hermes.trajectories.export import export
from hermes.trajectories.formats.response_links import response_links
from hermes.trajectories.formats.verifiers import VerifiersWriter, message, tool
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import ExportSession
from tests.unit.trajectories.samples import P, answer, user, written
from tests.unit.trajectories.token_units import lines


def episodes(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lines(written(out, "verifiers", VerifiersWriter) / "traces.jsonl")
    return found


def test_nodes_hold_what_each_message_adds(tmp_path: Path) -> None:
    nodes = episodes(tmp_path / "out")[0]["traces"][0]["nodes"]
    assert [(node["parent"], node["message"]["role"], node["token_ids"], [int(bit) for bit in node["mask"]]) for node in nodes] == [
        (None, "system", [], []),
        (0, "user", P, [0] * 6),
        (1, "assistant", [20, 21, 22, 23], [1, 1, 1, 1]),
        (2, "tool", [30, 31, 32], [0, 0, 0]),
        (3, "assistant", [24, 25, 26], [1, 1, 1]),
        (2, "tool", [40, 41], [0, 0]),
        (5, "assistant", [27, 28], [1, 1]),
        (1, "user", [50], [0]),
        (7, "assistant", [60, 61], [1, 1]),
        (7, "assistant", [60, 61], [1, 1]),
        (1, "user", [51], [0]),
        (10, "assistant", [62], [1]),
        (10, "assistant", [62], [1]),
        (1, "user", [52], [0]),
        (13, "assistant", [63, 64, 65], [1, 1, 1]),
        (13, "assistant", [63, 64, 65], [0, 1, 1]),
        (1, "user", [53], [0]),
        (16, "assistant", [70, 71], [1, 1]),
        (None, "user", [90, 91], [0, 0]),
        (18, "assistant", [92], [1]),
    ]
    assert nodes[2] == {
        "parent": 1,
        "message": {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": "add", "arguments": '{"a": 2}'}]},
        "sampled": True,
        "timestamp": 0.0,
        "token_ids": [20, 21, 22, 23],
        "mask": [True, True, True, True],
        "logprobs": [-0.125, -0.5, -1.0625, -0.03125],
        "advantages": [0.25, 0.25, 0.25, 0.25],
        "semantic_parents": [],
    }
    assert [node for node, _ in enumerate(nodes) if "tools" in nodes[node]] == [0, 18]


def test_edits_and_subagents_are_edges(tmp_path: Path) -> None:
    nodes = episodes(tmp_path / "out")[0]["traces"][0]["nodes"]
    edges = {at: [(edge["node"], edge["type"]) for edge in node["semantic_parents"]] for at, node in enumerate(nodes)}
    into_chats = {at: [(6, "subagent_call")] for at in (8, 9, 11, 12, 14, 15, 17)}
    assert {at: found for at, found in edges.items() if found} == {
        4: [(19, "subagent_return")],
        6: [(4, "hermes:edit")],
        19: [(2, "subagent_call")],
        **into_chats,
    }


def test_an_episode_is_a_rollout_and_a_group_is_a_session(tmp_path: Path) -> None:
    found = episodes(tmp_path / "out")
    assert [(episode["group"], episode["traces"][0]["rewards"]) for episode in found] == [
        ({"id": "s"}, {"reward": {"score": 1.0, "weight": 1.0}}),
        ({"id": "s"}, {"reward": {"score": -1.0, "weight": 1.0}}),
        ({"id": "t"}, {}),
    ]
    assert len({episode["id"] for episode in found}) == 3
    plain = found[2]["traces"][0]
    plain["info"]["hermes"]["samples"][0].pop("response")
    assert plain == {
        "version": 1,
        "id": found[2]["id"],
        "task": {"type": "Hermes", "data": {"hermes": {"session": "t", "rollout": "t"}}},
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "tools": [],
        "nodes": [
            {
                "parent": None,
                "message": {"role": "user", "content": "plain"},
                "sampled": False,
                "timestamp": 0.0,
                "token_ids": [1, 2],
                "mask": [False, False],
                "logprobs": [],
                "semantic_parents": [],
                "tools": [],
            },
            {
                "parent": 0,
                "message": {"role": "assistant", "content": "plain"},
                "sampled": True,
                "timestamp": 0.0,
                "token_ids": [3, 4],
                "mask": [True, True],
                "logprobs": [-0.10000000149011612, -0.20000000298023224],
                "semantic_parents": [],
            },
        ],
        "calls": [
            {
                "node": 1,
                "model": "m",
                "sampling": {"temperature": 1.0},
                "finish_reason": "stop",
                "usage": {"prompt_tokens": 2, "completion_tokens": 2},
            }
        ],
        "rewards": {},
        "metrics": {},
        "info": {
            "hermes": {
                "session": "t",
                "rollout": "t",
                "tokenizer": "",
                "loss_scale": 0.5,
                "on_policy": True,
                "samples": [
                    {
                        "node": 1,
                        "sample": "plain",
                        "start": 2,
                        "end": 4,
                        "reward": None,
                        "advantage": None,
                        "policy_spans": [{"version": "", "start": 2, "end": 4}],
                    }
                ],
            }
        },
        "is_completed": True,
        "ok": True,
    }


def test_reasoning_that_was_not_sent_again_does_not_part_a_branch_whose_tokens_agree(tmp_path: Path) -> None:
    chat = MessageGraph([user("q")], seed="s")
    chat.append({**answer("a"), "reasoning": "hm"}, call=CallRecord(sample_id="1", prompt_token_ids=[1], token_ids=[2], logprobs=[-1.0]))
    chat.append(user("more"))
    chat.append(answer("b"), call=CallRecord(sample_id="2", prompt_token_ids=[1, 2, 3], token_ids=[4], logprobs=[-1.0]))
    chat.append(user("still"))
    chat.append(answer("c"), call=CallRecord(sample_id="3", prompt_token_ids=[1, 9, 3, 4], token_ids=[5], logprobs=[-1.0]))
    export([ExportSession("s", chat)], tmp_path / "out", ExportSettings(format="verifiers"), {"verifiers": VerifiersWriter})
    ((trace,),) = (episode["traces"] for episode in lines(tmp_path / "out" / "traces.jsonl"))
    assert [(node["parent"], node["sampled"], node["token_ids"]) for node in trace["nodes"]] == [
        (None, False, [1]),
        (0, True, [2]),
        (1, False, [3]),
        (2, True, [4]),
        # The third prompt has another token where the first reply was: nothing behind that is shared.
        (0, False, []),
        (4, False, []),
        (5, False, []),
        (6, False, [9, 3, 4]),
        (7, True, [5]),
    ]
    assert trace["nodes"][1]["message"]["reasoning_content"] == "hm"


def test_a_rejected_compaction_that_is_trained_is_not_called_by_the_name_that_verifiers_leaves_out(tmp_path: Path) -> None:
    chat = MessageGraph([user("q")], seed="s")
    chat.append(answer("a"), call=CallRecord(sample_id="1", prompt_token_ids=[1], token_ids=[2], logprobs=[-1.0]))
    chat.replace(0, user("short"), kind="compaction_attempt")
    chat.append(answer("b"), call=CallRecord(sample_id="2", prompt_token_ids=[3], token_ids=[4], logprobs=[-1.0]))
    chat.compact(slice(0, 1), "shorter")
    chat.append(answer("c"), call=CallRecord(sample_id="3", prompt_token_ids=[5], token_ids=[6], logprobs=[-1.0]))
    one, two, three = (response.id for response in chat.responses())
    assert response_links(chat) == [("compaction_attempt", one, two), ("compaction", two, three)]
    export([ExportSession("s", chat)], tmp_path / "out", ExportSettings(format="verifiers"), {"verifiers": VerifiersWriter})
    ((trace,),) = (episode["traces"] for episode in lines(tmp_path / "out" / "traces.jsonl"))
    kinds = [edge["type"] for node in trace["nodes"] for edge in node["semantic_parents"]]
    assert kinds == ["hermes:compaction_attempt", "compaction"]


def test_messages_in_the_words_of_verifiers() -> None:
    assert message({"role": "developer", "content": "d"}) == {"role": "system", "content": "d"}
    assert message({"role": "user", "content": None}) == {"role": "user", "content": ""}
    assert message({"role": "function", "name": "f", "content": "r"}) == {"role": "tool", "content": "r", "tool_call_id": "", "name": "f"}
    assert message({"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]}) == {
        "role": "assistant",
        "content": 'a{"refusal": "no", "type": "refusal"}',
    }
    image = {"type": "image_url", "image_url": {"url": "u", "detail": "low"}}
    assert message({"role": "user", "content": [image, {"type": "audio", "data": "x"}]})["content"] == [
        {"type": "image_url", "image_url": {"url": "u"}},
        {"type": "text", "text": '{"data": "x", "type": "audio"}'},
    ]
    assert message({"role": "user", "content": "half \ud800 pair"})["content"].isprintable()
    assert tool({"name": "flat", "strict": True}) == {"name": "flat"}
