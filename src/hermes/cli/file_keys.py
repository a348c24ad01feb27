"""Commands whose values stand in a file: `--set KEY=VALUE` changes any key of it, and an option that became a key says which one.

`hermes batch` reads a recipe, `hermes compress` its settings. What people type every day has an option; all the rest has a key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from hermes.cli.options import command_without
from hermes.cli.output import fail

SetKeys = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set any key of the file, its value as JSON or a plain text; repeatable."),
]


def parse_keys(given: Sequence[str] | None) -> dict[str, Any]:
    """Return the values of `--set` by key. A value that is not JSON is a text."""
    found: dict[str, Any] = {}
    for text in given or ():
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            fail(f"--set {text!r}: expected KEY=VALUE")
        try:
            found[key.strip()] = json.loads(value, parse_constant=_refuse_constant)
        except ValueError:
            found[key.strip()] = value  # a plain word needs no quotes
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def command_with_keys(keys: Mapping[str, str], file: str, former: Mapping[str, str] | None = None) -> type[TyperCommand]:
    """Return the class of a command whose former options are keys of `file` now; each says in one line which key it is. Those in `former`
    still work."""
    gone = {option: f"is a key of {file} now: write {key} there, or --set {key}=VALUE" for option, key in keys.items()}
    return command_without(gone, {option: partial(set_key, key) for option, key in (former or {}).items()})


def set_key(key: str, value: str) -> list[str]:
    return ["--set", f"{key}={value}"]
