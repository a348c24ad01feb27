"""Build what runs after a turn and by the clock: learning, dreaming, reminding, new vectors for old facts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hermes.app.adapters import Adapters
from hermes.app.alerting import watch_action
from hermes.app.clock import SystemClock
from hermes.app.gateway import ModelServices
from hermes.app.master_keys import masters_from
from hermes.app.packs import OpenPacks
from hermes.app.router import UserMemory, can_read
from hermes.app.vaults import keep_vault
from hermes.config import Settings
from hermes.gateway.spend_sums import HourSummer
from hermes.ops.months import MonthKeeper
from hermes.ports.memories import DreamDepth
from hermes.ports.runtime import JobQueue
from hermes.router.approvals import expire_offers
from hermes.router.chores import WATCH_CHORE, Chore, ChoreRun, scheduled_chores
from hermes.router.journal_retention import JournalRetention
from hermes.router.proactive import ProactiveMessenger
from hermes.router.services import Services
from hermes.soul.dream import Dreamer, DreamJob
from hermes.soul.extract import LearnJob, re_embed
from hermes.soul.memory_model import NO_ANSWER_ERRORS, MemoryModel
from hermes.soul.sanitize import sanitize_memory_value, scan
from hermes.stores.postgres.retention import ContentRetention


@dataclass(frozen=True, slots=True)
class BackgroundJobs:
    """The jobs that no answer waits for."""

    learn_job: LearnJob
    proactive: ProactiveMessenger
    chores: tuple[Chore, ...]
    dream_job: DreamJob


def background_jobs_from(
    settings: Settings,
    adapters: Adapters,
    services: Services,
    models: ModelServices,
    *,
    packs: OpenPacks,
    user_memory: UserMemory,
    work: JobQueue,
) -> BackgroundJobs:
    transactions, memory_model = services.transactions, None
    if settings.memory.asks_models:
        memory_model = MemoryModel(
            models=services.models,
            budgets=adapters.budgets,
            transactions=transactions,
            people=adapters.people,
            agent_on=services.agent_on,
            tier=models.catalogue.tier,
            can_read=lambda tier: can_read(models.catalogue, tier),
        )
    learn_job = LearnJob(
        transactions=transactions,
        inbox=adapters.inbox,
        journal=adapters.journal,
        writer=user_memory.writer,
        clock=SystemClock(),
        memory_model=memory_model,
        tracer=services.tracer,
    )
    proactive = ProactiveMessenger(
        transactions=transactions,
        sources=packs.due_messages,
        inbox=adapters.inbox,
        people=adapters.people,
        outbox=adapters.outbox,
        sessions=adapters.sessions,
        graphs=adapters.graphs,
        work=work,
        channels=services.channels,
        answer_signals=services.answer_signals,
        languages=services.languages,
        scan=scan,
    )
    dreamer = Dreamer(
        transactions=transactions,
        memories=adapters.memories,
        dreams=adapters.dreams,
        souls=user_memory.souls,
        sanitize=sanitize_memory_value,
        fails_with=NO_ANSWER_ERRORS,
    )
    dream_job = DreamJob(dreamer=dreamer, people=adapters.people, memory_model=memory_model)
    retention = JournalRetention(transactions, adapters.journal, settings.journal.keep_days)
    chores = chores_from(settings, adapters, proactive, dream_job, retention)
    return BackgroundJobs(learn_job, proactive, chores, dream_job)


def chores_from(
    settings: Settings, adapters: Adapters, proactive: ProactiveMessenger, dream_job: DreamJob, retention: JournalRetention
) -> tuple[Chore, ...]:
    """Return the chores. Everything that one of them writes goes through the transactions of its run, which check its lease."""
    sums = adapters.spend_sums
    return scheduled_chores(
        {
            "reminders": lambda run: replace(proactive, transactions=run.transactions).remind(run.now),
            "offers": lambda run: expire_offers(run, adapters.offers),
            "light_dreams": lambda run: dream_job.under(run.transactions).dream(DreamDepth.LIGHT, now=run.now),
            "deep_dreams": lambda run: dream_job.under(run.transactions).dream(DreamDepth.DEEP, now=run.now),
            "re_embedding": lambda run: re_embed(run.transactions, adapters.memories, adapters.embeddings),
            "journal_retention": lambda run: retain(run, settings, adapters, retention),
            "retention": lambda run: content_retention_from(settings).delete_old(run.transactions, run.now),
            "vault": lambda run: keep_vault(settings, masters_from(settings), run),
            "spend_sums": lambda run: HourSummer(run.transactions, sums).sum_recent(),
            "spend_sums_of_yesterday": lambda run: HourSummer(run.transactions, sums).sum_yesterday(run.now),
            WATCH_CHORE: watch_action(settings, adapters.alerting),
        }
    )


async def retain(run: ChoreRun, settings: Settings, adapters: Adapters, retention: JournalRetention) -> int:
    """Empty the journal, then look after the months that it and the calls are stored in. Return how many entries were emptied."""
    emptied = await replace(retention, transactions=run.transactions).empty_old(run.now)
    await MonthKeeper(run.transactions, adapters.months, settings.journal.keep_days, settings.retention.calls_days).keep(run.now)
    return emptied


def content_retention_from(settings: Settings) -> ContentRetention:
    kept = settings.retention
    return ContentRetention(messages_days=kept.messages_days, graphs_days=kept.graphs_days, idle_s=settings.history.idle_s)
