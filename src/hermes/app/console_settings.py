"""The console's view of the settings: every value as text, with its origin, and never a secret."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from datetime import UTC, date, datetime
from typing import Any

from hermes.app.catalogue import UNLIMITED_TOKENS, prices_from
from hermes.app.root import Hermes
from hermes.config import Secret, Settings
from hermes.config.declarations import DeclaredSetting, alert_variables, backend_variables, keys_of, known_settings, tables
from hermes.config.describe import NAME, default_as_toml, describe, describe_table
from hermes.config.load import FOREIGN_VARIABLES
from hermes.console.settings import ModelLine, SettingLine, SettingOrigin, SettingsOverview, SettingsReader, TierLine
from hermes.gateway.catalogue import ModelCatalogue
from hermes.gateway.prices import Prices

NOT_SET = "not set"


def settings_reader_from(hermes: Hermes) -> SettingsReader:
    """Return the settings of a running Hermes."""
    settings, catalogue = hermes.settings, hermes.gateway.catalogue

    def read() -> SettingsOverview:
        models = show_models(catalogue, prices_from(settings), datetime.now(UTC).date())
        return SettingsOverview(show_settings(settings, os.environ), models, show_tiers(catalogue))

    return SettingsReader(read)


def show_settings(settings: Settings, environ: Mapping[str, str]) -> list[SettingLine]:
    """Return every setting, in the order of the reference page, and then what the operator set in tables of their own names."""
    return [*plain_lines(settings, environ), *table_lines(settings, environ)]


def plain_lines(settings: Settings, environ: Mapping[str, str]) -> Iterator[SettingLine]:
    for declared, described in zip(known_settings(), describe(), strict=True):
        value: Any = settings
        for part in declared.path:
            value = getattr(value, part)
        yield line_of(declared, value, described.doc, described.env, environ)


def table_lines(settings: Settings, environ: Mapping[str, str]) -> Iterator[SettingLine]:
    """Yield what is set in `[models.NAME]`, `[backends.NAME]` and the other tables that the operator names."""
    for section, owner in tables().items():
        meanings = {described.name: described.doc for described in describe_table(f"{section}.{NAME}", owner)}
        named: Mapping[str, object] = getattr(settings, section)
        variables = {setting.name: setting.variable for setting in (*backend_variables(named), *alert_variables(named))}
        for name, table in named.items():
            for declared in keys_of(owner, section, name).values():
                value = getattr(table, declared.key)
                if value != declared.default:
                    meaning = meanings[f"{section}.{NAME}.{declared.key}"]
                    yield line_of(declared, value, meaning, variables.get(declared.name, ""), environ)


def line_of(declared: DeclaredSetting, value: object, meaning: str, variable: str, environ: Mapping[str, str]) -> SettingLine:
    foreign = next((name for name, setting in FOREIGN_VARIABLES.items() if setting == declared.name and environ.get(name, "").strip()), "")
    if variable and environ.get(variable, "").strip():
        origin = SettingOrigin.VARIABLE
    elif value == declared.default:
        origin = SettingOrigin.DEFAULT
    else:
        origin = SettingOrigin.VARIABLE if foreign else SettingOrigin.FILE
    return SettingLine(
        section=".".join(declared.place),
        name=declared.key,
        value=show_value(value),
        origin=origin,
        variable=variable,
        meaning=meaning,
    )


def show_value(value: object) -> str:
    """Return a value as the file writes it. Of a secret, only whether it is set."""
    if value is None or value == ():
        return NOT_SET
    if isinstance(value, Secret) or (isinstance(value, tuple) and any(isinstance(item, Secret) for item in value)):
        return "set"
    if isinstance(value, tuple) and any(is_dataclass(item) for item in value):
        return f"{len(value)} {'table' if len(value) == 1 else 'tables'}"
    return "a table" if is_dataclass(value) else default_as_toml(value)


def show_models(catalogue: ModelCatalogue, prices: Prices, today: date) -> list[ModelLine]:
    """Return the models that have a price today."""
    lines = []
    for name, model in catalogue.models.items():
        price = prices.price(model.address, today)
        if price is not None:
            lines.append(
                ModelLine(
                    name=name,
                    id=model.id,
                    backend=model.backend,
                    stands_for=model.stands_for,
                    tokens_in=price.rate.tokens_in,
                    tokens_out=price.rate.tokens_out,
                    cache_read=price.rate.cache_read,
                    cache_write=price.rate.cache_write,
                    since=price.since,
                    long_prompt_tokens=None if price.over is None else price.over[0],
                )
            )
    return lines


def show_tiers(catalogue: ModelCatalogue) -> list[TierLine]:
    return [
        TierLine(name=name, chain=tier.chain, day_tokens=finite_tokens(tier.day_tokens), month_tokens=finite_tokens(tier.month_tokens))
        for name, tier in catalogue.tiers.items()
    ]


def finite_tokens(tokens: int) -> int | None:
    return None if tokens >= UNLIMITED_TOKENS else tokens
