"""The subjects of content: a conversation, or the memory of a user. Finds the user and the account that they belong to, for access and the
audit log."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from hermes.console.access import Subject
from hermes.ports.errors import NotFound
from hermes.ports.operators import ContentOwners
from hermes.ports.runtime import Transaction, Transactions


@dataclass(frozen=True, slots=True)
class SubjectReader:
    """Makes the subject of content out of its kind and id."""

    transactions: Transactions
    owners: ContentOwners

    async def find(self, kind: str, identity: str) -> Subject:
        """Return the subject. Raises NotFound. A user of several accounts belongs to none of them alone: an operator of one of them does
        not open their memory."""
        try:
            wanted = UUID(identity)
        except ValueError:
            raise NotFound(f"there is no {kind} {identity}") from None
        async with self.transactions.once() as tx:
            return await self.find_in(tx, kind, wanted)

    async def find_in(self, tx: Transaction, kind: str, identity: UUID) -> Subject:
        """As `find`, within a transaction."""
        owner = await self.owners.find(tx, kind, identity)
        if owner is None:
            raise NotFound(f"there is no {kind} {identity}")
        return Subject(kind=kind, id=str(identity), user_id=owner.user_id, account=owner.account)
