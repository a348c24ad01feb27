"""Dream for one user, or for all users who are due. The chores decide when it runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import structlog

from hermes.ports.errors import PortError, StoreUnavailable, UserErased
from hermes.ports.memories import Dream, DreamDepth, DreamKind, Dreams, Fact, Memories, Souls
from hermes.ports.runtime import Transactions
from hermes.ports.users import Users
from hermes.soul.dream import deep_dream, insight_prompt, light_dream, period_of, read_insights, review_dreams
from hermes.soul.extract import TextCompleter
from hermes.soul.extract_answer import BadAnswer
from hermes.soul.memory_model import MemoryModel
from hermes.soul.prompt_layers import Sanitize

log = structlog.get_logger()

MIN_FACTS_FOR_MODEL = 4
"""A model is asked from this many facts on: fewer facts allow no conclusion that the answering model does not see itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dreamer:
    """Makes the dreams of users. Each user has one dream per period and depth, however often the caller asks."""

    transactions: Transactions
    memories: Memories
    dreams: Dreams
    souls: Souls
    sanitize: Sanitize
    complete: TextCompleter | None = None
    """None: no model; insights come from counting words alone."""
    fails_with: tuple[type[Exception], ...] = (TimeoutError,)
    timeout_s: float = 60.0

    async def dream_all(self, depth: DreamDepth, *, now: datetime, limit: int = 100) -> int:
        """Dream for some users who are due; return for how many. Call it again until it returns 0. Raises StoreUnavailable."""
        async with self.transactions.begin() as tx:
            due = await self.dreams.due(tx, depth, period_of(depth, now), limit=limit)
        for user_id in due:
            try:
                await self.dream(user_id, depth, now=now)
            except UserErased:
                log.info("dream_skipped_erased", user_id=str(user_id))
        return len(due)

    async def dream(self, user_id: UUID, depth: DreamDepth, *, now: datetime) -> list[Dream]:
        """Dream for one user; return the reviewed lines, or none if this period has its dream already. Raises UserErased."""
        async with self.transactions.begin() as tx:
            facts = await self.memories.live(tx, user_id, now=now)
            before = await self.dreams.newest(tx, user_id, DreamDepth.DEEP)
        # In threads: a user of many years has thousands of facts, and no other user should wait for their dream.
        if depth is DreamDepth.LIGHT:
            lines = await asyncio.to_thread(light_dream, facts, now=now)
        else:
            lines = await self._deep(user_id, list(facts), list(before))
        checked = await asyncio.to_thread(review_dreams, lines, facts, self.sanitize)
        async with self.transactions.begin() as tx:
            await self.memories.lock(tx, user_id)
            # A line whose facts were forgotten while the model worked is dropped too.
            known = {fact.id for fact in await self.memories.live(tx, user_id, now=now)}
            checked = [dream for dream in checked if known.issuperset(dream.evidence)]
            is_new = await self.dreams.add(tx, user_id, depth, period_of(depth, now), checked, now=now)
        if not is_new:
            return []
        log.info("dreamt", user_id=str(user_id), depth=depth, lines=len(checked))
        if depth is DreamDepth.DEEP:
            await self.souls.invalidate(user_id)
        return checked

    async def _deep(self, user_id: UUID, facts: list[Fact], before: list[Dream]) -> list[Dream]:
        counted = await asyncio.to_thread(deep_dream, facts, before)
        if self.complete is None or len(facts) < MIN_FACTS_FOR_MODEL:
            return counted
        no_answer: tuple[type[Exception], ...] = (BadAnswer, TimeoutError, *self.fails_with)
        try:
            async with asyncio.timeout(self.timeout_s):
                insights = read_insights(await self.complete(insight_prompt(facts)), facts)
        except no_answer as error:
            log.warning("dream_without_model", user_id=str(user_id), error=type(error).__name__)
            return counted
        return [*insights, *(dream for dream in counted if dream.kind is DreamKind.GAP)]


PAGE_SIZE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamJob:
    """Dreams for all users, one after the other, each paid by the user it is for. If the dream of one user fails, the others still get
    theirs."""

    dreamer: Dreamer
    people: Users
    memory_model: MemoryModel | None = None
    """None: no model; insights come from counting words alone."""

    async def dream(self, depth: DreamDepth, *, now: datetime) -> int:
        """Dream for all who are due in this period; return for how many. Safe to repeat and to cut off. Raises StoreUnavailable."""
        dreamt, failed = 0, set[UUID]()
        while due := await self._due(depth, now, failed):
            for user_id in due:
                if await self._dream(user_id, depth, now):
                    dreamt += 1
                else:
                    failed.add(user_id)
        return dreamt

    async def _due(self, depth: DreamDepth, now: datetime, failed: set[UUID]) -> list[UUID]:
        """Some users who are due. A user whose dream failed stays due, and is left out."""
        async with self.dreamer.transactions.begin() as tx:
            due = await self.dreamer.dreams.due(tx, depth, period_of(depth, now), limit=PAGE_SIZE + len(failed))
        return [user_id for user_id in due if user_id not in failed]

    async def _dream(self, user_id: UUID, depth: DreamDepth, now: datetime) -> bool:
        try:
            dreamer = await self._dreamer_of(user_id) if depth is DreamDepth.DEEP else self.dreamer
            await dreamer.dream(user_id, depth, now=now)
        except StoreUnavailable:
            raise
        except PortError as error:
            log.warning("dream_failed", user_id=str(user_id), depth=str(depth), error=type(error).__name__)
            return False
        return True

    async def _dreamer_of(self, user_id: UUID) -> Dreamer:
        """A dreamer that asks models on behalf of the user, at the account that they linked last."""
        if self.memory_model is None:
            return self.dreamer
        async with self.dreamer.transactions.begin() as tx:
            channels = (await self.people.channels(tx, [user_id])).get(user_id)
        if not channels:
            return self.dreamer
        complete = self.memory_model.on_behalf_of(user_id, channels[-1].account, deadline_s=self.dreamer.timeout_s - 5.0)
        return replace(self.dreamer, complete=complete)
