"""Something to know of people."""

from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from hermes.ports.memories import Dream, DreamDepth, DreamKind, DreamReview, Fact, FactChange, FactOrigin, NewFact
from hermes.ports.users import User, UserChannel
from tests.flows.service import Service

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MONDAY = date(2026, 11, 9)
TURN = UUID("11111111-1111-4111-8111-111111111111")


async def learn(service: Service, channel: UserChannel, *texts: str, **about: Any) -> list[Fact]:
    """Know free facts about whoever writes from a channel."""
    user = await user_on(service, channel)
    changes = [FactChange(fact=NewFact(text=text, origin=FactOrigin.SAID, **{"source_turn": TURN, **about})) for text in texts]
    async with service.database.begin() as tx:
        return list(await service.hermes.adapters.memories.change(tx, user.id, changes, now=NOW))


async def change_diet(service: Service, channel: UserChannel) -> tuple[Fact, Fact]:
    """Know two diets, the second in place of the first."""
    user = await user_on(service, channel)
    async with service.database.begin() as tx:
        memories = service.hermes.adapters.memories
        first = NewFact(text="vegetarian", key="diet", origin=FactOrigin.RULE, source_turn=TURN, confidence=0.9)
        [old] = await memories.change(tx, user.id, [FactChange(fact=first)], now=NOW)
        second = NewFact(text="vegan", key="diet", origin=FactOrigin.TOOL)
        [new] = await memories.change(tx, user.id, [FactChange(fact=second, supersedes=(old.id,))], now=NOW)
    return old, new


async def dream(service: Service, channel: UserChannel) -> tuple[Dream, Dream]:
    """Dream of somebody: something that follows, and something that was rejected."""
    user = await user_on(service, channel)
    lines = (
        Dream(kind=DreamKind.INSIGHT, text="goes out on Fridays"),
        Dream(kind=DreamKind.INSIGHT, text="owns a boat", review=DreamReview.REJECTED, reason="no evidence"),
    )
    async with service.database.begin() as tx:
        await service.hermes.adapters.dreams.add(tx, user.id, DreamDepth.DEEP, MONDAY, lines, now=NOW)
    return lines


async def user_on(service: Service, channel: UserChannel) -> User:
    async with service.database.begin() as tx:
        user = await service.hermes.adapters.people.find(tx, channel)
    assert user is not None
    return user
