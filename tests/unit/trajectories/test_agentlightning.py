"""agent-lightning: one event and one span for each call."""

import json
from pathlib import Path

from hermes.trajectories.export import export
from hermes.trajectories.formats.agentlightning import AgentLightningWriter
from hermes.trajectories.plan import ExportSettings
from tests.unit.trajectories.samples import TRAINED, P, two_tokenizers, written
from tests.unit.trajectories.token_units import lines

ONE_ROLLOUT = ["ask", "answer", "fork", "twin-1", "odd-1", "whole", "rest", "tail", "inner"]


def test_calls_come_depth_first_and_no_rollout_has_a_prompt_twice(tmp_path: Path) -> None:
    events = lines(written(tmp_path / "out", "agentlightning", AgentLightningWriter) / "events.jsonl")
    order = [
        (event["rollout_id"], event["timestamp"], event["data"].get("value", event["data"].get("hermes", {}).get("sample")))
        for event in events
    ]
    assert order == [
        *(("s", float(at), name) for at, name in enumerate(ONE_ROLLOUT, start=1)),
        ("s", 10.0, 1.0),
        ("s~1", 1.0, "twin-2"),
        ("s~1", 2.0, "odd-2"),
        ("s~1", 3.0, 1.0),
        ("s/r2", 1.0, "other"),
        ("s/r2", 2.0, -1.0),
        ("t", 1.0, "plain"),
    ]


def test_an_event_holds_what_the_server_stored_and_what_the_trainer_reads(tmp_path: Path) -> None:
    event = lines(written(tmp_path / "out", "agentlightning", AgentLightningWriter) / "events.jsonl")[0]
    response_id = event["data"]["response"].pop("id")
    assert len(response_id) == 64
    logprobs = [-0.125, -0.5, -1.0625, -0.03125]
    content = [{"token": str(20 + at), "logprob": logprob} for at, logprob in enumerate(logprobs)]
    assert event == {
        "event_type": "model_request",
        "rollout_id": "s",
        "attempt_id": "0",
        "timestamp": 1.0,
        "data": {
            "model": "m",
            "model_version": 17,
            "server": {"model": "m", "version": 17},
            "request": {},
            "response": {
                "prompt_token_ids": P,
                "choices": [{"index": 0, "token_ids": [20, 21, 22, 23], "logprobs": {"content": content}, "finish_reason": "stop"}],
            },
            "prompt_token_ids": P,
            "response_token_ids": [20, 21, 22, 23],
            "response_log_probs": logprobs,
            "usage": {"prompt_tokens": 6, "completion_tokens": 4},
            "finish_reason": "stop",
            "status": "ok",
            "hermes": {"sample": "ask", "reward": 0.25, "advantage": None, "policy": "17"},
        },
    }


def test_spans_say_the_same_as_events(tmp_path: Path) -> None:
    folder = written(tmp_path / "out", "agentlightning", AgentLightningWriter)
    spans = lines(folder / "spans.jsonl")
    calls = [span["attributes"] for span in spans if span["name"] == "openai.chat.completion"]
    requests = [event["data"] for event in lines(folder / "events.jsonl") if event["event_type"] == "model_request"]
    assert len(calls) == len(TRAINED)
    assert [
        (
            call["hermes.sample"],
            call["gen_ai.response.id"],
            call["prompt_token_ids"],
            call["response_token_ids"],
            [item["logprob"] for item in json.loads(call["logprobs.content"])],
        )
        for call in calls
    ] == [
        (
            request["hermes"]["sample"],
            request["response"]["id"],
            request["prompt_token_ids"],
            request["response_token_ids"],
            request["response_log_probs"],
        )
        for request in requests
    ]
    assert len({call["gen_ai.response.id"] for call in calls}) == len(calls)


def test_a_rollouts_first_span_holds_the_others_which_do_not_overlap(tmp_path: Path) -> None:
    spans = lines(written(tmp_path / "out", "agentlightning", AgentLightningWriter) / "spans.jsonl")
    for rollout in ("s", "s~1", "s/r2", "t"):
        root, *others = (span for span in spans if span["rollout_id"] == rollout)
        assert (root["name"], root["parent_id"]) == ("hermes.rollout", None)
        assert {span["parent_id"] for span in others} == {root["span_id"]}
        times = [time for span in others for time in (span["start_time"], span["end_time"])]
        assert [root["start_time"], *times, root["end_time"]] == sorted([root["start_time"], *times, root["end_time"]])
    rewards = [span["attributes"] for span in spans if span["name"] == "agentlightning.annotation"]
    assert [reward["agentlightning.reward.0.value"] for reward in rewards] == [1.0, 1.0, -1.0]


def test_tokens_of_two_tokenizers_are_two_rollouts(tmp_path: Path) -> None:
    writers = {"agentlightning": AgentLightningWriter}
    export([two_tokenizers()], tmp_path / "out", ExportSettings(format="agentlightning"), writers)
    assert [event["rollout_id"] for event in lines(tmp_path / "out" / "events.jsonl")] == ["two@a", "two@b"]
