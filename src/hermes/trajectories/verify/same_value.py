"""Compare two values as strictly as a reader could tell them apart: 1, 1.0 and true differ, and so do floats with different bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_SHOWN = 80
"""A longer text is not shown in a problem."""

_SCALARS = frozenset({str, int, float, bool, type(None)})


def find_difference(actual: Any, expected: Any, path: str = "", *, shows_texts: bool = False) -> str | None:
    """Return the first difference as a sentence that names its place; None if there is none.

    Texts of messages do not belong into reports, so texts are shown only if `shows_texts`."""
    kind = type(expected)
    if kind in _SCALARS:
        return _find_in_scalar(actual, expected, path, shows_texts=shows_texts)
    if isinstance(expected, np.ndarray):
        if not isinstance(actual, np.ndarray) or actual.dtype != expected.dtype:
            return f"{path} is not a list of {expected.dtype}"
        if actual.tobytes() == expected.tobytes():
            return None
        actual, expected = actual.tolist(), expected.tolist()
    if kind is dict or isinstance(expected, Mapping):
        return _find_in_object(actual, expected, path, shows_texts=shows_texts)
    if isinstance(expected, list | tuple):
        return _find_in_list(actual, expected, path, shows_texts=shows_texts)
    return _find_in_scalar(actual, expected, path, shows_texts=shows_texts)


def _find_in_scalar(actual: Any, expected: Any, path: str, *, shows_texts: bool) -> str | None:
    if type(actual) is type(expected) and repr(actual) == repr(expected):
        return None
    if isinstance(actual, str) and isinstance(expected, str) and not (shows_texts and len(actual) <= MAX_SHOWN):
        return f"{path} is not the text that the source gives"
    return f"{path} is {_show(actual, shows_texts=shows_texts)}, the source gives {_show(expected, shows_texts=shows_texts)}"


def _find_in_object(actual: Any, expected: Mapping[str, Any], path: str, *, shows_texts: bool) -> str | None:
    if type(actual) is not dict and not isinstance(actual, Mapping):
        return f"{path} is {_show(actual, shows_texts=shows_texts)}, the source gives an object"
    for key, value in expected.items():
        place = f"{path}.{key}" if path else str(key)
        if key not in actual:
            return f"{place} is missing"
        fault = find_difference(actual[key], value, place, shows_texts=shows_texts)
        if fault is not None:
            return fault
    new = next((key for key in actual if key not in expected), None)
    return None if new is None else f"{f'{path}.{new}' if path else new} is not in the source"


def _find_in_list(actual: Any, expected: list[Any] | tuple[Any, ...], path: str, *, shows_texts: bool) -> str | None:
    if not isinstance(actual, list | tuple):
        return f"{path} is {_show(actual, shows_texts=shows_texts)}, the source gives a list"
    types = list(map(type, expected))
    if _SCALARS.issuperset(types) and types == list(map(type, actual)) and repr(list(actual)) == repr(list(expected)):
        return None  # as a list of tokens usually is, which need not be compared one by one
    for at, (one, other) in enumerate(zip(actual, expected, strict=False)):
        fault = find_difference(one, other, f"{path}[{at}]", shows_texts=shows_texts)
        if fault is not None:
            return fault
    return None if len(actual) == len(expected) else f"{path} has {len(actual)} values, the source gives {len(expected)}"


def _show(value: Any, *, shows_texts: bool) -> str:
    if isinstance(value, str) and (not shows_texts or len(value) > MAX_SHOWN):
        return "a text"
    if isinstance(value, Mapping | list | tuple | np.ndarray):
        return "an object" if isinstance(value, Mapping) else "a list"
    return repr(value)
