"""What can go wrong behind a port.

PortError
├── StoreUnavailable      try again later; nothing, or an unknown part, was done
├── ClaimLost             another worker has taken over this conversation; stop
├── LeaseLost             another process has taken over this chore; stop
├── StaleHead             the list was changed since it was read
├── OutOfCredit           nothing was reserved
├── InboxFull             nothing was accepted
├── IdempotencyKeyReused  an Idempotency-Key with another body
├── RequestStillRunning   an Idempotency-Key whose first request has no answer yet
├── UserErased            the user's key was discarded; data sealed with it cannot be read
├── NotFound              there is no such row
├── DataDamaged           the stored bytes are not the bytes that were sealed
├── CopyRefused           the database, or the backup, cannot be copied so; nothing was changed
└── StartRefused          the settings, or what they name, are wrong: Hermes does not start"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


class PortError(Exception):
    """Something behind a port failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


class StoreUnavailable(PortError):
    """The store cannot be reached; whether the last write happened is unknown, and every write here may be repeated."""


class ClaimLost(PortError):
    """Another worker has taken over this conversation; this worker's write was not made."""


class LeaseLost(PortError):
    """Another process has taken over this chore; this process's write was not made."""


class StaleHead(PortError):
    """The conversation was changed since it was read; read it again."""


class OutOfCredit(PortError):
    """There is no credit left to reserve."""


class InboxFull(PortError):
    """Too many messages are waiting for this account; send it again later."""


class IdempotencyKeyReused(PortError):
    """This Idempotency-Key was used for a request with another body."""


class RequestStillRunning(PortError):
    """The first request with this Idempotency-Key has no answer yet."""


class UserErased(PortError):
    """This user was deleted: the key is gone, and data sealed with it cannot be read."""


class NotFound(PortError):
    """There is no such thing."""


class DataDamaged(PortError):
    """A stored value is not the value that was sealed; none of it is used."""


class CopyRefused(PortError):
    """The database cannot be copied so; nothing was changed."""


class StartRefused(PortError):
    """Hermes cannot start with these settings."""


def require_known(name: str, known: Collection[str], what: str) -> str:
    """Return a name that is known. Raises NotFound, which names the nearest one."""
    if name in known:
        return name
    near = get_close_matches(name, known, n=1)
    guess = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
    raise NotFound(f"there is no {what} {name!r}; {guess}")
