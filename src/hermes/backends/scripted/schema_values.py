"""Values for a JSON schema: valid, always the same, and with a given text where the schema asks for plain text.

A script has no model that could fill in a form. With these values an agent that asks for structured answers or forces a tool can be tried
without a key. Of the schema all keywords count that agent libraries write; a pattern is met if one of a few usual texts meets it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

MAX_DEPTH = 8
"""Below this, optional properties and items are left out, so that a schema that contains itself has an end."""
MAX_TEXT_CHARS = 200
FORMATS: Mapping[str, str] = {
    "date": "2026-01-01",
    "time": "12:00:00Z",
    "date-time": "2026-01-01T12:00:00Z",
    "duration": "P1D",
    "email": "user@example.com",
    "idn-email": "user@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/example",
    "iri": "https://example.com/",
    "iri-reference": "/example",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/example",
    "relative-json-pointer": "0",
    "regex": ".*",
    "byte": "dGV4dA==",
}
SAMPLES = (*FORMATS.values(), "+15550100", "EUR", "en", "en-US", "ABC-123", "1.0.0", "#ffffff", "12:00", "2026", "example", "Example text")


class SchemaValues:
    """Makes values for the parts of one schema."""

    def __init__(self, schema: Mapping[str, Any], text: str) -> None:
        """`text` stands where the schema asks for text without any rule."""
        self._root, self._text = schema, text[:MAX_TEXT_CHARS] or "text"

    def value(self) -> Any:
        return self._value(self._root, 0)

    def _value(self, schema: Any, depth: int) -> Any:  # noqa: C901, PLR0911  # a table, a line for each keyword
        if not isinstance(schema, Mapping):
            return self._text  # `true`: any value will do
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword):
                rest = {name: value for name, value in schema.items() if name != keyword}
                return self._value(merge_schemas([rest, self._resolved(self._simplest(schema[keyword], depth))]), depth)
        if "default" in schema:
            return schema["default"]
        match kind_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer":
                return int(number(schema, step=1))
            case "number":
                return number(schema, step=0)
            case "boolean":
                return True
            case "null":
                return None
        return self._string(schema)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """A schema with its reference followed and its `allOf` merged."""
        for _ in range(MAX_DEPTH):
            if isinstance(reference := schema.get("$ref"), str):
                rest = {name: value for name, value in schema.items() if name != "$ref"}
                schema = merge_schemas([self._referred(reference), rest])
            elif schema.get("allOf"):
                rest = {name: value for name, value in schema.items() if name != "allOf"}
                schema = merge_schemas([*(self._resolved(part) for part in schema["allOf"] if isinstance(part, Mapping)), rest])
            else:
                break
        return schema

    def _referred(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            if part:
                found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, Mapping) else {}
        return found if isinstance(found, Mapping) else {}

    def _simplest(self, choices: Sequence[Any], depth: int) -> Mapping[str, Any]:
        """The first choice; deep down the one without parts, so that a list of nodes ends."""
        schemas = [choice for choice in choices if isinstance(choice, Mapping)] or [{}]
        if depth < MAX_DEPTH:
            return next((schema for schema in schemas if kind_of(self._resolved(schema)) != "null"), schemas[0])
        return next((schema for schema in schemas if kind_of(self._resolved(schema)) not in ("object", "array")), schemas[0])

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties") or {}, schema.get("required") or ()
        names = [name for name in properties if name in required or depth < MAX_DEPTH]
        made = {name: self._value(properties[name], depth + 1) for name in names}
        extra = schema.get("additionalProperties", True)
        missing = (f"key_{number}" for number in range(int(schema.get("minProperties", 0)) - len(made)))
        return {**made, **{name: self._value(extra, depth + 1) for name in (*(name for name in required if name not in made), *missing)}}

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        first = [self._value(item, depth + 1) for item in schema.get("prefixItems") or ()]
        least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", MAX_TEXT_CHARS))
        count = max(least, 1 if depth < MAX_DEPTH and schema.get("items") is not False and not first else 0)
        found = schema.get("items")
        items: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        choices = self._resolved(items).get("enum")
        for at in range(len(first), min(count, most)):
            unique = choices[at] if choices and schema.get("uniqueItems") and at < len(choices) else self._value(items, depth + 1)
            first.append(f"{unique} {at}" if unique in first and schema.get("uniqueItems") and isinstance(unique, str) else unique)
        return first

    def _string(self, schema: Mapping[str, Any]) -> str:
        least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", MAX_TEXT_CHARS))
        if schema.get("format") in FORMATS:
            return FORMATS[schema["format"]]
        if isinstance(schema.get("pattern"), str):
            try:
                pattern = re.compile(schema["pattern"])
            except re.error:
                pattern = re.compile("")
            usual = (text for text in texts_to_try(self._text) if least <= len(text) <= most and pattern.search(text))
            return next(usual, self._text)
        return self._text[:most].ljust(least, "x")


def kind_of(schema: Mapping[str, Any]) -> str:
    """The type of a schema; of several, the first that is not null."""
    kind = schema.get("type")
    if isinstance(kind, list | tuple):
        return next((str(one) for one in kind if one != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "additionalProperties" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    return "number" if {"minimum", "maximum", "multipleOf"} & schema.keys() else "string"


def merge_schemas(schemas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One schema with the keywords of all; properties and required names are put together."""
    merged: dict[str, Any] = {}
    for schema in schemas:
        properties = {**(merged.get("properties") or {}), **(schema.get("properties") or {})}
        required = list(dict.fromkeys([*(merged.get("required") or ()), *(schema.get("required") or ())]))
        merged |= schema
        merged |= {name: value for name, value in (("properties", properties), ("required", required)) if value}
    return merged


def number(schema: Mapping[str, Any], *, step: int) -> float:
    """A number within the limits; 1 if it is one of them, else the one that is nearest to it."""
    size = float(schema.get("multipleOf") or step)
    low, high = float(schema.get("minimum", -math.inf)), float(schema.get("maximum", math.inf))
    above, below = float(schema.get("exclusiveMinimum", -math.inf)), float(schema.get("exclusiveMaximum", math.inf))
    if not size:
        low = max(low, above if above < low else math.nextafter(above, math.inf)) if math.isfinite(above) else low
        high = min(high, below if below > high else math.nextafter(below, -math.inf)) if math.isfinite(below) else high
        return min(max(1.0, low), high)
    first = max(round_finite(math.ceil, low / size), round_finite(math.floor, above / size) + 1)
    last = min(round_finite(math.floor, high / size), round_finite(math.ceil, below / size) - 1)
    return min(max(1.0, first), last) * size


def round_finite(how: Callable[[float], int], value: float) -> float:
    return how(value) if math.isfinite(value) else value


def texts_to_try(text: str) -> Iterator[str]:
    """Texts that patterns often ask for."""
    yield text
    yield from SAMPLES
    for length in range(1, 65):
        yield from (character * length for character in ("1", "a", "A"))
