"""Errors of the embedded stores. Every message is one line that tells the user what to do."""

from __future__ import annotations

from pathlib import Path

OWN_SERVERS_HINT = "or use servers of your own: HERMES_DATABASE_URL and HERMES_REDIS_URL"


class EmbeddedError(Exception):
    """The embedded stores cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class PlatformUnsupported(EmbeddedError):
    """This machine, or this user of it, cannot run the servers."""


class HomeUnusable(EmbeddedError):
    """The data folder cannot be written to, or belongs to another user."""


class HomeInUse(EmbeddedError):
    """Other processes hold the data folder."""


class ServerFailed(EmbeddedError):
    """A server did not start or did not stop; the message gives the reason and names its log."""

    def __init__(self, server: str, log: Path, reason: str) -> None:
        super().__init__(f"{server} {reason}; its log is {log}")
        self.server = server
        self.log = log
