"""What a fake vendor is told to do with its next request, and what it has seen. The same for every wire format."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Cut(StrEnum):
    """How an answer goes wrong in its middle."""

    RESET = "reset"
    """The connection is gone."""
    END = "end"
    """The body ends well, the answer does not."""
    ERROR = "error"
    """The vendor's own error, after a 200."""
    GARBAGE = "garbage"
    """What should be JSON is not."""
    HANG = "hang"
    """Nothing more comes."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def text(self) -> str:
        """The arguments as a model writes them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Answer."""

    text: str = "ok"
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()
    finish: str | None = None
    """The vendor's own word; by default the one that fits."""
    tokens_in: int | None = 12
    tokens_out: int | None = 5
    """None: the vendor does not say."""
    cached: int = 0
    cache_written: int = 0
    prompt_token_ids: Sequence[int] | None = None
    token_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    weight_version: str = "default"
    """What SGLang calls its weights."""
    drip_s: float = 0.0
    """A pause before every piece of a stream."""
    cut: Cut | None = None
    cut_after: int = 1
    """How many pieces of the answer come before it goes wrong; 0 is before the first."""
    error: str = ""
    """The vendor's type of the error, for Cut.ERROR."""

    @property
    def pieces(self) -> list[str]:
        """The text in pieces as a stream brings it: word by word."""
        return re.findall(r"\s*\S+|\s+$", self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Refuse, in the vendor's shape."""

    status: int
    message: str = "scripted"
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Send exactly this."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hang:
    """Never answer."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Drop the connection before a byte is sent."""


Act = Say | Fail | Raw | Hang | Reset


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class Refusal(Exception):
    """The request is not one that the vendor takes."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


def demand(condition: object, message: str, status: int = 400, code: str = "") -> None:
    """Refuse the request unless something holds."""
    if not condition:
        raise Refusal(status, message, code)


def only(value: Mapping[str, Any], known: set[str], where: str) -> None:
    """Refuse fields that the vendor does not know."""
    for key in value:
        demand(key in known, f"{where}{key}: Extra inputs are not permitted", code="unknown_parameter")
