"""Options and arguments that several commands have, spelled and described once."""

from __future__ import annotations

from typing import Annotated

import typer

STORE = "Read from the store of a Hermes, running or not, instead of files"

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
