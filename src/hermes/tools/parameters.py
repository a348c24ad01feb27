"""The parameters of a tool: a JSON schema from a function's signature, and the reading of arguments against it.

    async def book(concierge: Concierge, context: ToolContext, *, day: Annotated[date, "The day."], people: Annotated[int, "How many."] = 2)

Hermes gives the arguments before the star; the model gives those after it. Known kinds: str, int, float, bool, date, time,
datetime, Literal, `X | None`, `list[X]`, and frozen dataclasses of these. Reading is tolerant where the meaning is clear ("4" is a
number, a text that is too long is cut, unknown keys are dropped); else it raises BadArguments with one line that a model can act on."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

MAX_TEXT_CHARS = 300
MAX_ITEMS = 20
MAX_ARGUMENTS_CHARS = 20_000
"""The longest argument text that is parsed; a model that writes more is in a loop."""


@dataclass(frozen=True, slots=True)
class Between:
    """The smallest and the largest valid number."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AtMost:
    """The greatest length of a text or a list; the rest is cut off."""

    length: int


class BadArguments(Exception):
    """The arguments are not valid."""


@dataclass(frozen=True, slots=True)
class ValueShape:
    """One kind of value: its JSON schema for the model, and its reader."""

    schema: Mapping[str, Any]
    read: Callable[[str, Any], Any]
    """Turns a JSON value into the function's argument. The name is for the error."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool."""

    name: str
    shape: ValueShape
    is_required: bool


