"""Build what answers a message: what Hermes knows about its users, the tools, and the services of the ten steps (`router/pipeline.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from uuid import UUID

from hermes.app.adapters import Adapters
from hermes.app.clock import SystemClock
from hermes.app.packs import OpenPacks, packs_from, role_from
from hermes.app.tool_pins import PinKeeper
from hermes.config import BackendKind, HistorySettings, Settings
from hermes.delivery.typing_indicator import TypingIndicator
from hermes.gateway.catalogue import ModelCatalogue
from hermes.gateway.fleet import Fleet
from hermes.ops.metrics import Metrics
from hermes.packs import PackServices
from hermes.ports.channels import Channels
from hermes.ports.errors import StartRefused
from hermes.ports.inbox import Claim, InboxMessage
from hermes.ports.memories import EmbeddingsUnavailable
from hermes.ports.models import Models
from hermes.ports.runtime import JobQueue, Transaction, Transactions
from hermes.ports.tools import MediaFetcher
from hermes.ports.traces import NO_TRACER, Tracer
from hermes.ports.users import DEFAULT_AGENT, Agent
from hermes.router.compaction_policy import CompactionPolicy, ImageTokenCounter
from hermes.router.outbox import is_sent
from hermes.router.services import Links, Services
from hermes.router.steps.run_tools import MAX_TOOL_CALLS
from hermes.soul import language, sanitize
from hermes.soul.extract import MemoryWriter
from hermes.soul.fact_keys import KEYS, SYSTEM_KEYS, use_pack_keys
from hermes.soul.forgetting import MemoryEraser
from hermes.soul.language import UserLanguages
from hermes.soul.loader import SoulLoader
from hermes.soul.memory_model import NO_ANSWER_ERRORS
from hermes.soul.my_data import ConversationEraser
from hermes.soul.notebook import MemoryNotebook
from hermes.soul.recall import Recall
from hermes.soul.sanitize import sanitize_memory_value, scan
from hermes.soul.sharing import MemorySharing
from hermes.soul.trivial import is_trivial
from hermes.stores.postgres.keyring import Keyring
from hermes.tools.executor import Toolbox, ToolSource, no_more_tools
from hermes.tools.images import MessageImages
from hermes.trajectories.compress import CompressionSettings, ExtractiveSummariser, ModelSummariser, Summariser
from hermes.trajectories.sampling_model import SamplingModel

LIMITED_BACKENDS = frozenset({BackendKind.SCRIPTED.value, BackendKind.LOCAL.value})
"""Backends that cannot read what users tell about themselves."""
SUMMARY_TIMEOUT_S = 20.0
"""A user waits for the answer meanwhile, so a model that takes longer for a summary is given up."""
EXTRA_WAIT_S = 30.0
"""Added to the gateway's own deadlines: so the gateway's deadline passes before the limit of the step that waits for it."""


@dataclass(frozen=True, slots=True)
class UserMemory:
    """What Hermes knows about its users, and the parts that learn and forget it."""

    souls: SoulLoader
    recall: Recall
    writer: MemoryWriter
    notebook: MemoryNotebook


@dataclass(frozen=True, slots=True)
class AnswerServices:
    """What a message is answered with, besides a model."""

    user_memory: UserMemory
    packs: OpenPacks
    tools: Toolbox
    images: MessageImages


OpenTools = Callable[[Settings, PinKeeper], AbstractAsyncContextManager[ToolSource]]
"""Opens the tools beside Hermes' own: those of the MCP servers of the settings."""


@asynccontextmanager
async def open_no_tools(_: Settings, __: PinKeeper) -> AsyncIterator[ToolSource]:
    """For a Hermes that answers no message, such as that of `hermes keys`: connect to no MCP server."""
    yield no_more_tools


