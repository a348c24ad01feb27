"""Compute what is sent to a model: the messages of a list, with an overlay that never enters the list.

Pure: messages and an overlay in, messages out. Knows nothing about versions, samples or ids of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hermes.graph.call import freeze_tools
from hermes.graph.errors import MessageError
from hermes.graph.message import METADATA, REASONING, THINKING, FrozenDict, FrozenList, canonical, compact_json, digest, plain_text
from hermes.graph.tool_schemas import once

KeepReasoning = Literal["none", "current_turn", "all"]
"""Which earlier reasoning a call sends: none, the reasoning since the last user message, or all."""

_KEEP = ("none", "current_turn", "all")
_DEFAULTS = (("tools", None), ("ephemeral", None), ("keep_reasoning", "none"), ("template_id", None), ("system", None))
SYSTEM_ROLES = ("system", "developer")
_DROPPED = frozenset({METADATA, THINKING, *REASONING})


@dataclass(frozen=True, slots=True)
class Overlay:
    """What one call sent beyond the list. Belongs to the response, and never makes a version.

    >>> Overlay(system="Be kind.", ephemeral="Be brief.").render([{"role": "user", "content": "Hi"}])
    [{'role': 'system', 'content': 'Be kind.\n\nBe brief.'}, {'role': 'user', 'content': 'Hi'}]
    """

    tools: Sequence[Any] | None = None
    ephemeral: str | None = None
    keep_reasoning: KeepReasoning = "none"
    template_id: str | None = None
    system: str | None = None
    """The base system prompt of the call, where the list does not hold it. Sent like `ephemeral`, before it; unlike `ephemeral` it belongs
    to a saved trajectory."""
    _digest: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", freeze_tools(self.tools, "tools"))
        object.__setattr__(self, "ephemeral", self.ephemeral or None)
        object.__setattr__(self, "system", self.system or None)
        if self.keep_reasoning not in _KEEP:
            raise MessageError("keep_reasoning", f"{self.keep_reasoning!r} is not one of {', '.join(_KEEP)}")
        for name in ("ephemeral", "template_id", "system"):
            value = getattr(self, name)
            if value is not None:
                if not isinstance(value, str):
                    raise MessageError(name, f"expected text, got {type(value).__name__}")
                object.__setattr__(self, name, plain_text(value))

    def to_dict(self) -> dict[str, Any]:
        """Return the overlay as JSON values; default values are left out."""
        out: dict[str, Any] = {}
        for name, default in _DEFAULTS:
            value = getattr(self, name)
            if value != default:
                out[name] = value
        return out

    @property
    def digest(self) -> bytes:
        """The overlay's digest; computed once, because many calls share one overlay."""
        if not self._digest:
            rest = canonical(self._without_tools())
            # `tools` is the last key of the canonical form.
            self._digest.append(digest(rest if self.tools is None else _join(rest, b'"tools":' + once(self.tools, canonical))))
        return self._digest[0]

    def to_json(self) -> bytes:
        """Return `to_dict` as compact JSON, its keys in their own order."""
        rest = compact_json(self._without_tools()).encode("ascii")
        return rest if self.tools is None else b'{"tools":' + once(self.tools, _compact) + (b"," + rest[1:] if len(rest) > 2 else b"}")

    def _without_tools(self) -> dict[str, Any]:
        return {name: value for name, value in self.to_dict().items() if name != "tools"}

    def render(self, messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return exactly the messages that are sent to a backend for this list."""
        source = list(messages)
        turn_start = _turn_start(source, self.keep_reasoning)
        sent: list[dict[str, Any]] = [
            _drop_fields(message, _DROPPED if index < turn_start else frozenset((METADATA,))) for index, message in enumerate(source)
        ]
        for text in (self.system, self.ephemeral):
            sent = sent if text is None else with_system_text(sent, text)
        return sent


def _join(object_: bytes, member: bytes) -> bytes:
    """Add a member to a JSON object, behind the others."""
    return object_[:-1] + (b"," if len(object_) > 2 else b"") + member + b"}"


def _compact(value: Any) -> bytes:
    return compact_json(value).encode("ascii")


def without_tool_blocks(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages without tool calls and results, for a model that takes none. A message that is nothing but calls is left out.

    >>> without_tool_blocks([{"role": "assistant", "content": None, "tool_calls": [{}]}, {"role": "tool", "content": "A bar"}])
    []
    """
    kept: list[Mapping[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            continue
        if not message.get("tool_calls"):
            kept.append(message)
        elif message.get("content"):
            kept.append(FrozenDict({name: value for name, value in message.items() if name != "tool_calls"}))
    return kept


def _turn_start(messages: Sequence[Mapping[str, Any]], keep: KeepReasoning) -> int:
    """Return the index of the first message whose reasoning is sent."""
    if keep == "all":
        return 0
    if keep == "none":
        return len(messages)
    return next((index for index in range(len(messages) - 1, -1, -1) if messages[index]["role"] == "user"), 0)


def _drop_fields(message: Mapping[str, Any], dropped: frozenset[str]) -> dict[str, Any]:
    if isinstance(message, FrozenDict) and dropped.isdisjoint(message):
        return message
    return FrozenDict({key: value for key, value in message.items() if key not in dropped})


def with_system_text(messages: Sequence[Mapping[str, Any]], text: str) -> list[dict[str, Any]]:
    """Return the messages with the text at the end of the first system message; if there is none, with the text before them as one."""
    sent: list[Any] = list(messages)
    at = next((index for index, message in enumerate(sent) if message["role"] in SYSTEM_ROLES), None)
    if at is None:
        return [FrozenDict(role="system", content=text), *sent]
    content = sent[at].get("content")
    if isinstance(content, list):
        joined: Any = FrozenList([*content, FrozenDict(type="text", text=f"\n\n{text}")])
    else:
        joined = f"{content}\n\n{text}" if content else text
    sent[at] = FrozenDict({**sent[at], "content": joined})
    return sent
