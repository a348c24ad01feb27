"""Runs tool calls: checks the arguments, limits the time, applies each effect once, and cleans the result. Implements the port `Tools`.

    reads             read the arguments  →  run the tool  →  cut  →  scan
    writes, spends    note that the effect begins  →  read the arguments  →  run the tool  →  keep its result  →  cut  →  scan

One transaction holds the tool's changes and the record of them. A tool outside our transactions is recorded as begun before it runs, so
that an interrupted call is not repeated: it may have had its effect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import structlog

from hermes.ports.errors import NotFound, StoreUnavailable
from hermes.ports.runtime import Transactions
from hermes.ports.tools import EffectRecord, EffectRecords, GatedTools, Offers, PendingOffer, ToolCall, ToolResult, ToolUser
from hermes.tools.gate import Gate
from hermes.tools.parameters import BadArguments, parse_arguments, read_text
from hermes.tools.registry import CODE_NAME, MAX_CODE_CHARS, Tool, ToolContext, ToolEffect, ToolProblem, ToolReach

log = structlog.get_logger()

Scan = Callable[[str], object | None]
"""Returns what is wrong with a text that is about to enter a prompt; None if nothing is."""

ToolSource = Callable[[], Sequence[Tool]]
"""Returns tools beside our own. It is called each time, because a server's tools come and go."""

MAX_RESULT_CHARS = 4_000
OFFER_VALID_S = 1_800.0
ERROR_PREFIX = "Error: "
"""Begins the text of a failed call, and so the record of a foreign tool that failed."""


