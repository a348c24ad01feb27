"""What is known about a user, in values that JSON has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from enum import Enum
from typing import Any
from uuid import UUID


def to_json_value(value: Any) -> Any:
    """Return a value with names, times and ids as text, to any depth."""
    match value:
        case Enum():
            return value.value
        case UUID():
            return str(value)
        case datetime() | date():
            return value.isoformat()
        case Mapping():
            return {name: to_json_value(each) for name, each in value.items()}
        case list() | tuple():
            return [to_json_value(each) for each in value]
    return value
