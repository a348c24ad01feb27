"""How a turn went: its attempts, each with its steps in plot order, whatever order the journal's rows have.

The journal has one row for each event. The notes of an attempt are written together, at its end, and an effect's row may be finished by a
later attempt than the one that began it. `build_timeline` puts them in order. Knows no store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from hermes.ports.events import EFFECT_NAMES
from hermes.ports.runtime import Transaction

if TYPE_CHECKING:
    from hermes.ports.sessions import JournalEvent

STEP_EVENT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "resolve_user": "user_resolved",
        "take_credit": "credit_reserved",
        "load_soul": "soul_loaded",
        "load_history": "history_loaded",
        "route_image": "intent_classified",
        "build_messages": "messages_built",
        "gate_tools": "tools_gated",
        "call_model": "model_answered",
        "run_tools": "tools_finished",
        "record": "turn_recorded",
    }
)
"""The ten steps in plot order, each with the event that the journal has of it."""

PLOT = tuple(STEP_EVENT_NAMES)
STEP_OF_EVENT: Mapping[str, str] = MappingProxyType({event: step for step, event in STEP_EVENT_NAMES.items()})
STEP_OF_EFFECT: Mapping[str, str] = MappingProxyType({"call_model": "call_model", "run_tools": "run_tools", "compact": "load_history"})
"""The step that has an effect, by the name under which the journal keeps the effect."""

ATTEMPT_FAILED, ATTEMPT_CUT_OFF, FALLBACK_USED = "attempt_failed", "attempt_cut_off", "fallback_used"
ATTEMPT_EVENTS = frozenset({"credit_posted", "credit_voided", FALLBACK_USED, ATTEMPT_FAILED, ATTEMPT_CUT_OFF})
"""Events of an attempt that are no steps. Every other event came after the turn: deliveries, memory_saved."""


class AttemptEnd(StrEnum):
    """How an attempt at a turn ended."""

    RUNNING = "running"
    ENDED = "ended"
    """It ended the turn: with an answer, a fallback or an apology."""
    FAILED = "failed"
    """A step raised an error that left the turn open."""
    CUT_OFF = "cut_off"
    """It left no trace: its process was killed, lost the claim or could not reach the store; or it was one of an earlier version."""


@dataclass(frozen=True, slots=True)
class TimelineEffect:
    """A model call or a tool run."""

    name: str
    """The journal's name of the effect: call_model, run_tools, compact."""
    index: int
    type: str
    """The event that a reader sees: llm_called, tool_invoked."""
    started_at: datetime
    done_at: datetime | None
    """None: it was cut off, or runs now."""
    us: int | None
    """How long it took in the attempt that finished it."""
    facts: Mapping[str, Any]
    has_content: bool
    """False once the journal's retention or an erasure has emptied its request and result."""


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A step that an attempt reached."""

    step: str
    began_us: int | None
    """Microseconds after the attempt's claim; None in rows of an earlier version."""
    us: int | None
    """How long it took; None if it did not end. For `record`: until its last statement, because no row can hold its own commit."""
    facts: Mapping[str, Any]
    error: str | None = None
    """The error that the step raised."""
    effects: Sequence[TimelineEffect] = ()


@dataclass(frozen=True, slots=True)
class TurnAttempt:
    """One attempt at a turn, by one process."""

    attempt: int
    """As it was counted. An attempt that failed because a store was down is not counted, and the next one has the same number."""
    epoch: int | None
    """The epoch of its claim, different for each attempt; None in rows of an earlier version."""
    worker: UUID | None
    began_at: datetime | None
    """When it was claimed, by the store's clock."""
    end: AttemptEnd
    steps: Sequence[TimelineStep]
    """In plot order. Steps that it did not reach are absent."""
    step: str | None = None
    """The step at which it failed, fell back or was cut off, as far as that is known."""
    error: str | None = None
    events: Sequence[JournalEvent] = ()
    """Its events that are no steps: credit_posted, fallback_used, …"""


@dataclass(frozen=True, slots=True)
class TurnTimeline:
    """How a turn went."""

    turn_id: UUID
    state: str
    """`running`, `done` or `dead`."""
    attempts: Sequence[TurnAttempt]
    later: Sequence[JournalEvent]
    """What became of it afterwards, in order: deliveries, memory_saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The newest attempt at a turn, as it is stored."""

    state: str
    epoch: int
    attempt: int
    worker: UUID | None
    claimed_at: datetime | None


class TurnTimelines(Protocol):
    """Reads how turns went, without any content. Fails closed."""

    async def read(self, tx: Transaction, turn_id: UUID) -> TurnTimeline | None:
        """Return the timeline of a turn; None for a turn that no worker has claimed."""
        ...


def build_timeline(turn_id: UUID, run: RunRecord, events: Sequence[JournalEvent]) -> TurnTimeline:
    """Put the events of a turn in order."""
    own = [event for event in events if is_of_attempt(event)]
    attempts = [build_attempt(group, run) for group in group_by_attempt(own, run)]
    return TurnTimeline(turn_id, run.state, attempts, [event for event in events if not is_of_attempt(event)])


def is_of_attempt(event: JournalEvent) -> bool:
    return is_effect(event) or event.type in STEP_OF_EVENT or event.type in ATTEMPT_EVENTS


def is_effect(event: JournalEvent) -> bool:
    return event.step in STEP_OF_EFFECT


