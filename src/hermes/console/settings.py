"""The settings as operators see them: values with their origins, models with their prices, tiers.

They never change while a process runs, so they are read once. Secrets are not among them: only whether they are set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum


class SettingOrigin(StrEnum):
    """Where a value comes from."""

    DEFAULT = "default"
    FILE = "file"
    """The settings file, or an option of the command that started Hermes."""
    VARIABLE = "variable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingLine:
    """One setting with its value."""

    section: str
    """Empty at the top of the file."""
    name: str
    value: str
    """As the file writes it; `set` or `not set` for a secret."""
    origin: SettingOrigin
    variable: str
    """The variable that sets it; empty if there is none."""
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLine:
    """A model and its price of today, in micro-dollars for a million tokens."""

    name: str
    id: str
    backend: str
    stands_for: str | None
    """The id of the model in whose place it answers."""
    tokens_in: int
    tokens_out: int
    cache_read: int
    cache_write: int
    since: date
    long_prompt_tokens: int | None
    """Prompts above this have another price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLine:
    """A tier: its models in the order in which they are tried, and its tokens."""

    name: str
    chain: tuple[str, ...]
    day_tokens: int | None
    """None: as many as its users want."""
    month_tokens: int | None


@dataclass(frozen=True, slots=True)
class SettingsOverview:
    """All settings of a process."""

    settings: Sequence[SettingLine]
    models: Sequence[ModelLine]
    tiers: Sequence[TierLine]


class SettingsReader:
    """Shows the settings of this process."""

    def __init__(self, read: Callable[[], SettingsOverview]) -> None:
        """`read` may take long: it is called once, in a thread."""
        self._read = read
        self._overview: SettingsOverview | None = None

    async def overview(self) -> SettingsOverview:
        """Return the settings."""
        if self._overview is None:
            self._overview = await asyncio.to_thread(self._read)
        return self._overview
