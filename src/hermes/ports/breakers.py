"""Breakers: a line to a platform that keeps failing is left alone for a while, and then asked once whether it works again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hermes.turn import Platform


@dataclass(frozen=True, slots=True)
class ChannelName:
    """One account at one platform. What fails on one line says nothing about another."""

    platform: Platform
    account: str

    def __str__(self) -> str:
        return f"{self.platform}:{self.account}"


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether to send now."""

    wait_s: float | None = None
    """None: go on. Else nothing may be sent for so long."""
    is_probe: bool = False
    """This send finds out whether the line works again; nobody else sends meanwhile. It is to be told how that went."""


class BreakerTransition(StrEnum):
    """What a result did to a breaker."""

    OPENED = "opened"
    STAYED_OPEN = "stayed_open"
    """The probe failed too."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class BreakerChange:
    """A breaker that changed, and what holds now."""

    change: BreakerTransition
    failures: int = 0
    wait_s: float = 0.0
    """Until the next probe."""


class Breakers(Protocol):
    """The breakers of all lines, shared by all processes. Fails open: without the store everything may be sent, and nothing is counted.

    None of these raises."""

    async def admit(self, channel_name: ChannelName) -> Admission:
        """Ask before every send. While the breaker is open, and while a probe is under way, the answer is to wait."""
        ...

    async def record_success(self, channel_name: ChannelName) -> BreakerChange | None:
        """Something was sent: the breaker is closed, and all failures are forgotten. None where it was so before."""
        ...

    async def record_failure(self, channel_name: ChannelName, admission: Admission) -> BreakerChange | None:
        """A send failed in a way that counts. None where that changes nothing but the count."""
        ...

    async def release_probe(self, channel_name: ChannelName, admission: Admission) -> None:
        """A send ended in a way that says nothing about the line, such as a recipient who left. A probe may then be another's."""
        ...

    async def stop(self, channel_name: ChannelName) -> BreakerChange | None:
        """The platform does not know us on this line: send nothing for a while. None where the line is stopped already."""
        ...
