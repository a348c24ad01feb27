"""Telegram's people and groups, and what the bot hears of what they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes.demo.platforms.ledger import Received, Said
from hermes.demo.platforms.pace import today
from hermes.demo.platforms.person import Person, picture_of
from hermes.demo.platforms.telegram.entities import utf16

if TYPE_CHECKING:
    from hermes.demo.platforms.telegram.platform import Telegram
