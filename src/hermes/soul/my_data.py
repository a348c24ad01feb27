"""All that is kept of somebody, for themselves: who they are to us, what they have, what is known of them. And the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

from hermes.ports.credits import Balance, Credits
from hermes.ports.errors import Forgotten
from hermes.ports.memories import Dreams, Memories
from hermes.ports.people import Channel, Kept, People, User, UserState
from hermes.ports.souls import Souls
from hermes.ports.transactions import Transactions
from hermes.soul.facts_mine import MyMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class MyDataParts:
    """Where people's data are read, and taken back."""

    transactions: Transactions
    people: People
    credits: Credits
    memories: Memories
    dreams: Dreams
    souls: Souls


@dataclass(frozen=True, slots=True, kw_only=True)
class MyData:
    """What is kept of one user at one moment."""

    user: User
    balance: Balance
    channels: Sequence[Channel]
    kept: Kept
    memory: MyMemory


async def my_data(user_id: UUID, parts: MyDataParts) -> MyData:
    """Return everything. Raises NotThere, StoreUnavailable, and Forgotten for somebody who was deleted."""
    async with parts.transactions.begin() as tx:
        user = await parts.people.get(tx, user_id)
        if user.state is UserState.DELETED:
            raise Forgotten
        return MyData(
            user=user,
            balance=await parts.credits.balance(tx, user_id),
            channels=(await parts.people.channels(tx, [user_id])).get(user_id, ()),
            kept=await parts.people.kept(tx, user_id),
            memory=MyMemory(await parts.memories.all(tx, user_id), await parts.dreams.all(tx, user_id)),
        )


async def forget_me(user_id: UUID, parts: MyDataParts) -> None:
    """Delete a user for good, as People.forget does; repeating it changes nothing. Raises NotThere and StoreUnavailable."""
    async with parts.transactions.begin() as tx:
        await parts.people.forget(tx, user_id)
    # It is sealed with a key that is gone; but nobody should find it for an hour either.
    await parts.souls.invalidate(user_id)


def data_as_json(data: MyData, *, account: str | None = None) -> dict[str, Any]:
    """Write it as JSON can hold it. With an account, for its eyes: where else somebody writes from, and who brought them, is none of its
    business."""
    user = data.user
    about = {"id": user.id, "state": user.state, "tier": user.tier, "language": user.language, "trains": user.trains}
    origin = {"referral_code": user.referral_code, "created_at": user.created_at}
    friend = {"referred_by": user.referred_by} if account is None else {}
    shown = [channel for channel in data.channels if account in (None, channel.account)]
    found = {
        **about,
        **origin,
        **friend,
        "credits": asdict(data.balance),
        "channels": [asdict(channel) for channel in shown],
        "kept": asdict(data.kept),
        **memory_as_json(data.memory),
    }
    written: dict[str, Any] = plain(found)
    return written


def memory_as_json(memory: MyMemory) -> dict[str, Any]:
    """The facts, with where they come from and what became of them, and the dreams."""
    written: dict[str, Any] = plain(
        {"facts": [asdict(fact) for fact in memory.facts], "dreams": [asdict(dream) for dream in memory.dreams]}
    )
    return written


def plain(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case UUID():
            return str(value)
        case datetime() | date():
            return value.isoformat()
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    return value
