"""Reads a body as JSON, and refuses what two readers could read in two ways: a name twice in one object, NaN, Infinity."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from hermes.web.errors import ApiError


class DuplicateName(ValueError):
    """A name stands twice in one object."""


def parse_json(body: bytes) -> Any:
    """Return the value of a body. Raises ApiError with 400."""
    try:
        return json.loads(body, object_pairs_hook=unique_names, parse_constant=refuse_constant)
    except DuplicateName:
        raise ApiError(400, "duplicate_name", "The body has a name twice in one object; which value counts?") from None
    except (ValueError, RecursionError):
        raise ApiError(400, "invalid_json", "The body is not valid JSON.") from None


def unique_names(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateName
    return found


def refuse_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")
