"""The accounts that are set up, by platform and name."""

from __future__ import annotations

from collections.abc import Iterable

from hermes.ports.channels import Channel
from hermes.turn import Platform


class Directory:
    """The port Channels."""

    def __init__(self, channels: Iterable[Channel]) -> None:
        """Raises ValueError for two channels of one account at one platform."""
        self._channels: dict[tuple[Platform, str], Channel] = {}
        for channel in channels:
            where = (channel.platform, channel.account)
            if where in self._channels:
                raise ValueError(f"{channel.platform} has two channels of the account {channel.account!r}")
            self._channels[where] = channel

    def get(self, platform: Platform, account: str) -> Channel | None:
        return self._channels.get((platform, account))
