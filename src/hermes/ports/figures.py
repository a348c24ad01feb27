"""Figures about all of Hermes, as its stores hold them: how long the queues are, which chore is held, what is spent today.

They are the same in every process, so one process reads them for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreFigure:
    """One figure: `StoreFigure("queue_length", ("inbox",), 3.0)`."""

    name: str
    labels: tuple[str, ...]
    """What the figure is about: a queue, a chore, a role and its state. The name says how many there are."""
    value: float


FigureReader = Callable[[], Awaitable[Sequence[StoreFigure]]]
"""Reads all figures of one store. May raise: then the figures of that store are not shown."""
