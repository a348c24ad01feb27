"""Learn from the message of a turn that has ended: the job that `JobQueue.defer_memory` defers.

Reads the user's text from the inbox and, from the journal, what the model was shown beside it; so it needs only the turn's id, and may run
minutes later, in another process. Learns only from turns that a model answered, not from a message that was refused for lack of credit or
of an account. Does not learn in a room that several people share: Hermes tells its members that it notes nothing about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import structlog

from hermes.ports.errors import UserErased
from hermes.ports.inbox import Inbox, InboxMessage
from hermes.ports.runtime import Clock, Transactions
from hermes.ports.sessions import Journal
from hermes.router.steps.build_messages import Prompt
from hermes.soul.extract import MemoryWriter
from hermes.soul.memory_model import MemoryModel

log = structlog.get_logger()

FIRST_CALL = ("call_model", 0)
"""Step and index under which the journal has the first model call of a turn."""


@dataclass(frozen=True, slots=True)
class LearnableMessage:
    """A message to learn from."""

    message: InboxMessage
    shown: Sequence[str]
    """What was sent to the model beside it: the system message, and the note of that turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnJob:
    """Learns from turns."""

    transactions: Transactions
    inbox: Inbox
    journal: Journal
    writer: MemoryWriter
    clock: Clock
    memory_model: MemoryModel | None = None
    """None: only the rules read messages."""

    async def remember(self, turn_id: UUID) -> None:
        """Learn from a turn's message. Safe to repeat. Does nothing for a turn that is gone or was not answered, nor for a deleted user.
        Raises StoreUnavailable; then the caller must call it again."""
        with structlog.contextvars.bound_contextvars(turn_id=str(turn_id)):
            try:
                learnable = await self._learnable_message(turn_id)
                if learnable is not None:
                    await self._learn(learnable)
            except UserErased:
                log.info("learn_skipped_erased")

    async def _learnable_message(self, turn_id: UUID) -> LearnableMessage | None:
        async with self.transactions.begin() as tx:
            message = await self.inbox.message_of(tx, turn_id)
            call = await self.journal.effect(tx, turn_id, *FIRST_CALL)
        if message is None or message.envelope.is_shared or call is None or call.result is None:
            return None
        prompt = Prompt.from_bytes(call.request)
        return LearnableMessage(message, (prompt.system, note_before_text(prompt.question, message.envelope.event.text)))

    async def _learn(self, learnable: LearnableMessage) -> None:
        message, writer = learnable.message, self.writer
        if self.memory_model is not None:
            writer = replace(
                writer, complete=self.memory_model.on_behalf_of(message.user_id, message.envelope.account, turn_id=message.turn_id)
            )
        text, now = message.envelope.event.text, self.clock.now()
        saved = await writer.extract_and_save(message.user_id, message.turn_id, text, shown=learnable.shown, now=now)
        if saved:
            async with self.transactions.begin() as tx:
                keys = [fact.key or "" for fact in saved]
                await self.journal.add(tx, message.turn_id, "memory_saved", {"added": len(saved), "keys": keys})


def note_before_text(question: Mapping[str, Any], text: str) -> str:
    """The note in a turn's user message, without the user's own words: with them in `shown`, no fact of the message would count as new."""
    content = question["content"]
    whole = content if isinstance(content, str) else "\n".join(part["text"] for part in content if part.get("type") == "text")
    return whole.removesuffix(text)
