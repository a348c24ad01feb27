"""The content of turns for operators. A module of its own: it loads the router, whose code renders the contexts."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.app.console_turn import turn_reader_from
from hermes.config import Settings
from hermes.console.turn_content import ContentReader, content_json
from hermes.console.turn_view import TurnReader
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.turn_record import PostgresTurnWords

__all__ = ["ContentReader", "TurnPart", "content_json", "content_reader_from", "turn_part_from"]


@dataclass(frozen=True, slots=True)
class TurnPart:
    """What stands behind the pages and routes of one turn."""

    reader: TurnReader
    content: ContentReader
    keep_days: int
    """How long the journal keeps content after a turn's end; 0: for ever."""


def turn_part_from(settings: Settings, transactions: Transactions, keyring: Keyring) -> TurnPart:
    reader, content = turn_reader_from(settings, transactions), content_reader_from(transactions, keyring)
    return TurnPart(reader, content, settings.journal.keep_days)


def content_reader_from(transactions: Transactions, keyring: Keyring) -> ContentReader:
    """Return what reads the content of turns."""
    return ContentReader(transactions, PostgresTurnWords(keyring))
