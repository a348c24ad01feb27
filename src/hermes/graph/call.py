"""The record of one model call: what the server was asked for and what it gave back.

Token lists are kept as arrays (4 bytes a token), not as Python integers. Knows nothing about graphs."""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isnan
from typing import Any, Literal, NamedTuple, TypeVar

from hermes.graph.errors import CallError, MessageError
from hermes.graph.message import FrozenDict, FrozenList, canonical, digest, freeze_object, plain_text, thaw

LogprobMode = Literal["raw", "processed"]
"""Whether the server read logprobs before (`raw`) or after (`processed`) it applied temperature, top-p and the like."""

SCRIPTED = "scripted"
"""The `model` of a call that a script answered: no model sampled the answer, so it is not training data."""

_JSON_NAME = {"i": "int32", "f": "float32"}


class PolicySpan(NamedTuple):
    """The policy that sampled completion tokens [start, end): weights may change in the middle of a response."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallRecord:
    """One model call. Everything is optional: record what the server returned, never a guess.

    Equal records have equal digests; the digest is part of the response's id, so a changed token is noticed."""

    model: str | None = None
    """The model that answered, as the server names it; SCRIPTED if a script answered. Not the name that the client asked for."""
    policy_version: str | None = None
    """The weights that sampled, e.g. "step-12"; use `policy_spans` if the weights changed during the response."""
    policy_spans: Sequence[PolicySpan] | None = None
    sampling: Mapping[str, Any] | None = None
    """temperature, top_p, seed … as sent."""
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    """Token counts as the server reported them."""
    raw_text: str | None = None
    """The completion as sampled, before any parser took reasoning or tool calls out of it."""
    tools: Sequence[Any] | None = None
    """The tool schemas sent; they are part of the context. `commit` takes them from the turn."""
    template_id: str | None = None
    tokenizer: str | None = None
    request_digest: str | None = None
    """Digest of the encoded request as it went over the wire."""
    prompt_token_ids: Sequence[int] | None = None
    prompt_derived: bool = False
    """True if the caller tokenised the prompt, because the server did not return its token ids."""
    token_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    """One float32 for each of `token_ids`."""
    logprob_mode: LogprobMode | None = None
    sample_id: str | None = None
    """The caller's own name for this sample (a journal key, a file and line); the graph makes a random one if it is absent."""
    extra: Mapping[str, Any] | None = None
    """Other values that the server returned (routed experts, sampling masks …)."""
    redacted: Mapping[str, str] | None = None
    """The digest of each part that was erased (`prompt`, `completion`); the other parts can still be checked."""
    _digest: list[bytes] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None:
                if not isinstance(value, str):
                    raise CallError(f"call.{name}", f"expected text, got {type(value).__name__}")
                put(self, name, plain_text(value))
                if name != "raw_text" and not _is_unicode(getattr(self, name)):
                    raise CallError(f"call.{name}", "half a surrogate pair cannot be part of a name")
        if self.logprob_mode not in (None, "raw", "processed"):
            raise CallError("call.logprob_mode", f"{self.logprob_mode!r} is neither 'raw' nor 'processed'")
        try:
            for name in ("sampling", "usage", "extra", "redacted"):
                put(self, name, freeze_object(getattr(self, name), f"call.{name}"))
            put(self, "tools", freeze_tools(self.tools, "call.tools"))
        except MessageError as error:
            raise CallError(error.path, error.reason) from None
        for part, known in (self.redacted or {}).items():
            if part not in _PARTS or not isinstance(known, str):
                raise CallError(f"call.redacted.{part}", "expected the digest of a part")
            check_hex(known, f"call.redacted.{part}")
        put(self, "policy_spans", _check_spans(self.policy_spans))
        put(self, "prompt_token_ids", _to_array("i", self.prompt_token_ids, "call.prompt_token_ids"))
        put(self, "token_ids", _to_array("i", self.token_ids, "call.token_ids"))
        put(self, "logprobs", _to_array("f", self.logprobs, "call.logprobs"))

    @property
    def digest(self) -> bytes:
        """The record's digest as it was when first read; recording a response reads it."""
        self.seal()
        return self._digest[0]

    def seal(self) -> None:
        """Compute the digest now, so that a later change is noticed."""
        if not self._digest:
            self._digest.append(self.compute_digest())

    def compute_digest(self) -> bytes:
        """Return the digest of the record as it is now. An erased part counts with the digest it had."""
        record = self.to_dict()
        gone = record.pop("redacted", {})
        parts = {name: {field: record.pop(field) for field in names if field in record} for name, names in _PARTS.items()}
        digests = [bytes.fromhex(gone[name]) if name in gone and not part else digest(canonical(part)) for name, part in parts.items()]
        return digest(b"hermes.call\0" + b"".join(digests) + canonical(record))

    def part_digest(self, part: str) -> str:
        """Return the digest of one part; it is all that stays of an erased part."""
        record = self.to_dict()
        return digest(canonical({field: record[field] for field in _PARTS[part] if field in record})).hex()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values; absent fields are left out, arrays are base64 of little-endian values."""
        out: dict[str, Any] = {}
        for name in _FIELDS:
            value = getattr(self, name)
            if isinstance(value, array):
                out[name] = {_JSON_NAME[value.typecode]: b64encode(_little_endian(value).tobytes()).decode("ascii")}
            elif name == "policy_spans" and value is not None:
                out[name] = [list(span) for span in value]
            elif value is not None and value is not False:
                out[name] = value
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CallRecord:
        """Read what `to_dict` wrote; raise CallError with the path to the fault."""
        known = dict(data)
        for name in data:
            if name not in _FIELDS:
                raise CallError(f"call.{name}", "unknown field")
        for name in ("prompt_token_ids", "token_ids", "logprobs"):
            if name in known:
                known[name] = _from_base64("f" if name == "logprobs" else "i", known[name], f"call.{name}")
        for name, kind in (("policy_spans", list), ("prompt_derived", bool)):
            if name in known and not isinstance(known[name], kind):
                raise CallError(f"call.{name}", f"expected {kind.__name__}, got {type(known[name]).__name__}")
        return cls(**known)

    def erase(self, part: str) -> CallRecord:
        """Return this record without the text and tokens of its `prompt` or its `completion`; the digest stays."""
        if part in (self.redacted or {}):
            return self
        gone = {**(self.redacted or {}), part: self.part_digest(part)}
        if part == "prompt":
            return replace(self, prompt_token_ids=None, redacted=gone)
        return replace(self, raw_text=None, token_ids=None, logprobs=None, extra=None, redacted=gone)

    def __eq__(self, other: object) -> bool:
        return self.compute_digest() == other.compute_digest() if isinstance(other, CallRecord) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return CallRecord.from_dict, (thaw(FrozenDict(self.to_dict())),)


_FIELDS = tuple(sorted(f.name for f in fields(CallRecord) if f.init))
_TEXTS = (
    *("model", "policy_version", "finish_reason", "raw_text", "template_id"),
    *("tokenizer", "request_digest", "sample_id"),
)
_PARTS = {"prompt": ("prompt_token_ids",), "completion": ("raw_text", "token_ids", "logprobs", "extra")}
"""The fields that hold text or tokens of the messages, by part. Each part can be erased without the other."""


def freeze_tools(tools: Iterable[Any] | None, path: str) -> FrozenList | None:
    """Freeze tool schemas; an empty list becomes None."""
    if tools is None:
        return None
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise MessageError(path, f"expected a list of tool schemas, got {type(tools).__name__}")
    # The same schemas come with every call: one that is frozen already is taken as it is.
    frozen = FrozenList([tool if type(tool) is FrozenDict else freeze_object(tool, f"{path}[{index}]") for index, tool in enumerate(tools)])
    return frozen or None


def check_hex(text: str, path: str) -> None:
    """Raise CallError unless `text` is the hexadecimal form of a 32-byte digest."""
    if len(text) != 64 or text.strip("0123456789abcdef"):
        raise CallError(path, "expected 64 hexadecimal digits")


_Number = TypeVar("_Number", int, float)


def _to_array(typecode: Literal["i", "f"], values: Iterable[_Number] | None, path: str) -> array[Any] | None:
    if values is None:
        return None
    if isinstance(values, bytes | bytearray):  # array() would read them as memory
        raise CallError(path, f"expected a list of {_JSON_NAME[typecode]} values, got {type(values).__name__}")
    try:
        compact = array(typecode, values)
    except (TypeError, OverflowError, ValueError) as error:
        raise CallError(path, f"expected a list of {_JSON_NAME[typecode]} values ({error})") from None
    if typecode == "f" and any(map(isnan, compact)):
        raise CallError(path, "NaN is not a logprob")
    # The sign is the top bit of each value's last byte: `isascii` checks all of them at memory speed.
    if typecode == "i" and not _little_endian(compact).tobytes()[3::4].isascii():
        raise CallError(path, "a token id must not be negative")
    return compact


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_spans(spans: Iterable[Any] | None) -> tuple[PolicySpan, ...] | None:
    if spans is None:
        return None
    checked = []
    for index, span in enumerate(spans):
        path = f"call.policy_spans[{index}]"
        try:
            version, start, end = span
        except (TypeError, ValueError):
            raise CallError(path, "expected (version, start, end)") from None
        if not (isinstance(version, str) and _is_unicode(version) and type(start) is int and type(end) is int and 0 <= start <= end):
            raise CallError(path, "expected a version and a range of completion tokens")
        checked.append(PolicySpan(version, start, end))
    return tuple(checked)


def _little_endian(values: array[Any]) -> array[Any]:
    if sys.byteorder == "little":
        return values
    swapped = values[:]
    swapped.byteswap()
    return swapped


def _from_base64(typecode: Literal["i", "f"], value: Any, path: str) -> array[Any]:
    name = _JSON_NAME[typecode]
    if not isinstance(value, Mapping) or set(value) != {name} or not isinstance(value[name], str):
        raise CallError(path, f'expected {{"{name}": base64}}')
    try:
        data = b64decode(value[name], validate=True)
        out: array[Any] = array(typecode)
        out.frombytes(data)
    except (Base64Error, ValueError) as error:
        raise CallError(path, str(error)) from None
    return _little_endian(out)
