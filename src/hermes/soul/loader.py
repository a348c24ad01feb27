"""Load the soul of a turn: the base from the cache or from the stores, and the facts that recall finds for this message.

The cache holds what is known about the user, and nothing about the agent: a change of an agent's tone shows at once, and two agents that
talk to one user share what is known about them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import structlog

from hermes.ports.errors import PortError, StoreUnavailable
from hermes.ports.memories import DreamDepth, Dreams, Memories, PastMessages, Soul, SoulCache, SoulLayer
from hermes.ports.runtime import Alerts, Transactions
from hermes.ports.users import Agent, User
from hermes.soul.prompt_layers import (
    DEFAULT_ROLE,
    Sanitize,
    SoulBase,
    build_base,
    message_note,
    opening_note,
    personality,
    room_note,
    room_system_message,
    system_message,
)
from hermes.soul.recall import NOTHING_RECALLED, Recall, RecalledFacts
from hermes.soul.sharing import fact_line
from hermes.soul.trivial import is_trivial

log = structlog.get_logger()

DROP_PAUSES_S = (0.5, 1.0)
"""Pauses between the three tries to drop a base."""
MAX_PAST_MESSAGES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SoulLoader:
    """Implements the port Souls."""

    transactions: Transactions
    memories: Memories
    dreams: Dreams
    past: PastMessages
    bases: SoulCache
    recall: Recall
    alerts: Alerts
    sanitize: Sanitize
    role: str = DEFAULT_ROLE
    """What the agent is: `concierge`."""
    timeout_s: float = 2.0
    """Longest wait for the base."""
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def load(self, user: User, agent: Agent, text: str, *, now: datetime, conversation_id: UUID) -> Soul:
        started = time.perf_counter()
        known = await self._base(user.id, conversation_id, now)
        # Most users have no free facts yet, and computing a vector takes longer than all the rest of a soul.
        recalled = await self._find_facts(user.id, text, now, has_facts=known is None or known.has_facts)
        note = message_note(now, known, recalled.facts, self.sanitize)
        load_ms = round((time.perf_counter() - started) * 1000)
        return Soul(
            system_message(agent, known, self.role),
            note,
            recalled.is_used,
            load_ms,
            known.timezone if known else None,
            layers=(
                SoulLayer("personality", len(personality(agent, self.role))),
                *(known.layers if known else ()),
                SoulLayer("note", len(note)),
            ),
            recalled=recalled.ranked,
            opening_note=opening_note(now, known) if is_trivial(text) else None,
        )

    async def for_room(self, user: User, agent: Agent, *, now: datetime, conversation_id: UUID) -> Soul:
        shared = await self._shared_lines(user.id, conversation_id, now)
        system, note = room_system_message(agent, self.role), room_note(now, shared)
        layers = (SoulLayer("room", len(system)), SoulLayer("note", len(note)))
        return Soul(system, note, is_recall_used=False, load_ms=0, layers=layers)

    async def _shared_lines(self, user_id: UUID, conversation_id: UUID, now: datetime) -> list[str]:
        """What the user shares with this room; nothing if no store answers in time."""
        try:
            async with asyncio.timeout(self.timeout_s), self.transactions.begin() as tx:
                facts = await self.memories.shared(tx, user_id, conversation_id, now=now)
        except (PortError, TimeoutError) as error:
            log.warning("room_without_shared_facts", conversation_id=str(conversation_id), error=type(error).__name__)
            return []
        return [line for fact in facts if (line := fact_line(fact, self.sanitize)) is not None]

    async def invalidate(self, user_id: UUID) -> None:
        for pause_s in (*DROP_PAUSES_S, None):
            try:
                await self.bases.drop(user_id)
            except StoreUnavailable:
                if pause_s is not None:
                    await self.pause(pause_s)
            else:
                return
        self.alerts.alert("soul_cache_not_invalidated", user_id=str(user_id), exposure_s=self.bases.ttl_s)

    async def _find_facts(self, user_id: UUID, text: str, now: datetime, *, has_facts: bool) -> RecalledFacts:
        return await self.recall.find(user_id, text, now=now, has_facts=has_facts) if text.strip() else NOTHING_RECALLED

    async def _base(self, user_id: UUID, conversation_id: UUID, now: datetime) -> SoulBase | None:
        """What is known about the user; None if no store answers in time."""
        try:
            async with asyncio.timeout(self.timeout_s):
                cached = await self.bases.get(user_id)
                known = decode_base(cached.value)
                if known is None:
                    known = await self._build(user_id, now)
                    await self.bases.put(user_id, encode_base(known), cached.mark)
                return known
        except (PortError, TimeoutError) as error:
            log.warning("soul_without_base", user_id=str(user_id), conversation_id=str(conversation_id), error=type(error).__name__)
            return None

    async def _build(self, user_id: UUID, now: datetime) -> SoulBase:
        async with self.transactions.begin() as tx:
            facts = await self.memories.structural(tx, user_id, now=now)
            past = await self.past.last(tx, user_id, limit=MAX_PAST_MESSAGES)
            dreams = await self.dreams.newest(tx, user_id, DreamDepth.DEEP)
            has_facts = await self.memories.has_free(tx, user_id)
        return replace(build_base(facts, past, dreams, self.sanitize), has_facts=has_facts)


def encode_base(known: SoulBase) -> bytes:
    past = [at.isoformat() for at in known.past]
    fields = {"text": known.text, "timezone": known.timezone, "past": past, "has_facts": known.has_facts}
    return json.dumps({**fields, "layers": [[layer.name, layer.chars] for layer in known.layers]}).encode()


def decode_base(value: bytes | None) -> SoulBase | None:
    """Read a cached base; None for bytes that are no base, or that another version wrote."""
    try:
        fields = json.loads(value or b"{}")
        past = tuple(datetime.fromisoformat(at) for at in fields["past"])
        layers = tuple(SoulLayer(name, chars) for name, chars in fields.get("layers", ()))
        return SoulBase(fields["text"], fields["timezone"], past, fields["has_facts"], layers)
    except (ValueError, KeyError, TypeError):
        return None
