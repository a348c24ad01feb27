"""The tools of an agent, as batch runs see them: they have schemas, take a call, and return a text. Callers supply the toolsets.

A user's blocking function runs in a thread beside the event loop. A thread cannot be stopped: a function that takes too long keeps running,
but does not keep the process from ending."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


def is_cancelled() -> bool:
    """Whether this task is being cancelled. A CancelledError may also come from a cancelled future; then only that future ended."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread; return what it returns, raise what it raises."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if ended.done():
            return  # the waiting task was cancelled
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(result)  # type: ignore[arg-type]  # None is a result where T says so

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001  # it is raised again in the waiting task
            # A StopIteration cannot be raised into a coroutine.
            error = RuntimeError(f"it raised {raised!r}") if isinstance(raised, StopIteration | SystemExit | KeyboardInterrupt) else raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="hermes-batch", daemon=True).start()
    return await ended


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """The rollout that tools are opened for."""

    item: str
    rollout: int
    seed: int
    row: Mapping[str, Any] = field(repr=False)
    """The item's whole row."""
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class BatchToolCall:
    """One tool call of a model."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    text: str = field(default="", repr=False)
    """The arguments as the model wrote them."""


class ToolFailed(Exception):
    """The tool failed; the message is for the model."""


class RolloutTools(Protocol):
    """The tools of one toolset in one rollout."""

    @property
    def schemas(self) -> Sequence[Mapping[str, Any]]:
        """In the form that models take: `{"type": "function", "function": {"name": …}}`."""
        ...

    async def run(self, call: BatchToolCall) -> str:
        """Run a call and return its result as text; raise ToolFailed."""
        ...


class Toolset(Protocol):
    """A set of tools under one name. Each rollout opens its own, so no state passes from one rollout to another."""

    @property
    def name(self) -> str: ...

    def open(self, context: RolloutContext) -> AbstractAsyncContextManager[RolloutTools]:
        """Keep the tools open while the block runs."""
        ...


class ToolOutcome(StrEnum):
    """How a tool call ended."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"
    """There is no tool with that name."""
    BAD_ARGUMENTS = "bad_arguments"
    """The arguments are not a JSON object."""


@dataclass(frozen=True, slots=True)
class BatchToolResult:
    """The result of a tool call; the model sees the text."""

    outcome: ToolOutcome
    text: str


class RolloutToolbox:
    """The tools of all toolsets of a rollout, by name."""

    def __init__(self, toolsets: Iterable[tuple[str, RolloutTools]] = ()) -> None:
        """Takes pairs of a toolset's name and its open tools. Raises ValueError if two tools have the same name."""
        self._owner: dict[str, tuple[str, RolloutTools]] = {}
        self.schemas: list[Mapping[str, Any]] = []
        for toolset, tools in toolsets:
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
        """Run a call. Every error becomes a text for the model. Raises nothing but CancelledError."""
        if name not in self._owner:
            return BatchToolResult(ToolOutcome.UNKNOWN, f"Error: there is no tool {name[:100]!r}{self._suggest(name)}")
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
        except Exception as error:  # noqa: BLE001  # a tool is a program of the user: the model sees its error
            return BatchToolResult(ToolOutcome.FAILED, f"Error: {type(error).__name__}: {error}")

    def _suggest(self, name: str) -> str:
        if not self._owner:
            return "; there are no tools"
        near = get_close_matches(name, self._owner, n=1)
        return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(self._owner)}"


def parse_arguments(text: str) -> dict[str, Any] | str:
    """Return the arguments that a model wrote; if they are wrong, a text that says why."""
    try:
        given = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        return f"the arguments are not valid JSON ({error}); send one JSON object"
    return given if isinstance(given, dict) else f"the arguments must be one JSON object, not {type(given).__name__}"


class ToolsetFailed(Exception):
    """A toolset could not be opened."""


@asynccontextmanager
async def open_rollout_tools(toolsets: Iterable[Toolset], context: RolloutContext) -> AsyncIterator[RolloutToolbox]:
    """Keep all toolsets open for one rollout. Raises ToolsetFailed if one cannot be opened; errors on closing are ignored."""
    async with AsyncExitStack() as stack:
        ready = []
        for toolset in toolsets:
            try:
                opening = toolset.open(context)
                ready.append((toolset.name, await opening.__aenter__()))
            except Exception as error:  # a toolset is a program of the user: its error becomes the rollout's reason
                raise ToolsetFailed(f"toolset {toolset.name}: {type(error).__name__}: {error}") from error
            stack.push_async_exit(partial(_close_toolset, opening))
        try:
            box = RolloutToolbox(ready)
        except (ValueError, KeyError, TypeError) as error:
            raise ToolsetFailed(f"the toolsets cannot be used together: {error}") from error
        yield box


async def _close_toolset(opening: AbstractAsyncContextManager[RolloutTools], *error: Any) -> None:
    try:
        with suppress(Exception):
            await opening.__aexit__(*error)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
