"""How `hermes users` shows users: as tables for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hermes.ports.credits import Balance
from hermes.ports.memories import Dream, DreamKind, DreamReview, Fact, FactOrigin
from hermes.ports.users import User, UserChannel, UserDataCounts
from hermes.soul.my_data import MyData, MyMemory, to_json_value
from hermes.terminal import one_line

ORIGIN_WORDS = {FactOrigin.SAID: "said", FactOrigin.RULE: "said", FactOrigin.TOOL: "by a tool", FactOrigin.SYSTEM: "by Hermes"}


def print_user(data: MyData, known: Mapping[str, int]) -> None:
    """Print a summary of one user, a line for each property. Of facts, dreams, messages and tool records it prints how many there are."""
    user, kept = data.user, data.kept
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in (
        ("id", str(user.id)),
        ("state", user.state),
        ("tier", user.tier),
        ("language", user.language or "what they write in"),
        ("credits", f"{data.balance.available} available, {data.balance.reserved} reserved"),
        ("channels", "\n".join(one_line(str(each)) for each in data.channels) or "none; link one: hermes users link"),
        ("referral code", user.referral_code),
        ("referred by", str(user.referred_by or "no user")),
        ("training", "allowed" if user.trains else "not allowed"),
        ("since", f"{user.created_at:%Y-%m-%d %H:%M}" if user.created_at else ""),
        (
            "known",
            f"{count_phrase(known['facts'], 'fact')}, {known['superseded']} older, {count_phrase(known['dreams'], 'line')} of dreams",
        ),
        ("kept", f"{count_phrase(kept.messages, 'message')} in {count_phrase(kept.conversations, 'conversation')}"),
        *([("", ", ".join(record_phrases(kept)))] if kept.records else []),
    ):
        table.add_row(name, escape(value))
    Console().print(table)


def print_users(found: Sequence[User], channels: Mapping[UUID, Sequence[UserChannel]]) -> None:
    """Print a line for each user, with the channels that they write from."""
    table = Table("id", "state", "tier", "language", "code", "since", "writes from", box=None, pad_edge=False)
    for user in found:
        since = f"{user.created_at:%Y-%m-%d %H:%M}" if user.created_at else ""
        where = "\n".join(one_line(str(each)) for each in channels.get(user.id, ()))
        table.add_row(str(user.id), user.state, escape(user.tier), user.language or "", user.referral_code, since, escape(where))
    Console().print(table)


def print_memory(memory: MyMemory) -> None:
    """Print a line for each fact and for each line of a dream."""
    table = Table("since", "key", "what", "how", "confidence", "state", "turn", "id", box=None, pad_edge=False)
    for fact in memory.facts:
        source = str(fact.source_turn) if fact.source_turn else ""
        known = (
            fact.key or "",
            one_line(fact.text),
            ORIGIN_WORDS[fact.origin],
            f"{fact.confidence:.0%}",
            _state(fact),
            source,
            str(fact.id),
        )
        table.add_row(f"{fact.valid_from:%Y-%m-%d %H:%M}", *map(escape, known))
    for dream in memory.dreams:
        known = (dream.key or "", one_line(dream.text), f"{dream.depth} dream", "", _review(dream), "", str(dream.id))
        table.add_row(f"{dream.period or ''}", *map(escape, known))
    Console().print(table)


def about_user(user: User, balance: Balance | None = None) -> dict[str, Any]:
    """Return a user as JSON values, with the credits if a balance is given."""
    about = {"id": user.id, "state": user.state, "tier": user.tier, "language": user.language, "referral_code": user.referral_code}
    known = {**about, "referred_by": user.referred_by, "created_at": user.created_at}
    if balance is not None:
        known["credits"] = {"available": balance.available, "reserved": balance.reserved}
    shown: dict[str, Any] = to_json_value(known)
    return shown


def count_phrase(number: int, name: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def record_phrases(kept: UserDataCounts) -> list[str]:
    """How many rows the tools of packs stored: `2 bookings`, `1 price watcher`."""
    return [count_phrase(number, name.replace("_", " ").removesuffix("s")) for name, number in kept.records.items()]


def _state(fact: Fact) -> str:
    """Whether a fact holds: `ended` (replaced or taken back), `until` the day on which it expires, or `current`."""
    if fact.superseded_at is not None:
        return f"ended {fact.superseded_at:%Y-%m-%d}"
    return f"until {fact.expires_at:%Y-%m-%d}" if fact.expires_at else "current"


def _review(dream: Dream) -> str:
    kind = "would like to know" if dream.kind is DreamKind.GAP else "concluded"
    return kind if dream.review is DreamReview.ACCEPTED else f"rejected: {dream.reason}"
