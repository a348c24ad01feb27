"""Texts with places to fill in.

    {name}          the value of this place
    {name|text}     the same, or the text where the value is empty
    {{name}}        the plain text {name}

A value is filled in as it is: places in it are not filled again. Other braces stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)(?:\|([^{}]*))?\}")
_LEFT_OUT = object()


def fill_text(text: str, places: Mapping[str, str]) -> str:
    """A text with its places filled in. An unknown place stays as it is."""

    def filled(found: re.Match[str]) -> str:
        if found[1] is not None:
            return f"{{{found[1]}}}"
        return places.get(found[2], found[0]) or found[3] or ""

    return _PLACEHOLDER.sub(filled, text)


def fill_arguments(arguments: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """The same for all texts in a table, at any depth. A text that becomes empty is left out, and so is a table of such texts."""
    return {key: value for key, value in ((key, _fill_value(item, places)) for key, item in arguments.items()) if value is not _LEFT_OUT}


def _fill_value(value: Any, places: Mapping[str, str]) -> Any:
    match value:
        case str():
            text = fill_text(value, places)
            return text if text.strip() or not value else _LEFT_OUT
        case Mapping():
            table = fill_arguments(value, places)
            return table if table or not value else _LEFT_OUT
        case list():
            return [item for item in (_fill_value(item, places) for item in value) if item is not _LEFT_OUT]
    return value


def placeholder_names(text: str) -> Iterator[str]:
    """The names of the places of a text."""
    return (found[2] for found in _PLACEHOLDER.finditer(text) if found[2] is not None)


def visit_texts(value: Any, look: Callable[[str], Any]) -> None:
    """Call `look` for every text in a value of lists and tables; not for keys."""
    match value:
        case str():
            look(value)
        case Mapping():
            for item in value.values():
                visit_texts(item, look)
        case list():
            for item in value:
                visit_texts(item, look)
