"""The Live page, the list of turns and the search, for a whole Hermes."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.app.console_turn_list import turn_lists_from
from hermes.app.root import Hermes
from hermes.console.live import Overviews, OverviewSources
from hermes.console.search import ConsoleSearch
from hermes.console.turn_list import TurnLists
from hermes.console.turn_watch import TurnWatch
from hermes.stores.postgres.alerts import PostgresAlerts
from hermes.stores.postgres.live import PostgresLive
from hermes.stores.postgres.search import PostgresSearch


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConsole:
    """What shows how Hermes is now, and its turns."""

    turns: TurnLists
    overviews: Overviews
    search: ConsoleSearch
    watch: TurnWatch


def live_from(hermes: Hermes) -> LiveConsole:
    """Return the live part of a running Hermes."""
    lists = turn_lists_from(hermes.database)
    sources = OverviewSources(
        transactions=hermes.database,
        live=PostgresLive(),
        turns=lists.turns,
        processes=hermes.adapters.processes,
        alerts=PostgresAlerts(),
        breakers=hermes.adapters.breaker_reader,
        channel_names=lambda: hermes.account_channels.names,
        spent_today=hermes.gateway.spent_today,
        kill_switch=hermes.spend.kill_switch_record,
        stalled_after_s=hermes.settings.work.stalled_after_s,
    )
    overviews = Overviews(sources)
    return LiveConsole(
        turns=lists,
        overviews=overviews,
        search=ConsoleSearch(hermes.database, PostgresSearch()),
        watch=TurnWatch(hermes.adapters.turn_news, overviews.note_news),
    )
