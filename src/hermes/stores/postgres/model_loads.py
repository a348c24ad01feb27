"""What each model did today and how fast it was lately, from the rows of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

from hermes.ports.models import ModelAddress
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import fetch_rows
from hermes.stores.postgres.queries import load_queries

CALLS = load_queries("model_calls")


class ModelLoad(NamedTuple):
    """The answers of one model of a backend on a day."""

    backend: str
    model: str
    answers: int
    recent_answers: int
    """Of the last 15 minutes, as the two below."""
    p50_ms: float | None
    tokens_per_s: float | None


class ModelFailures(NamedTuple):
    """The failed attempts of one model on a day."""

    name: str
    failures: int


async def read_loads(tx: Transaction, day: date) -> Mapping[ModelAddress, ModelLoad]:
    loads: Sequence[ModelLoad] = await fetch_rows(tx, ModelLoad, CALLS["model_loads"], {"day": day})
    return {ModelAddress(load.backend, load.model): load for load in loads}


async def read_failures(tx: Transaction, day: date) -> Mapping[str, int]:
    """Failed attempts by the model's name in its chain."""
    return dict(await fetch_rows(tx, ModelFailures, CALLS["model_failures"], {"day": day}))
