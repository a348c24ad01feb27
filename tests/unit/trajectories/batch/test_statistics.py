"""What a run came to."""

from hermes.trajectories.batch.rollout import RolloutEntry, RolloutOutcome
from hermes.trajectories.batch.statistics import pass_at, pass_at_ks, spread, statistics_of


def entry(item: str, rollout: int, **more: object) -> RolloutEntry:
    return RolloutEntry(item=item, rollout=rollout, digest="d", **{"outcome": RolloutOutcome.COMPLETED, **more})  # type: ignore[arg-type]


def test_sums_tools_outcomes_and_rewards_up() -> None:
    entries = [
        entry("a", 0, reward=1.0, calls=2, prompt_tokens=30, completion_tokens=10, micro_usd=1_000_000, seconds=1.0,
              tools={"x": {"done": 3, "failed": 1}}, finish_reasons={"stop": 1, "tool_calls": 1}, toolsets=["t"]),
        entry("a", 1, reward=0.0, calls=4, outcome=RolloutOutcome.MAX_TURNS, seconds=3.0, retries=2),
        entry("b", 0, reward=0.0, calls=1, tools={"x": {"timed_out": 1}, "(unknown)": {"unknown": 2}}, toolsets=["t"]),
        entry("b", 1, outcome=RolloutOutcome.ERROR, reason="down"),
        entry("c", 0, verify_error="KeyError"),
    ]  # fmt: skip
    aside = [entry("a", 0, outcome=RolloutOutcome.INTERRUPTED, prompt_tokens=5, completion_tokens=2, micro_usd=500_000)]
    sums = statistics_of(entries, aside)
    assert sums.to_dict() == {
        "items": 3,
        "rollouts": 5,
        "failed": 1,
        "outcomes": {"completed": 3, "error": 1, "max_turns": 1},
        "finish_reasons": {"stop": 1, "tool_calls": 1},
        "turns": {"mean": 1.4, "min": 0.0, "median": 1.0, "p95": 4.0, "max": 4.0},
        "messages": {"mean": 0.0, "min": 0.0, "median": 0.0, "p95": 0.0, "max": 0.0},
        "seconds": {"mean": 0.8, "min": 0.0, "median": 0.0, "p95": 3.0, "max": 3.0},
        "tokens": {"prompt": 30, "completion": 10, "total": 40, "mean": 8.0},
        "cost_usd": {"total": 1.0, "mean": 0.2},
        "retries": 2,
        "subagents": 0,
        "tools": {
            "(unknown)": {"calls": 2, "unknown": 2, "success_rate": 0.0},
            "x": {"calls": 5, "done": 3, "failed": 1, "timed_out": 1, "success_rate": 0.6},
        },
        "toolsets": {"t": 2},
        "rewards": {
            "scored": 3, "verify_errors": 1, "mean": 0.333333, "std": 0.471405, "min": 0.0, "max": 1.0, "pass_mark": 1.0,
            "pass_at": {"1": 0.25, "2": 1.0}, "items_all_equal": 0,
        },
        "aside": {"rollouts": 1, "tokens": 7, "cost_usd": 0.5},
    }  # fmt: skip
    assert next(sums.item_lines()) == (
        '{"id": "a", "rollouts": 2, "outcomes": {"completed": 1, "max_turns": 1}, '
        '"reward": {"mean": 0.5, "max": 1.0, "all": [1.0, 0.0]}, "pass_at": {"1": 0.5, "2": 1.0}}\n'
    )


def test_pass_at_k_is_what_drawing_would_give() -> None:
    assert [pass_at(4, passed, 2) for passed in range(5)] == [0.0, 0.5, 1 - 1 / 6, 1.0, 1.0]
    assert [pass_at_ks(most) for most in (1, 2, 3, 4, 6)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 6]]


def test_nothing_at_all_is_summed_up_too() -> None:
    assert statistics_of([]).to_dict()["rewards"] == {"scored": 0, "verify_errors": 0}
    assert spread([]) == {}


def test_an_entry_is_the_same_after_it_was_written() -> None:
    known = entry("a", 0, reward=0.0, toolsets=["t"], metrics={"x": 1}, tools={"y": {"done": 1}})
    assert RolloutEntry.from_dict(known.to_dict() | {"of a later": "Hermes"}) == known
    assert known.to_dict()["reward"] == 0.0
