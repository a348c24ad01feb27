"""An honest export of any sessions equals what the verifier computes from their graphs, though the two share no code."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph
from hermes.trajectories.calls import SamplePolicies
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.rewards import RewardRule
from hermes.trajectories.source import read_sessions
from hermes.trajectories.verify import VerifyReport, verify
from tests.unit.trajectories.tampering import BARE, FORMS
from tests.unit.trajectories.test_parallel_export import inputs
from tests.unit.trajectories.test_sharegpt import messages

ANY = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
POLICIES = st.builds(
    SamplePolicies,
    keep=st.sampled_from(["all", "accepted"]),
    retries=st.sampled_from(["all", "last"]),
    derived=st.sampled_from(["exclude", "include"]),
    scripted=st.sampled_from(["exclude", "include"]),
    policy_versions=st.sampled_from([None, frozenset({"step-1"}), frozenset({"step-2", ""})]),
    rewards=st.sampled_from(
        [(), (RewardRule("reward"),), (RewardRule("rollout", "apart", "rollout"), RewardRule("advantage")), (RewardRule("consent"),)]
    ),
    advantages=st.sampled_from(["reward", "group", "grpo"]),
)
LEFT_OUT = ("cannot be read", "cannot be exported")
"""What the verifier says about a graph that the exporter leaves out too."""


class WordTokenizer:
    """Gives each message a token, and none of its own."""

    name = "words"

    def encode(self, response: Any) -> tuple[list[int], list[int]]:
        return [len(str(message)) for message in response.context], [len(str(response.message.get("content"))), 7]


def check(lines: list[str], kind: str, policies: SamplePolicies, tokenizer: WordTokenizer | None = None) -> VerifyReport:
    """Export the lines of a file, and verify the export against it."""
    with TemporaryDirectory() as folder:
        source, out = Path(folder, "graphs.jsonl"), Path(folder, "out")
        source.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        export(list(read_sessions([source])), out, replace(FORMS[kind], policies=policies), FORMATS, tokenizer=tokenizer)
        assert verify(out).problems == ()
        return verify(out, [source])


@ANY
@given(inputs(), st.sampled_from(sorted(FORMS)), POLICIES, st.sampled_from([None, WordTokenizer()]))
def test_an_export_of_any_sessions_holds(lines: list[str], kind: str, policies: SamplePolicies, tokenizer: WordTokenizer | None) -> None:
    report = check(lines, kind, policies, tokenizer)
    assert [problem for problem in report.problems if not any(known in problem for known in LEFT_OUT)] == []


@st.composite
def conversations(draw: st.DrawFn) -> MessageGraph:
    """Any messages, some of them sampled, some with a chat attached, behind any overlay."""
    graph = MessageGraph(seed="any")
    for number, message in enumerate(draw(st.lists(messages, min_size=1, max_size=7))):
        if draw(st.booleans()):
            turn = graph.prepare(
                tools=draw(st.sampled_from([None, [{"type": "function", "function": {"name": "\ud83d", "parameters": {"a": 1.0}}}]])),
                ephemeral=draw(st.sampled_from([None, "Secretly."])),
                system=draw(st.sampled_from([None, "Be kind.", "Be brief."])),
                keep_reasoning=draw(st.sampled_from(["none", "current_turn", "all"])),
            )
            graph.commit(turn, message, call=draw(records(number)), adopt=draw(st.booleans()))
        elif draw(st.booleans()):
            inner = MessageGraph([message], seed=f"inner {number}")
            inner.append({"role": "assistant", "content": "inside"}, call=draw(records(100 + number)))
            graph.append({**message, "metadata": {"chat": inner}})
        elif isinstance(message.get("content"), str) and draw(st.booleans()):
            graph.append({**message, "content": f"It is Sunday.\n\n{message['content']}", "metadata": {"note": "It is Sunday."}})
        else:
            graph.append(message)
    for response in graph.responses():
        graph.annotate(response, **draw(st.sampled_from([{}, {"reward": 1}, {"advantage": -0.5, "reward": 0}, {"rollout": "\ud800apart"}])))
    return graph


@st.composite
def records(draw: st.DrawFn, number: int) -> CallRecord:
    ids = st.lists(st.integers(0, 3), max_size=4)
    completion = draw(st.none() | ids)
    scores = draw(st.lists(st.sampled_from([-0.1, 0.0, float("-inf"), 2.0]), max_size=len(completion or ())))
    return CallRecord(
        model=draw(st.sampled_from([None, "m", "scripted"])),
        policy_version=draw(st.sampled_from([None, "7", "step-1"])),
        policy_spans=draw(st.sampled_from([None, [("3", 0, 1), ("4", 1, 3)], [("5", 1, 1)]])),
        sampling=draw(st.sampled_from([None, {"parallel_tool_calls": False, "temperature": 0.5, "stop": ["x"]}])),
        finish_reason=draw(st.sampled_from([None, "stop", "odd"])),
        usage=draw(
            st.sampled_from([None, {"completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1}}, {"prompt_tokens": None}])
        ),
        tokenizer=draw(st.sampled_from([None, "t", "u"])),
        prompt_token_ids=draw(st.none() | ids),
        prompt_derived=draw(st.booleans()),
        token_ids=completion,
        logprobs=scores,
        sample_id=f"{number}",
    )


@ANY
@pytest.mark.parametrize("kind", ["sharegpt", BARE, "llamafactory", "openai", "atif", "verifiers", "agentlightning", "verl", "tree"])
@given(graph=conversations(), tokenizer=st.sampled_from([None, WordTokenizer()]))
def test_an_export_of_any_messages_holds(kind: str, graph: MessageGraph, tokenizer: WordTokenizer | None) -> None:
    assert check([graph.to_json()], kind, SamplePolicies(derived="include"), tokenizer).problems == ()
