"""The command `hermes` itself: its options, and what its commands may load when they need it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from hermes import __version__

if TYPE_CHECKING:
    from hermes.trajectories.engines import ChunkEngine
    from hermes.trajectories.source import ExportSource


class OpenStoredSessions(Protocol):
    """Opens the sessions of a store: `stored_sessions` of cli/stored_sessions.py."""

    def __call__(
        self, names: Sequence[str], since: str | None, account: str | None, config: Path | None
    ) -> AbstractContextManager[ExportSource]: ...


@dataclass(frozen=True, slots=True)
class LazyParts:
    """The context's object: what a command loads only if its options or settings ask for it, because importing it takes a second."""

    load_app: Callable[[str], ModuleType]
    """Returns a module of `hermes.app`, by its name: `root` is the whole Hermes."""
    load_audited: Callable[[], ModuleType]
    """Returns cli/audited.py, for the commands of a group that change something."""
    load_logs: Callable[[], ModuleType]
    """Returns ops/logs.py, for a command that writes a log line after all."""
    load_local_chat: Callable[[], ModuleType]
    """Returns cli/local_chat.py."""
    open_stored_sessions: OpenStoredSessions
    load_conversation: Callable[[], ModuleType]
    """Returns cli/conversation.py: conversations of the store, for `hermes graph`, which mostly reads files."""
    load_compress_service: Callable[[str], ModuleType]
    """Returns `cli/compress_service.py`: models and the store, for `hermes compress`. Takes what needs it, for the error."""
    new_daft_engine: Callable[[str | None], ChunkEngine]
    """Returns the engine of many machines; takes the address of a Ray cluster. Raises ModuleNotFoundError without the extra `batch`."""
    load_traces: Callable[[], ModuleType]
    """Returns ops/trace_export.py. If a package is missing, says what to install and exits."""


def show_version(is_given: bool) -> None:  # noqa: FBT001  # the signature that typer calls
    if is_given:
        typer.echo(f"hermes {__version__}")
        raise typer.Exit


def new_app() -> typer.Typer:
    """Return the command `hermes` without any command below it."""
    made = typer.Typer(
        name="hermes",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Hermes routes messages, remembers exactly what every model saw, and hands you on-policy training data from it.",
    )

    @made.callback()
    def declare_options(
        *,
        version: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and stop.")
        ] = False,
    ) -> None:
        pass

    return made


app = new_app()
"""Every module of commands registers its own here."""


def lazy_parts() -> LazyParts:
    """What the running command may load: `command_table.build_app` has set it."""
    parts: LazyParts = (app.info.context_settings or {})["obj"]
    return parts
