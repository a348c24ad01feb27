"""Models, tiers, prices and backends out of the settings: what Hermes knows, and laid over it what its owner says.

    catalogue_from   which models there are, and who may use them
    prices_from      what they cost
    backends_from    where they are, ready to be asked
    missing          which backends cannot be asked, and why
    stand_ins        for which of these another answers: in development, so that a machine without any key has an answer too
    stand_in_notice  what answers then, and whether it is training data

All of them raise StartRefused, with a line for each thing that is wrong. Opens no connection and reads no file but the script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

from hermes.app.home import StartRefused
from hermes.backends import (
    LLAMA_CPP,
    OPENAI,
    PLAIN,
    SGLANG,
    VLLM,
    AnthropicBackend,
    BadScript,
    ClaudeLocal,
    CodexLocal,
    Dialect,
    HttpClient,
    OllamaBackend,
    OpenAICompatibleBackend,
    Script,
    ScriptedBackend,
)
from hermes.backends.anthropic.backend import DEFAULT_CAPABILITIES as CLAUDE
from hermes.backends.local.backend import LocalBackend
from hermes.config import (
    BackendKind,
    BackendSettings,
    Environment,
    LongPromptSettings,
    ModelSettings,
    PriceSettings,
    Settings,
    StandIn,
    TierSettings,
    kind_of_backend,
    nearest,
)
from hermes.gateway.catalogue import DEFAULT_CATALOGUE, ModelCatalogue, ModelSpec, Tier
from hermes.gateway.prices import EARLIEST_DAY, FREE_RATE, LIST_PRICES, Price, Prices, TokenRate
from hermes.ports.backends import Backend, Capabilities
from hermes.ports.models import UnknownPrice

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
"""Backends that are there without being written down: their kind says all that must be known, but for a key."""

DEFAULT_CAPABILITIES: Mapping[BackendKind, Capabilities] = {
    BackendKind.ANTHROPIC: CLAUDE,
    BackendKind.OLLAMA: Capabilities(tools=False),
    BackendKind.LOCAL: Capabilities(tools=False, prefill=True),
    BackendKind.CLAUDE_LOCAL: Capabilities(tools=False, sampling=False),
    BackendKind.CODEX_LOCAL: Capabilities(tools=False, sampling=False),
}
"""What a model can do of which neither Hermes nor the settings say more."""

DEFAULT_MAX_TOKENS = 2_048
DEFAULT_LOCAL_CONTEXT_TOKENS = 4_096
"""Tokens of context that `local` has where no model says; memory grows with it."""
STAND_IN_MODEL = BackendKind.SCRIPTED.value
LOCAL_STAND_IN_MODEL = "smollm2"
UNLIMITED_TOKENS = 1_000_000_000
"""Tokens a day that nobody uses up."""
FREE_KINDS = frozenset({BackendKind.SCRIPTED, BackendKind.LOCAL, BackendKind.CLAUDE_LOCAL, BackendKind.CODEX_LOCAL})
"""Kinds that send no bill for tokens, whatever their models are called."""
ANTHROPIC_URL = "https://api.anthropic.com"
OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://127.0.0.1:11434"


def catalogue_from(settings: Settings) -> ModelCatalogue:
    """All tiers and models. In the place of a model whose backend has a stand-in stands the stand-in, with its own id: what answers is
    recorded as itself, and clients still ask for the model that it stands for, by its name here or by its vendor's."""
    refuse_faults(settings)
    known, tiers, stood_for = models_of(settings), tiers_of(settings), replaced_backends(settings)
    waiting = {name for name, model in known.items() if model.backend in stood_for}
    # A script bills nobody, and who tries Hermes without a key is not to be stopped by the tokens of a tier.
    tiers = {
        name: replace(tier, day_tokens=UNLIMITED_TOKENS, own_month_tokens=None) if waiting >= {*tier.chain} else tier
        for name, tier in tiers.items()
    }
    if settings.llm.stand_in is StandIn.SCRIPTED:
        instead = DEFAULT_CATALOGUE.models[STAND_IN_MODEL]
    else:
        instead = known[LOCAL_STAND_IN_MODEL]
        # A small model on this machine takes no tools; behind it the script does.
        tiers = {
            name: replace(tier, chain=(*tier.chain, STAND_IN_MODEL)) if waiting & {*tier.chain} else tier for name, tier in tiers.items()
        }
    return ModelCatalogue(
        tiers, {name: replace(instead, stands_for=model.id) if name in waiting else model for name, model in known.items()}
    )


def prices_from(settings: Settings) -> Prices:
    """The prices of all models, by their ids. Those of the settings replace the known ones of the same id.

    What a stand-in answers is paid by the stand-in's own id, which costs nothing."""
    refuse_faults(settings)
    models, all_backends = models_of(settings), backends_of(settings)
    known = Prices(LIST_PRICES).models()
    written = {models[name].id: prices_in_settings(models[name].id, said) for name, said in settings.models.items() if said.prices}
    free = (
        {model.id for model in models.values() if backend_kind(all_backends, model.backend) in FREE_KINDS} - known.keys() - written.keys()
    )
    table = {**known, **written, **{model: [Price(model, EARLIEST_DAY, FREE_RATE)] for model in free}}
    return Prices(price for prices in table.values() for price in prices)


