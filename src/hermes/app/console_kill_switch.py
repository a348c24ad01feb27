"""The kill switch of a running Hermes, for the console and for its command."""

from __future__ import annotations

from hermes.app.console_access import access_from
from hermes.app.root import Hermes
from hermes.console.kill_switch import KillSwitchControl
from hermes.stores.postgres.kill_switch import PostgresKillSwitchHistory


def kill_switch_from(hermes: Hermes) -> KillSwitchControl:
    return KillSwitchControl(
        access_from(hermes.settings, hermes.database),
        hermes.database,
        hermes.spend,
        PostgresKillSwitchHistory(),
        cap_micro_usd=hermes.gateway.cap_micro_usd,
    )
