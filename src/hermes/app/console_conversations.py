"""Conversations of the console, for a whole Hermes and for commands."""

from __future__ import annotations

from hermes.app.console_access import access_from
from hermes.config import Settings
from hermes.console.conversations import Conversations
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.conversations import PostgresConversations
from hermes.stores.postgres.keyring import Keyring


def conversations_from(settings: Settings, transactions: Transactions, keyring: Keyring) -> Conversations:
    """Return what reads conversations for operators."""
    return Conversations(transactions, PostgresConversations(keyring), access_from(settings, transactions))
