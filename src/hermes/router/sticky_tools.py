"""Sticky tools: while a vendor may have a session's prompt in its cache, the session keeps the set of tools that went with that prompt.

The tools stand at the beginning of a prompt. If they change, the vendor has to read the whole prompt again, and charges for it; so a cached
prompt with a few tools too many is cheaper than a new prompt with the right ones. Each process knows only its own prompts. Any free worker
may answer a session; a worker without an entry gates the tools afresh."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID

PROMPT_CACHE_S = 300.0
"""How long vendors keep a prompt by default."""
MAX_SESSIONS = 10_000
MIN_PROMPT_CHARS = 8_000
"""The shortest prompt that we expect a vendor to keep: about 2,000 tokens. Vendors' minimums lie between 1,024 and 4,096 tokens."""
SCHEMA_CHARS = 480
"""Characters of a tool's schema, on average: eighteen schemas are about 2,000 tokens."""


class StickyTools:
    """Remembers, by session, the name of the tool set that was sent last."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent: OrderedDict[UUID, tuple[str, float]] = OrderedDict()
        """By session, the longest untouched first: the set, and when it was sent."""

    def set_of(self, session_id: UUID) -> str | None:
        """The set that was sent last, if the vendor may still have its prompt; else None."""
        name, sent_at = self._sent.get(session_id, (None, 0.0))
        return name if name is not None and self._clock() - sent_at < PROMPT_CACHE_S else None

    def note(self, session_id: UUID, name: str, *, prompt_chars: int, tools: int) -> None:
        """Remember the set that is about to be sent, with so many tools, beside a prompt of this length. A vendor does not keep a short
        prompt: below MIN_PROMPT_CHARS, tools included, the session has no set to keep."""
        self._sent.pop(session_id, None)
        if prompt_chars + tools * SCHEMA_CHARS < MIN_PROMPT_CHARS:
            return
        self._sent[session_id] = (name, self._clock())
        if len(self._sent) > MAX_SESSIONS:
            self._sent.popitem(last=False)
