"""Plain Python as tools: what a model is told of it, how it is called, and a memory for each rollout."""

import asyncio
import types
from typing import Annotated, Any, Literal

import pytest

from hermes.trajectories.batch.python_tools import python_toolset, schema_of, toolset_from
from hermes.trajectories.batch.tools import (
    BatchToolResult,
    RolloutContext,
    RolloutToolbox,
    ToolOutcome,
    Toolset,
    ToolsetFailed,
    open_rollout_tools,
)

CONTEXT = RolloutContext("item", 0, 1, {"gold": 4}, "there")


def add(a: int, b: Annotated[int, "What to add."] = 1) -> int:
    """Add two numbers."""
    return a + b


async def search(query: str, kinds: list[Literal["bar", "cafe"]] | None = None) -> dict[str, Any]:
    """Find places."""
    await asyncio.sleep(0)
    return {"query": query, "kinds": kinds}


def broken() -> str:
    """Break."""
    raise KeyError("x")


class Notes:
    """Remembers."""

    closed = 0

    def __init__(self, context: RolloutContext) -> None:
        self.notes = [context.item]

    def note(self, text: str) -> str:
        """Write down."""
        self.notes.append(text)
        return ",".join(self.notes)

    def close(self) -> None:
        """Let go."""
        Notes.closed += 1

    def undocumented(self) -> None: ...


async def run(toolset: Toolset, *calls: tuple[str, str]) -> list[BatchToolResult]:
    async with open_rollout_tools([toolset], CONTEXT) as box:
        return [await box.run("id", name, arguments, timeout_s=5) for name, arguments in calls]


def test_a_signature_is_what_a_model_is_told() -> None:
    assert schema_of("add", add) == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "description": "What to add."}},
                "required": ["a"],
            },
        },
    }
    kinds = schema_of("search", search)["function"]["parameters"]["properties"]["kinds"]
    assert kinds == {"type": "array", "items": {"enum": ["bar", "cafe"]}}


async def test_calls_sync_and_async_functions() -> None:
    results = await run(python_toolset("mine", [add, search]), ("add", '{"a": 2}'), ("search", '{"query": "ü", "kinds": ["bar"]}'))
    assert results == [BatchToolResult(ToolOutcome.DONE, "3"), BatchToolResult(ToolOutcome.DONE, '{"query": "ü", "kinds": ["bar"]}')]


async def test_what_is_wrong_is_told_to_the_model_and_counted() -> None:
    toolset = python_toolset("mine", [add, broken])
    calls = (("add", "{"), ("add", "[1]"), ("add", '{"c": 1}'), ("add", "{}"), ("broken", ""), ("ad", "{}"), ("zzz", "{}"))
    results = await run(toolset, *calls)
    assert [result.outcome for result in results] == [
        *[ToolOutcome.BAD_ARGUMENTS] * 2,
        *[ToolOutcome.FAILED] * 3,
        *[ToolOutcome.UNKNOWN] * 2,
    ]
    assert [result.text for result in results[1:]] == [
        "Error: the arguments must be one JSON object, not list",
        "Error: add does not take 'c'; it takes a, b",
        "Error: add: a is missing; it takes a, b",
        "Error: KeyError: 'x'",
        "Error: there is no tool 'ad'; did you mean add?",
        "Error: there is no tool 'zzz'; there are add, broken",
    ]
    assert results[0].text.startswith("Error: the arguments are not valid JSON (")


async def test_a_tool_that_takes_too_long_is_given_up() -> None:
    async def slow() -> None:
        """Sleep."""
        await asyncio.sleep(60)

    async with open_rollout_tools([python_toolset("mine", [slow])], CONTEXT) as box:
        assert await box.run("id", "slow", "{}", timeout_s=0.01) == BatchToolResult(
            ToolOutcome.TIMED_OUT, "Error: slow took longer than 0.01 s"
        )


async def test_a_class_has_an_instance_for_each_rollout() -> None:
    toolset, before = toolset_from("notes", Notes), Notes.closed
    for _ in range(2):
        results = await run(toolset, ("note", '{"text": "x"}'), ("note", '{"text": "y"}'), ("close", ""), ("undocumented", ""))
        assert [result.text for result in results[:2]] == ["item,x", "item,x,y"]
        assert [result.outcome for result in results[2:]] == [ToolOutcome.UNKNOWN] * 2
    assert Notes.closed == before + 2


async def test_a_module_a_function_and_a_maker_are_toolsets() -> None:
    module = types.ModuleType("module")
    exec('def hello(name: str) -> str:\n    "Greet."\n    return "Hello " + name', module.__dict__)  # noqa: S102

    async def make(rollout_context: RolloutContext) -> Any:
        return [lambda_of(rollout_context.row["gold"])]

    def lambda_of(gold: int) -> Any:
        def tell() -> int:
            """Tell."""
            return gold

        return tell

    assert await run(toolset_from("m", module), ("hello", '{"name": "Ann"}')) == [BatchToolResult(ToolOutcome.DONE, "Hello Ann")]
    assert await run(toolset_from("m:add", add), ("add", '{"a": 1}')) == [BatchToolResult(ToolOutcome.DONE, "2")]
    assert await run(toolset_from("m:make", make), ("tell", "{}")) == [BatchToolResult(ToolOutcome.DONE, "4")]


def test_what_is_no_tool_is_refused() -> None:
    def silent() -> None: ...

    with pytest.raises(TypeError, match="silent: a tool needs a docstring, from which the model learns how to use it"):
        toolset_from("x", silent)
    with pytest.raises(TypeError, match="5 is not a function, so it cannot be a tool"):
        toolset_from("x", [5])
    with pytest.raises(TypeError, match="x: there is no public function with a docstring in it"):
        toolset_from("x", types.ModuleType("empty"))


async def test_two_tools_of_one_name_and_a_toolset_that_breaks_are_said() -> None:
    def make(rollout_context: RolloutContext) -> Any:
        raise OSError("no room")

    with pytest.raises(ToolsetFailed, match="one and two both have a tool add"):
        async with open_rollout_tools([python_toolset("one", [add]), python_toolset("two", [add])], CONTEXT):
            pass
    with pytest.raises(ToolsetFailed, match="toolset broken: OSError: no room"):
        async with open_rollout_tools([toolset_from("broken", make)], CONTEXT):
            pass
    assert RolloutToolbox().schemas == []
