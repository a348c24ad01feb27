"""What may be sent when the user has not written for a day: a text that Meta approved before, with gaps that we fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_VALUE_CHARS = 900
"""A template has 1,024 characters, its own words included."""


def template_body(
    name: str, language: str, values: Sequence[str] = (), *, components: Sequence[Mapping[str, Any]] = (), text: str = ""
) -> Mapping[str, Any]:
    """A template as a message's body, for `WhatsApp.encode`.

    `values` fill {{1}}, {{2}} … of its body. `components` are for whatever else it has (a header, buttons), as Meta writes them. `text` is
    what the whole says, for those who read our records; WhatsApp does not get it."""
    parameters = [{"type": "text", "text": value} for value in values]
    filled = [*components, {"type": "body", "parameters": parameters}] if parameters else [*components]
    chosen: dict[str, Any] = {"name": name, "language": {"code": language}}
    return {"text": text, "template": chosen | ({"components": filled} if filled else {})}


def template_value(text: str) -> str | None:
    """A text as the value of a gap, which takes no line ends and no wide spaces; None for one that is empty, or too long."""
    line = " ".join(text.split())
    return line if 0 < len(line) <= MAX_VALUE_CHARS else None