@asynccontextmanager
async def refuse_mcp_servers(settings: Settings, _: PinKeeper) -> AsyncIterator[ToolSource]:
    """Connect to no MCP server. Raises StartRefused if the settings name one: answers would silently lack its tools."""
    if settings.mcp:
        raise StartRefused("the settings name MCP servers; open Hermes with open_tools=open_mcp_tools, from hermes.app.mcp_tools")
    yield no_more_tools


def answer_services_from(
    settings: Settings,
    adapters: Adapters,
    *,
    transactions: Transactions,
    keyring: Keyring,
    metrics: Metrics,
    web: MediaFetcher,
    mcp_tools: ToolSource,
    tracer: Tracer,
) -> AnswerServices:
    found = packs_from(settings)
    use_pack_keys(key for pack in found for key in pack.fact_keys)
    user_memory = user_memory_from(adapters, transactions, metrics, role=role_from(found), tracer=tracer)
    packs = OpenPacks(found, PackServices(transactions=transactions, keyring=keyring, notebook=user_memory.notebook))
    limits = settings.images
    images = MessageImages(web=web, scan=scan, intents=packs.image_intents, max_bytes=limits.max_bytes, max_side=limits.max_side)
    return AnswerServices(user_memory, packs, toolbox_from(settings, adapters, transactions, packs, mcp_tools), images)


def user_memory_from(
    adapters: Adapters, transactions: Transactions, metrics: Metrics, *, role: str, tracer: Tracer = NO_TRACER
) -> UserMemory:
    recall = Recall(
        transactions,
        adapters.memories,
        adapters.embeddings,
        is_trivial=is_trivial,
        count_skipped=metrics.recall_skipped.inc,
        tracer=tracer,
    )
    souls = SoulLoader(
        transactions=transactions,
        memories=adapters.memories,
        dreams=adapters.dreams,
        past=adapters.past_messages,
        bases=adapters.bases,
        recall=recall,
        alerts=adapters.alerts,
        sanitize=sanitize_memory_value,
        role=role,
    )
    eraser = ConversationEraser(adapters.sessions, adapters.graphs, adapters.histories)
    forgetting = MemoryEraser(
        transactions=transactions,
        memories=adapters.memories,
        dreams=adapters.dreams,
        embeddings=adapters.embeddings,
        souls=souls,
        past=adapters.past_messages,
        eraser=eraser,
    )
    writer = MemoryWriter(
        transactions=transactions,
        memories=adapters.memories,
        embeddings=adapters.embeddings,
        souls=souls,
        sanitize=sanitize_memory_value,
        is_trivial=is_trivial,
        fails_with=NO_ANSWER_ERRORS,
        forgetting=forgetting,
    )
    return UserMemory(souls, recall, writer, MemoryNotebook(writer, recall, forgetting))


def toolbox_from(settings: Settings, adapters: Adapters, transactions: Transactions, packs: OpenPacks, mcp_tools: ToolSource) -> Toolbox:
    sharing = MemorySharing(adapters.memories, sanitize_memory_value)
    own, gate = packs.own_tools([key for key in KEYS if key not in SYSTEM_KEYS], sharing)
    return Toolbox(
        own=own,
        gate_=gate,
        transactions=transactions,
        outcomes=adapters.outcomes,
        offers=adapters.offers,
        scan=scan,
        more_tools=mcp_tools,
        timeout_s=settings.tools.timeout_s,
    )