def no_more_tools() -> Sequence[Tool]:
    """Return no tools beside our own."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The port Tools: our own tools in their fixed order, then those of `more_tools`."""

    own: Sequence[Tool]
    gate_: Gate
    transactions: Transactions
    outcomes: EffectRecords
    offers: Offers
    scan: Scan
    more_tools: ToolSource = no_more_tools
    timeout_s: float = 5.0
    max_result_chars: int = MAX_RESULT_CHARS
    is_for_room: bool = False
    """Whether several people read the results: then tools for one person are neither offered nor run."""

    def for_room(self) -> Toolbox:
        return replace(self, is_for_room=True)

    def gate(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> GatedTools:
        """`warm` is the subset that the vendor's prompt cache may still hold."""
        name = self.gate_.choose(text, language=language, warm=warm, has_tool_history=has_tool_history)
        mine = [tool.schema for tool in self.own if tool.name in self.gate_.members(name) and self._is_offered(tool)]
        # The gate knows no words for tools that are not ours, so it leaves them out only when a message needs no tool at all.
        others = [] if name == "none" else [tool.schema for tool in self.more_tools() if self._is_offered(tool)]
        return GatedTools(name, (*mine, *others))

    async def run(self, call: ToolCall, index: int, user: ToolUser) -> ToolResult:
        started = time.monotonic()
        text, is_error = await self._run_to_text(call, index, user)
        return ToolResult(call.id, call.name, text, is_error, round((time.monotonic() - started) * 1000))

    async def _run_to_text(self, call: ToolCall, index: int, user: ToolUser) -> tuple[str, bool]:
        try:
            async with asyncio.timeout(self.timeout_s):
                return self._fit_for_model(await self._carry_out(call, index, user), call.name), False
        except (BadArguments, ToolProblem) as problem:
            return self._fit_for_model(f"{ERROR_PREFIX}{problem}", call.name), True
        except TimeoutError:
            log.warning("tool_timed_out", tool=call.name, after_s=self.timeout_s)
            return f"Error: {call.name} took longer than {self.timeout_s:g} s. Tell the user that it is not available right now.", True
        except Exception:
            # The one broad except of the tools: if a tool breaks in any way, the user still gets an answer. The error is logged here only.
            log.exception("tool_failed", tool=call.name)
            return f"Error: {call.name} is not available right now. Tell the user, and offer to try again later.", True

    async def _carry_out(self, call: ToolCall, index: int, user: ToolUser) -> str:
        tool = self._find_tool(call.name)
        key = f"{user.turn_id}/{index}"
        if tool.effect is ToolEffect.READS:
            arguments = tool.read(call.arguments)
            if tool.is_foreign:
                return await tool.run(ToolContext(user, None, key), arguments)
            async with self.transactions.begin() as tx:
                return await tool.run(ToolContext(user, tx, key), arguments)
        if tool.is_foreign:
            return await self._run_foreign(tool, call, index, user)
        async with self.transactions.begin() as tx:
            known = await self.outcomes.begin(tx, user, index, tool.name)
            if not known.is_new:
                return first_outcome(known, tool)
            text = await self._act(tool, call, ToolContext(user, tx, key))
            await self.outcomes.finish(tx, user, index, text)
        return text

    async def _run_foreign(self, tool: Tool, call: ToolCall, index: int, user: ToolUser) -> str:
        """Run a tool that works outside our transactions: at most once. An interrupted call is never repeated."""
        async with self.transactions.begin() as tx:
            context = ToolContext(user, tx, f"{user.turn_id}/{index}")
            known = await self.outcomes.begin(tx, user, index, tool.name)
            if not known.is_new:
                return first_outcome(known, tool)
            code = confirmation_code(tool, call)
            if tool.prepare is not None and code is None:
                text = await self._offer(tool, call, context)
                await self.outcomes.finish(tx, user, index, text)
                return text
            arguments = tool.read(call.arguments) if code is None else (await self._take_offer(tool, code, context)).terms
        try:
            text = await tool.run(ToolContext(user, None, context.key), arguments)
        except ToolProblem as problem:
            await self._keep_outcome(user, index, tool, f"{ERROR_PREFIX}{problem}")
            raise
        await self._keep_outcome(user, index, tool, text)
        return text

    async def _keep_outcome(self, user: ToolUser, index: int, tool: Tool, text: str) -> None:
        """Record the result of a foreign tool. If the store is unreachable, the caller still gets the result."""
        try:
            async with self.transactions.begin() as tx:
                await self.outcomes.finish(tx, user, index, text)
        except StoreUnavailable:
            log.warning("tool_outcome_not_kept", tool=tool.name)

    async def _act(self, tool: Tool, call: ToolCall, context: ToolContext) -> str:
        code = confirmation_code(tool, call)
        if code is not None:
            return await tool.run(context, (await self._take_offer(tool, code, context)).terms)
        if tool.prepare is not None:
            return await self._offer(tool, call, context)
        return await tool.run(context, tool.read(call.arguments))

    async def _offer(self, tool: Tool, call: ToolCall, context: ToolContext) -> str:
        assert tool.prepare is not None  # noqa: S101  # a tool that spends
        offer = await tool.prepare(context, tool.read(call.arguments))
        code = await self.offers.put(context.tx, context.user, PendingOffer(tool.name, offer.terms), valid_s=OFFER_VALID_S)
        return (
            f"{offer.text}\nNothing is ordered yet. Ask the user to confirm. When they agree in their next message, "
            f"call {tool.name} with {CODE_NAME} {code} and nothing else."
        )

    async def _take_offer(self, tool: Tool, code: str, context: ToolContext) -> PendingOffer:
        try:
            return await self.offers.take(context.tx, context.user, tool.name, code)
        except NotFound as error:
            raise ToolProblem(str(error)) from None

    def _is_offered(self, tool: Tool) -> bool:
        return not self.is_for_room or tool.reach is ToolReach.ROOM

    def _find_tool(self, name: str) -> Tool:
        known = {tool.name: tool for tool in (*self.more_tools(), *self.own)}  # our own tool wins over a server's tool of the same name
        if name in known and self._is_offered(known[name]):
            return known[name]
        if name in known:
            log.warning("tool_refused_in_room", tool=name)
            raise ToolProblem(
                f"nothing was looked up and nothing was done: {name} works for one person, and several people read this conversation; "
                "tell the user to ask for it in a private chat"
            )
        near = get_close_matches(name, [each for each, tool in known.items() if self._is_offered(tool)], 1)
        raise ToolProblem(f"there is no tool {name[:60]!r}" + (f"; did you mean {near[0]}?" if near else ""))

    def _fit_for_model(self, text: str, name: str) -> str:
        """Cut a result to the greatest length for a model, and remove lines with instructions. The part that is cut off is not scanned."""
        is_cut = len(text) > self.max_result_chars
        text = text[: self.max_result_chars].rstrip() if is_cut else text
        finding = self.scan(text)
        if finding is not None:
            log.warning("tool_result_tripped", tool=name, finding=str(finding)[:80])
            text = "\n".join(line for line in text.splitlines() if self.scan(line) is None)
            # If no single line trips the scan but the whole text does, the instruction spans several lines: withhold the whole text.
            if not text.strip() or self.scan(text) is not None:
                return "The result was withheld: it held instructions instead of data."
        return f"{text} … (cut)" if is_cut else text


def confirmation_code(tool: Tool, call: ToolCall) -> str | None:
    """Return the code with which a call confirms an offer; None if the call asks for an offer, or the tool makes none."""
    if tool.prepare is None:
        return None
    given = parse_arguments(call.arguments).get(CODE_NAME)
    try:
        return read_text(MAX_CODE_CHARS, given).upper() or None if given is not None else None
    except ValueError as error:
        raise BadArguments(f"{CODE_NAME} {error}") from None


def first_outcome(known: EffectRecord, tool: Tool) -> str:
    """Return the result of the first call with this turn and index. Raises ToolProblem if that call failed or was interrupted."""
    if known.text is None:
        raise ToolProblem(f"{tool.name} was begun before and cut off; it may have happened, so do not repeat it and tell the user")
    if tool.is_foreign and known.text.startswith(ERROR_PREFIX):
        raise ToolProblem(known.text.removeprefix(ERROR_PREFIX))
    return known.text
