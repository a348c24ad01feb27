"""The parameters of a tool: a JSON schema from a function's signature, and the reading of arguments against it, with pydantic.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, create_model, model_validator
from pydantic.config import JsonDict

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


class ArgumentsModel(BaseModel):
    """Base of the models that are made from signatures and dataclasses. Unknown keys are dropped."""

    @model_validator(mode="before")
    @classmethod
    def drop_nulls(cls, given: dict[str, Any]) -> dict[str, Any]:
        """An argument that is null gets its default, like one that is absent."""
        return {name: value for name, value in given.items() if value is not None}

    def given(self) -> dict[str, Any]:
        """Return the arguments that the model wrote, without defaults."""
        fields = type(self).model_fields
        return {str(fields[name].alias): getattr(self, name) for name in fields if name in self.model_fields_set}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The arguments of a tool."""

    model: type[ArgumentsModel]

    @property
    def schema(self) -> dict[str, Any]:
        """Their JSON schema, always the same bytes for the same signature."""
        schema = self.model.model_json_schema()
        plain: dict[str, Any] = plain_schema({"type": "object", **schema}, schema.get("$defs", {}))
        return plain

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the function's arguments. Raises BadArguments. An argument that is absent or null gets the function's default."""
        try:
            return self.model.model_validate(dict(given)).given()
        except ValidationError as error:
            raise BadArguments(fault_text(error)) from None


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Read a signature: everything after the star is a parameter. Raises TypeError for a kind that is not known."""
    keywords = [each for each in inspect.signature(function).parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    required = {each.name: each.default is inspect.Parameter.empty for each in keywords}
    return Parameters(model_of(function.__name__, get_type_hints(function, include_extras=True), required))


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


def missing_text(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} missing; ask the user if you do not know"


def fault_text(error: ValidationError) -> str:
    """Return the first fault in one line; arguments that are missing come last, and together."""
    faults = error.errors(include_url=False)
    wrong = next((fault for fault in faults if fault["type"] != "missing"), None)
    if wrong is not None:
        *above, name = names_in(wrong["loc"])
        return ": ".join([*above, f"{name} {wrong.get('ctx', {}).get('error', wrong['msg'])}"])
    place = faults[0]["loc"][:-1]
    return ": ".join([*names_in(place), missing_text([str(fault["loc"][-1]) for fault in faults if fault["loc"][:-1] == place])])


def names_in(place: Iterable[int | str]) -> list[str]:
    """Return the names of a place, without the numbers of items."""
    return [part for part in place if isinstance(part, str)]


# --- from annotations to pydantic's


def model_of(name: str, hints: Mapping[str, Any], required: Mapping[str, bool]) -> type[ArgumentsModel]:
    """Return the pydantic model of these names. A default is never read: `given` leaves it to the function.

    The names are aliases: as an attribute, an argument `json` or `copy` would replace a method of the model."""
    fields: dict[str, Any] = {
        f"argument_{each}": (annotation_of(hints[each]), Field(... if required[each] else None, alias=each)) for each in required
    }
    return create_model(name, __base__=ArgumentsModel, **fields)


def annotation_of(hint: Any) -> Any:
    """Return an annotation for pydantic: the kind, its tolerant reader, limits and description. Raises TypeError for an unknown kind."""
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(kind) in {Union, types.UnionType}:
        [kind] = [each for each in get_args(kind) if each is not types.NoneType]  # a union of kinds has no clear reading
    origin, inner = get_origin(kind), get_args(kind)
    at_most = next((note.length for note in notes if isinstance(note, AtMost)), None)
    bounds = next((note for note in notes if isinstance(note, Between)), None)
    readers: list[Any]
    if origin is Literal:
        readers = [BeforeValidator(partial(read_choice, inner))]
    elif origin is list:
        item: Any = annotation_of(inner[0])
        kind, readers = list[item], [BeforeValidator(partial(read_list, at_most or MAX_ITEMS))]
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        kind, readers = object_annotation(kind)
    elif kind is str:
        readers = [BeforeValidator(partial(read_text, at_most or MAX_TEXT_CHARS))]
    elif kind in (int, float):
        readers = [BeforeValidator(partial(read_number, kind, bounds))]
    elif kind in READERS:
        readers = [BeforeValidator(READERS[kind])]
    else:
        raise TypeError(f"a tool cannot take a {hint!r}")
    limits: JsonDict = {"minimum": bounds.low, "maximum": bounds.high} if bounds else {}
    field = Field(description=next((note for note in notes if isinstance(note, str)), None), json_schema_extra=limits or None)
    return Annotated[(kind, field, *readers)]


def object_annotation(kind: type[Any]) -> tuple[type[ArgumentsModel], list[Any]]:
    """Return the model of a dataclass, and its readers. A plain text is read as its first field."""
    names = [each.name for each in dataclasses.fields(kind)]
    required = {each.name: each.default is dataclasses.MISSING for each in dataclasses.fields(kind)}
    model = model_of(kind.__name__, get_type_hints(kind, include_extras=True), required)

    def read(value: Any) -> Any:
        given = {names[0]: value} if isinstance(value, str) else value
        if not isinstance(given, dict):
            raise ValueError(f"must be an object with {', '.join(names)}")  # noqa: TRY004  # pydantic reports a ValueError
        return given

    return model, [BeforeValidator(read), AfterValidator(lambda found: kind(**found.given()))]


def plain_schema(node: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema without what no model needs: titles, defaults, and references to definitions elsewhere."""
    if isinstance(node, list):
        return [plain_schema(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = {**definitions[node["$ref"].rpartition("/")[2]], **node}
    kept = {key: value for key, value in node.items() if key not in {"title", "default", "$ref", "$defs"}}
    if isinstance(kept.get("properties"), dict):  # its keys are the names of arguments, and one may be `title`
        kept["properties"] = {name: plain_schema(each, definitions) for name, each in kept["properties"].items()}
    return {key: value if key == "properties" else plain_schema(value, definitions) for key, value in kept.items()}


# --- what a model may write for each kind: a reader returns the value, or raises ValueError with what it must be


def read_text(max_chars: int, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a text")  # noqa: TRY004  # pydantic reports a ValueError
    return clean_text(str(value))[:max_chars].strip()


def clean_text(value: str) -> str:
    """Return a text on one line, without control characters: no keyboard types them, and no database stores them."""
    kept = "".join(" " if character.isspace() else character for character in value if character.isprintable() or character.isspace())
    return " ".join(kept.split())


def read_number(kind: type[int | float], bounds: Between | None, value: Any) -> int | float:
    expected = ValueError("must be a whole number" if kind is int else "must be a number")
    try:
        found = float(value.replace(",", ".") if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        raise expected from None
    if isinstance(value, bool) or not math.isfinite(found) or (kind is int and not found.is_integer()):
        raise expected
    if bounds is not None and not bounds.low <= found <= bounds.high:
        raise ValueError(f"must be between {bounds.low:g} and {bounds.high:g}")
    return int(found) if kind is int else found


def read_choice(options: Iterable[Any], value: Any) -> Any:
    found = {str(option).casefold(): option for option in options}.get(str(value).strip().casefold())
    if found is None:
        raise ValueError(f"must be one of: {', '.join(map(str, options))}")
    return found


def read_list(max_items: int, value: Any) -> list[Any]:
    """A single value is a list of one."""
    return [each for each in (value if isinstance(value, list) else [value])[:max_items] if each is not None]


def read_bool(value: Any) -> bool:
    found = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(str(value).strip().casefold())
    if found is None:
        raise ValueError("must be true or false")
    return found


def read_moment(kind: type[date | time | datetime], example: str, value: Any) -> date | time | datetime:
    try:
        return kind.fromisoformat(str(value).strip())
    except ValueError:
        raise ValueError(f"must be written like {example}") from None


READERS: Mapping[Any, Callable[[Any], Any]] = {
    bool: read_bool,
    datetime: partial(read_moment, datetime, "2026-01-31T19:30"),
    date: partial(read_moment, date, "2026-01-31"),
    time: partial(read_moment, time, "19:30"),
}
