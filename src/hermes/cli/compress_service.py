"""What `hermes compress` needs from the service: a model behind the gateway, its price, and sessions from the store. Extra `serve`."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from hermes.app.batch_model import open_model, refuse_unusable_model
from hermes.app.catalogue import models_of, prices_from
from hermes.cli.compress_paths import StoredQuery
from hermes.cli.output import complain, fail
from hermes.cli.runtime import complete_setting, run, settings_from, start_log
from hermes.cli.stored_sessions import stored_sessions
from hermes.config import BackendKind, BackendSettings, LogLevel, ModelSettings, NamedTables, PriceSettings, Secret, Settings
from hermes.ports.errors import StartRefused
from hermes.ports.models import UnknownPrice
from hermes.trajectories.compress.settings import SummarizationSettings
from hermes.trajectories.errors import SourceError
from hermes.trajectories.private_files import open_private_text
from hermes.trajectories.sampling_model import SamplingModel

T = TypeVar("T")

OWN_MODEL = "summariser"
"""The name of the model at `summarization.base_url`, and of its backend, among those of the settings."""

complete_models = complete_setting(models_of, "settings_file")


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The name of a model, and the settings that define it."""

    name: str
    settings: Settings


def choose_model(name: str, summarization: SummarizationSettings, settings_file: Path | None) -> ChosenModel:
    """Find a model in the catalogue, or define one for the server that the configuration names. A bad model is one line and exit code 2.

    The server gets the configuration's own model, and names that the catalogue does not have."""
    settings = settings_from(settings_file)
    if summarization.base_url is not None and (name == summarization.model or name not in models_of(settings)):
        variable = summarization.api_key_env
        key = os.environ.get(variable) if variable is not None else None
        if variable is not None and not key:
            fail(
                f"{variable} is not set; it holds the key for {summarization.base_url}: set it, or summarise without a model: --model none"
            )
        backend = BackendSettings(kind=BackendKind.PLAIN, base_url=summarization.base_url, api_key=Secret(key) if key else None)
        # The configuration has no price for this server, so its calls count as free.
        own = ModelSettings(backend=OWN_MODEL, id=name, prices=(PriceSettings(input=0.0, output=0.0),))
        settings = replace(
            settings,
            backends=NamedTables({**settings.backends, OWN_MODEL: backend}),
            models=NamedTables({**settings.models, OWN_MODEL: own}),
        )
        name = OWN_MODEL
    try:
        refuse_unusable_model(settings, name)
    except StartRefused as error:
        fail(f"{error}; or summarise without a model: --model none")
    return ChosenModel(name, settings)


def with_model(chosen: ChosenModel, act: Callable[[SamplingModel, int | None], Coroutine[Any, Any, T]]) -> T:
    """Call `act` with an open model and the number of requests that it takes at once. The log shows only warnings and errors."""
    settings = chosen.settings
    start_log(replace(settings, log=replace(settings.log, level=LogLevel.WARNING)))

    async def main() -> T:
        async with open_model(settings, chosen.name) as model:
            return await act(model, getattr(model, "at_once", None))

    return run(main())


def price_usd(chosen: ChosenModel, prompt_tokens: int, answer_tokens: int, requests: int) -> float | None:
    """Return the cost of these tokens in US dollars, for requests of about equal length; None if there is no price."""
    if chosen.name == OWN_MODEL:
        return None
    try:
        model = models_of(chosen.settings)[chosen.name]
        rate = prices_from(chosen.settings).rate(model.address, datetime.now(UTC).date(), prompt_tokens // max(requests, 1))
    except UnknownPrice:
        return None
    return (prompt_tokens * rate.tokens_in + answer_tokens * rate.tokens_out) / 1e12


def save_sessions(query: StoredQuery, file: Path) -> int:
    """Write sessions of the store to a file of graphs that only its owner can read. Return how many sessions could not be read.

    The file appears complete, or not at all."""
    draft = file.with_suffix(".part")
    broken = 0
    with stored_sessions(query.names, query.since, query.account, query.settings_file) as sessions:
        with open_private_text(draft) as lines:
            for session in sessions:
                if isinstance(session, SourceError):
                    complain(str(session))
                    broken += 1
                else:
                    lines.write(session.graph.to_json() + "\n")
        if sessions.erased_sessions:
            complain(f"{sessions.erased_sessions:,} sessions are left out: their users were erased")
    draft.rename(file)
    return broken
