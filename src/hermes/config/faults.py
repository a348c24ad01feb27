"""The faults that settings can have, as text: one line each, whatever the operator wrote. No fault shows a secret.

Names that do not exist and values of the wrong kind are found by value_reader.py; contradictions between values are found here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from hermes.config.declarations import is_secret, keys_of, known_settings, sections, tables, type_at, words_of
from hermes.config.models import (
    ALERT_KEYS,
    KINDS_WITH,
    SELF_HOSTED_SERVERS,
    AlertKindSetting,
    AlertSettings,
    BackendKind,
    BackendSettings,
    ModelSettings,
    kind_of_backend,
    kind_of_destination,
    variable_name,
)
from hermes.config.settings import Settings
from hermes.config.value_reader import FaultKind, ValueFault
from hermes.config.values import INTEGER_LIMIT, check_address

MAX_SHOWN_CHARS = 60


# --- a file


def file_faults(found: Iterable[ValueFault], table: Mapping[str, Any]) -> list[str]:
    """Return a line for each fault of a file, in the order of the file; a key that is missing comes after the others of its table."""
    return [file_fault(fault) for fault in sorted(found, key=lambda fault: position(table, fault.path))]


def position(table: Any, path: tuple[int | str, ...]) -> list[int]:
    at = []
    for part in path:
        keys = list(table) if isinstance(table, dict) else list(range(len(table)))
        at.append(keys.index(part) if part in keys else len(keys))
        table = table[part] if part in keys else {}
    return at


def file_fault(fault: ValueFault) -> str:
    path, given = fault.path, fault.given
    place = place_of(path)
    if fault.kind is FaultKind.UNKNOWN:
        return unknown_setting_fault(path, given)
    # The value of a whole section or table is not shown: `database = "postgresql://…"` is an easy mistake, and it may hold an API key.
    if path[0] in sections() and len(path) == 1:
        return f"{place} is a section; write [{place}] above its settings"
    if path[0] in tables() and len(path) == 1:
        return f"{place} is a section; write [{place}.NAME] above its settings, with a name of your own"
    if path[0] in tables() and len(path) == 2:
        return f"{place} is a table; write [{place}] above its settings"
    expected = type_at(path)
    if fault.kind is FaultKind.MISSING:
        return f"{place} is missing; expected {words_of(expected)}"
    words = words_of(expected, has_variable=path[0] not in tables())
    return wrong_value_fault(place, given, expected, f"{words}, each as [[{place}]]" if words == "a list of tables" else words)


def unknown_setting_fault(path: tuple[int | str, ...], given: object) -> str:
    place = place_of(path)
    if path[0] in tables():
        table = place_of(path[:-1])
        return f"unknown setting {place}; did you mean {table}.{nearest(str(path[-1]), keys_of(type_at(path[:-1])))}?"
    if len(path) == 1 and isinstance(given, dict):
        return f"unknown section [{place}]; did you mean [{nearest(str(path[0]), [*sections(), *tables()])}]?"
    return f"unknown setting {place}; did you mean {nearest('.'.join(map(str, path)), [setting.name for setting in known_settings()])}?"


def wrong_value_fault(place: str, given: object, hint: Any, words: str) -> str:
    """Say that a value is not of its type, and which values are expected; without the value if it may be a secret."""
    return f"{place} is {value_type(given) if is_secret(hint) else shown_value(given)}; expected {words}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that looks most like this one. There always is one: even a bad guess shows what the names look like."""
    spelled = {other.lower(): other for other in known}
    return spelled[get_close_matches(name.lower(), spelled, n=1, cutoff=0.0)[0]]


def place_of(path: Iterable[int | str]) -> str:
    """Return a place in a file as the operator would write it: `models.claude-haiku.prices[1].input`."""
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{one_line(part)}" for part in path).removeprefix(".")


def one_line(name: str) -> str:
    """Return a name as it is, or quoted if it holds unusual characters: TOML allows a line break in a key."""
    return shorten(name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else repr(name))