@dataclass(frozen=True, slots=True)
class Parameters:
    """The arguments of a tool."""

    each: tuple[Parameter, ...]

    @property
    def schema(self) -> dict[str, Any]:
        """Their JSON schema, always the same bytes for the same signature."""
        schema: dict[str, Any] = {"type": "object", "properties": {each.name: dict(each.shape.schema) for each in self.each}}
        required = [each.name for each in self.each if each.is_required]
        return {**schema, "required": required} if required else schema

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the function's arguments. Raises BadArguments. An argument that is absent or null gets the function's default."""
        values = {each.name: each.shape.read(each.name, given[each.name]) for each in self.each if given.get(each.name) is not None}
        missing = [each.name for each in self.each if each.is_required and each.name not in values]
        if missing:
            raise BadArguments(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; ask the user if you do not know")
        return values


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Read a signature: everything after the star is a parameter. Raises TypeError for a kind that is not known."""
    hints = get_type_hints(function, include_extras=True)
    keywords = [each for each in inspect.signature(function).parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    return Parameters(tuple(Parameter(each.name, shape_of(hints[each.name]), each.default is inspect.Parameter.empty) for each in keywords))


def parse_arguments(arguments: str) -> dict[str, Any]:
    """Parse the arguments that a model wrote. An empty text means no arguments. Raises BadArguments."""
    if len(arguments) > MAX_ARGUMENTS_CHARS:
        raise BadArguments(f"the arguments are longer than {MAX_ARGUMENTS_CHARS} characters")
    try:
        given = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        raise BadArguments("the arguments are not valid JSON; send one JSON object") from None
    if not isinstance(given, dict):
        raise BadArguments(f"the arguments must be a JSON object, not {type(given).__name__}")
    return given


def shape_of(hint: Any) -> ValueShape:
    """The shape of an annotation. Raises TypeError for one that is not known."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        return with_description(shape_with(inner, notes), notes)
    return shape_with(hint, [])


def with_description(shape: ValueShape, notes: list[Any]) -> ValueShape:
    texts = [note for note in notes if isinstance(note, str)]
    return ValueShape({**shape.schema, "description": texts[0]}, shape.read) if texts else shape


def shape_with(hint: Any, notes: list[Any]) -> ValueShape:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        [some] = [each for each in inner if each is not types.NoneType]  # one kind or nothing; a union of kinds has no clear reading
        return shape_with(some, notes)
    bounds = next((note for note in notes if isinstance(note, Between)), None)
    at_most = next((note.length for note in notes if isinstance(note, AtMost)), None)
    match origin or hint:
        case _ if origin is Literal:
            shape = choice_shape(inner)
        case _ if origin is list:
            shape = list_shape(shape_of(inner[0]), at_most or MAX_ITEMS)
        case _ if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            shape = object_shape(hint)
        case _ if hint is str:
            shape = text_shape(at_most or MAX_TEXT_CHARS)
        case _ if hint is int or hint is float:
            shape = number_shape(hint, bounds)
        case _ if hint in PLAIN_SHAPES:
            shape = PLAIN_SHAPES[hint]
        case _:
            raise TypeError(f"a tool cannot take a {hint!r}")
    return shape


def text_shape(max_chars: int) -> ValueShape:
    def read(name: str, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise BadArguments(f"{name} must be a text")
        return clean_text(str(value))[:max_chars].strip()

    return ValueShape({"type": "string"}, read)


def clean_text(value: str) -> str:
    """Return a text on one line, without control characters: no keyboard types them, and no database stores them."""
    kept = "".join(" " if character.isspace() else character for character in value if character.isprintable() or character.isspace())
    return " ".join(kept.split())


def number_shape(kind: type[int | float], bounds: Between | None) -> ValueShape:
    word = "whole number" if kind is int else "number"

    def read(name: str, value: Any) -> int | float:
        try:
            found = float(value.replace(",", ".") if isinstance(value, str) else value)
        except (TypeError, ValueError, OverflowError):
            raise BadArguments(f"{name} must be a {word}") from None
        if isinstance(value, bool) or not math.isfinite(found) or (kind is int and not found.is_integer()):
            raise BadArguments(f"{name} must be a {word}")
        if bounds is not None and not bounds.low <= found <= bounds.high:
            raise BadArguments(f"{name} must be between {bounds.low:g} and {bounds.high:g}")
        return int(found) if kind is int else found

    schema: dict[str, Any] = {"type": "integer" if kind is int else "number"}
    return ValueShape({**schema, "minimum": bounds.low, "maximum": bounds.high} if bounds else schema, read)


def choice_shape(options: tuple[Any, ...]) -> ValueShape:
    by_text = {str(option).casefold(): option for option in options}

    def read(name: str, value: Any) -> Any:
        found = by_text.get(str(value).strip().casefold())
        if found is None:
            raise BadArguments(f"{name} must be one of: {', '.join(map(str, options))}")
        return found

    return ValueShape({"type": "string" if all(isinstance(option, str) for option in options) else "integer", "enum": list(options)}, read)


def list_shape(item: ValueShape, max_items: int) -> ValueShape:
    def read(name: str, value: Any) -> list[Any]:
        values = value if isinstance(value, list) else [value]
        return [item.read(name, each) for each in values[:max_items] if each is not None]

    return ValueShape({"type": "array", "items": dict(item.schema)}, read)


def object_shape(kind: type[Any]) -> ValueShape:
    """The shape of a dataclass, field by field. A plain text is read as its first field."""
    hints = get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)
    inner = Parameters(tuple(Parameter(each.name, shape_of(hints[each.name]), each.default is dataclasses.MISSING) for each in fields))

    def read(name: str, value: Any) -> Any:
        given = {fields[0].name: value} if isinstance(value, str) else value
        if not isinstance(given, dict):
            raise BadArguments(f"{name} must be an object with {', '.join(each.name for each in inner.each)}")
        try:
            return kind(**inner.read(given))
        except BadArguments as error:
            raise BadArguments(f"{name}: {error}") from None

    return ValueShape(inner.schema, read)


def read_bool(name: str, value: Any) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = known.get(str(value).strip().casefold())
    if found is None:
        raise BadArguments(f"{name} must be true or false")
    return found


def time_reader(kind: type[date | time | datetime], example: str) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        try:
            return kind.fromisoformat(str(value).strip())
        except ValueError:
            raise BadArguments(f"{name} must be written like {example}") from None

    return read


PLAIN_SHAPES: Mapping[Any, ValueShape] = {
    bool: ValueShape({"type": "boolean"}, read_bool),
    datetime: ValueShape({"type": "string", "format": "date-time"}, time_reader(datetime, "2026-01-31T19:30")),
    date: ValueShape({"type": "string", "format": "date"}, time_reader(date, "2026-01-31")),
    time: ValueShape({"type": "string", "format": "time"}, time_reader(time, "19:30")),
}
