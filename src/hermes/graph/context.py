"""Compute what is sent to a model: the messages of a list, with an overlay that never enters the list.

Pure: messages and an overlay in, messages out. Knows nothing about versions, samples or ids of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hermes.graph.call import freeze_tools
from hermes.graph.errors import MessageError
from hermes.graph.message import METADATA, REASONING, THINKING, FrozenDict, FrozenList, canonical, digest, plain_text

KeepReasoning = Literal["none", "current_turn", "all"]
"""Which earlier reasoning a call sends: none, the reasoning since the last user message, or all."""

_KEEP = ("none", "current_turn", "all")
_DROPPED = frozenset({METADATA, THINKING, *REASONING})


@dataclass(frozen=True, slots=True)
class Overlay:
    """What one call sent beyond the list. Belongs to the response, and never makes a version.

    >>> Overlay(ephemeral="Be brief.").render([{"role": "user", "content": "Hi"}])
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}]
    """

    tools: Sequence[Any] | None = None
    ephemeral: str | None = None
    keep_reasoning: KeepReasoning = "none"
    template_id: str | None = None
    _digest: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", freeze_tools(self.tools, "tools"))
        object.__setattr__(self, "ephemeral", self.ephemeral or None)
        if self.keep_reasoning not in _KEEP:
            raise MessageError("keep_reasoning", f"{self.keep_reasoning!r} is not one of {', '.join(_KEEP)}")
        for name in ("ephemeral", "template_id"):
            value = getattr(self, name)
            if value is not None:
                if not isinstance(value, str):
                    raise MessageError(name, f"expected text, got {type(value).__name__}")
                object.__setattr__(self, name, plain_text(value))

    def to_dict(self) -> dict[str, Any]:
        """Return the overlay as JSON values; default values are left out."""
        out: dict[str, Any] = {}
        for name, default in (("tools", None), ("ephemeral", None), ("keep_reasoning", "none"), ("template_id", None)):
            value = getattr(self, name)
            if value != default:
                out[name] = value
        return out

    @property
    def digest(self) -> bytes:
        """The overlay's digest; computed once, because many calls share one overlay."""
        if not self._digest:
            self._digest.append(digest(canonical(self.to_dict())))
        return self._digest[0]

    def render(self, messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return exactly the messages that are sent to a backend for this list."""
        source = list(messages)
        turn_start = _turn_start(source, self.keep_reasoning)
        sent: list[dict[str, Any]] = [
            _drop_fields(message, _DROPPED if index < turn_start else frozenset((METADATA,))) for index, message in enumerate(source)
        ]
        return sent if self.ephemeral is None else _with_ephemeral(sent, self.ephemeral)


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


def _with_ephemeral(sent: list[dict[str, Any]], ephemeral: str) -> list[dict[str, Any]]:
    """Add the text to the first system message; if there is none, put it first as one."""
    at = next((index for index, message in enumerate(sent) if message["role"] in ("system", "developer")), None)
    if at is None:
        return [FrozenDict(role="system", content=ephemeral), *sent]
    content = sent[at].get("content")
    if isinstance(content, list):
        joined: Any = FrozenList([*content, FrozenDict(type="text", text=f"\n\n{ephemeral}")])
    else:
        joined = f"{content}\n\n{ephemeral}" if content else ephemeral
    sent[at] = FrozenDict({**sent[at], "content": joined})
    return sent
