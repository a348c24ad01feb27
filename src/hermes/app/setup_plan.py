"""What the answers of `hermes setup` change in the table of the settings file. Pure: it reads no file and asks no server.

A model that the user chooses answers in every tier. What the file says about other backends, models and tiers stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hermes.app.catalogue import LOCAL_STAND_IN_MODEL, STAND_IN_MODEL, missing_backends, models_of, replaced_backends, tiers_of
from hermes.config import FOREIGN_VARIABLES, Settings, StandIn
from hermes.config.models import variable_name
from hermes.gateway.catalogue import DEFAULT_CATALOGUE
from hermes.gateway.prices import LIST_PRICES

Table = dict[str, Any]


class ModelProvider(StrEnum):
    """Where the answers come from. A name is also the name of its backend, if it has one."""

    KEEP = "keep"
    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    SERVER = "server"
    """A server with OpenAI's API whose kind the setup finds out."""
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_CPP = "llama_cpp"
    PLAIN = "plain"
    OLLAMA = "ollama"
    LOCAL = "local"
    NONE = "none"


SERVER_PROVIDERS = frozenset(
    {ModelProvider.SERVER, ModelProvider.VLLM, ModelProvider.SGLANG, ModelProvider.LLAMA_CPP, ModelProvider.PLAIN, ModelProvider.OLLAMA}
)
"""Providers that have an address of the user's own."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The model that the user chose. A key or address that comes from a variable is None here: it is not written."""

    provider: ModelProvider
    api_key: str | None = None
    base_url: str | None = None
    model: str | None = None
    prices: tuple[float, float] | None = None
    """US dollars for a million tokens of the prompt, and of the answer."""

    @property
    def backend(self) -> str:
        return (ModelProvider.PLAIN if self.provider is ModelProvider.SERVER else self.provider).value


def with_value(table: Mapping[str, Any], path: Sequence[str], value: object) -> Table:
    """Return a copy of the table with this value at a place, `("web", "port")`; None removes it, and a section that is empty then."""
    changed = copy.deepcopy(dict(table))
    *sections, key = path
    inner = changed
    for section in sections:
        inner = inner.setdefault(section, {})
    inner.pop(key, None)
    if value is not None:
        inner[key] = value
    elif sections and not inner:
        return with_value(changed, sections, None)
    return changed


def with_backend(table: Mapping[str, Any], answer: ModelAnswer) -> Table:
    """Return the table with the key and the address of the chosen backend."""
    changed = dict(table)
    for key, value in (("base_url", answer.base_url), ("api_key", answer.api_key)):
        if value is not None:
            changed = with_value(changed, ("backends", answer.backend, key), value)
    return changed


def with_model(table: Mapping[str, Any], answer: ModelAnswer, settings: Settings) -> Table:
    """Return the table in which the chosen model answers. `settings` are those of the table before."""
    match answer.provider:
        case ModelProvider.KEEP:
            return dict(table)
        case ModelProvider.NONE:
            return with_stand_in(table, settings, StandIn.SCRIPTED, [STAND_IN_MODEL])
        case ModelProvider.LOCAL:
            return with_stand_in(table, settings, StandIn.LOCAL, [LOCAL_STAND_IN_MODEL, STAND_IN_MODEL])
        case ModelProvider.ANTHROPIC if answer.model is None:
            return with_founding_chains(with_backend(table, answer), settings)
    return with_own_model(with_backend(table, answer), answer, settings)


def with_stand_in(table: Mapping[str, Any], settings: Settings, stand_in: StandIn, chain: list[str]) -> Table:
    """Without any key and chain, the stand-in of the settings answers: then a key that is set later counts at once. Otherwise the models
    are named in every tier."""
    if "anthropic" in replaced_backends(settings) and not table.get("tiers"):
        is_default = stand_in is StandIn.SCRIPTED
        return with_value(table, ("llm", "stand_in"), None if is_default else stand_in.value)
    return with_chain(table, settings, chain)


def with_founding_chains(table: Mapping[str, Any], settings: Settings) -> Table:
    """Let the Claude models answer: in a tier whose chain has none of them, those that Hermes has for it."""
    changed, models = dict(table), models_of(settings)
    for name, tier in tiers_of(settings).items():
        if not any(models[model].backend == ModelProvider.ANTHROPIC for model in tier.chain if model in models):
            chain = None if name in DEFAULT_CATALOGUE.tiers else list(DEFAULT_CATALOGUE.tiers["free"].chain)
            changed = with_value(changed, ("tiers", name, "chain"), chain)
    return changed


def with_own_model(table: Mapping[str, Any], answer: ModelAnswer, settings: Settings) -> Table:
    """Describe the model if Hermes does not know it, and let it answer in every tier."""
    model = answer.model or ""
    name = "ollama" if answer.provider is ModelProvider.OLLAMA else model
    known = models_of(settings).get(name)
    changed = dict(table)
    if known is None or (known.backend, known.id) != (answer.backend, model):
        changed = with_value(changed, ("models", name, "backend"), answer.backend) if name not in DEFAULT_CATALOGUE.models else changed
        changed = with_value(changed, ("models", name, "id"), model) if name != model else changed
        changed = with_value(changed, ("models", name, "prices"), None) if has_prices(table, name) and answer.prices else changed
    if answer.prices is not None and not has_prices(changed, name) and not has_list_price(model):
        prices = [{"input": answer.prices[0], "output": answer.prices[1]}]
        changed = with_value(changed, ("models", name, "prices"), prices)
    return with_chain(changed, settings, [name])


def with_chain(table: Mapping[str, Any], settings: Settings, chain: list[str]) -> Table:
    """Let these models answer in every tier. A tier whose chain has the first of them stays as it is."""
    changed = dict(table)
    for name, tier in tiers_of(settings).items():
        if chain[0] not in tier.chain:
            changed = with_value(changed, ("tiers", name, "chain"), chain)
    return changed


def has_prices(table: Mapping[str, Any], name: str) -> bool:
    return bool(table.get("models", {}).get(name, {}).get("prices"))


def has_list_price(model: str) -> bool:
    return any(price.model == model for price in LIST_PRICES)


def default_provider(table: Mapping[str, Any], settings: Settings) -> ModelProvider:
    """Return the answer that changes nothing: what the file says, a key in a variable, or else no model."""
    if any(table.get(section) for section in ("backends", "models", "tiers")):
        return ModelProvider.KEEP
    if settings.backends.get("anthropic") is not None and settings.backends["anthropic"].api_key is not None:
        return ModelProvider.ANTHROPIC
    return ModelProvider.LOCAL if settings.llm.stand_in is StandIn.LOCAL else ModelProvider.NONE


def answering_backends(settings: Settings) -> set[str]:
    """Return the backends that answer new users, and run models that can be asked: neither stand-ins nor vendors without a key."""
    models = models_of(settings)
    used = {models[model].backend for model in tiers_of(settings)["free"].chain if model in models}
    return used - missing_backends(settings).keys() - {ModelProvider.LOCAL.value, STAND_IN_MODEL}


def variable_that_sets(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the variable that sets this setting now, `web.port`: it wins over the file. None if no variable does."""
    own = f"HERMES_{variable_name(name)}"
    return own if environ.get(own, "").strip() else None


def other_variable_that_sets(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the variable of another program that sets this setting now, if the file does not: `ANTHROPIC_API_KEY`."""
    return next(
        (variable for variable, setting in FOREIGN_VARIABLES.items() if setting == name and environ.get(variable, "").strip()), None
    )
