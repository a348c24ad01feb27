"""Put together what happens after a turn and by the clock: learning, dreaming, reminding, new vectors for old facts."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.app.adapters import Adapters
from hermes.app.gateway import ModelServices, SystemClock
from hermes.app.router import UserMemory
from hermes.config import BackendKind, Settings
from hermes.gateway.catalogue import ModelCatalogue
from hermes.ports.job_queue import JobQueue
from hermes.ports.memories import DreamDepth
from hermes.ports.transactions import Transactions
from hermes.router.chores import Chore, default_chores
from hermes.router.proactive import ProactiveMessenger
from hermes.router.services import Services
from hermes.soul.dream_job import Dreamer, DreamJob
from hermes.soul.extract import re_embed
from hermes.soul.learn_job import LearnJob
from hermes.soul.memory_model import NO_ANSWER_ERRORS, MemoryModel
from hermes.soul.sanitize import sanitize_memory_value, scan

LIMITED_BACKENDS = frozenset({BackendKind.SCRIPTED.value, BackendKind.LOCAL.value})
"""Backends that cannot read what somebody tells of themselves."""


@dataclass(frozen=True, slots=True)
class BackgroundJobs:
    """What is left to do when everybody was answered."""

    learn_job: LearnJob
    proactive: ProactiveMessenger
    chores: tuple[Chore, ...]


def background_jobs_from(
    settings: Settings, adapters: Adapters, services: Services, models: ModelServices, *, user_memory: UserMemory, work: JobQueue
) -> BackgroundJobs:
    transactions, asking = services.transactions, None
    if settings.memory.asks_models:
        asking = MemoryModel(
            models=services.models,
            budgets=adapters.budgets,
            transactions=transactions,
            people=adapters.people,
            agent_on=services.agent_on,
            tier=models.catalogue.tier,
            can_read=lambda tier: can_read(models.catalogue, tier),
        )
    remembering = LearnJob(
        transactions=transactions,
        inbox=adapters.inbox,
        journal=adapters.journal,
        writer=user_memory.writer,
        clock=SystemClock(),
        memory_model=asking,
    )
    reminding = ProactiveMessenger(
        transactions=transactions,
        reminders=adapters.reminders,
        watchers=adapters.watchers,
        inbox=adapters.inbox,
        people=adapters.people,
        outbox=adapters.outbox,
        sessions=adapters.sessions,
        graphs=adapters.graphs,
        work=work,
        outbox_delivery=services.outbox_delivery,
        languages=services.languages,
        scan=scan,
    )
    return BackgroundJobs(remembering, reminding, chores_from(adapters, transactions, reminding, user_memory=user_memory, asking=asking))


def chores_from(
    adapters: Adapters, transactions: Transactions, reminding: ProactiveMessenger, *, user_memory: UserMemory, asking: MemoryModel | None
) -> tuple[Chore, ...]:
    dreamer = Dreamer(
        transactions=transactions,
        memories=adapters.memories,
        dreams=adapters.dreams,
        souls=user_memory.souls,
        sanitize=sanitize_memory_value,
        fails_with=NO_ANSWER_ERRORS,
    )
    nights = DreamJob(dreamer=dreamer, people=adapters.people, memory_model=asking)
    return default_chores(
        remind=reminding.remind,
        dream_lightly=lambda now: nights.dream(DreamDepth.LIGHT, now=now),
        dream_deeply=lambda now: nights.dream(DreamDepth.DEEP, now=now),
        re_embed=lambda _: re_embed(transactions, adapters.memories, adapters.embeddings),
    )


def can_read(catalogue: ModelCatalogue, tier: str) -> bool:
    """Whether the model that a tier asks first can read and write: a script would be asked in vain after every message."""
    known = catalogue.tiers.get(tier)
    return known is not None and catalogue.models[known.chain[0]].backend not in LIMITED_BACKENDS
