"""Tools that are plain Python functions: the model sees name, signature and docstring.

    def add(a: int, b: Annotated[int, "What to add."] = 1) -> int:
        \"""Add two numbers.\"""

    python_toolset("adding", [add])

Functions may be sync (they run in a thread) or async. A result that is not a text is sent as JSON. The model sees the errors that they
raise. A class is a toolset with state: each rollout has its own instance, and the methods are the tools."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hermes.graph.message import FrozenDict, freeze_items
from hermes.trajectories.batch.tools import BatchToolCall, RolloutContext, RolloutTools, ToolFailed, Toolset, run_in_thread

JSON_TYPES: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
}
CONTEXT_PARAMETER = "rollout_context"
"""Not `context`: that is a usual parameter of a tool, and a function with it alone would be taken for a factory."""


def toolset_from(name: str, found: Any) -> Toolset:
    """Return a toolset for an object that the user named. Raises TypeError or NameError with one line that says what is wrong.

    The object may be a function (one tool), a list of functions, a module (its public functions), a class (one instance for each rollout,
    whose public methods are the tools), a function with the one parameter `rollout_context` (called for each rollout, returns any of
    these), or an object with the method `open` of Toolset."""
    if callable(getattr(found, "open", None)) and not isinstance(found, type | types.ModuleType):
        return RenamedToolset(name, found.open)
    if isinstance(found, type):
        return PythonToolset(name, partial(_make_instance, found))
    if inspect.isroutine(found) and list(inspect.signature(found).parameters) == [CONTEXT_PARAMETER]:
        return PythonToolset(name, found)
    made = functions_of(found)
    if not made:
        raise TypeError(f"{name}: there is no public function with a docstring in it")
    FunctionTools(made)  # checked now, so that an error is raised before the model is asked
    return PythonToolset(name, lambda _: made)


def python_toolset(name: str, functions: Sequence[Callable[..., Any]]) -> Toolset:
    """Return a toolset of some functions."""
    return toolset_from(name, list(functions))


@dataclass(frozen=True, slots=True)
class RenamedToolset:
    """A user's own toolset, under the name that the user gave on the command line."""

    name: str
    open: Callable[[RolloutContext], Any]


@dataclass(frozen=True, slots=True)
class PythonToolset:
    """A toolset whose tools come from what `make` returns for each rollout."""

    name: str
    make: Callable[[RolloutContext], Any]

    @asynccontextmanager
    async def open(self, context: RolloutContext) -> AsyncIterator[RolloutTools]:
        made = self.make(context)
        made = await made if isinstance(made, Awaitable) else made
        try:
            yield FunctionTools(functions_of(made))
        finally:
            close = getattr(made, "aclose", None) or getattr(made, "close", None)
            if callable(close) and not isinstance(made, types.ModuleType):
                closing = close()
                if isinstance(closing, Awaitable):
                    await closing


class FunctionTools:
    """The tools of one rollout."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions
        self.schemas = [_frozen_schema(NamedFunction(name, function)) for name, function in functions.items()]

    async def run(self, call: BatchToolCall) -> str:
        function = self._functions[call.name]
        check_arguments(function, call)
        bound = partial(function, **call.arguments)
        result = await bound() if inspect.iscoroutinefunction(function) else await run_in_thread(bound)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


def functions_of(found: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions that are tools, by name. Raises TypeError for an object that has none."""
    if isinstance(found, Mapping):
        return {str(name): _check_tool(function) for name, function in found.items()}
    if isinstance(found, list | tuple):
        return {_check_tool(function).__name__: function for function in found}
    if inspect.isroutine(found):
        return {_check_tool(found).__name__: found}
    is_module = isinstance(found, types.ModuleType)
    if not is_module and type(found).__module__ == "builtins":
        raise TypeError(f"{found!r} is not a function, so it cannot be a tool")
    named = inspect.getmembers(found, inspect.isroutine)
    own = [
        (name, function)
        for name, function in named
        if not name.startswith("_")
        and name not in {"close", "aclose"}
        and inspect.getdoc(function)
        and (not is_module or getattr(function, "__module__", None) == found.__name__)
    ]
    return {name: _check_tool(function) for name, function in own}


def schema_of(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the schema of a function that a model sees."""
    hints = get_type_hints(function, include_extras=True)
    parameters = _parameters(function)
    shown: dict[str, Any] = {
        "type": "object",
        "properties": {each.name: type_schema(hints.get(each.name, Any)) for each in parameters},
    }
    required = [each.name for each in parameters if each.default is inspect.Parameter.empty]
    if required:
        shown["required"] = required
    description = inspect.getdoc(function) or ""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": shown}}


@dataclass(frozen=True, slots=True, eq=False)
class NamedFunction:
    """A function and its name, as a cache key; a method is equal for every instance."""

    name: str
    function: Callable[..., Any]

    def __hash__(self) -> int:
        return hash((self.name, _unbound(self.function)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedFunction) and self.name == other.name and _unbound(self.function) is _unbound(other.function)


@lru_cache(512)
def _frozen_schema(known: NamedFunction) -> Mapping[str, Any]:
    """Return a frozen schema, which graphs record without a copy: every rollout sends and records it."""
    return FrozenDict(freeze_items(schema_of(known.name, known.function), known.name))


def _unbound(function: Callable[..., Any]) -> Any:
    return getattr(function, "__func__", function)


def type_schema(hint: Any) -> dict[str, Any]:
    """Return the JSON schema of a type; a type that JSON does not know allows any value."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        texts = [note for note in inner[1:] if isinstance(note, str)]
        return {**type_schema(inner[0]), **({"description": texts[0]} if texts else {})}
    if origin in {Union, types.UnionType}:
        kinds = [type_schema(each) for each in inner if each is not types.NoneType]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if origin is Literal:
        return {"enum": list(inner)}
    shape = dict(JSON_TYPES.get(origin or hint, {}))
    if shape.get("type") == "array" and inner and inner[0] is not Ellipsis:
        shape["items"] = type_schema(inner[0])
    return shape


def check_arguments(function: Callable[..., Any], call: BatchToolCall) -> None:
    """Raise ToolFailed if the arguments do not fit the function, with a text that the model can act on."""
    parameters = _parameters(function)
    known = [each.name for each in parameters]
    takes = f"; it takes {', '.join(known)}" if known else "; it takes none"
    for name in call.arguments:
        if name not in known:
            raise ToolFailed(f"{call.name} does not take {name!r}{takes}")
    missing = [each.name for each in parameters if each.default is inspect.Parameter.empty and each.name not in call.arguments]
    if missing:
        raise ToolFailed(f"{call.name}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing{takes}")


def _make_instance(kind: type, context: RolloutContext) -> Any:
    """Return an instance of a class; the constructor gets the context if it takes an argument."""
    takes_context = any(each.kind is not inspect.Parameter.VAR_KEYWORD for each in inspect.signature(kind).parameters.values())
    return kind(context) if takes_context else kind()


def _check_tool(function: Any) -> Any:
    if not inspect.isroutine(function):
        raise TypeError(f"{function!r} is not a function, so it cannot be a tool")
    if not inspect.getdoc(function):
        raise TypeError(f"{function.__name__}: a tool needs a docstring, from which the model learns how to use it")
    return function


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each for each in inspect.signature(function).parameters.values() if each.kind in named]
