"""Options and arguments that several commands have, spelled and described once, how the shell completes their values, and former options.

Knows neither settings nor stores, so that commands without the service can use it; `runtime.py` completes names from the settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hermes.cli.output import complain, fail

STORE = "Read from the store of a Hermes, running or not, instead of files"


def complete_from(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that completes a word to the known names that begin with it."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in known() if name.startswith(incomplete)]

    return complete


FormerOptions = Mapping[str, list[str] | Callable[[str], list[str]]]
"""Former options that still work, each with the words to write now; for an option with a value, a function from that value to the words."""


def command_without(gone: Mapping[str, str], former: FormerOptions | None = None) -> type[TyperCommand]:
    """Return the class of a command that had these options once. Those in `gone` say in one line what to write instead, and stop; those in
    `former` say it too, and go on."""

    class CommandWithout(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # typer does not export the context's type
            return super().parse_args(ctx, translate_options(args, gone, former or {}))

    return CommandWithout


def translate_options(args: Iterable[str], gone: Mapping[str, str], former: FormerOptions) -> list[str]:
    """Return the words of a command line with today's options in place of former ones."""
    translated: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--":
            return [*translated, word, *words]
        option, sign, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])  # -w4 is -w with the value 4
        if option in gone:
            fail(f"{option} {gone[option]}")
        if option not in former:
            translated.append(word)
            continue
        now = former[option]
        if not isinstance(now, list):
            given = value if sign else next(words, None)
            if given is None:
                fail(f"{option} needs a value")
            now = now(given)
        complain(f"{option} is a former option; write {shlex.join(now)}" if now else f"{option} is a former option; leave it out")
        translated += now
    return translated


Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")]
Config = Annotated[
    Path | None, typer.Option("--config", help="Read the settings from this file instead of ./hermes.toml.", show_default=False)
]
By = Annotated[str, typer.Option("--by", envvar=["USER", "USERNAME"], show_envvar=False, help="Your name; Hermes records it.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many to show at most.")]

# --- export and compress

Conversations = Annotated[
    list[str] | None,
    typer.Option(
        "--conversation",
        help="A conversation or session id, a channel, or a chat's name in X-Hermes-Session; repeatable.",
        rich_help_panel=STORE,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Whole sessions with a message since then: 24h, 7d, 2026-11-15, 2026-11-15T12:00 (UTC).",
        rich_help_panel=STORE,
    ),
]
StoreAccount = Annotated[str | None, typer.Option("--account", help="Sessions of this account.", rich_help_panel=STORE)]
AllStored = Annotated[bool, typer.Option("--stored", help="All sessions of the store.", rich_help_panel=STORE)]
StoreConfig = Annotated[
    Path | None,
    typer.Option("--config", help="Read the settings from this file instead of ./hermes.toml.", show_default=False, rich_help_panel=STORE),
]
