"""Build what runs after a turn and by the clock: learning, dreaming, reminding, new vectors for old facts."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.app.adapters import Adapters
from hermes.app.gateway import ModelServices, SystemClock
from hermes.app.packs import OpenPacks
from hermes.app.router import UserMemory, can_read
from hermes.config import Settings
from hermes.ports.memories import DreamDepth
from hermes.ports.runtime import JobQueue, Transactions
from hermes.router.chores import Chore, default_chores
from hermes.router.proactive import ProactiveMessenger
from hermes.router.services import Services
from hermes.soul.dream import Dreamer, DreamJob
from hermes.soul.extract import LearnJob, re_embed
from hermes.soul.memory_model import NO_ANSWER_ERRORS, MemoryModel
from hermes.soul.sanitize import sanitize_memory_value, scan


@dataclass(frozen=True, slots=True)
class BackgroundJobs:
    """The jobs that no answer waits for."""

    learn_job: LearnJob
    proactive: ProactiveMessenger
    chores: tuple[Chore, ...]


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
    chores = chores_from(adapters, transactions, proactive, user_memory=user_memory, memory_model=memory_model)
    return BackgroundJobs(learn_job, proactive, chores)


def chores_from(
    adapters: Adapters,
    transactions: Transactions,
    proactive: ProactiveMessenger,
    *,
    user_memory: UserMemory,
    memory_model: MemoryModel | None,
) -> tuple[Chore, ...]:
    dreamer = Dreamer(
        transactions=transactions,
        memories=adapters.memories,
        dreams=adapters.dreams,
        souls=user_memory.souls,
        sanitize=sanitize_memory_value,
        fails_with=NO_ANSWER_ERRORS,
    )
    dream_job = DreamJob(dreamer=dreamer, people=adapters.people, memory_model=memory_model)
    return default_chores(
        remind=proactive.remind,
        dream_lightly=lambda now: dream_job.dream(DreamDepth.LIGHT, now=now),
        dream_deeply=lambda now: dream_job.dream(DreamDepth.DEEP, now=now),
        re_embed=lambda _: re_embed(transactions, adapters.memories, adapters.embeddings),
    )
