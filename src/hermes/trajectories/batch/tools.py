"""What an agent may do, as far as batch runs need to know: schemas out, a call in, a text back. Whoever has tools stands behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from hermes.trajectories.batch.threads import is_cancelled


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """For which rollout tools work."""

    item: str
    rollout: int
    seed: int
    row: Mapping[str, Any] = field(repr=False)
    """The item's whole row."""
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class BatchToolCall:
    """What a model asked for."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    text: str = field(default="", repr=False)
    """The arguments as the model wrote them."""


class ToolFailed(Exception):
    """The tool could not do it; the message is for the model."""


class RolloutTools(Protocol):
    """Tools of one rollout."""

    @property
    def schemas(self) -> Sequence[Mapping[str, Any]]:
        """As models take them: `{"type": "function", "function": {"name": …}}`."""
        ...

    async def run(self, call: BatchToolCall) -> str:
        """Do it, and say what came of it; raise ToolFailed."""
        ...


class Toolset(Protocol):
    """A set of tools under one name. Each rollout opens it anew, so nothing leaks from one into another."""

    @property
    def name(self) -> str: ...

    def open(self, context: RolloutContext) -> AbstractAsyncContextManager[RolloutTools]:
        """Have the tools ready for as long as the block lasts."""
        ...


class ToolOutcome(StrEnum):
    """How a call of a tool ended."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"
    """There is no tool of that name."""
    BAD_ARGUMENTS = "bad_arguments"
    """They are no JSON object."""


@dataclass(frozen=True, slots=True)
class BatchToolResult:
    """What the model is told."""

    outcome: ToolOutcome
    text: str


class RolloutToolbox:
    """The tools of all toolsets that a rollout has, by name."""

    def __init__(self, opened: Iterable[tuple[str, RolloutTools]] = ()) -> None:
        """Raises ValueError for two tools of one name."""
        self._owner: dict[str, tuple[str, RolloutTools]] = {}
        self.schemas: list[Mapping[str, Any]] = []
        for toolset, tools in opened:
            for schema in tools.schemas:
                name = schema["function"]["name"]
                if name in self._owner:
                    raise ValueError(f"{self._owner[name][0]} and {toolset} both have a tool {name}; choose one of them")
                self._owner[name] = (toolset, tools)
                self.schemas.append(schema)

    @property
    def names(self) -> list[str]:
        return list(self._owner)

    async def run(self, call_id: str, name: str, text: str, *, timeout_s: float) -> BatchToolResult:
        """Carry a call out as far as it can be; whatever is wrong with it is a text for the model. Raises nothing but cancellation."""
        if name not in self._owner:
            return BatchToolResult(ToolOutcome.UNKNOWN, f"Error: there is no tool {name[:100]!r}{self._instead(name)}")
        arguments = parse_arguments(text)
        if isinstance(arguments, str):
            return BatchToolResult(ToolOutcome.BAD_ARGUMENTS, f"Error: {arguments}")
        return await self._carry_out(BatchToolCall(call_id, name, arguments, text), timeout_s)

    async def _carry_out(self, call: BatchToolCall, timeout_s: float) -> BatchToolResult:
        try:
            async with asyncio.timeout(timeout_s):
                return BatchToolResult(ToolOutcome.DONE, await self._owner[call.name][1].run(call))
        except ToolFailed as failed:
            return BatchToolResult(ToolOutcome.FAILED, f"Error: {failed}")
        except TimeoutError:
            return BatchToolResult(ToolOutcome.TIMED_OUT, f"Error: {call.name} took longer than {timeout_s:g} s")
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return BatchToolResult(ToolOutcome.FAILED, f"Error: {call.name} waited for something that was cancelled")
        except Exception as error:  # noqa: BLE001  # a tool is somebody's program: whatever it raises is told to the model, and counted
            return BatchToolResult(ToolOutcome.FAILED, f"Error: {type(error).__name__}: {error}")

    def _instead(self, name: str) -> str:
        if not self._owner:
            return "; there are no tools"
        near = get_close_matches(name, self._owner, n=1)
        return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(self._owner)}"


def parse_arguments(text: str) -> dict[str, Any] | str:
    """Read what a model wrote as arguments; say what is wrong with it instead."""
    try:
        given = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        return f"the arguments are not valid JSON ({error}); send one JSON object"
    return given if isinstance(given, dict) else f"the arguments must be one JSON object, not {type(given).__name__}"


class ToolsetFailed(Exception):
    """A toolset could not be opened."""


@asynccontextmanager
async def open_rollout_tools(toolsets: Iterable[Toolset], context: RolloutContext) -> AsyncIterator[RolloutToolbox]:
    """Hold all toolsets open for one rollout. Raises ToolsetFailed; one that fails while it is closed changes nothing any more."""
    async with AsyncExitStack() as stack:
        ready = []
        for toolset in toolsets:
            try:
                opening = toolset.open(context)
                ready.append((toolset.name, await opening.__aenter__()))
            except Exception as error:  # a toolset is somebody's program: whatever it raises is noted on the rollout
                raise ToolsetFailed(f"toolset {toolset.name}: {type(error).__name__}: {error}") from error
            stack.push_async_exit(partial(_close_toolset, opening))
        try:
            box = RolloutToolbox(ready)
        except (ValueError, KeyError, TypeError) as error:
            raise ToolsetFailed(f"the toolsets do not go together: {error}") from error
        yield box


async def _close_toolset(opening: AbstractAsyncContextManager[RolloutTools], *error: Any) -> None:
    try:
        with suppress(Exception):
            await opening.__aexit__(*error)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
