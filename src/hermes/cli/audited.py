"""Acts of the command line that the console has too, in the audit log before they are done, as the console's are."""

from __future__ import annotations

from hermes.app.console_access import access_from
from hermes.cli.actor import command_actor
from hermes.cli.output import storable_text
from hermes.config import Settings
from hermes.console.access import Subject
from hermes.ports.operators import Role
from hermes.ports.runtime import Transactions


async def audit_command(settings: Settings, transactions: Transactions, action: str, kind: str, subject: str, **facts: object) -> None:
    """Write an act to the audit log, in a transaction of its own: the caller has none open."""
    about = Subject(kind=kind, id=storable_text(subject))
    await access_from(settings, transactions).permit(command_actor(), Role.OPERATOR, action, about, facts=facts)


async def audit_key(settings: Settings, transactions: Transactions, action: str, key: str, account: str | None, **facts: object) -> None:
    """Write to the audit log what the person at the command line does to an API key, before it is done."""
    about = Subject(kind="key", id=key, account=account)
    await access_from(settings, transactions).permit(command_actor(), Role.OWNER, action, about, facts=facts)
