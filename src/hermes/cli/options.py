"""Options and arguments that several commands have, spelled and described once, and how the shell completes their values.

Knows neither settings nor stores, so that commands without the service can use it; `runtime.py` completes names from the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

WORK = "Where the work is done"
STORE = "Read from the store of a Hermes, running or not, instead of files"
ENGINES = {"local": "processes of this machine", "daft": "Daft on this machine", "ray://": "Daft on a Ray cluster, ray://HOST:PORT"}


def complete_from(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that completes a word to the known names that begin with it."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in known() if name.startswith(incomplete)]

    return complete


Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")]
Config = Annotated[
    Path | None, typer.Option("--config", help="Read the settings from this file instead of ./hermes.toml.", show_default=False)
]
By = Annotated[str, typer.Option("--by", envvar=["USER", "USERNAME"], show_envvar=False, help="Your name; Hermes records it.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many to show at most.")]

# --- export and compress

Workers = Annotated[
    int, typer.Option("--workers", "-w", min=1, help="Processes, for large inputs; at most one for each core.", rich_help_panel=WORK)
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="local; daft; or ray://HOST:PORT for Daft on a Ray cluster. All write the same bytes.",
        autocompletion=complete_from(lambda: ENGINES),
        rich_help_panel=WORK,
    ),
]
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
