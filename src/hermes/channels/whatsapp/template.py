"""Templates: what Hermes may send after the user has not written for a day. Meta approves the text in advance; Hermes fills its gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_VALUE_CHARS = 900
"""A template has at most 1,024 characters, its own text included."""


def template_body(
    name: str, language: str, values: Sequence[str] = (), *, components: Sequence[Mapping[str, Any]] = (), text: str = ""
) -> Mapping[str, Any]:
    """A template as a message's body, for `WhatsAppChannel.encode`.

    `values` fill {{1}}, {{2}} … of its body. `components` are its other parts (a header, buttons), in Meta's format. `text` is the whole
    message for Hermes' own records; WhatsApp does not get it."""
    parameters = [{"type": "text", "text": value} for value in values]
    filled = [*components, {"type": "body", "parameters": parameters}] if parameters else [*components]
    chosen: dict[str, Any] = {"name": name, "language": {"code": language}}
    return {"text": text, "template": chosen | ({"components": filled} if filled else {})}


def template_value(text: str) -> str | None:
    """A text as the value of a gap, which may hold no line ends and no repeated spaces; None if it is empty or too long."""
    line = " ".join(text.split())
    return line if 0 < len(line) <= MAX_VALUE_CHARS else None
