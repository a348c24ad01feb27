"""Models, tiers and prices: the defaults of Hermes, overridden by the operator's settings.

    catalogue_from     the models, and the tiers that may use them
    prices_from        what the models cost
    missing_backends   the backends that cannot be asked, and why
    replaced_backends  those of them that a stand-in answers for: in development, so that a machine without any key has answers too
    stand_in_notice    which stand-in answers, and whether its answers are training data
    refuse_no_model    refuse to start in production without a model

Knows the kinds of backends and none of their code: models.py builds them. Raises StartRefused, with a line for each fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from datetime import date
from urllib.parse import urlsplit

from hermes.config import (
    SERVERS,
    BackendKind,
    BackendSettings,
    Environment,
    LongPromptSettings,
    ModelSettings,
    PriceList,
    PriceSettings,
    Settings,
    StandIn,
    TierSettings,
    kind_of_backend,
    nearest,
)
from hermes.gateway.catalogue import DEFAULT_CATALOGUE, REPLAY_TIER, UNLISTED_CLAUDE, ModelCatalogue, ModelSpec, Tier
from hermes.gateway.prices import EARLIEST_DAY, FOUNDING_RATES, FREE_RATE, LIST_PRICES, Price, Prices, TokenRate
from hermes.ports.backends import Capabilities
from hermes.ports.errors import StartRefused
from hermes.ports.models import ModelAddress, UnknownPrice

DEFAULT_BACKENDS: Mapping[str, BackendSettings] = {
    kind.value: BackendSettings()
    for kind in (
        BackendKind.ANTHROPIC,
        BackendKind.OPENAI,
        BackendKind.OLLAMA,
        BackendKind.SCRIPTED,
        BackendKind.LOCAL,
        BackendKind.CLAUDE_LOCAL,
        BackendKind.CODEX_LOCAL,
    )
}
"""Backends that need no entry in the settings: their kind says everything but the key."""

DEFAULT_CAPABILITIES: Mapping[BackendKind, Capabilities] = {
    BackendKind.ANTHROPIC: UNLISTED_CLAUDE,
    BackendKind.OLLAMA: Capabilities(tools=False),
    BackendKind.LOCAL: Capabilities(tools=False, prefill=True),
    BackendKind.CLAUDE_LOCAL: Capabilities(tools=False, sampling=False),
    BackendKind.CODEX_LOCAL: Capabilities(tools=False, sampling=False),
}
"""What a model of each kind can do if neither the catalogue nor the settings say more."""

DEFAULT_MAX_TOKENS = 2_048
STAND_IN_MODEL = BackendKind.SCRIPTED.value
LOCAL_STAND_IN_MODEL = "smollm2"
UNLIMITED_TOKENS = 1_000_000_000
"""A daily limit that no user reaches."""
FREE_KINDS = frozenset({BackendKind.SCRIPTED, BackendKind.LOCAL, BackendKind.CLAUDE_LOCAL, BackendKind.CODEX_LOCAL})
"""Kinds that charge nothing for tokens, whatever their models are called."""
OPENAI_URL = "https://api.openai.com/v1"


def catalogue_from(settings: Settings) -> ModelCatalogue:
    """Return all tiers and models. A model whose backend is replaced becomes the stand-in, with the stand-in's own id: its answers are
    recorded under that id. Clients still ask for the replaced model, by its name here or by its vendor's."""
    refuse_faults(settings)
    known, tiers, without_backend = models_of(settings), tiers_of(settings), replaced_backends(settings)
    replaced = {name for name, model in known.items() if model.backend in without_backend}
    # A stand-in costs nothing, so the token limits of a tier must not stop a user who tries Hermes without a key.
    tiers = {
        name: replace(tier, day_tokens=UNLIMITED_TOKENS, own_month_tokens=None) if replaced >= {*tier.chain} else tier
        for name, tier in tiers.items()
    }
    if settings.llm.stand_in is StandIn.SCRIPTED:
        stand_in = DEFAULT_CATALOGUE.models[STAND_IN_MODEL]
    else:
        stand_in = known[LOCAL_STAND_IN_MODEL]
        # The small model on this machine takes no tools; the script, which comes after it in the chain, does.
        tiers = {
            name: replace(tier, chain=(*tier.chain, STAND_IN_MODEL)) if replaced & {*tier.chain} else tier for name, tier in tiers.items()
        }
    return ModelCatalogue(
        tiers, {name: replace(stand_in, stands_for=model.id) if name in replaced else model for name, model in known.items()}
    )


def with_replay_tier(catalogue: ModelCatalogue) -> ModelCatalogue:
    """Return the catalogue with the tier of replays, if the settings name none: any model, and no limit but the day's money."""
    if REPLAY_TIER in catalogue.tiers:
        return catalogue
    chain = next(iter(catalogue.tiers.values())).chain
    return replace(catalogue, tiers={**catalogue.tiers, REPLAY_TIER: Tier(chain, UNLIMITED_TOKENS)})


EMBEDDINGS_BACKEND = "embeddings"
"""The backend that gives vectors to clients. It is in no tier's chain."""


