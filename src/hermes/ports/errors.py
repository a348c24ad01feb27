"""What can go wrong behind a port.

PortError
├── StoreUnavailable     try again later; nothing, or an unknown part, was done
├── Fenced               another worker has taken over this conversation; stop
├── StaleHead            the list moved on since it was read
├── OutOfCredit          nothing was reserved
├── InboxFull            nothing was accepted
├── KeyReused            an Idempotency-Key with another body
├── StillRunning         an Idempotency-Key whose first request has no answer yet
├── Forgotten            the person's key was discarded; what it sealed cannot be read
├── NotThere             there is no such row
└── Damaged              what is stored is not what was sealed there
"""

from __future__ import annotations


class PortError(Exception):
    """Something behind a port failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


class StoreUnavailable(PortError):
    """The store cannot be reached; whether the last write happened is unknown, and every write here may be repeated."""


class ClaimLost(PortError):
    """Another worker has taken over this conversation; whatever this one was about to write is not written."""


class StaleHead(PortError):
    """The conversation moved on since it was read; read it again."""


class OutOfCredit(PortError):
    """There is no credit left to reserve."""


class InboxFull(PortError):
    """Too many messages are waiting for this account; send it again later."""


class IdempotencyKeyReused(PortError):
    """This Idempotency-Key was used for a request with another body."""


class RequestStillRunning(PortError):
    """The first request with this Idempotency-Key has no answer yet."""


class UserErased(PortError):
    """This person was deleted: the key is gone, and what it sealed cannot be read."""


class NotFound(PortError):
    """There is no such thing."""


class DataDamaged(PortError):
    """A stored value is not what was sealed there; nothing of it is believed."""
