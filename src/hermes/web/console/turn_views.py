"""How pages draw turns: a chip for the outcome, ten bars for the ten steps, ten dots for where a running turn is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from hermes.console.amounts import show_ms
from hermes.ports.timeline import PLOT
from hermes.ports.turn_list import FAILED_OUTCOMES, ListedKind, ListedTurn, OpenTurn

BAR_WIDTH, BAR_GAP, BAR_HEIGHT = 5, 2, 16
LONGEST_US = 60_000_000
"""A step of a minute has the highest bar. Heights grow with the logarithm: a step of 2 ms can be seen beside one of 20 s."""
DELIVERY_KINDS = {"sent": "ok", "pending": "warn", "attempting": "warn", "ambiguous": "warn", "dead": "bad"}


@dataclass(frozen=True, slots=True)
class StepBar:
    """One bar of the drawing of ten steps."""

    x: int
    y: float
    height: float
    kind: str
    """longest, failed, reached or unreached."""
    title: str


def step_bars(row: ListedTurn) -> list[StepBar]:
    """The ten steps in plot order, as bars."""
    longest = max(row.steps, key=lambda step: row.steps[step], default=None)
    return [draw_step(row, index, step, is_longest=step == longest) for index, step in enumerate(PLOT)]


def draw_step(row: ListedTurn, index: int, step: str, *, is_longest: bool) -> StepBar:
    x, us = index * (BAR_WIDTH + BAR_GAP), row.steps.get(step)
    if us is None:
        return StepBar(x, BAR_HEIGHT - 1, 1, "unreached", f"{step}: not reached")
    share = math.log1p(us / 100) / math.log1p(LONGEST_US / 100)
    height = round(min(max(share, 0.0), 1.0) * (BAR_HEIGHT - 2) + 2, 1)
    kind = "failed" if step == row.step else "longest" if is_longest else "reached"
    return StepBar(x, round(BAR_HEIGHT - height, 1), height, kind, f"{step}: {show_ms(us / 1_000)}")


def describe_steps(row: ListedTurn) -> str:
    """The drawing in words."""
    if not row.steps:
        return "no steps recorded"
    longest = max(row.steps, key=lambda step: row.steps[step])
    return f"{len(row.steps)} of {len(PLOT)} steps; {longest} took longest, {show_ms(row.steps[longest] / 1_000)}"


def step_dots(turn: OpenTurn) -> list[tuple[str, str]]:
    """Where a turn is: each step with `done`, `now` or `later`. Before the model is asked, it is not known which of the steps it is."""
    if not turn.is_running:
        return [(step, "later") for step in PLOT]
    at = PLOT.index(turn.step) if turn.step is not None else 0
    return [(step, "done" if index < at else "now" if index == at else "later") for index, step in enumerate(PLOT)]


def outcome_kind(row: ListedTurn) -> str:
    """The colour of the outcome's chip."""
    if row.outcome == "answered":
        return "ok"
    return "bad" if row.outcome in FAILED_OUTCOMES or row.kind is ListedKind.CALL else "warn"


def delivery_kind(states: str) -> str:
    kinds = {DELIVERY_KINDS.get(state, "") for state in states.split(", ")}
    return next((kind for kind in ("bad", "warn", "ok") if kind in kinds), "")


def row_page(row: ListedTurn) -> str:
    """The address of a row's page."""
    return f"/console/{'turns' if row.kind is ListedKind.TURN else 'calls'}/{row.id}"


def address_with(path: str, fields: Mapping[str, str], **changes: str | None) -> str:
    """An address with these fields, some of them changed; an empty value, or None, leaves a field out."""
    wanted = {name: value for name, value in {**fields, **changes}.items() if value}
    return f"{path}?{urlencode(wanted)}" if wanted else path


VIEWS = {
    "step_bars": step_bars,
    "describe_steps": describe_steps,
    "step_dots": step_dots,
    "outcome_kind": outcome_kind,
    "delivery_kind": delivery_kind,
    "row_page": row_page,
    "address_with": address_with,
}
"""What the templates of these pages call."""
