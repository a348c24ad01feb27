"""The chats that this process continued last, by the list that a client shows next. So the next request of a chat need not be searched for:
its row is enough, by which the caller checks that the chat has not moved on meanwhile.

Chats with reasoning are not remembered, because a client shows their lists in several forms."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID

from hermes.ports.sessions import ChatFingerprint, ChatMatch

MAX_CHATS = 4_096
KEEP_S = 60.0


class RecentChats:
    """The ends of chats, by their users and the digests of their lists."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[UUID, bytes], tuple[float, ChatMatch]] = OrderedDict()

    def note(self, user_id: UUID, now: ChatMatch, before: ChatMatch) -> None:
        """Remember that a chat has grown, from one list to another."""
        if before.known is not None:
            self._known.pop((user_id, before.known.shown), None)
        end = now.known
        if end is None or end.whole != end.shown:
            return
        self._known[user_id, end.shown] = self._clock() + KEEP_S, now
        self._known.move_to_end((user_id, end.shown))
        while len(self._known) > MAX_CHATS:
            self._known.popitem(last=False)

    def find(self, user_id: UUID, shown: ChatFingerprint) -> ChatMatch | None:
        """The chat whose list is exactly what a client shows up to a response; None if no such chat is remembered."""
        until, chat = self._known.get((user_id, shown.shown), (0.0, None))
        if chat is None or shown.whole != shown.shown or self._clock() >= until:
            return None
        return chat

    def forget(self, user_id: UUID, session_id: UUID) -> None:
        """Forget a chat that was found to have changed."""
        for key in [key for key, (_, chat) in self._known.items() if key[0] == user_id and chat.session_id == session_id]:
            del self._known[key]
