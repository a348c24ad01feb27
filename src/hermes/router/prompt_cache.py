"""Which tools went with a session's last prompt, as long as its vendor may still have that prompt in its cache.

Of this process alone: a session is answered wherever a worker is free, and one that does not know only gates afresh."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID

PROMPT_CACHE_S = 300.0
"""How long vendors keep a prompt by default."""
MAX_SESSIONS = 10_000
MIN_PROMPT_CHARS = 8_000
"""Of a prompt that a vendor keeps: about 2,000 tokens. Floors lie between 1,024 and 4,096."""


class CachedToolSets:
    """Remembers the subset of tools by session."""

    def __init__(self, *, warm_s: float = PROMPT_CACHE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._warm_s, self._clock = warm_s, clock
        self._sent: OrderedDict[UUID, tuple[str, float]] = OrderedDict()

    def of(self, session_id: UUID) -> str | None:
        """The subset that was sent last and may still be warm."""
        known = self._sent.get(session_id)
        return known[0] if known is not None and self._clock() - known[1] < self._warm_s else None

    def note(self, session_id: UUID, subset: str, *, characters: int) -> None:
        """Remember what is about to be sent, and how long it is: a vendor does not keep a short prompt, so nothing is warm then."""
        if characters < MIN_PROMPT_CHARS:
            self._sent.pop(session_id, None)
            return
        self._sent[session_id] = (subset, self._clock())
        self._sent.move_to_end(session_id)
        while len(self._sent) > MAX_SESSIONS:
            self._sent.popitem(last=False)
