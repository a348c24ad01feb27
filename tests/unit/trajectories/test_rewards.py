"""Annotations become rewards by name, of a response or of a rollout, and rewards of a group become advantages."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hermes import CallRecord, MessageGraph
from hermes.trajectories.calls import SamplePolicies, read_calls
from hermes.trajectories.errors import AnnotationError, TrajectorySettingsError
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.rewards import RewardRule, group_advantages
from hermes.trajectories.source import ExportSession
from hermes.trajectories.verify import verify


def session(*notes: dict[str, Any] | list[dict[str, Any]]) -> ExportSession:
    """A session in which several rollouts answer one question, one answer each, with these annotations."""
    chat = MessageGraph([{"role": "user", "content": "q"}], seed="r")
    turn = chat.prepare()
    for number, known in enumerate(notes):
        call = CallRecord(sample_id=str(number), prompt_token_ids=[1], token_ids=[10 + number], logprobs=[-1.0])
        response = chat.commit(turn, {"role": "assistant", "content": f"a{number}"}, call)
        for note in ({"rollout": f"r{number}"}, *(known if isinstance(known, list) else [known])):
            chat.annotate(response, **note)
    return ExportSession("s", chat)


def rewards(one: ExportSession, *rules: str, **policies: Any) -> list[tuple[float | None, float | None, float]]:
    """Reward, rollout reward and advantage of each sample."""
    known = SamplePolicies(rewards=tuple(map(RewardRule.parse, rules)), **policies)
    return [(call.reward, call.rollout_reward, call.effective_advantage) for call in read_calls(one, known)]


def test_an_annotation_of_any_name_is_the_reward_of_its_response_and_the_last_one_that_of_the_rollout() -> None:
    one = session({"score": 0.5, "reward": 9.0}, {"score": True}, {"reward": 9.0})
    assert rewards(one) == [(9.0, 9.0, 9.0), (None, None, 0.0), (9.0, 9.0, 9.0)]
    assert rewards(one, "score") == [(0.5, 0.5, 0.5), (1.0, 1.0, 1.0), (None, None, 0.0)]


def test_an_annotation_can_be_the_reward_of_the_rollout_alone() -> None:
    one = session({"task": 1}, {"task": 0, "rollout_reward": 5.0})
    assert rewards(one, "task:rollout") == [(None, 1.0, 1.0), (None, 0.0, 0.0)]
    assert rewards(one, "style", "task:rollout") == [(None, 1.0, 1.0), (None, 0.0, 0.0)]


def test_a_value_of_an_annotation_is_worth_one_and_every_other_nothing() -> None:
    one = session({"outcome": "completed"}, {"outcome": "max_turns"}, {})
    assert rewards(one, "outcome=completed:rollout") == [(None, 1.0, 1.0), (None, 0.0, 0.0), (None, None, 0.0)]


def test_a_reaction_counts_with_its_own_reward_whatever_is_annotated_later() -> None:
    liked = {"reaction": "👍", "reaction_by": "a", "reward": 1.0}
    taken_back = {"reaction": "", "reaction_by": "a", "reward": None}
    one = session([liked, {"reward": 0.2}], [liked, taken_back], {"reward": 0.3})
    assert rewards(one, "reaction") == [(1.0, 1.0, 1.0), (None, None, 0.0), (None, None, 0.0)]


def test_the_advantage_in_a_group_is_what_a_rollout_is_better_than_the_mean() -> None:
    one = session({"task": 1}, {"task": 0}, {"task": 0}, {"task": 1, "advantage": 7.0}, {})
    by_task = rewards(one, "task:rollout", advantages="group")
    assert by_task == [(None, 1.0, 0.5), (None, 0.0, -0.5), (None, 0.0, -0.5), (None, 1.0, 7.0), (None, None, 0.0)]
    normalised = [advantage for *_, advantage in rewards(one, "task:rollout", advantages="grpo")]
    assert normalised == [*[pytest.approx(sign * 0.5 / (3**-0.5 + 1e-6), rel=1e-12) for sign in (1, -1, -1)], 7.0, 0.0]


def test_a_group_of_one_or_of_equals_has_no_advantage() -> None:
    assert group_advantages({"a": 3.0}, "grpo") == {"a": 0.0}
    assert group_advantages({"a": 3.0, "b": 3.0}, "grpo") == {"a": 0.0, "b": 0.0}
    assert group_advantages({"a": 3.0}, "reward") == {}
    assert group_advantages({}, "group") == {}


@pytest.mark.parametrize("value", ["high", [1]])
def test_a_value_that_is_no_number_is_an_error_and_not_a_reward_that_goes_unnoticed(value: Any) -> None:
    with pytest.raises(AnnotationError, match=r"annotation score=.* of response .* is not a number"):
        rewards(session({"score": value}), "score")


@pytest.mark.parametrize("text", ["", ":rollout", "=1", "score:session", "score:"])
def test_a_rule_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(TrajectorySettingsError, match="expected NAME"):
        RewardRule.parse(text)


def test_two_rewards_for_one_scope_are_refused() -> None:
    with pytest.raises(TrajectorySettingsError, match="only one annotation can be the reward of a response, not a and b"):
        SamplePolicies(rewards=(RewardRule("a"), RewardRule("b")))


def test_the_export_has_the_advantages_and_says_how_they_were_made(tmp_path: Path) -> None:
    one = session({"task": 1}, {"task": 0})
    settings = ExportSettings(policies=SamplePolicies(rewards=(RewardRule("task", None, "rollout"),), advantages="group"))
    summary = export([one], tmp_path / "out", settings, FORMATS)
    rows = pq.read_table(tmp_path / "out" / "rows.parquet").to_pylist()
    assert [(row["reward"], row["advantages"]) for row in rows] == [(1.0, [0.0, 0.5]), (0.0, [0.0, -0.5])]
    policies = summary.manifest["settings"]["policies"]
    assert (policies["rewards"], policies["advantages"]) == ([{"name": "task", "value": None, "scope": "rollout"}], "group")
    assert summary.manifest["nonzero_advantages"] == 2
    (tmp_path / "g.json").write_text(one.graph.to_json())
    assert verify(tmp_path / "out", [tmp_path / "g.json"]).problems == ()
    assert json.loads((tmp_path / "out" / "ledger.jsonl").read_text().splitlines()[0]) == json.loads(json.dumps(summary.manifest))
