"""A tool is a typed async function: the model is told its name, docstring and signature.

@tool(ToolEffect.READS, ToolReach.ROOM)
async def venue_search(concierge: Concierge, context: ToolContext, *, query: Annotated[str, "What to look for."]) -> str:
    \"""Find places to go to.\"""

@tool(ToolEffect.SPENDS, ToolReach.PERSON)
async def book_delivery(concierge: Concierge, context: ToolContext, *, …) -> Offer: …   # describes the order, and does nothing
@book_delivery.confirmed
async def _(concierge: Concierge, context: ToolContext, terms: Mapping[str, Any]) -> str: …   # orders it, on exactly those terms

The second function runs when the user concerned has approved the offer with a button or a code. No model can call it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from hermes.graph.message import FrozenDict, freeze_items
from hermes.ports.runtime import Transaction
from hermes.ports.tools import ToolUser
from hermes.tools.parameters import Parameters, parameters_of, parse_arguments

S = TypeVar("S")


class ToolEffect(StrEnum):
    """What a tool changes."""

    READS = "reads"
    """The tool changes nothing, and may be repeated."""
    WRITES = "writes"
    """The tool changes something, once per turn and index."""
    SPENDS = "spends"
    """The tool costs money, orders or cancels something, or shows something of its user to others: it makes an offer, and acts when its
    user has approved that offer."""


class ToolReach(StrEnum):
    """Whether a tool works for one person or for all, and so in which conversations it is offered."""

    PERSON = "person"
    """It reads the data of one person, or acts in their name. In a room that several people share, only those that spend are offered, and
    they only make an offer, which the person is shown in private."""
    MEMBER = "member"
    """It shows something of one person to the room, and only makes an offer for it. Offered in rooms alone."""
    ROOM = "room"
    """It reads data that is the same for all, such as a catalogue or a price list. Offered everywhere."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One running tool call: its user, its transaction, and the idempotency key for an outside service."""

    user: ToolUser
    tx: Transaction
    """None for a tool that works outside our transactions."""
    key: str


@dataclass(frozen=True, slots=True)
class Offer:
    """What a tool would do: as text for the user, and as the terms on which it will be done."""

    text: str
    """What will be done, whole: with the price, if it has one. The user approves exactly this text."""
    terms: Mapping[str, Any]


class ToolProblem(Exception):
    """The tool cannot do this, and did nothing. The message tells the model why, and what would help, in one line."""


RunTool = Callable[[ToolContext, Mapping[str, Any]], Awaitable[str]]
PrepareOffer = Callable[[ToolContext, Mapping[str, Any]], Awaitable[Offer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool, ready to be called."""

    name: str
    effect: ToolEffect
    schema: Mapping[str, Any]
    """As the gateway takes it: `{"type": "function", "function": {…}}`."""
    read: Callable[[str], Mapping[str, Any]]
    """Turns the text that the model wrote into the arguments of `run` and `prepare`. Raises BadArguments."""
    run: RunTool
    """Runs the tool. For a tool that spends: on the terms of its offer."""
    prepare: PrepareOffer | None = None
    """Makes the offer. Only tools that spend have it."""
    is_foreign: bool = False
    """The tool works outside our transactions: if a call is interrupted, its effect may have happened."""
    reach: ToolReach = ToolReach.PERSON
    """A tool that does not say otherwise is for one person."""
    source: str = ""
    """Who wrote its results, for the label before them: the name of a server. Empty for our own tools."""


@dataclass(slots=True)
class UnboundTool(Generic[S]):
    """A tool before it is bound to the services that it uses."""

    name: str
    description: str
    effect: ToolEffect
    reach: ToolReach
    parameters: Parameters
    function: Callable[..., Awaitable[Any]]
    has_own_transactions: bool = False
    _carry_out: Callable[[S, ToolContext, Mapping[str, Any]], Awaitable[str]] | None = field(default=None, init=False)

    def confirmed(self, carry_out: Callable[[S, ToolContext, Mapping[str, Any]], Awaitable[str]]) -> None:
        """Register the function that runs when the user has approved the offer."""
        self._carry_out = carry_out

    def of(self, services: S) -> Tool:
        """Return the tool, bound to these services. Raises TypeError unless tools that spend, and no others, have `confirmed`."""
        function, carry_out = self.function, self._carry_out
        if (self.effect is ToolEffect.SPENDS) != (carry_out is not None):
            raise TypeError(f"{self.name}: a tool that spends, and no other, has a function under @{self.name}.confirmed")

        async def call(context: ToolContext, arguments: Mapping[str, Any]) -> Any:
            return await function(services, context, **arguments)

        async def settle(context: ToolContext, terms: Mapping[str, Any]) -> str:
            return await carry_out(services, context, terms) if carry_out else ""

        spends = carry_out is not None
        return Tool(
            name=self.name,
            effect=self.effect,
            schema=schema_of(self.name, self.description, self.parameters.schema),
            read=lambda arguments: self.parameters.read(parse_arguments(arguments)),
            run=settle if spends else call,
            prepare=call if spends else None,
            is_foreign=self.has_own_transactions,
            reach=self.reach,
        )


def tool(
    effect: ToolEffect, reach: ToolReach, *, has_own_transactions: bool = False
) -> Callable[[Callable[..., Awaitable[Any]]], UnboundTool[Any]]:
    """Make a tool of a typed async function. The model reads its docstring, so the docstring says when to use the tool.

    `has_own_transactions`: the executor runs the tool without a transaction, because its service opens its own. Inside a transaction it
    would hold one connection and wait for a second; if all connections of a pool are held so, it deadlocks.

    Raises TypeError for a tool that changes something and is for a room: every change belongs to one person."""

    def make(function: Callable[..., Awaitable[Any]]) -> UnboundTool[Any]:
        description = " ".join((inspect.getdoc(function) or "").split())
        if not description:
            raise TypeError(f"{function.__name__}: a tool needs a docstring; without it no model knows how to use the tool")
        if effect is not ToolEffect.READS and reach is ToolReach.ROOM:
            raise TypeError(f"{function.__name__}: a tool that {effect} works for one person, so it cannot be for a room")
        return UnboundTool(function.__name__, description, effect, reach, parameters_of(function), function, has_own_transactions)

    return make


def schema_of(name: str, description: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool's schema in the format of the gateway; frozen, because every call sends and records it."""
    schema = {"type": "function", "function": {"name": name, "description": description, "parameters": dict(parameters)}}
    return FrozenDict(freeze_items(schema, name))
