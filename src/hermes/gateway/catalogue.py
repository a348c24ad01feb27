"""Tiers and models as data: which models a tier may use, in which order, how many tokens, and what each model can do.

The values are those of 2026-11-15. The operator changes them in the settings. Other code names only the tier of new users, `free`, and the
stand-ins that need no API key, `smollm2` and `scripted`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property

from hermes.gateway.prices import Prices
from hermes.ports.backends import Capabilities
from hermes.ports.errors import NotFound
from hermes.ports.models import ModelAddress, UnknownPrice

DAYS_PER_MONTH = 30
REPLAY_TIER = "replay"
"""The tier of replays, which operators pay: any model, and no limit but the day's money for replays."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model by the name that tiers use."""

    backend: str
    id: str
    """The vendor's name of the model."""
    max_tokens: int
    """The longest answer that is paid for, in tokens. Thinking counts as answer."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    stands_for: str | None = None
    """The id of the model in whose place it answers; clients may ask for it by that id too."""

    @property
    def address(self) -> ModelAddress:
        return ModelAddress(self.backend, self.id)


@dataclass(frozen=True, slots=True)
class Tier:
    """What a group of users gets: models in the order in which they are tried, and tokens a day and a month."""

    chain: tuple[str, ...]
    day_tokens: int
    own_month_tokens: int | None = None
    """Tokens a month, where they are not 30 times the tokens of a day."""

    @property
    def month_tokens(self) -> int:
        return self.day_tokens * DAYS_PER_MONTH if self.own_month_tokens is None else self.own_month_tokens


@dataclass(frozen=True)
class ModelCatalogue:
    """All tiers and models."""

    tiers: Mapping[str, Tier]
    models: Mapping[str, ModelSpec]
    embedding_models: Mapping[str, ModelSpec] = field(default_factory=dict)
    """Models that give vectors. No chain and no agent uses them."""

    def __post_init__(self) -> None:
        """Refuse a chain with an unknown model at the start: otherwise it would fail at the first message."""
        for name, tier in self.tiers.items():
            unknown = [model for model in tier.chain if model not in self.models]
            if unknown or not tier.chain:
                raise ValueError(f"tier {name}: " + (f"there is no model {unknown[0]}" if unknown else "the chain is empty"))

    @cached_property
    def limits(self) -> Mapping[str, int]:
        """The longest answer that is paid for, by the vendor's name of the model."""
        return {model.id: model.max_tokens for model in self.models.values()}

    @cached_property
    def addresses(self) -> Sequence[ModelAddress]:
        """The models that the tiers use, in the order of their chains, each once."""
        models = (self.models[name] for tier in self.tiers.values() for name in tier.chain)
        return list(dict.fromkeys(model.address for model in models))

    @cached_property
    def every_model(self) -> Mapping[str, ModelSpec]:
        """The models by their names, whether they give text or vectors."""
        return {**self.embedding_models, **self.models}

    def tier(self, name: str) -> Tier:
        """Return a tier. Raises NotFound."""
        try:
            return self.tiers[name]
        except KeyError:
            raise NotFound(f"there is no tier {name}; there are {', '.join(self.tiers)}") from None

    def capabilities_of(self, backend: str) -> dict[str, Capabilities]:
        """What the models of one backend can do, by the vendor's names of the models."""
        return {model.id: model.capabilities for model in self.models.values() if model.backend == backend}

    def refuse_unpriced(self, prices: Prices, day: date) -> None:
        """Raise UnknownPrice for a chain with a model that has no price on this day: otherwise its first message would be refused."""
        for name, tier in self.tiers.items():
            for model in tier.chain:
                try:
                    prices.rate(self.models[model].address, day, 0)
                except UnknownPrice:
                    vendor_id = self.models[model].id
                    raise UnknownPrice(
                        f"tier {name}: there is no price for {model} ({vendor_id}) on {day.isoformat()}; add [[models.{model}.prices]]"
                    ) from None


UNLISTED_CLAUDE = Capabilities(tools=True, vision=True, sampling=True, prefill=False, context=200_000)
"""A Claude model of which neither this catalogue nor the settings say what it can do."""
CLAUDE = Capabilities(tools=True, vision=True, sampling=True, prefill=True, context=200_000, cache_floor=4_096)
CLAUDE_5_5 = Capabilities(tools=True, vision=True, sampling=False, prefill=False, thinking=True, context=1_000_000, cache_floor=512)

DEFAULT_CATALOGUE = ModelCatalogue(
    tiers={
        "free": Tier(("claude-haiku",), 50_000),
        "starter": Tier(("claude-haiku", "ollama"), 200_000),
        "pro": Tier(("claude-sonnet",), 1_000_000),
        "venue-growth": Tier(("claude-sonnet", "claude-haiku"), 500_000),
    },
    models={
        "claude-haiku": ModelSpec("anthropic", "claude-haiku-4-5-20251001", 1_024, CLAUDE),
        "claude-sonnet": ModelSpec(
            "anthropic", "claude-sonnet-4-6", 2_048, replace(CLAUDE, prefill=False, context=1_000_000, cache_floor=1_024)
        ),
        # These may give longer answers: they think first, and their thinking counts. A short limit would leave no room for the answer.
        "claude-haiku-5-5": ModelSpec("anthropic", "claude-haiku-5-5", 4_096, CLAUDE_5_5),
        "claude-sonnet-5-5": ModelSpec("anthropic", "claude-sonnet-5-5", 8_192, CLAUDE_5_5),
        "claude-opus-5-5": ModelSpec("anthropic", "claude-opus-5-5", 8_192, CLAUDE_5_5),
        "ollama": ModelSpec("ollama", "llama3.2", 1_024, Capabilities(tools=False, context=8_192)),
        "smollm2": ModelSpec("local", "smollm2-135m-instruct", 512, Capabilities(tools=False, prefill=True, context=4_096)),
        "claude_local": ModelSpec("claude_local", "claude_local", 8_192, Capabilities(tools=False, sampling=False)),
        "codex_local": ModelSpec("codex_local", "codex_local", 8_192, Capabilities(tools=False, sampling=False)),
        "scripted": ModelSpec("scripted", "scripted", 1_024, Capabilities(tools=True, vision=True)),
    },
)
"""The founding tiers, and the models that the operator can put into a chain by their names alone."""
