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
from hermes.graph.message import FrozenDict, FrozenList, canonical, digest, frozen_object, thaw

LogprobMode = Literal["raw", "processed"]
"""Whether logprobs were read before (`raw`) or after (`processed`) temperature, top-p and the like were applied."""

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
    policy_version: str | None = None
    """The weights that sampled, e.g. "step-12"; `policy_spans` where they changed on the way."""
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
    """True where we tokenised the prompt ourselves instead of being told by the server."""
    token_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    """One float32 for each of `token_ids`."""
    logprob_mode: LogprobMode | None = None
    sample_id: str | None = None
    """The caller's own name for this sample (a journal key, a file and line); random where absent."""
    extra: Mapping[str, Any] | None = None
    """What else the server returned (routed experts, sampling masks …)."""
    redacted: str | None = None
    """The digest this record had before some of it was erased."""
    _digest: list[bytes] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise CallError(f"call.{name}", f"expected text, got {type(value).__name__}")
        if self.logprob_mode not in (None, "raw", "processed"):
            raise CallError("call.logprob_mode", f"{self.logprob_mode!r} is neither 'raw' nor 'processed'")
        try:
            for name in ("sampling", "usage", "extra"):
                put(self, name, frozen_object(getattr(self, name), f"call.{name}"))
            put(self, "tools", freeze_tools(self.tools, "call.tools"))
        except MessageError as error:
            raise CallError(error.path, error.reason) from None
        put(self, "policy_spans", _spans(self.policy_spans))
        put(self, "prompt_token_ids", _compact("i", self.prompt_token_ids, "call.prompt_token_ids"))
        put(self, "token_ids", _compact("i", self.token_ids, "call.token_ids"))
        put(self, "logprobs", _compact("f", self.logprobs, "call.logprobs"))

    @property
    def digest(self) -> bytes:
        """The record's fingerprint, as it was when first asked for (recording a response asks)."""
        self.seal()
        return self._digest[0]

    def seal(self) -> None:
        """Take the fingerprint now, so that what changes later is noticed."""
        if not self._digest:
            self._digest.append(self.compute_digest())

    def compute_digest(self) -> bytes:
        """Fingerprint the record as it stands now; for an erased one, the fingerprint it had."""
        if self.redacted is not None:
            return bytes.fromhex(self.redacted)
        return digest(canonical(self.to_dict()))

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
        """Read what `to_dict` wrote; raise CallError with the path to what is wrong."""
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
        if isinstance(known.get("redacted"), str):
            check_hex(known["redacted"], "call.redacted")
        return cls(**known)

    def erase(self, *, completion: bool) -> CallRecord:
        """Return this record without the text and tokens of its prompt, and of its completion too if asked; the digest stays."""
        kept = replace(self, prompt_token_ids=None, extra=None, redacted=self.redacted or self.digest.hex())
        return replace(kept, raw_text=None, token_ids=None, logprobs=None) if completion else kept

    def __eq__(self, other: object) -> bool:
        return self.compute_digest() == other.compute_digest() if isinstance(other, CallRecord) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return CallRecord.from_dict, (thaw(FrozenDict(self.to_dict())),)


_FIELDS = tuple(sorted(f.name for f in fields(CallRecord) if f.init))
_TEXTS = (
    *("model", "policy_version", "finish_reason", "raw_text", "template_id"),
    *("tokenizer", "request_digest", "sample_id", "redacted"),
)


def freeze_tools(tools: Iterable[Any] | None, path: str) -> FrozenList | None:
    """Freeze tool schemas; an empty list is no tools."""
    if tools is None:
        return None
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise MessageError(path, f"expected a list of tool schemas, got {type(tools).__name__}")
    frozen = FrozenList([frozen_object(tool, f"{path}[{index}]") for index, tool in enumerate(tools)])
    return frozen or None


def check_hex(text: str, path: str) -> None:
    """Refuse what is not the hexadecimal form of a 32-byte digest."""
    if len(text) != 64 or text.strip("0123456789abcdef"):
        raise CallError(path, "expected 64 hexadecimal digits")


_Number = TypeVar("_Number", int, float)


def _compact(typecode: Literal["i", "f"], values: Iterable[_Number] | None, path: str) -> array[Any] | None:
    if values is None:
        return None
    try:
        compact = array(typecode, values)
    except (TypeError, OverflowError, ValueError) as error:
        raise CallError(path, f"expected a list of {_JSON_NAME[typecode]} values ({error})") from None
    if typecode == "f" and any(map(isnan, compact)):
        raise CallError(path, "NaN is not a logprob")
    return compact


def _spans(spans: Iterable[Any] | None) -> tuple[PolicySpan, ...] | None:
    if spans is None:
        return None
    checked = []
    for index, span in enumerate(spans):
        path = f"call.policy_spans[{index}]"
        try:
            version, start, end = span
        except (TypeError, ValueError):
            raise CallError(path, "expected (version, start, end)") from None
        if not (isinstance(version, str) and type(start) is int and type(end) is int and 0 <= start <= end):
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
