"""Learn from the message of a turn that has ended: the job behind `Work.defer_memory`.

Reads the user's own text out of the inbox and, out of the journal, what the model was shown beside it; so it needs nothing but the turn's
id, and may come minutes later, in another process. Learns only from turns that a model answered: what was refused, for want of credit or
of an account, taught nobody anything. Nor from a room that several people share: there people are told that nothing is noted of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import structlog

from hermes.ports.clock import Clock
from hermes.ports.errors import UserErased
from hermes.ports.inbox import Inbox, InboxMessage
from hermes.ports.journal import Journal
from hermes.ports.transactions import Transactions
from hermes.router.steps.build_messages import Prompt
from hermes.soul.extract import MemoryWriter
from hermes.soul.memory_model import MemoryModel

log = structlog.get_logger()

FIRST_CALL = ("call_model", 0)
"""Where the journal has what the model was first asked in a turn."""


@dataclass(frozen=True, slots=True)
class LearnableMessage:
    """A message to learn from."""

    said: InboxMessage
    shown: Sequence[str]
    """What the model was sent beside it: the system message, and the note of that turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnJob:
    """Learns from turns."""

    transactions: Transactions
    inbox: Inbox
    journal: Journal
    writer: MemoryWriter
    clock: Clock
    memory_model: MemoryModel | None = None
    """None: the rules alone."""

    async def remember(self, turn_id: UUID) -> None:
        """Learn from a turn's message. Safe to repeat. Nothing happens for a turn that is gone or was not answered, nor for a user who was
        deleted. Raises StoreUnavailable, to be called again."""
        with structlog.contextvars.bound_contextvars(turn_id=str(turn_id)):
            try:
                heard = await self._heard(turn_id)
                if heard is not None:
                    await self._learn(heard)
            except UserErased:
                log.info("memory_of_nobody")

    async def _heard(self, turn_id: UUID) -> LearnableMessage | None:
        async with self.transactions.begin() as tx:
            said = await self.inbox.message_of(tx, turn_id)
            call = await self.journal.effect(tx, turn_id, *FIRST_CALL)
        if said is None or said.envelope.is_shared or call is None or call.result is None:
            return None
        prompt = Prompt.from_bytes(call.request)
        return LearnableMessage(said, (prompt.system, note_before_text(prompt.question, said.envelope.event.text)))

    async def _learn(self, heard: LearnableMessage) -> None:
        said, event = heard.said, heard.said.envelope.event
        writer = self.writer
        if self.memory_model is not None:
            writer = replace(writer, complete=self.memory_model.on_behalf_of(said.user_id, said.envelope.account, turn_id=said.turn_id))
        learnt = await writer.extract_and_save(said.user_id, said.turn_id, event.text, shown=heard.shown, now=self.clock.now())
        if learnt:
            async with self.transactions.begin() as tx:
                keys = [fact.key or "" for fact in learnt]
                await self.journal.add(tx, said.turn_id, "memory_saved", {"added": len(learnt), "keys": keys})


def note_before_text(question: Mapping[str, Any], text: str) -> str:
    """What stands in a turn's user message before the user's own words: the note. With the words in it, nothing would ever be new."""
    content = question["content"]
    whole = content if isinstance(content, str) else "\n".join(part["text"] for part in content if part.get("type") == "text")
    return whole.removesuffix(text)