def with_embedding_model(catalogue: ModelCatalogue, name: str) -> ModelCatalogue:
    """Return the catalogue with the model that gives vectors."""
    spec = ModelSpec(EMBEDDINGS_BACKEND, name, 1, Capabilities(tools=False, sampling=False))
    return replace(catalogue, embedding_models={name: spec})


def with_embedding_price(prices: Prices, settings: Settings, name: str) -> Prices:
    """Return the prices with that of the embedding model: the settings' own, none for an API without one, free on this machine."""
    memory = settings.memory
    if memory.embeddings_price is not None:
        rate = TokenRate.usd(memory.embeddings_price, 0)
    elif memory.embeddings_url is None:
        rate = FREE_RATE
    else:
        return prices
    listed = (price for found in prices.table().values() for price in found)
    return Prices([*listed, Price(name, EARLIEST_DAY, rate, backend=EMBEDDINGS_BACKEND)])


def prices_from(settings: Settings) -> Prices:
    """Return the prices of all models. Prices of the settings belong to the model at its backend, and replace the list prices there.

    Answers of a stand-in are priced by its own id, which costs nothing."""
    refuse_faults(settings)
    models, all_backends = models_of(settings), backends_of(settings)
    written = [price for name, entry in settings.models.items() for price in prices_in_settings(models[name], entry)]
    listed = list_prices(settings)
    taken = {(price.backend, price.model) for price in written} | {(None, price.model) for price in listed if price.rate == FREE_RATE}
    free = {
        model.address
        for model in models.values()
        if backend_kind(all_backends, model.backend) in FREE_KINDS and not {(model.backend, model.id), (None, model.id)} & taken
    }
    return Prices([*listed, *written, *(Price(at.model, EARLIEST_DAY, FREE_RATE, backend=at.backend) for at in free)])


def list_prices(settings: Settings) -> list[Price]:
    """Return the prices of the vendors, or those of the founding documents where the settings want them."""
    if settings.llm.prices is PriceList.VENDOR:
        return list(LIST_PRICES)
    founding = [Price(model, EARLIEST_DAY, rate) for model, rate in FOUNDING_RATES.items()]
    return [*(price for price in LIST_PRICES if price.model not in FOUNDING_RATES), *founding]


def check_prices(catalogue: ModelCatalogue, prices: Prices, today: date) -> None:
    """Raise StartRefused if a chain has a model without a price today."""
    try:
        catalogue.refuse_unpriced(prices, today)
    except UnknownPrice as error:
        raise StartRefused(str(error)) from None


def missing_backends(settings: Settings) -> dict[str, str]:
    """Return the backends that cannot be asked, by name, and why (`no key`). Only those that a model uses, or that the settings name."""
    used = {model.backend for model in models_of(settings).values()}
    found = backends_of(settings)
    reasons = {name: reason_missing(name, found) for name in found if name in used or name in settings.backends}
    return {name: reason for name, reason in reasons.items() if reason}


def replaced_backends(settings: Settings) -> dict[str, str]:
    """Return the backends that a stand-in answers for, by name, and why they cannot answer. None in production: there the gateway skips a
    model without its backend, because a made-up answer is worse than none."""
    if settings.environment is not Environment.DEVELOPMENT:
        return {}
    return missing_backends(settings)


def stand_in_notice(settings: Settings) -> str:
    """Return half a sentence for after "no key;": which stand-in answers, and whether its answers are training data."""
    if settings.llm.stand_in is StandIn.SCRIPTED:
        return "scripted answers instead; its answers are not training data"
    return "local answers instead, or scripted if a request needs tools; answers of scripted are not training data"


def refuse_no_model(settings: Settings) -> None:
    """Raise StartRefused in production if the operator has set up no model that a tier uses: every user would get an apology. Whether a
    model is well does not count here: it may be mended while Hermes runs."""
    refuse_faults(settings)
    if settings.environment is Environment.DEVELOPMENT or usable_models(settings):
        return
    raise StartRefused(
        "no tier has a model that can be asked: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or a server in [backends.NAME] and its model "
        "in [tiers.NAME] chain; see docs/how-to/models.md"
    )


def usable_models(settings: Settings) -> list[str]:
    """Return the models of all chains that the operator has set up: a backend with its key or a table of its own, or a chain that names
    the model. The Ollama of a default chain alone is not set up."""
    missing, models = missing_backends(settings), models_of(settings)
    chosen = {name for tier in settings.tiers.values() for name in tier.chain or ()} | settings.models.keys()
    return [
        name
        for name in dict.fromkeys(name for tier in tiers_of(settings).values() for name in tier.chain)
        if models[name].backend not in missing and (models[name].backend in settings.backends or name in chosen)
    ]


def server_backends(settings: Settings) -> list[str]:
    """Return the names of the backends that Hermes calls over HTTP."""
    found = backends_of(settings)
    return [name for name in found if backend_kind(found, name) in SERVERS]


# --- the defaults, overridden by the settings


def backends_of(settings: Settings) -> dict[str, BackendSettings]:
    return {**DEFAULT_BACKENDS, **settings.backends}


