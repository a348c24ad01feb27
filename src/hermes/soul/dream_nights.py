"""A night: dream for everybody who is due, one after the other, each on their own account."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import structlog

from hermes.ports.errors import PortError, StoreUnavailable
from hermes.ports.memories import Depth
from hermes.ports.people import People
from hermes.soul.asking import Asking
from hermes.soul.dream import period_of
from hermes.soul.dream_run import Dreamer

log = structlog.get_logger()

PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Nights:
    """Dreams for all. What one user's dream fails with keeps nobody else awake."""

    dreamer: Dreamer
    people: People
    asking: Asking | None = None
    """None: what recurs, counted; no model."""

    async def dream(self, depth: Depth, *, now: datetime) -> int:
        """Dream for all who are due in this period; return for how many. Safe to repeat and to cut off. Raises StoreUnavailable."""
        dreamt, failed = 0, set[UUID]()
        while due := await self._due(depth, now, failed):
            for user_id in due:
                if await self._dream(user_id, depth, now):
                    dreamt += 1
                else:
                    failed.add(user_id)
        return dreamt

    async def _due(self, depth: Depth, now: datetime, failed: set[UUID]) -> list[UUID]:
        """Some who are due. One whose dream failed still is, and is passed over."""
        async with self.dreamer.transactions.begin() as tx:
            due = await self.dreamer.dreams.due(tx, depth, period_of(depth, now), limit=PAGE + len(failed))
        return [user_id for user_id in due if user_id not in failed]

    async def _dream(self, user_id: UUID, depth: Depth, now: datetime) -> bool:
        try:
            dreamer = await self._dreamer_of(user_id) if depth is Depth.DEEP else self.dreamer
            await dreamer.dream(user_id, depth, now=now)
        except StoreUnavailable:
            raise
        except PortError as error:
            log.warning("dream_failed", user_id=str(user_id), depth=str(depth), error=type(error).__name__)
            return False
        return True

    async def _dreamer_of(self, user_id: UUID) -> Dreamer:
        """A dreamer who asks models in the user's name, at the account that they came to last."""
        if self.asking is None:
            return self.dreamer
        async with self.dreamer.transactions.begin() as tx:
            channels = (await self.people.channels(tx, [user_id])).get(user_id)
        if not channels:
            return self.dreamer
        complete = self.asking.on_behalf_of(user_id, channels[-1].account, deadline_s=self.dreamer.timeout_s - 5.0)
        return replace(self.dreamer, complete=complete)
