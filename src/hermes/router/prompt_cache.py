"""Which tools went with a session's last prompt, as long as the vendor may still have that prompt in its cache.

Each process knows only its own prompts. Any free worker may answer a session; a worker without an entry gates the tools afresh."""

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


class CachedToolSets:
    """Remembers, by session, the subset of tools that was sent last."""

    def __init__(self, *, cache_s: float = PROMPT_CACHE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._cache_s, self._clock = cache_s, clock
        self._sent: OrderedDict[UUID, tuple[str, float]] = OrderedDict()

    def of(self, session_id: UUID) -> str | None:
        """The subset that was sent last, if the vendor's cache may still hold its prompt; else None."""
        known = self._sent.get(session_id)
        return known[0] if known is not None and self._clock() - known[1] < self._cache_s else None

    def note(self, session_id: UUID, subset: str, *, characters: int) -> None:
        """Remember the subset that is about to be sent. A vendor does not keep a short prompt, so below MIN_PROMPT_CHARS the entry goes."""
        if characters < MIN_PROMPT_CHARS:
            self._sent.pop(session_id, None)
            return
        self._sent[session_id] = (subset, self._clock())
        self._sent.move_to_end(session_id)
        while len(self._sent) > MAX_SESSIONS:
            self._sent.popitem(last=False)
