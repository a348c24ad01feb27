"""Sessions from the store, for `hermes export`. Loaded only when the user names sessions: it needs the extra `serve`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from uuid import UUID

import typer

from hermes.app.stores import SessionSource, open_session_source
from hermes.cli.moments import parse_moment
from hermes.cli.output import CANNOT_RUN, complain, fail
from hermes.cli.runtime import new_event_loop, settings_from, start_log
from hermes.ports.errors import NotFound, PortError, StartRefused, UserErased
from hermes.ports.sessions import SessionQuery
from hermes.trajectories.errors import SourceError
from hermes.trajectories.source import ExportSession


class StoredSessions:
    """The sessions that were found. The caller may iterate several times; each pass reads the current state, one session at a time.

    The event loop runs only while a session is read: the caller's own work on sessions (rows, files) is synchronous."""

    def __init__(self, runner: asyncio.Runner, stored: SessionSource, found: Sequence[UUID]) -> None:
        self._runner, self._stored, self._found = runner, stored, found
        self.erased_sessions = 0
        """How many sessions the last pass left out, because their users were erased."""

    @property
    def size(self) -> int:
        return len(self._found) - self.erased_sessions

    def __iter__(self) -> Iterator[ExportSession | SourceError]:
        self.erased_sessions = 0
        for session_id in self._found:
            try:
                session = self._runner.run(self._stored.read(session_id))
            except (UserErased, NotFound):
                self.erased_sessions += 1
                continue
            yield session


@contextmanager
def stored_sessions(names: Sequence[str], since: str | None, account: str | None, config: Path | None) -> Iterator[StoredSessions]:
    """Find sessions in the store of the settings, and keep the store open as long as the block lasts.

    Bad arguments (a time, a name, a setting) are one line and exit code 2, before the block begins; a store that fails is code 1."""
    query = SessionQuery(
        names=tuple(map(_check_text, names)),
        since=None if since is None else parse_moment(since),
        account=None if account is None else _check_text(account),
    )
    settings = settings_from(config)
    start_log(settings)  # the log goes to standard error; standard output is for the summary
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            stack = AsyncExitStack()
            stored = runner.run(stack.enter_async_context(open_session_source(settings)))
            try:
                yield StoredSessions(runner, stored, runner.run(stored.find(query)))
            finally:
                runner.run(stack.aclose())
    except (NotFound, StartRefused) as error:
        fail(str(error))
    except PortError as error:
        complain(str(error))
        raise typer.Exit(CANNOT_RUN) from None


def _check_text(name: str) -> str:
    """Return the name. If it is not UTF-8 text, fail: no conversation, session or account can have it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        fail(f"there is no conversation, session or account {name!r}")
    return name
