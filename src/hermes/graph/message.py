"""What a message is: its shape, its frozen form, and the one canonical form that equality, no-op and hash share.

Knows nothing about lists, versions or samples.

Canonical form: compact JSON of all fields but `metadata`, keys sorted, ASCII, no NaN. Strings keep their bytes, so
`'{"a":1}'` and `'{"a": 1}'` as tool arguments are two different messages, and so are 1, 1.0 and True."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from typing import Any, NoReturn

from hermes.graph.errors import FrozenError, MessageError

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
METADATA = "metadata"
"""The one field that is not part of the message: outside the canonical form, never sent."""
NOTE = "note"
"""A key of a user message's metadata: the text that a program put before the user's words in the content, with an empty line between them.
It was sent, and text rows leave it out."""
REASONING = ("reasoning", "reasoning_content")
"""Two names for the same thing; the name a message came with is kept."""
THINKING = "thinking_blocks"
"""A model's thinking in the vendor's own form, which the vendor wants sent back; left out of later contexts together with the reasoning."""

MAX_DEPTH = 64
MAX_INT_BITS = 8_192  # Python itself refuses to print integers of more than 4,300 digits; JSON readers far fewer.


def refuse_change(*_: object, **__: object) -> NoReturn:
    """Stand in for every method of a frozen container that would change it."""
    raise FrozenError


class FrozenDict(dict[str, Any]):
    """A JSON object inside a graph: reads, prints and serialises as a dict, refuses to change. Copies are plain dicts."""

    __slots__ = ()

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = refuse_change

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, _: object) -> dict[str, Any]:
        return {key: thaw(value) for key, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.__deepcopy__(None),)


class FrozenList(list[Any]):
    """A JSON array inside a graph: reads, prints and serialises as a list, refuses to change. Copies are plain lists."""

    __slots__ = ()

    __setitem__ = __delitem__ = append = extend = insert = refuse_change
    pop = remove = clear = reverse = sort = __iadd__ = __imul__ = refuse_change

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, _: object) -> list[Any]:
        return [thaw(value) for value in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self.__deepcopy__(None),)


def thaw(value: Any) -> Any:
    """Return a plain, changeable copy of a frozen value."""
    return value.__deepcopy__(None) if isinstance(value, FrozenDict | FrozenList) else value


def freeze(value: Any, path: str, depth: int = 0) -> Any:
    """Return `value` as JSON would hold it, frozen to every depth; raise MessageError with the path to what JSON cannot hold."""
    kind = type(value)
    if value is None or kind is bool or (depth == 0 and kind in (FrozenDict, FrozenList)):
        return value  # frozen before, at the same depth: an edit of one field leaves the other fields of the message as they are
    if depth > MAX_DEPTH:
        raise MessageError(path, f"nested deeper than {MAX_DEPTH} levels, or a value that contains itself")
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int | float):
        return plain_number(value, path)
    if callable(getattr(value, "model_dump", None)):
        value = dump_model(value)
    if isinstance(value, Mapping):
        return FrozenDict(freeze_items(value, path, depth + 1))
    if isinstance(value, list | tuple):
        return FrozenList([freeze(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)])
    raise MessageError(path, f"{kind.__name__} cannot be written as JSON")


def plain_number(value: float, path: str) -> float:
    """Return a number as JSON holds it: no subclass, no NaN, no integer that readers refuse."""
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            raise MessageError(path, "integer too large for JSON")
        return int.__int__(value)
    if not math.isfinite(value):
        raise MessageError(path, f"{value} is not a JSON number")
    return float.__float__(value)


def plain_text(value: str) -> str:
    """Return a text as JSON gives it back: no subclass; a surrogate pair becomes the character that it encodes."""
    text = str.__str__(value)  # a member of an enum gives its value
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def dump_model(value: Any) -> Any:
    """Return the fields that were set in an object of a client library, as JSON values."""
    return value.model_dump(mode="json", exclude_unset=True)


def freeze_items(value: Mapping[Any, Any], path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the items of a JSON object, frozen; string keys only, because JSON would silently turn 1 into "1"."""
    for key, item in value.items():
        if not isinstance(key, str):
            raise MessageError(path, f"key {key!r} is {type(key).__name__}, JSON keys are strings")
        if (type(item) is str and item.isascii()) or (type(item) is float and math.isfinite(item)):
            yield plain_text(key), item  # the usual cases
        else:
            yield plain_text(key), freeze(item, f"{path}.{key}", depth)


