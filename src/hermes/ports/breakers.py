"""Breakers: while sends through a channel account keep failing, Hermes stops sending for a while, and then tries one message as a probe."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hermes.turn import Platform


@dataclass(frozen=True, slots=True)
class ChannelName:
    """One account at one platform. Failures of one account say nothing about another."""

    platform: Platform
    account: str

    def __str__(self) -> str:
        return f"{self.platform}:{self.account}"


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether to send now."""

    wait_s: float | None = None
    """None: send now. Otherwise nothing may be sent for so long."""
    is_probe: bool = False
    """This send finds out whether the account works again; all other sends wait. The sender must report how it ended."""


class BreakerTransition(StrEnum):
    """What a result did to a breaker."""

    OPENED = "opened"
    STAYED_OPEN = "stayed_open"
    """The probe failed too."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class BreakerChange:
    """How a breaker changed, and its state now."""

    change: BreakerTransition
    failures: int = 0
    wait_s: float = 0.0
    """Until the next probe."""


class Breakers(Protocol):
    """The breakers of all channel accounts, shared by all processes. Fails open: without the store everything may be sent, and nothing is
    counted.

    No method raises."""

    async def admit(self, channel_name: ChannelName) -> Admission:
        """Ask before every send. While the breaker is open, and while a probe is under way, the answer is to wait."""
        ...

    async def record_success(self, channel_name: ChannelName) -> BreakerChange | None:
        """Note that a message was sent: the breaker closes, and its failures are forgotten. None if the breaker was not open."""
        ...

    async def record_failure(self, channel_name: ChannelName, admission: Admission) -> BreakerChange | None:
        """Note that a send failed in a way that counts. None if the breaker neither opened nor stayed open after its probe."""
        ...

    async def release_probe(self, channel_name: ChannelName, admission: Admission) -> None:
        """Note that a send ended in a way that says nothing about the account, such as a recipient who left. If it was the probe, another
        send may be the probe now."""
        ...

    async def stop(self, channel_name: ChannelName) -> BreakerChange | None:
        """Note that the platform rejects the account's credentials: nothing is sent for a while. None if the breaker was open already."""
        ...
