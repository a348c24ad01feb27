"""People and API keys of the console, for a whole Hermes."""

from __future__ import annotations

from datetime import UTC, datetime

from hermes.app.catalogue import tiers_of
from hermes.app.console_access import access_from, subjects_from
from hermes.app.root import Hermes
from hermes.console.keys import ConsoleKeys
from hermes.console.people import ConsolePeople
from hermes.gateway.prices import micro_usd_of
from hermes.ports.key_limits import KeyLimits
from hermes.stores.postgres.costs import PostgresCosts
from hermes.stores.postgres.operators import PostgresAuditLog
from hermes.stores.postgres.people import PostgresPeople


def people_from(hermes: Hermes) -> ConsolePeople:
    """Return what reads people and acts on them."""
    return ConsolePeople(
        hermes.database,
        PostgresPeople(),
        hermes.my_data,
        access_from(hermes.settings, hermes.database),
        PostgresAuditLog(),
        subjects=subjects_from(hermes.database),
        tiers=tiers_of(hermes.settings),
        now=lambda: datetime.now(UTC),
    )


def keys_from(hermes: Hermes) -> ConsoleKeys:
    """Return what reads, makes and revokes API keys."""
    return ConsoleKeys(
        hermes.database,
        hermes.adapters.api_keys,
        PostgresCosts(),
        access_from(hermes.settings, hermes.database),
        use=hermes.adapters.key_use,
        usual=KeyLimits(day_micro_usd=micro_usd_of(hermes.settings.api.key_usd_per_day)),
        tiers=tiers_of(hermes.settings),
        now=lambda: datetime.now(UTC),
    )