def step_of_effect(event: JournalEvent) -> str:
    """The step that has the effect. The second model call is made in step run_tools, with what the tools brought."""
    is_second_call = event.step == "call_model" and event.index > 0
    return "run_tools" if is_second_call else STEP_OF_EFFECT[event.step]


@dataclass(slots=True)
class AttemptRows:
    """The events of one attempt, before they are in order."""

    attempt: int
    epoch: int | None
    events: list[JournalEvent]

    def find(self, type_: str) -> JournalEvent | None:
        return next((event for event in self.events if event.type == type_), None)


def group_by_attempt(events: Iterable[JournalEvent], run: RunRecord) -> list[AttemptRows]:
    """The events by attempt, oldest attempt first, and always with the newest attempt.

    An epoch belongs to one attempt. Rows of an earlier version have none; they go to the attempt of the same number."""
    groups = {run.epoch: AttemptRows(run.attempt, run.epoch, [])}
    unnumbered: dict[int, AttemptRows] = {}
    for event in events:
        if event.epoch is not None:
            groups.setdefault(event.epoch, AttemptRows(event.attempt, event.epoch, [])).events.append(event)
        else:
            unnumbered.setdefault(event.attempt, AttemptRows(event.attempt, None, [])).events.append(event)
    found = list(groups.values())
    for attempt, rows in unnumbered.items():
        same = [group for group in groups.values() if group.attempt == attempt]
        if same:
            same[-1].events.extend(rows.events)
        else:
            found.append(rows)
    return sorted(found, key=lambda rows: (rows.attempt, rows.epoch or 0))


def build_attempt(rows: AttemptRows, run: RunRecord) -> TurnAttempt:
    is_newest = rows.epoch == run.epoch
    failed, cut_off, fell_back = (rows.find(type_) for type_ in (ATTEMPT_FAILED, ATTEMPT_CUT_OFF, FALLBACK_USED))
    if failed is not None:
        end = AttemptEnd.FAILED
    elif is_newest:
        end = AttemptEnd.RUNNING if run.state == "running" else AttemptEnd.ENDED
    elif fell_back is not None:  # it apologised, and an operator revived the message afterwards
        end = AttemptEnd.ENDED
    else:
        end = AttemptEnd.CUT_OFF
    began_at = find_beginning(rows, run if is_newest else None)
    last = failed or cut_off or fell_back
    return TurnAttempt(
        rows.attempt,
        rows.epoch,
        find_worker(rows, run if is_newest else None),
        began_at,
        end,
        build_steps(rows, began_at),
        step=None if last is None else last.facts.get("step"),
        error=None if last is None else last.facts.get("error"),
        events=[event for event in rows.events if event.type in ATTEMPT_EVENTS],
    )


def find_worker(rows: AttemptRows, run: RunRecord | None) -> UUID | None:
    named = [event.facts["worker"] for event in rows.events if event.facts.get("worker")]
    return UUID(named[0]) if named else run.worker if run is not None else None


def find_beginning(rows: AttemptRows, run: RunRecord | None) -> datetime | None:
    """When the attempt was claimed: as its notes say, or as the run or the event of its cut does; else when its first effect began."""
    for event in rows.events:
        if "began_us" in event.facts:
            return event.started_at - timedelta(microseconds=event.facts["began_us"])
    if run is not None and run.claimed_at is not None:
        return run.claimed_at
    cut_off = rows.find(ATTEMPT_CUT_OFF)
    return cut_off.started_at if cut_off else min((event.started_at for event in rows.events), default=None)


def build_steps(rows: AttemptRows, began_at: datetime | None) -> list[TimelineStep]:
    effects: dict[str, list[TimelineEffect]] = {}
    for event in rows.events:
        if is_effect(event):
            effects.setdefault(step_of_effect(event), []).append(read_effect(event))
    steps: dict[str, TimelineStep] = {}
    for event in rows.events:
        step = step_of_note(event)
        if step in STEP_EVENT_NAMES:
            steps[step] = read_step(step, event, effects.get(step, ()))
    for step, made in effects.items():
        if step not in steps:  # the attempt was cut off within the step, or is at it now
            began_us = None if began_at is None else max(0, round((made[0].started_at - began_at) / timedelta(microseconds=1)))
            steps[step] = TimelineStep(step, began_us, None, {}, effects=made)
    return [steps[step] for step in PLOT if step in steps]


def step_of_note(event: JournalEvent) -> str:
    """The step that an event tells of, also one that raised an error; empty for every other event."""
    if event.type in (ATTEMPT_FAILED, FALLBACK_USED):
        return str(event.facts.get("step", ""))
    return STEP_OF_EVENT.get(event.type, "")


def read_step(step: str, event: JournalEvent, effects: Sequence[TimelineEffect]) -> TimelineStep:
    facts = {name: value for name, value in event.facts.items() if name not in ("began_us", "us", "step", "error", "worker")}
    us = event.facts.get("us")
    if us is None and "ms" in event.facts:
        us = 1_000 * event.facts["ms"]
    return TimelineStep(step, event.facts.get("began_us"), us, facts, event.facts.get("error"), effects)


def read_effect(event: JournalEvent) -> TimelineEffect:
    type_ = EFFECT_NAMES.get(event.step, event.type)
    facts = {name: value for name, value in event.facts.items() if name != "us"}
    return TimelineEffect(event.step, event.index, type_, event.started_at, event.done_at, event.facts.get("us"), facts, event.has_content)
