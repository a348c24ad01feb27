"""The record of one model call: what the server was asked for and what it gave back. Knows nothing about graphs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

from hermes.graph.errors import CallError, MessageError
from hermes.graph.message import FrozenDict, canonical, canonical_text, digest, freeze_object, plain_text, thaw
from hermes.graph.token_arrays import PromptDigests, array_as_canonical, array_as_json, array_from_json, check_array, to_array
from hermes.graph.tool_schemas import ToolSchemas, once

LogprobMode = Literal["raw", "processed"]
"""Whether the server read logprobs before (`raw`) or after (`processed`) it applied temperature, top-p and the like."""

SCRIPTED = "scripted"
"""The `model` of a call that a script answered: no model sampled the answer, so it is not training data."""


class PolicySpan(NamedTuple):
    """The policy that sampled completion tokens [start, end): weights may change in the middle of a response."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, eq=False)  # without slots: a record that was read holds only the fields that it has
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
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check(name, value))

    @property
    def digest(self) -> bytes:
        """The record's digest as it was when first read; recording a response reads it."""
        self.seal()
        return self._digest[0]

    def seal(self, prompts: PromptDigests | None = None) -> None:
        """Compute the digest now, so that a later change is noticed. `prompts` as in `compute_digest`."""
        if not self._digest:
            self._digest.append(self.compute_digest(prompts))

    def compute_digest(self, prompts: PromptDigests | None = None) -> bytes:
        """Return the digest of the record as it is now. An erased part counts with the digest it had.

        `prompts` computed the digests of the calls before: a prompt that continues one of theirs costs only what it adds."""
        prompt = (prompts or PromptDigests()).digest(self.prompt_token_ids)
        completion = self._canonical(_PARTS["completion"])
        gone = self.redacted or {}
        if "prompt" in gone and self.prompt_token_ids is None:
            prompt = bytes.fromhex(gone["prompt"])
        answer = bytes.fromhex(gone["completion"]) if "completion" in gone and completion == b"{}" else digest(completion)
        return call_digest(prompt + answer, self._canonical(_NAMES))

    def part_digest(self, part: str) -> str:
        """Return the digest of one part; it is all that stays of an erased part."""
        return digest(self._canonical(_PARTS[part])).hex()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values; absent fields are left out, arrays are base64 of little-endian values."""
        return self._as_json(_FIELDS)

    def without_prompt(self) -> dict[str, Any]:
        """Return what `to_dict` returns, without `prompt_token_ids`: in a document, prompts are most of what there is to write."""
        return self._as_json(_WITHOUT_PROMPT)

    def _canonical(self, names: Iterable[str]) -> bytes:
        """Return the canonical bytes of `_as_json`; `names` are in their canonical order. Does not make the texts of arrays twice."""
        parts = []
        held = self.__dict__
        for name in names:
            value = held.get(name)
            if value is None or value is False:
                continue
            if type(value) is str:
                text = canonical_text(value)
            elif type(value) is array:
                text = array_as_canonical(value)
            elif type(value) is ToolSchemas:
                text = once(value, canonical)
            else:
                text = canonical(value)
            parts.append(_KEYS[name] + text)
        return b"{%b}" % b",".join(parts)

    def _as_json(self, names: Iterable[str]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name in names:
            value = getattr(self, name)
            if value is None or value is False:
                continue
            if isinstance(value, array):
                value = array_as_json(value)
            elif name == "policy_spans":
                value = [list(span) for span in value]
            out[name] = value
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CallRecord:
        """Read what `to_dict` wrote; raise CallError with the path to the fault."""
        if not data.keys() <= _FIELD_NAMES:
            raise CallError(f"call.{next(name for name in data if name not in _FIELD_NAMES)}", "unknown field")
        # Without the constructor, which takes as long to sort out nineteen keywords as the rest of the reading takes.
        record = object.__new__(cls)
        held = record.__dict__
        for name, value in data.items():
            if type(value) is str and name in _TEXTS and value.isascii():
                held[name] = value  # the usual case of a text
            else:
                held[name] = _READERS[name](name, value)
        held["_digest"] = []
        return record

    @classmethod
    def of_checked(cls, fields: Mapping[str, Any], digest: bytes) -> CallRecord:
        """Return the record with these fields, which `from_dict` would give it, and with its digest: for readers that checked both."""
        record = object.__new__(cls)
        held = record.__dict__
        held.update(fields)
        held["_digest"] = [digest]
        return record

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


def call_digest(parts: bytes, rest: bytes) -> bytes:
    """Return the digest of a record from the digests of its prompt and its completion, and the canonical bytes of its other fields."""
    return digest(b"hermes.call\0" + parts + rest)


_FIELDS = tuple(sorted(f.name for f in fields(CallRecord) if f.init))
_FIELD_NAMES = frozenset(_FIELDS)
_PARTS = {"prompt": ("prompt_token_ids",), "completion": ("extra", "logprobs", "raw_text", "token_ids")}
"""The fields that hold text or tokens of the messages, by part, sorted. Each part can be erased without the other."""
_ARRAYS: dict[str, Literal["i", "f"]] = {"prompt_token_ids": "i", "token_ids": "i", "logprobs": "f"}
_NAMES = tuple(name for name in _FIELDS if name != "redacted" and not any(name in part for part in _PARTS.values()))
"""The fields that neither part holds."""
_KEYS = {name: canonical_text(name) + b":" for name in _FIELDS}
_WITHOUT_PROMPT = tuple(name for name in _FIELDS if name != "prompt_token_ids")


def freeze_tools(tools: Iterable[Any] | None, path: str) -> ToolSchemas | None:
    """Freeze tool schemas; an empty list becomes None."""
    if tools is None:
        return None
    if type(tools) is ToolSchemas:
        return tools or None
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise MessageError(path, f"expected a list of tool schemas, got {type(tools).__name__}")
    # The same schemas come with every call: one that is frozen already is taken as it is.
    frozen = ToolSchemas(
        [tool if type(tool) is FrozenDict else freeze_object(tool, f"{path}[{index}]") for index, tool in enumerate(tools)]
    )
    return frozen or None


def check_hex(text: str, path: str) -> None:
    """Raise CallError unless `text` is the hexadecimal form of a 32-byte digest."""
    if len(text) != 64 or text.strip("0123456789abcdef"):
        raise CallError(path, "expected 64 hexadecimal digits")


def _check_text(name: str, value: Any) -> str:
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise CallError(f"call.{name}", f"expected text, got {type(value).__name__}")
    text = plain_text(value)
    if name != "raw_text" and not _is_unicode(text):
        raise CallError(f"call.{name}", "half a surrogate pair cannot be part of a name")
    return text


def _check_logprob_mode(name: str, value: Any) -> Any:
    if value not in ("raw", "processed"):
        raise CallError(f"call.{name}", f"{value!r} is neither 'raw' nor 'processed'")
    return value


def _check_object(name: str, value: Any) -> FrozenDict | None:
    try:
        return freeze_object(value, f"call.{name}")
    except MessageError as error:
        raise CallError(error.path, error.reason) from None


def _check_tools(name: str, value: Any) -> ToolSchemas | None:
    try:
        return freeze_tools(value, f"call.{name}")
    except MessageError as error:
        raise CallError(error.path, error.reason) from None


def _check_redacted(name: str, value: Any) -> FrozenDict | None:
    redacted = _check_object(name, value)
    for part, known in (redacted or {}).items():
        if part not in _PARTS or not isinstance(known, str):
            raise CallError(f"call.{name}.{part}", "expected the digest of a part")
        check_hex(known, f"call.{name}.{part}")
    return redacted


def _check_array(name: str, value: Any) -> array[Any] | None:
    return to_array(_ARRAYS[name], value, f"call.{name}")


def _read_array(name: str, value: Any) -> array[Any] | None:
    if isinstance(value, array):
        return to_array(_ARRAYS[name], value, f"call.{name}")
    values = array_from_json(_ARRAYS[name], value, f"call.{name}")
    check_array(values, f"call.{name}")
    return values


def _read_spans(name: str, value: Any) -> tuple[PolicySpan, ...]:
    return _check_spans(name, _of_kind(list, name, value))


def _read_bool(name: str, value: Any) -> bool:
    known: bool = _of_kind(bool, name, value)
    return known


def _of_kind(kind: type, name: str, value: Any) -> Any:
    if not isinstance(value, kind):
        raise CallError(f"call.{name}", f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_spans(name: str, spans: Iterable[Any]) -> tuple[PolicySpan, ...]:
    checked = []
    for index, span in enumerate(spans):
        path = f"call.{name}[{index}]"
        try:
            version, start, end = span
        except (TypeError, ValueError):
            raise CallError(path, "expected (version, start, end)") from None
        if not (isinstance(version, str) and _is_unicode(version) and type(start) is int and type(end) is int and 0 <= start <= end):
            raise CallError(path, "expected a version and a range of completion tokens")
        checked.append(PolicySpan(version, start, end))
    return tuple(checked)


_TEXTS = frozenset(
    ("model", "policy_version", "finish_reason", "raw_text", "template_id", "tokenizer", "request_digest", "sample_id"),
)
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(_TEXTS, _check_text),
    "logprob_mode": _check_logprob_mode,
    **dict.fromkeys(("sampling", "usage", "extra"), _check_object),
    "redacted": _check_redacted,
    "tools": _check_tools,
    "policy_spans": _check_spans,
    **dict.fromkeys(_ARRAYS, _check_array),
}
"""For each field but `prompt_derived`, what checks and freezes a value that is not None."""


def _or_none(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    **{name: _or_none(check) for name, check in _CHECKS.items()},
    "policy_spans": _read_spans,
    "prompt_derived": _read_bool,
    **dict.fromkeys(_ARRAYS, _read_array),
}
"""For each field, what reads the value that `to_dict` wrote."""
