"""Tools: what a model may have done for the user, how a call ends, and what keeps an effect from happening twice.

A model's tool call is a wish. It is checked, clamped and carried out at most once per turn and place in the turn; what costs money or
orders something is first only offered, under a code that the user's next message can confirm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.transactions import Transaction


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asked for, as it said it."""

    id: str
    name: str
    arguments: str
    """A JSON object, if the model did well."""


@dataclass(frozen=True, slots=True)
class ToolUser:
    """For whom a tool works, and when."""

    user_id: UUID
    account: str
    language: str
    timezone: str
    """An IANA name; an unknown one counts as UTC."""
    turn_id: UUID
    now: datetime
    """With its zone."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended, in words for a model."""

    call_id: str
    name: str
    text: str
    is_error: bool
    ms: int


@dataclass(frozen=True, slots=True)
class GatedTools:
    """The tools that go with a message: one of a few fixed subsets, always in the same order."""

    name: str
    """`none`, `venue`, `food`, `booking` or `full`."""
    schemas: Sequence[Mapping[str, Any]]
    """As the gateway takes them: `{"type": "function", "function": {…}}`."""


class Tools(Protocol):
    """What a model may have done. Neither call raises."""

    def gate(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> GatedTools:
        """Choose the tools for a message; all of them when in doubt, because a wrong prune is a failed message.

        `warm` is the subset that was last sent in this session while the vendor's prompt cache may still hold it: sent within the cache's
        life, in a prompt above the model's floor. It is kept as long as it has what the message needs; None chooses afresh.
        `has_tool_history` says that tool calls stand in what will be sent, or that our last message asked something: vendors insist on the
        tools whose calls they are shown, and a "yes" is an answer then. Some tools always go along with it."""
        ...

    def for_room(self) -> Tools:
        """Return those of the tools that neither read nor do anything for one person, for a room that several people share.

        They refuse a call of any other tool, and say that nothing was done."""
        ...

    async def run(self, call: ToolCall, index: int, user: ToolUser) -> ToolResult:
        """Carry a call out, within 5 seconds. `index` is its place among the calls of the turn.

        A call that changes something does so once per turn and index; repeated, it returns what the first one brought."""
        ...


@dataclass(frozen=True, slots=True)
class PreferenceChange:
    """What a key held before something was saved, and what it holds now; None for nothing."""

    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class ErasedFacts:
    """What was forgotten, a line each, as it was known; and whether it was spoken of in messages that models were shown."""

    lines: Sequence[str]
    was_said: bool


class Notebook(Protocol):
    """What tools may write down about a user and look up again. Whoever remembers decides what is kept, and how it is found.

    `save`, `forget` and `search` open transactions of their own: whoever calls them holds none, for a connection that waits for another one
    is how a pool runs dry."""

    async def save(self, user: ToolUser, key: str, value: str, *, no_longer: bool = False) -> PreferenceChange:
        """Remember a preference in place of an older one with the same key; `no_longer`: this value of it does not hold any more.

        Repeating it changes nothing. ValueError says what is wrong."""
        ...

    async def forget(self, user: ToolUser, what: str) -> ErasedFacts:
        """Take out for good what is known about something, by its key or by words; without any, everything. What it was told in goes with
        it: the user's next message begins a new session. Repeating it changes nothing."""
        ...

    async def search(self, user: ToolUser, query: str) -> Sequence[str]:
        """Return what is known that is nearest to the query, a line each, the nearest first."""
        ...

    async def observe(self, tx: Transaction, user: ToolUser, facts: Mapping[str, str]) -> None:
        """Note what follows from something that Hermes did for the user, as part of doing it. What they said of a key themselves stands."""
        ...


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """What is known of a call's effect."""

    is_new: bool
    """Nobody began it before; it is noted as begun now."""
    text: str | None
    """What it brought. None and not new: somebody began it and never said how it ended, so it may have happened."""


class EffectRecords(Protocol):
    """The effects of tools, by turn and index, sealed. Fails closed: what cannot be noted is not begun."""

    async def begin(self, tx: Transaction, user: ToolUser, index: int, name: str) -> EffectRecord:
        """Note that an effect begins, or return what is known of it. Waits for whoever has begun it in a transaction that is still open."""
        ...

    async def finish(self, tx: Transaction, user: ToolUser, index: int, text: str) -> None:
        """Note what an effect brought."""
        ...


@dataclass(frozen=True, slots=True)
class PendingOffer:
    """Something that costs or orders, as it was offered to the user: what is carried out later is exactly this."""

    tool: str
    terms: Mapping[str, Any]


class Offers(Protocol):
    """Orders that wait for the user's word, sealed."""

    async def put(self, tx: Transaction, user: ToolUser, pending: PendingOffer, *, valid_s: float) -> str:
        """Keep an offer; return its code, which is short enough to be said."""
        ...

    async def take(self, tx: Transaction, user: ToolUser, tool: str, code: str) -> PendingOffer:
        """Return what was offered, once. Raises NotThere for a code that is unknown, used up, too old, another user's or another tool's,
        and for one of the same turn: between the offer and its order the user must have written something."""
        ...
