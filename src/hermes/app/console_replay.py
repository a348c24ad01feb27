"""Build replays: the dry run, the worker that runs what waits, and what operators do with both.

The dry run gets the journal and the graphs as readers, the gateway, and tools that only read. It gets no outbox, no channel, no credits, no
memory and no session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from hermes.app.adapters import Adapters
from hermes.app.clock import SystemClock
from hermes.app.console_access import access_from
from hermes.config import Settings
from hermes.console.replay_keep import ReplayKeeper
from hermes.console.replay_record import RecordedRequests
from hermes.console.replay_run import DryRunner
from hermes.console.replay_work import ReplayWorker
from hermes.console.replays import ReplayConsole
from hermes.gateway.gateway import Gateway
from hermes.gateway.prices import micro_usd_of
from hermes.ports.backends import ModelRequest, Usage
from hermes.ports.errors import require_known
from hermes.ports.models import Answer, Caller, ModelCalls
from hermes.ports.replays import REPLAY_PAYER, RecordCall
from hermes.ports.users import Users, UserState
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.replays import PostgresReplays, SealedRecords
from hermes.tools.executor import Toolbox
from hermes.tools.reading import ToolboxReader


@dataclass(frozen=True, slots=True)
class GatewayReplayModels:
    """The port ReplayModels: the gateway, paid by the user `replay`."""

    gateway: Gateway
    transactions: Database
    people: Users
    calls: ModelCalls
    cap_micro_usd: int | None

    def names(self) -> Sequence[str]:
        models = self.gateway.catalogue.models
        in_use = [name for tier in self.gateway.catalogue.tiers.values() for name in tier.chain]
        return [name for name in dict.fromkeys([*in_use, *models]) if models[name].backend in self.gateway.backends]

    def estimate(self, model: str, tokens_in: int, tokens_out: int) -> int:
        models = self.gateway.catalogue.models
        spec = models[require_known(model, models, "model")]
        usage = Usage(tokens_in=tokens_in, tokens_out=min(tokens_out, spec.max_tokens))
        return self.gateway.prices.rate(spec.address, self.gateway.clock.now().date(), tokens_in).cost(usage)

    async def payer(self) -> UUID:
        async with self.transactions.begin() as tx:
            user, _ = await self.people.find_or_create(
                tx, REPLAY_PAYER.account, REPLAY_PAYER.platform, REPLAY_PAYER.sender_id, state=UserState.ACTIVE
            )
        return user.id

    async def left_today(self) -> int | None:
        if self.cap_micro_usd is None:
            return None
        today = self.gateway.clock.now().date()
        async with self.transactions.begin() as tx:
            payer = await self.people.find(tx, REPLAY_PAYER)
            if payer is None:  # nothing was replayed yet, and looking adds no user
                return self.cap_micro_usd
            spent = await self.calls.totals(tx, since=today, until=today + timedelta(days=1), user_id=payer.id)
        return self.cap_micro_usd - spent.micro_usd

    async def complete(self, request: ModelRequest, caller: Caller, recorder: RecordCall) -> Answer:
        return await self.gateway.complete(request, caller, recorder)


def replays_from(
    settings: Settings, adapters: Adapters, *, database: Database, keyring: Keyring, gateway: Gateway, toolbox: Toolbox
) -> ReplayConsole:
    """Return the replays of a Hermes. The caller closes `worker` before the models and the stores."""
    sealed = SealedRecords(adapters.journal, adapters.graphs)
    replays, records = PostgresReplays(keyring), RecordedRequests(sealed, sealed)
    models = GatewayReplayModels(gateway, database, adapters.people, adapters.calls, micro_usd_of(settings.console.replay_daily_usd))
    tools = ToolboxReader(toolbox)
    runner = DryRunner(
        transactions=database,
        replays=replays,
        records=records,
        models=models,
        calls=adapters.calls,
        tools=tools,
        clock=SystemClock(),
    )
    worker = ReplayWorker(database, replays, runner, beat_s=settings.work.heartbeat_s, stale_s=settings.work.stalled_after_s)
    return ReplayConsole(
        transactions=database,
        access=access_from(settings, database),
        replays=replays,
        records=records,
        models=models,
        tools=tools,
        keeper=ReplayKeeper(adapters.graphs, adapters.sessions),
        worker=worker,
    )