def check_prices(catalogue: ModelCatalogue, prices: Prices, today: date) -> None:
    """Refuse a chain with a model that has no price today."""
    try:
        catalogue.refuse_unpriced(prices, today)
    except UnknownPrice as error:
        raise StartRefused(str(error)) from None


def backends_from(settings: Settings, client: HttpClient) -> dict[str, Backend]:
    """Every backend that can be asked, by name. The client stays the caller's."""
    catalogue, found = catalogue_from(settings), backends_of(settings)
    # A kind that this Hermes cannot build is refused where somebody chose it, and otherwise nobody misses it.
    chosen = {name for name in found if name in settings.backends or chosen_model_ids(name, settings, catalogue)}
    able = [name for name in found if not reason_missing(name, found) and (backend_kind(found, name) in BUILDERS or name in chosen)]
    return {name: build_backend(name, settings, catalogue, client) for name in able}


def missing_backends(settings: Settings) -> dict[str, str]:
    """The backends that cannot be asked, by name, and why (`no key`). Only those that a model is at, or that are written down."""
    used = {model.backend for model in models_of(settings).values()}
    found = backends_of(settings)
    reasons = {name: reason_missing(name, found) for name in found if name in used or name in settings.backends}
    return {name: reason for name, reason in reasons.items() if reason}


def replaced_backends(settings: Settings) -> dict[str, str]:
    """The backends that another answers for, by name, and why they do not themselves. None in production: there a link without its
    backend is skipped, because a made-up answer is worse than none."""
    if settings.environment is not Environment.DEVELOPMENT:
        return {}
    return missing_backends(settings)


def stand_in_notice(settings: Settings) -> str:
    """Say in one line, after "no key;", what answers instead of a missing backend, and whether its answers are training data."""
    if settings.llm.stand_in is StandIn.SCRIPTED:
        return "scripted answers instead; its answers are not training data"
    return "local answers instead, and scripted what needs tools; answers of scripted are not training data"


# --- what Hermes knows, and laid over it what the settings say


def backends_of(settings: Settings) -> dict[str, BackendSettings]:
    return {**DEFAULT_BACKENDS, **settings.backends}


def backend_kind(backends: Mapping[str, BackendSettings], name: str) -> BackendKind | None:
    return kind_of_backend(name, backends[name]) if name in backends else None


def models_of(settings: Settings) -> dict[str, ModelSpec]:
    found = backends_of(settings)
    return {**DEFAULT_CATALOGUE.models, **{name: model_of(name, said, found) for name, said in settings.models.items()}}


def model_of(name: str, said: ModelSettings, backends: Mapping[str, BackendSettings]) -> ModelSpec:
    """A model that is known, with what is said otherwise; or a new one."""
    usual = DEFAULT_CATALOGUE.models.get(name)
    backend = said.backend or (usual.backend if usual else "")
    spoken = backend_kind(backends, backend)
    if usual is None:
        usual = ModelSpec(backend, name, DEFAULT_MAX_TOKENS, DEFAULT_CAPABILITIES.get(spoken, Capabilities()) if spoken else Capabilities())
    can = {field.name: value for field in fields(Capabilities) if (value := getattr(said, field.name)) is not None}
    return ModelSpec(backend, said.id or usual.id, said.max_tokens or usual.max_tokens, replace(usual.capabilities, **can))


def tiers_of(settings: Settings) -> dict[str, Tier]:
    return {**DEFAULT_CATALOGUE.tiers, **{name: tier_of(name, said) for name, said in settings.tiers.items()}}


def tier_of(name: str, said: TierSettings) -> Tier:
    usual = DEFAULT_CATALOGUE.tiers.get(name, Tier((), 0))
    day = usual.day_tokens if said.day_tokens is None else said.day_tokens
    month = usual.own_month_tokens if said.month_tokens is None else said.month_tokens
    return Tier(usual.chain if said.chain is None else said.chain, day, month)


def prices_in_settings(model: str, said: ModelSettings) -> list[Price]:
    return [
        Price(model, price.since or EARLIEST_DAY, rate_of(price), (price.over.tokens, rate_of(price.over)) if price.over else None)
        for price in said.prices
    ]


def rate_of(price: PriceSettings | LongPromptSettings) -> TokenRate:
    return TokenRate.usd(price.input, price.output, read=price.cache_read, write=price.cache_write, hour=price.cache_write_1h)


# --- what cannot be


def refuse_faults(settings: Settings) -> None:
    found = list(faults(settings))
    if found:
        raise StartRefused("\n".join(found))


def faults(settings: Settings) -> Iterator[str]:
    """What names something that is not there, or leaves out what nobody else knows; one line for each."""
    yield from model_faults(settings)
    yield from tier_faults(settings)
    yield from price_faults(settings)