def backend_kind(backends: Mapping[str, BackendSettings], name: str) -> BackendKind | None:
    return kind_of_backend(name, backends[name]) if name in backends else None


def models_of(settings: Settings) -> dict[str, ModelSpec]:
    found = backends_of(settings)
    return {**DEFAULT_CATALOGUE.models, **{name: model_of(name, entry, found) for name, entry in settings.models.items()}}


def model_names_of(settings: Settings) -> set[str]:
    """The names by which a model can be asked for: ours and the vendors'."""
    return {name for ours, model in models_of(settings).items() for name in (ours, model.id)}


def model_of(name: str, entry: ModelSettings, backends: Mapping[str, BackendSettings]) -> ModelSpec:
    """Return a model of the catalogue, overridden by its entry in the settings; or a new model."""
    default = DEFAULT_CATALOGUE.models.get(name)
    backend = entry.backend or (default.backend if default else "")
    kind = backend_kind(backends, backend)
    if default is None:
        default = ModelSpec(backend, name, DEFAULT_MAX_TOKENS, DEFAULT_CAPABILITIES.get(kind, Capabilities()) if kind else Capabilities())
    can = {field.name: value for field in fields(Capabilities) if (value := getattr(entry, field.name)) is not None}
    return ModelSpec(backend, entry.id or default.id, entry.max_tokens or default.max_tokens, replace(default.capabilities, **can))


def tiers_of(settings: Settings) -> dict[str, Tier]:
    return {**DEFAULT_CATALOGUE.tiers, **{name: tier_of(name, entry) for name, entry in settings.tiers.items()}}


def tier_of(name: str, entry: TierSettings) -> Tier:
    default = DEFAULT_CATALOGUE.tiers.get(name, Tier((), 0))
    day = default.day_tokens if entry.day_tokens is None else entry.day_tokens
    month = default.own_month_tokens if entry.month_tokens is None else entry.month_tokens
    return Tier(default.chain if entry.chain is None else entry.chain, day, month)


def prices_in_settings(model: ModelSpec, entry: ModelSettings) -> list[Price]:
    return [
        Price(
            model.id,
            price.since or EARLIEST_DAY,
            rate_of(price),
            (price.over.tokens, rate_of(price.over)) if price.over else None,
            model.backend,
        )
        for price in entry.prices
    ]


def rate_of(price: PriceSettings | LongPromptSettings) -> TokenRate:
    return TokenRate.usd(price.input, price.output, read=price.cache_read, write=price.cache_write, hour=price.cache_write_1h)


# --- faults of the settings


def refuse_faults(settings: Settings) -> None:
    found = list(faults(settings))
    if found:
        raise StartRefused("\n".join(found))


def faults(settings: Settings) -> Iterator[str]:
    """Yield a line for each setting that names something unknown, and for each that is missing and has no default."""
    yield from model_faults(settings)
    yield from tier_faults(settings)
    yield from price_faults(settings)


def model_faults(settings: Settings) -> Iterator[str]:
    known = backends_of(settings)
    for name, model in models_of(settings).items():
        if not model.backend:
            yield f"models.{name}.backend is missing; expected one of {', '.join(known)}"
        elif model.backend not in known:
            yield f"models.{name}.backend: there is no backend {model.backend}; did you mean {nearest(model.backend, known)}?"


def tier_faults(settings: Settings) -> Iterator[str]:
    models, tiers = models_of(settings), tiers_of(settings)
    for name, tier in tiers.items():
        if not tier.chain:
            yield f"tiers.{name}.chain is missing; expected a list of models, such as {', '.join(list(models)[:2])}"
        if name not in DEFAULT_CATALOGUE.tiers and settings.tiers[name].day_tokens is None:
            yield f"tiers.{name}.day_tokens is missing; expected a whole number of at least 0"
        for model in tier.chain:
            if model not in models:
                yield f"tiers.{name}.chain: there is no model {model}; did you mean {nearest(model, models)}?"
    if settings.completions.tier not in tiers:
        yield f"completions.tier: there is no tier {settings.completions.tier}; did you mean {nearest(settings.completions.tier, tiers)}?"


def price_faults(settings: Settings) -> Iterator[str]:
    """Yield a line for two models of one id at one backend with different prices."""
    first: dict[ModelAddress, str] = {}
    models = models_of(settings)
    for name, entry in settings.models.items():
        if entry.prices:
            other = first.setdefault(models[name].address, name)
            if settings.models[other].prices != entry.prices:
                what = f"one model, {models[name].id} at {models[name].backend}, with two prices"
                yield f"models.{other} and models.{name} are {what}; expected one of them"


def reason_missing(name: str, backends: Mapping[str, BackendSettings]) -> str:
    """Return why a backend cannot be asked; "" if it can."""
    entry, kind = backends[name], backend_kind(backends, name)
    is_elsewhere = entry.base_url is not None and urlsplit(entry.base_url).hostname != urlsplit(OPENAI_URL).hostname
    if entry.api_key is None and (kind is BackendKind.ANTHROPIC or (kind is BackendKind.OPENAI and not is_elsewhere)):
        return "no key"
    return ""