def services_from(
    settings: Settings,
    adapters: Adapters,
    *,
    transactions: Transactions,
    work: JobQueue,
    channels: Channels,
    deliver: Callable[[UUID], Awaitable[None]],
    fleet: Fleet,
    models: Models,
    answer_services: AnswerServices,
    typing: TypingIndicator,
    metrics: Metrics,
    process_id: UUID,
    tracer: Tracer,
    reads: Callable[[str], bool],
    compaction: CompactionPolicy | None = None,
) -> Services:
    """Return everything that the ten steps of `router/pipeline.py` need. `reads` tells in which tiers a model learns from messages."""

    def learns_from(claim: Claim, tier: str) -> bool:
        """Hermes learns nothing from group chats, nor from a button. Of other texts the writer says whether they may tell it something."""
        envelope, writer = claim.envelope, answer_services.user_memory.writer
        return not envelope.is_shared and not envelope.choice and writer.may_learn(envelope.event.text, is_shown_to_model=reads(tier))

    async def learn(tx: Transaction, claim: Claim) -> None:
        await work.defer_memory(tx, claim.turn_id, claim.user_id)

    async def note_private(tx: Transaction, origin: InboxMessage) -> None:
        if is_sent(origin.envelope):
            await work.defer_delivery(tx, origin.conversation_id)
        await work.defer_proactive(tx, origin.conversation_id)

    llm, links = settings.llm, settings.links
    model_s = llm.deadline_s + llm.slot_wait_s + EXTRA_WAIT_S
    return Services(
        process_id=process_id,
        tracer=tracer,
        transactions=transactions,
        people=adapters.people,
        credits=adapters.credits,
        inbox=adapters.inbox,
        sessions=adapters.sessions,
        histories=adapters.histories,
        graphs=adapters.graphs,
        journal=adapters.journal,
        interactions=adapters.interactions,
        outbox=adapters.outbox,
        turn_ends=adapters.turn_ends,
        channels=channels,
        answer_signals=adapters.replies,
        deliver=deliver,
        souls=answer_services.user_memory.souls,
        images=answer_services.images,
        tools=answer_services.tools,
        offers=adapters.offers,
        models=models,
        alerts=adapters.alerts,
        clock=SystemClock(),
        agent_on=lambda account: fleet.agents.get(fleet.agent_on(account), Agent(name=DEFAULT_AGENT)),
        languages=UserLanguages(),
        meter=metrics,
        learns_from=learns_from,
        learn=learn,
        note_private=note_private,
        model_s=model_s,
        tools_s=model_s + MAX_TOOL_CALLS * settings.tools.timeout_s,
        typing=typing.show_during,
        compaction=compaction,
        per_minute=settings.inbox.per_minute,
        charges_cached=settings.credits.charge_cached,
        links=Links(links.signup, links.activation, links.upgrade, settings.credits.referral_reward or None),
    )


def compaction_policy_from(history: HistorySettings, catalogue: ModelCatalogue) -> CompactionPolicy:
    """Return the policy. In a tier whose first model cannot write summaries (`can_read`), histories are compacted without a model."""
    default = CompressionSettings()
    settings = replace(
        default,
        summarization=replace(default.summarization, max_retries=1, timeout=SUMMARY_TIMEOUT_S, max_prompt_tokens=history.max_tokens),
        processing=replace(default.processing, per_trajectory_timeout=2 * SUMMARY_TIMEOUT_S),
    )

    def limit_of(tier: str) -> int:
        found = catalogue.tiers.get(tier)
        first = catalogue.models[found.chain[0]] if found else None
        if first is None or first.capabilities.context is None:
            return history.max_tokens
        return max(1, min(history.max_tokens, (first.capabilities.context - first.max_tokens) // 2))

    def summariser(model: SamplingModel, tier: str) -> Summariser:
        return ModelSummariser(model, settings) if history.asks_models and can_read(catalogue, tier) else ExtractiveSummariser()

    return CompactionPolicy(limit_of=limit_of, summariser=summariser, settings=settings, counter=ImageTokenCounter())


def can_read(catalogue: ModelCatalogue, tier: str) -> bool:
    """Whether the first model of a tier can read and write. A script cannot, so Hermes does not ask it after every message."""
    found = catalogue.tiers.get(tier)
    return found is not None and catalogue.models[found.chain[0]].backend not in LIMITED_BACKENDS


async def preload(adapters: Adapters) -> None:
    """Load what the first message would wait for: the model that tells languages apart, the word lists, and the embeddings model."""
    await asyncio.to_thread(language.load_language_model)
    await asyncio.to_thread(sanitize.load_word_lists)
    with suppress(EmbeddingsUnavailable):
        await adapters.embeddings.embed(["hello"])
