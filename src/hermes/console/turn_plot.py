"""The ten steps of a turn as rows to draw: for each attempt all ten in plot order, with their bars and what is known of each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from hermes.console.amounts import count_phrase, show_ms, show_usd
from hermes.console.why import is_failure, say_failure, short, step_of
from hermes.ports.models import ModelCall
from hermes.ports.timeline import PLOT, AttemptEnd, TimelineEffect, TimelineStep, TurnAttempt, TurnTimeline

BAR_WIDTH = 1_000
"""The width of the drawing, in its own units: an attempt from its claim to its end."""
MIN_BAR = 4


class RowState(StrEnum):
    """How far a step came."""

    DONE = "done"
    FAILED = "failed"
    CUT_OFF = "cut off"
    RUNNING = "running"
    UNRECORDED = "no record"
    """It was done, or not: its worker was killed, and an attempt is noted at its end."""
    UNREACHED = "not reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotEffect:
    """A model call or a tool within a step."""

    label: str
    ms: float | None
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotRow:
    """One step of one attempt."""

    number: int
    """1 to 10."""
    step: str
    state: RowState
    began_ms: float | None = None
    ms: float | None = None
    bar_x: int = 0
    bar_width: int = 0
    """0: there is nothing to draw."""
    facts: str = ""
    error: str | None = None
    effects: Sequence[PlotEffect] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotAttempt:
    """One attempt: its title, and its ten rows."""

    attempt: int
    title: str
    end: AttemptEnd
    worker: UUID | None
    is_last: bool
    total_ms: float
    rows: Sequence[PlotRow]


def plot_turn(timeline: TurnTimeline | None, calls: Sequence[ModelCall] = ()) -> list[PlotAttempt]:
    """The attempts of a turn, the oldest first. A turn that no worker has claimed has one attempt of ten steps that were not reached.

    `calls`: those of the turn. Their models that failed are drawn in the steps that asked them, while the turn has one attempt: with
    more, no record says which attempt made a call."""
    if timeline is None:
        rows = [PlotRow(number=number, step=step, state=RowState.UNREACHED) for number, step in enumerate(PLOT, 1)]
        return [PlotAttempt(attempt=0, title="not begun", end=AttemptEnd.RUNNING, worker=None, is_last=True, total_ms=0, rows=rows)]
    told = calls if len(timeline.attempts) == 1 else ()
    return [plot_attempt(attempt, told, is_last=place == len(timeline.attempts)) for place, attempt in enumerate(timeline.attempts, 1)]


def plot_attempt(attempt: TurnAttempt, calls: Sequence[ModelCall], *, is_last: bool) -> PlotAttempt:
    reached = {step.step: step for step in attempt.steps}
    total_us = max([1, *((step.began_us or 0) + duration_us(step) for step in attempt.steps)])
    return PlotAttempt(
        attempt=attempt.attempt,
        title=title_of(attempt),
        end=attempt.end,
        worker=attempt.worker,
        is_last=is_last,
        total_ms=total_us / 1_000 if attempt.steps else 0,
        rows=[plot_row(number, step, reached.get(step), attempt, total_us=total_us, calls=calls) for number, step in enumerate(PLOT, 1)],
    )


def title_of(attempt: TurnAttempt) -> str:
    """`cut off at call_model by worker 3f2a91bc`."""
    by = f" by worker {short(attempt.worker)}" if attempt.worker else ""
    at = f" at {attempt.step}" if attempt.step else ""
    match attempt.end:
        case AttemptEnd.CUT_OFF:
            return f"cut off{at}{by}"
        case AttemptEnd.FAILED:
            return f"failed{at}{f' ({attempt.error})' if attempt.error else ''}{by}"
        case AttemptEnd.RUNNING:
            return f"runs{by}"
    return f"fell back{at}{f' ({attempt.error})' if attempt.error else ''}{by}" if attempt.error else f"ended{by}"


def duration_us(step: TimelineStep) -> int:
    """How long a step took; of one that did not end, how long its effects did."""
    return step.us if step.us is not None else sum(effect.us or 0 for effect in step.effects)


def plot_row(
    number: int, name: str, step: TimelineStep | None, attempt: TurnAttempt, *, total_us: int, calls: Sequence[ModelCall]
) -> PlotRow:
    if step is None:
        return PlotRow(number=number, step=name, state=state_of_absent(number, attempt))
    began_us, us = max(0, step.began_us or 0), max(0, duration_us(step))
    x = round(began_us / total_us * BAR_WIDTH)
    width = max(MIN_BAR, round(us / total_us * BAR_WIDTH))
    return PlotRow(
        number=number,
        step=name,
        state=state_of(step, attempt),
        began_ms=None if step.began_us is None else began_us / 1_000,
        ms=None if step.us is None else us / 1_000,
        bar_x=min(x, BAR_WIDTH - MIN_BAR),
        bar_width=min(width, BAR_WIDTH - min(x, BAR_WIDTH - MIN_BAR)),
        facts=describe_facts(name, step.facts),
        error=step.error,
        effects=[*plot_failures(name, calls), *(plot_effect(effect, has_failed=step.error is not None) for effect in step.effects)],
    )


def state_of(step: TimelineStep, attempt: TurnAttempt) -> RowState:
    if step.error:
        return RowState.FAILED
    if step.us is not None:
        return RowState.DONE
    return {AttemptEnd.RUNNING: RowState.RUNNING, AttemptEnd.CUT_OFF: RowState.CUT_OFF}.get(attempt.end, RowState.DONE)


def state_of_absent(number: int, attempt: TurnAttempt) -> RowState:
    """The state of a step that the attempt noted nothing of."""
    if attempt.end is not AttemptEnd.CUT_OFF or attempt.step not in PLOT:
        return RowState.UNREACHED
    cut_at = PLOT.index(attempt.step) + 1
    return RowState.UNRECORDED if number < cut_at else RowState.CUT_OFF if number == cut_at else RowState.UNREACHED


def plot_failures(step: str, calls: Sequence[ModelCall]) -> list[PlotEffect]:
    """The models that failed in a step, before another one answered or none did."""
    failed = [attempt for call in calls if step_of(call) == step for attempt in call.attempts if is_failure(attempt)]
    return [PlotEffect(label=f"{attempt.name} {say_failure(attempt)}", ms=attempt.ms, is_error=True) for attempt in failed]


def plot_effect(effect: TimelineEffect, *, has_failed: bool) -> PlotEffect:
    facts, ms = effect.facts, None if effect.us is None else effect.us / 1_000
    if effect.name == "run_tools":
        return PlotEffect(label=str(facts.get("name", "tool")), ms=ms, is_error=bool(facts.get("is_error")))
    what = {"compact": "summary", "call_model": "call" if effect.index == 0 else "call after tools"}.get(effect.name, effect.name)
    if effect.done_at is None:
        return PlotEffect(label=f"{what}: no answer" if has_failed else f"{what} has not ended", ms=None, is_error=True)
    parts = [f"{facts.get('tokens_in', 0):,} → {facts.get('tokens_out', 0):,} tokens", show_usd(facts.get("micro_usd"))]
    cached = ["from the cache"] if facts.get("copy_of") else []
    model = f" to {facts['model']}" if facts.get("model") and effect.index else ""  # the step's own facts name the model of the first call
    return PlotEffect(label=" · ".join([f"{what}{model}", *parts, *cached]), ms=ms, is_error=False)


# --- what is known of each step, in a few words


def describe_facts(step: str, facts: Mapping[str, Any]) -> str:
    """The facts of a step in a few words. Names and numbers: the journal's facts have no text of a message."""
    return " · ".join(part for part in FACT_WORDS[step](facts) if part)


