"""Tiers and models as data: who may use which models, in which order, how much, and what each model can do.

The values are those of 2026-11-15. Whoever runs Hermes changes them in the settings; nothing here is asked for by name elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hermes.ports.backends import Capabilities
from hermes.ports.errors import NotThere

DAYS_A_MONTH = 30


@dataclass(frozen=True, slots=True)
class Model:
    """A model by the name that tiers use."""

    backend: str
    id: str
    """As its vendor calls it."""
    max_tokens: int
    """The longest answer that is paid for. Thinking counts as answer."""
    capabilities: Capabilities = field(default_factory=Capabilities)


@dataclass(frozen=True, slots=True)
class Tier:
    """What a group of users gets: models in the order in which they are tried, and tokens a day."""

    chain: tuple[str, ...]
    day_tokens: int

    @property
    def month_tokens(self) -> int:
        return self.day_tokens * DAYS_A_MONTH


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All tiers and models."""

    tiers: Mapping[str, Tier]
    models: Mapping[str, Model]

    def __post_init__(self) -> None:
        """Refuse a chain with a model that nobody knows: it would fail at the first message, and not at the start."""
        for name, tier in self.tiers.items():
            unknown = [model for model in tier.chain if model not in self.models]
            if unknown or not tier.chain:
                raise ValueError(f"tier {name}: " + (f"there is no model {unknown[0]}" if unknown else "the chain is empty"))

    def tier(self, name: str) -> Tier:
        """Return a tier; raise NotThere."""
        try:
            return self.tiers[name]
        except KeyError:
            raise NotThere(f"there is no tier {name}; there are {', '.join(self.tiers)}") from None

    def capabilities_of(self, backend: str) -> dict[str, Capabilities]:
        """What the models of one backend can do, by the vendor's names."""
        return {model.id: model.capabilities for model in self.models.values() if model.backend == backend}


CLAUDE = Capabilities(tools=True, vision=True, sampling=True, prefill=True, context=200_000, cache_floor=4_096)

USUAL = Catalogue(
    tiers={
        "free": Tier(("claude-haiku",), 50_000),
        "starter": Tier(("claude-haiku", "ollama"), 200_000),
        "pro": Tier(("claude-sonnet",), 1_000_000),
        "venue-growth": Tier(("claude-sonnet", "claude-haiku"), 500_000),
    },
    models={
        "claude-haiku": Model("anthropic", "claude-haiku-4-5-20251001", 1_024, CLAUDE),
        "claude-sonnet": Model(
            "anthropic",
            "claude-sonnet-4-6",
            2_048,
            Capabilities(tools=True, vision=True, sampling=True, prefill=False, context=1_000_000, cache_floor=1_024),
        ),
        "ollama": Model("ollama", "llama3.2", 1_024, Capabilities(tools=False, context=8_192)),
    },
)
"""The founding tiers."""
