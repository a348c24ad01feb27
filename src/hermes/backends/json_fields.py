"""Read a vendor's JSON: every value has the expected type, or MalformedAnswer says where it has not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class MalformedAnswer(Exception):
    """The answer has not the form that its vendor promises."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        """What is wrong, without quoting the answer."""


class ErrorInAnswer(Exception):
    """An error inside an answer that began as a success. `status` is the status that it would have had as an answer of its own."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"an error inside a success ({status})")
        self.status, self.body = status, body


def parse_object(data: bytes | str, where: str) -> dict[str, Any]:
    """Parse a JSON object."""
    if not data.strip():
        raise MalformedAnswer(f"{where} is empty")
    try:
        return require_object(json.loads(data), where)
    except (ValueError, RecursionError):
        raise MalformedAnswer(f"{where} is not JSON") from None


def require_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedAnswer(f"{where} is not an object")
    return value


def object_list(value: Any, where: str) -> list[dict[str, Any]]:
    """A list of objects; null is an empty list."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedAnswer(f"{where} is not a list")
    return [require_object(item, f"{where}[]") for item in value]


def text_or_empty(value: Any, where: str) -> str:
    """A text; null is an empty text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedAnswer(f"{where} is not text")
    return value


def count_or_none(value: Any) -> int | None:
    """A number of tokens; None where it is missing or wrong. A wrong count is no reason to lose an answer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def usage_fields(value: Any) -> dict[str, Any]:
    """The fields of a usage; empty where it is no object, for the same reason."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else {}