def describe_user(facts: Mapping[str, Any]) -> list[str]:
    return [str(facts[name]) for name in ("agent", "tier", "language") if facts.get(name)]


def describe_soul(facts: Mapping[str, Any]) -> list[str]:
    layers, recalled = facts.get("layers") or (), facts.get("recalled") or ()
    chars = sum(int(layer.get("chars", 0)) for layer in layers)
    return [
        f"{count_phrase(len(layers), 'layer')}, {count_phrase(chars, 'character')}" if layers else "",
        f"{count_phrase(len(recalled), 'fact')} recalled" if recalled else "recall found nothing" if facts.get("is_recall_used") else "",
    ]


def describe_history(facts: Mapping[str, Any]) -> list[str]:
    words = [count_phrase(int(facts["messages"]), "message")] if "messages" in facts else []
    return [*words, "compacted" if facts.get("is_compacted") else "", "could not be read" if facts.get("is_missing") else ""]


def describe_messages(facts: Mapping[str, Any]) -> list[str]:
    names = (("messages", "message"), ("characters", "character"))
    return [count_phrase(int(facts[name]), thing) for name, thing in names if name in facts]


def describe_gate(facts: Mapping[str, Any]) -> list[str]:
    return [f"set {facts['subset']}" if facts.get("subset") else "", count_phrase(int(facts["tools"]), "tool") if "tools" in facts else ""]


def describe_model(facts: Mapping[str, Any]) -> list[str]:
    calls = int(facts.get("tool_calls") or 0)
    return [
        str(facts.get("model") or ""),
        f"at {facts['backend']}" if facts.get("backend") else "",
        f"asks for {count_phrase(calls, 'tool')}" if calls else "",
    ]


def describe_tools(facts: Mapping[str, Any]) -> list[str]:
    tools, errors = int(facts.get("tools") or 0), int(facts.get("errors") or 0)
    return [count_phrase(tools, "tool") if tools else "no tool", f"{errors} failed" if errors else ""]


FACT_WORDS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = MappingProxyType(
    {
        "resolve_user": describe_user,
        "take_credit": lambda _: [],
        "load_soul": describe_soul,
        "load_history": describe_history,
        "route_image": lambda facts: [str(facts.get("intent") or "")],
        "build_messages": describe_messages,
        "gate_tools": describe_gate,
        "call_model": describe_model,
        "run_tools": describe_tools,
        "record": lambda facts: [str(facts.get("outcome") or "")],
    }
)


def write_plot_line(row: PlotRow) -> str:
    """A row as text, for terminals: `call_model   done   812 ms   haiku · at anthropic`."""
    told = [row.facts, *(f"{effect.label}{f' {show_ms(effect.ms)}' if effect.ms is not None else ''}" for effect in row.effects)]
    return " · ".join(part for part in [row.error or "", *told] if part)
