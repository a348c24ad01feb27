"""Read the arguments of `hermes batch`: texts or files, parameters, messages, names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from hermes.cli.output import fail
from hermes.graph import MessageError, MessageGraph
from hermes.trajectories.batch.object_import import import_object


def folder_name(run_name: str) -> str:
    if not run_name.strip() or run_name in (".", "..") or any(sign in run_name for sign in "/\\\0"):
        fail(f"--run-name {run_name!r} cannot be the name of a folder")
    return run_name


def text_or_file(option: str, given: str | None) -> str | None:
    """Return the text; if it is the path of a file, the file's content."""
    if given is None:
        return None
    try:
        file = Path(given)
        return file.read_text(encoding="utf-8").removesuffix("\n") if len(given) < 1_000 and file.is_file() else given
    except OSError as error:
        fail(f"{option}: cannot read {given}: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{option}: {given} is not UTF-8 text")


def parse_sampling(given: list[str] | tuple[str, ...], **named: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            fail(f"--sampling {text!r}: expected KEY=VALUE, such as top_k=40 or 'stop=[\"END\"]'")
        try:
            found[name.strip()] = json.loads(value, parse_constant=_refuse_constant)
        except ValueError:
            found[name.strip()] = value  # a plain word needs no quotes
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def read_messages(file: Path) -> list[dict[str, Any]]:
    try:
        given = json.loads(file.read_bytes())
        return [dict(message) for message in MessageGraph(given)]
    except OSError as error:
        fail(f"--prefill: cannot read {file}: {error.strerror}")
    except (ValueError, MessageError) as error:
        fail(f"--prefill: {file} is not a JSON list of messages ({error})")


def load_verifier(name: str | None) -> Any:
    if name is None:
        return None
    if ":" not in name:
        fail(f"--verify {name!r}: expected MODULE:FUNCTION, such as my_checks:is_right")
    found = import_object(name, "--verify")
    if not callable(found):
        fail(f"--verify {name!r} is not a function")
    return found