def freeze_object(value: Mapping[str, Any] | None, path: str) -> FrozenDict | None:
    """Freeze one optional JSON object, as call records and annotations hold them."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise MessageError(path, f"expected an object, got {type(value).__name__}")
    return FrozenDict(freeze_items(value, path))


def check_message(message: Any, path: str, freeze_metadata: Callable[[Any, str], Any]) -> dict[str, Any]:
    """Return the fields of one chat message, frozen; raise MessageError with the path to the first fault.

    Takes a mapping, or an object with `model_dump` as client libraries return them (only the fields that were set are
    read). Unknown fields are kept. `freeze_metadata` freezes the `metadata`, which may hold a chat."""
    if is_plain(message):
        return dict(message)
    if not isinstance(message, Mapping):
        message = dump_model(message) if callable(getattr(message, "model_dump", None)) else message
        if not isinstance(message, Mapping):
            raise MessageError(path, f"expected a message with a role, got {type(message).__name__}")
    given = dict(message)  # one copy: another thread may write to a message of a graph while it is read here
    role = given.get("role")
    if role is None:
        raise MessageError(f"{path}.role", f"missing; one of {', '.join(sorted(ROLES))}")
    if not isinstance(role, str) or str.__str__(role) not in ROLES:
        raise MessageError(f"{path}.role", f"unknown role {role!r}; one of {', '.join(sorted(ROLES))}")
    has_metadata = METADATA in given
    metadata = given.pop(METADATA, None)
    fields = dict(freeze_items(given, path))
    check_shapes(fields, path)
    if has_metadata:
        fields[METADATA] = None if metadata is None else freeze_metadata(metadata, f"{path}.{METADATA}")
    return fields


def is_plain(message: Any) -> bool:
    """Whether a value is a message of the usual kind, as JSON holds it: a role and an ASCII text, and nothing to check or to freeze."""
    if type(message) is not dict or len(message) != 2:
        return False
    role, content = message.get("role"), message.get("content")
    return type(content) is str and content.isascii() and type(role) is str and role in ROLES


_TEXT_FIELDS = ("tool_call_id", "name", "refusal", *REASONING)


def check_shapes(fields: Mapping[str, Any], path: str) -> None:
    """Refuse the values that no chat API takes; the server decides about everything else."""
    content = fields.get("content")
    if isinstance(content, FrozenList):
        for index, part in enumerate(content):
            if not isinstance(part, FrozenDict) or not isinstance(part.get("type"), str):
                raise MessageError(f"{path}.content[{index}]", "expected a part: an object with a type")
    elif content is not None and not isinstance(content, str):
        raise MessageError(f"{path}.content", f"expected text, parts or null, got {type(content).__name__}")
    calls = fields.get("tool_calls")
    if calls is not None and not isinstance(calls, FrozenList):
        raise MessageError(f"{path}.tool_calls", f"expected a list, got {type(calls).__name__}")
    for index, call in enumerate(calls or ()):
        if not isinstance(call, FrozenDict):
            raise MessageError(f"{path}.tool_calls[{index}]", f"expected an object, got {type(call).__name__}")
    for key in _TEXT_FIELDS:
        if key in fields and fields[key] is not None and not isinstance(fields[key], str):
            raise MessageError(f"{path}.{key}", f"expected text or null, got {type(fields[key]).__name__}")


def json_encoder(*, sort_keys: bool, separators: tuple[str, str] = (",", ":")) -> Callable[[Any], str]:
    """Return a function that writes ASCII JSON. Made once: the library's `encode` makes a new inner encoder for every value,
    which for a message takes as long as encoding it."""
    plain = json.JSONEncoder(ensure_ascii=True, sort_keys=sort_keys, separators=separators, allow_nan=False, check_circular=False)
    if c_make_encoder is None:  # not CPython
        return plain.encode
    between, behind_key = separators
    inner = c_make_encoder(None, plain.default, encode_basestring_ascii, None, behind_key, between, sort_keys, False, False)  # noqa: FBT003
    return lambda value: encode_basestring_ascii(value) if isinstance(value, str) else "".join(inner(value, 0))


_encode_sorted = json_encoder(sort_keys=True)
_encode_ordered = json_encoder(sort_keys=False)


def canonical_json(value: Any) -> str:
    """Return the canonical form of a frozen JSON value; the order of its keys does not matter."""
    return _encode_sorted(value)


def canonical(value: Any) -> bytes:
    """Return the canonical bytes of a frozen JSON value."""
    return _encode_sorted(value).encode("ascii")


def canonical_text(text: str) -> bytes:
    """Return the canonical bytes of a text."""
    return encode_basestring_ascii(text).encode("ascii")


def compact_json(value: Any) -> str:
    """Write a frozen JSON value with its keys in their own order: a template may print a tool schema as it stands."""
    return _encode_ordered(value)


def canonical_message(message: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a message: all its fields but `metadata`."""
    if len(message) == 2:
        role, content = message.get("role"), message.get("content")
        if type(role) is str and type(content) is str:  # the usual case, without the encoder of objects: it takes three times as long
            return f'{{"content":{encode_basestring_ascii(content)},"role":{encode_basestring_ascii(role)}}}'.encode("ascii")
    if METADATA in message:
        return canonical({key: value for key, value in message.items() if key != METADATA})
    return canonical(message)


def digest(data: bytes) -> bytes:
    """Return the SHA-256 of content: the 32 bytes that identify it."""
    return sha256(data).digest()