def shown_value(value: object) -> str:
    """Return a value as the operator wrote it, if it fits in a line; else its type."""
    match value:
        case str() if value:
            return shorten(repr(value))
        case bool():
            return str(value).lower()
        case int() if abs(value) >= INTEGER_LIMIT:  # Python refuses to print very long ones
            return "a number of more than 64 bits"
        case int() | float():
            return str(value)
    return value_type(value)


def value_type(value: object) -> str:
    """Say what type of value it is, without the value."""
    if value == "":
        return "empty"
    sorts = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return sorts.get(type(value), "a date or time")


def shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


# --- contradictions


def find_contradictions(settings: Settings) -> Iterator[str]:
    """Yield a line for each contradiction between values that are each valid."""
    database, work = settings.database, settings.work
    if database.pool_max < database.pool_min:
        yield f"database.pool_max is {database.pool_max}; expected at least database.pool_min, which is {database.pool_min}"
    if settings.delivery.cut_off_s < 3 * settings.delivery.timeout_s:
        minimum = f"three times delivery.timeout_s, which is {settings.delivery.timeout_s}"
        yield f"delivery.cut_off_s is {settings.delivery.cut_off_s}; expected at least {minimum}"
    if not settings.delivery.queue_s:
        yield "delivery.queue_s is empty; expected at least one number, because Hermes tries an answer in doubt once more from the queue"
    if work.stalled_after_s <= 2 * work.heartbeat_s:
        yield f"work.stalled_after_s is {work.stalled_after_s}; expected more than twice work.heartbeat_s, which is {work.heartbeat_s}"
    for name, server in settings.mcp.items():
        if (server.command is None) == (server.url is None):
            yield f"mcp.{one_line(name)} has {'neither' if server.command is None else 'both'} a command and a url; expected one of them"
    for name, backend in settings.backends.items():
        yield from backend_contradictions(name, backend)
    for variable, count in Counter(map(variable_name, settings.backends)).items():
        if count > 1:
            names = ", ".join(f"backends.{one_line(name)}" for name in settings.backends if variable_name(name) == variable)
            yield f"{names} would share the variable HERMES_BACKENDS_{variable}_API_KEY; expected names that differ in letters or digits"
    yield from price_contradictions(settings.models)
    for name, destination in settings.alerts.items():
        yield from alert_contradictions(name, destination)


def backend_contradictions(name: str, backend: BackendSettings) -> Iterator[str]:
    place = f"backends.{one_line(name)}"
    kind = kind_of_backend(name, backend)
    if kind is None:
        yield f"{place}.kind is missing; expected {words_of(BackendKind)}"
        return
    if name in set(BackendKind) and kind != name:
        # An operator who reads "anthropic" in a list of attempts, or sets its key, means Anthropic.
        yield f"{place}.kind is {kind}; expected {name}, or another name for the backend"
    if kind in SELF_HOSTED_SERVERS and backend.base_url is None:
        yield f"{place}.base_url is missing; expected the address of the server, such as http://host:8000/v1"
    for key, kinds in KINDS_WITH.items():
        if getattr(backend, key) is not None and kind not in kinds:
            yield f"{place}.{key} is set; a backend of kind {kind} has none"


def price_contradictions(models: Mapping[str, ModelSettings]) -> Iterator[str]:
    for name, model in models.items():
        for since, count in Counter(price.since for price in model.prices).items():
            if count > 1:
                yield f"models.{one_line(name)}.prices has {count} prices since {since or 'always'}; expected one"


def alert_contradictions(name: str, destination: AlertSettings) -> Iterator[str]:
    place = f"alerts.{one_line(name)}"
    kind = kind_of_destination(name, destination)
    if kind is None:
        yield f"{place}.kind is missing; expected {words_of(AlertKindSetting)}"
        return
    needed, allowed = ALERT_KEYS[kind]
    for key in ("url", "token", "chat", "secret"):
        if getattr(destination, key) is None and key in needed:
            yield f"{place}.{key} is missing; a destination of kind {kind} needs it"
        if getattr(destination, key) is not None and key not in needed | allowed:
            yield f"{place}.{key} is set; a destination of kind {kind} has none"
    try:
        if destination.url is not None:
            check_address(destination.url.reveal().partition("?")[0])
    except ValueError:
        yield f"{place}.url is no address; expected one such as https://host/path"  # not shown: it holds a secret