def model_faults(settings: Settings) -> Iterator[str]:
    there = backends_of(settings)
    for name, model in models_of(settings).items():
        if not model.backend:
            yield f"models.{name}.backend is missing; expected one of {', '.join(there)}"
        elif model.backend not in there:
            yield f"models.{name}.backend: there is no backend {model.backend}; did you mean {nearest(model.backend, there)}?"


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
    """A price is found by the model's id alone, so two models of one id have one price."""
    first: dict[str, str] = {}
    models = models_of(settings)
    for name, said in settings.models.items():
        if said.prices:
            other = first.setdefault(models[name].id, name)
            if settings.models[other].prices != said.prices:
                yield f"models.{other} and models.{name} are one model, {models[name].id}, with two prices; expected one of them"


# --- backends


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """What is known of a backend that is to be built."""

    name: str
    settings: BackendSettings
    client: HttpClient
    models: Mapping[str, Capabilities]
    needs: tuple[str, ...]
    """The ids that a health check must find."""
    script: Path | None

    @property
    def key(self) -> str | None:
        return self.settings.api_key.reveal() if self.settings.api_key is not None else None


Builder = Callable[[BackendSpec], Backend]


def build_anthropic(order: BackendSpec) -> Backend:
    url = order.settings.base_url or ANTHROPIC_URL
    return AnthropicBackend(order.client, order.key or "", url, name=order.name, models=order.models, needs=order.needs)


def chat_completions_builder(dialect: Dialect) -> Builder:
    def build(order: BackendSpec) -> Backend:
        url = order.settings.base_url or OPENAI_URL
        return OpenAICompatibleBackend(order.client, url, order.key, order.name, dialect, models=order.models, needs=order.needs)

    return build


def build_ollama(order: BackendSpec) -> Backend:
    url = order.settings.base_url or OLLAMA_URL
    return OllamaBackend(order.client, url, name=order.name, api_key=order.key, models=order.models, needs=order.needs)


def build_scripted(order: BackendSpec) -> Backend:
    try:
        script = Script.load(order.script) if order.script is not None else Script.usual()
    except BadScript as error:
        raise StartRefused(f"llm.script: {error}") from None
    return ScriptedBackend(script, name=order.name, models=order.models)


def build_local(order: BackendSpec) -> Backend:
    context = max((can.context for can in order.models.values() if can.context is not None), default=DEFAULT_LOCAL_CONTEXT_TOKENS)
    return LocalBackend(order.settings.model_path, name=order.name, threads=order.settings.threads, context=context)


def build_claude_local(order: BackendSpec) -> Backend:
    return ClaudeLocal(order.settings.command or ("claude",), name=order.name, cwd=order.settings.cwd, models=order.models)


def build_codex_local(order: BackendSpec) -> Backend:
    return CodexLocal(order.settings.command or ("codex",), name=order.name, cwd=order.settings.cwd, models=order.models)


BUILDERS: Mapping[BackendKind, Builder] = {
    BackendKind.ANTHROPIC: build_anthropic,
    BackendKind.OPENAI: chat_completions_builder(OPENAI),
    BackendKind.VLLM: chat_completions_builder(VLLM),
    BackendKind.SGLANG: chat_completions_builder(SGLANG),
    BackendKind.LLAMA_CPP: chat_completions_builder(LLAMA_CPP),
    BackendKind.PLAIN: chat_completions_builder(PLAIN),
    BackendKind.OLLAMA: build_ollama,
    BackendKind.SCRIPTED: build_scripted,
    BackendKind.CLAUDE_LOCAL: build_claude_local,
    BackendKind.CODEX_LOCAL: build_codex_local,
    BackendKind.LOCAL: build_local,
}
"""How a backend of each kind is made."""


def build_backend(name: str, settings: Settings, catalogue: ModelCatalogue, client: HttpClient) -> Backend:
    said = backends_of(settings)[name]
    spoken = kind_of_backend(name, said)
    if spoken is None:
        raise StartRefused(f"backends.{name}.kind is missing; expected one of {', '.join(BackendKind)}")
    order = BackendSpec(
        name, said, client, catalogue.capabilities_of(name), chosen_model_ids(name, settings, catalogue), settings.llm.script
    )
    return BUILDERS[spoken](order)


def chosen_model_ids(backend: str, settings: Settings, catalogue: ModelCatalogue) -> tuple[str, ...]:
    """The ids of the models of a backend that somebody chose: for a chain, or by writing them down."""
    names = {*settings.models, *(name for tier in catalogue.tiers.values() for name in tier.chain)}
    return tuple(dict.fromkeys(model.id for name, model in catalogue.models.items() if name in names and model.backend == backend))


def reason_missing(name: str, backends: Mapping[str, BackendSettings]) -> str:
    """Why a backend cannot be asked; nothing if it can."""
    said, spoken = backends[name], backend_kind(backends, name)
    elsewhere = said.base_url is not None and urlsplit(said.base_url).hostname != urlsplit(OPENAI_URL).hostname
    if said.api_key is None and (spoken is BackendKind.ANTHROPIC or (spoken is BackendKind.OPENAI and not elsewhere)):
        return "no key"
    return ""
