"""A tool is a typed async function: its name, docstring and signature are what a model is told.

@tool(Effect.READS, ToolReach.ROOM)
async def venue_search(concierge: Concierge, context: ToolContext, *, query: Annotated[str, "What to look for."]) -> str:
    \"""Find places to go to.\"""

@tool(Effect.SPENDS, ToolReach.PERSON)
async def book_delivery(concierge: Concierge, context: ToolContext, *, …) -> Offer: …   # says what would happen, and does nothing
@book_delivery.confirmed
async def _(concierge: Concierge, context: ToolContext, terms: Mapping[str, Any]) -> str: …   # does it, on exactly those terms
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from hermes.graph.message import FrozenDict, freeze_items
from hermes.ports.tools import ToolUser
from hermes.ports.transactions import Transaction
from hermes.tools.parameters import Parameter, Parameters, parameters_of, parse_arguments, text_shape, with_description

S = TypeVar("S")


class ToolEffect(StrEnum):
    """What a tool does to the world."""

    READS = "reads"
    """Nothing. May be repeated."""
    WRITES = "writes"
    """Something, once per turn and index."""
    SPENDS = "spends"
    """Costs money or orders something: offered first, done when the user has agreed."""


class ToolReach(StrEnum):
    """What a tool's results and effects belong to, and so where it is offered."""

    PERSON = "person"
    """One person: it reads what is theirs, or does something in their name. Not offered in a room that several people share."""
    ROOM = "room"
    """Nobody: it reads what is the same for all, such as a catalogue or a price list. Offered everywhere."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One call under way: for whom, in which transaction, and under which key an outside party would know it again."""

    user: ToolUser
    tx: Transaction
    """Nothing, for a tool beyond our transactions."""
    key: str


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be done: in words for the user, and as the terms on which it will be done."""

    text: str
    terms: Mapping[str, Any]


class ToolProblem(Exception):
    """The tool cannot do this; the message says why, and what would help, in one line for a model. Nothing was done."""


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
    """From what the model wrote to the arguments of `run` and `prepare`; raises BadArguments."""
    run: RunTool
    """Does it. For a tool that spends: on the terms of its offer."""
    prepare: PrepareOffer | None = None
    """Makes the offer. Tools that spend have it, and no others."""
    is_foreign: bool = False
    """Works outside our transactions: cut off half-way, it may have happened."""
    reach: ToolReach = ToolReach.PERSON
    """A tool that does not say so is for one person."""


CODE_PARAMETER = Parameter(
    "confirmation_code", with_description(text_shape(12), ["Only after the user agreed to an offer: its code."]), is_required=False
)


@dataclass(slots=True)
class UnboundTool(Generic[S]):
    """A tool that does not know yet whose services it uses."""

    name: str
    description: str
    effect: ToolEffect
    reach: ToolReach
    parameters: Parameters
    function: Callable[..., Awaitable[Any]]
    _carry_out: Callable[[S, ToolContext, Mapping[str, Any]], Awaitable[str]] | None = field(default=None, init=False)

    def confirmed(self, carry_out: Callable[[S, ToolContext, Mapping[str, Any]], Awaitable[str]]) -> None:
        """Say what happens when the user has agreed."""
        self._carry_out = carry_out

    def of(self, services: S) -> Tool:
        """The tool, working on these services. Raises TypeError for one that spends and does not say what happens in the end."""
        function, carry_out = self.function, self._carry_out
        if (self.effect is ToolEffect.SPENDS) != (carry_out is not None):
            raise TypeError(f"{self.name}: a tool that spends, and no other, has a function under @{self.name}.confirmed")

        async def call(context: ToolContext, arguments: Mapping[str, Any]) -> Any:
            return await function(services, context, **arguments)

        async def settle(context: ToolContext, terms: Mapping[str, Any]) -> str:
            return await carry_out(services, context, terms) if carry_out else ""

        spends = carry_out is not None
        parameters = Parameters((*self.parameters.each, CODE_PARAMETER)) if spends else self.parameters
        return Tool(
            name=self.name,
            effect=self.effect,
            schema=schema_of(self.name, self.description, parameters.schema),
            read=lambda arguments: self.parameters.read(parse_arguments(arguments)),
            run=settle if spends else call,
            prepare=call if spends else None,
            reach=self.reach,
        )


def tool(effect: ToolEffect, reach: ToolReach) -> Callable[[Callable[..., Awaitable[Any]]], UnboundTool[Any]]:
    """Make a tool of a typed async function. Its docstring is what the model reads, so it says when to use it.

    Raises TypeError for one that changes something and says that it is for a room: what is changed is some person's."""

    def make(function: Callable[..., Awaitable[Any]]) -> UnboundTool[Any]:
        description = " ".join((inspect.getdoc(function) or "").split())
        if not description:
            raise TypeError(f"{function.__name__}: a tool without a docstring is one that no model knows how to use")
        if effect is not ToolEffect.READS and reach is ToolReach.ROOM:
            raise TypeError(f"{function.__name__}: a tool that {effect} does so for one person, so it is not for a room")
        return UnboundTool(function.__name__, description, effect, reach, parameters_of(function), function)

    return make


def schema_of(name: str, description: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool as the gateway takes it; frozen, because every call sends and records it."""
    schema = {"type": "function", "function": {"name": name, "description": description, "parameters": dict(parameters)}}
    return FrozenDict(freeze_items(schema, name))
