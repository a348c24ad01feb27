"""The people who run Hermes: their roles, how they sign in, and the audit log of what they did.

An operator has no password. A link signs one browser in, once; a session is that browser's cookie; a token is for programs. The store keeps
digests of all three. A customer's API key is none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.errors import PortError
from hermes.ports.runtime import Transaction

ENTRY_ID_CHARS = 12
"""Characters of an entry's id: the beginning of its digest."""


class Role(StrEnum):
    """What an operator may do. Each role may also do what the one before it may."""

    VIEWER = "viewer"
    """Sees numbers and shapes; identifiers are masked."""
    OPERATOR = "operator"
    """Opens content, replays, requeues, revives, swaps adapters, ends and mutes alerts, engages the kill switch."""
    OWNER = "owner"
    """Releases the kill switch, forgets users, grants credits, changes tiers, keys and operators, drops messages, exports."""

    def covers(self, needed: Role) -> bool:
        """Whether this role may do what `needed` may."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class EntryKind(StrEnum):
    """How an operator comes in."""

    LINK = "link"
    SESSION = "session"
    TOKEN = "token"  # noqa: S105  # the name of a kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A person who runs Hermes, or a program of theirs."""

    id: UUID
    name: str
    role: Role
    accounts: frozenset[str] | None = None
    """The accounts that they see; None: all."""
    created_at: datetime
    created_by: str
    disabled_at: datetime | None = None

    def sees(self, account: str | None) -> bool:
        """Whether they see what belongs to this account. What belongs to no account is for operators of all accounts."""
        return self.accounts is None or account in self.accounts


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorEntry:
    """A link, session or token as it is stored."""

    digest: bytes
    kind: EntryKind
    operator: Operator
    name: str
    created_at: datetime
    seen_at: datetime | None
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None
    address: str
    browser: str

    @property
    def id(self) -> str:
        """A short name for it, to show and to revoke it by. It opens nothing."""
        return self.digest.hex()[:ENTRY_ID_CHARS]


class OperatorNameTaken(PortError):
    """There is an operator with this name already."""


class Operators(Protocol):
    """The operators and their entries. Fails closed, with StoreUnavailable."""

    async def add(self, tx: Transaction, name: str, role: Role, *, accounts: frozenset[str] | None = None, by: str) -> Operator:
        """Add an operator. Raises OperatorNameTaken."""
        ...

    async def find(self, tx: Transaction, name: str) -> Operator | None:
        """Return the operator with this name, also a disabled one."""
        ...

    async def list(self, tx: Transaction) -> Sequence[Operator]:
        """Return all operators, by name."""
        ...

    async def add_entry(
        self,
        tx: Transaction,
        operator_id: UUID,
        kind: EntryKind,
        digest: bytes,
        *,
        ttl_s: float | None,
        name: str = "",
        address: str = "",
        browser: str = "",
    ) -> None:
        """Store the digest of a new secret, for `ttl_s` seconds from now by the store's clock. Only a token may have no end."""
        ...

    async def use_link(self, tx: Transaction, digest: bytes) -> Operator | None:
        """Use a link up, and return its operator; None if it is unknown, used, revoked or too old, or its operator is disabled.

        Of two concurrent uses, one gets the operator."""
        ...

    async def find_entry(self, tx: Transaction, digest: bytes, *, idle_s: float) -> OperatorEntry | None:
        """Return a session or token that is neither revoked nor too old and whose operator is not disabled. A session that was not seen for
        `idle_s` is over."""
        ...

    async def note_seen(self, tx: Transaction, digest: bytes, *, every_s: float) -> None:
        """Note that a session or token was used now, unless that was noted within `every_s`."""
        ...

    async def set_role(self, tx: Transaction, name: str, role: Role) -> Operator:
        """Give an operator another role, from their next request on. Raises NotFound."""
        ...

    async def set_accounts(self, tx: Transaction, name: str, accounts: frozenset[str] | None) -> Operator:
        """Narrow an operator to these accounts; None: all. Raises NotFound."""
        ...

    async def disable(self, tx: Transaction, name: str) -> Operator:
        """Keep an operator out, and revoke all their entries. Raises NotFound. Repeating it changes nothing."""
        ...

    async def enable(self, tx: Transaction, name: str) -> Operator:
        """Let a disabled operator in again, by a new link. Raises NotFound."""
        ...

    async def entries(self, tx: Transaction, *, operator_id: UUID | None = None, idle_s: float) -> Sequence[OperatorEntry]:
        """Return the links, sessions and tokens that can still be used, newest first; of all operators, or of one."""
        ...

    async def revoke(self, tx: Transaction, entry_id: str) -> OperatorEntry:
        """Revoke the entry with this id. Raises NotFound. Repeating it changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ContentOwner:
    """Whose content a conversation or a memory is."""

    user_id: UUID
    account: str | None
    """None: it belongs to several accounts."""


class ContentOwners(Protocol):
    """Finds the owners of content, for access and the audit log. Reads no content."""

    async def find(self, tx: Transaction, subject_kind: str, subject: UUID) -> ContentOwner | None:
        """Return the owner of a `conversation` or of a `user`'s memory; None if there is none, or the kind has no content."""
        ...


# --- the audit log


class Face(StrEnum):
    """Where an operator acts."""

    CONSOLE = "console"
    API = "api"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class Actor:
    """An operator at one of the faces of Hermes."""

    operator: Operator
    face: Face
    address: str = ""
    """The network address, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What an operator did, opened, or was refused."""

    action: str
    """`content.open`, `message.revive`, `kill_switch.on` …"""
    subject_kind: str
    subject: str
    user_id: UUID | None = None
    account_id: str | None = None
    reason: str = ""
    allowed: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Names and numbers; no text of a message."""


@dataclass(frozen=True, slots=True)
class StoredAuditEntry:
    """An entry with its place in the log."""

    id: int
    at: datetime
    operator: str
    role: str
    face: Face
    address: str
    entry: AuditEntry


@dataclass(frozen=True, slots=True)
class ContentOpening:
    """When an operator opened content, and the reason that they gave."""

    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries: those that match every field that is set."""

    operator: str | None = None
    action: str | None = None
    subject_kind: str | None = None
    subject: str | None = None
    user_id: UUID | None = None
    since: datetime | None = None
    only_refused: bool = False
    accounts: frozenset[str] | None = None
    """The accounts that the reader sees; None: all."""


class AuditLog(Protocol):
    """The audit log: entries are added, and never changed or deleted; the store itself refuses it. Fails closed."""

    async def add(self, tx: Transaction, actor: Actor, entry: AuditEntry) -> int:
        """Add an entry; return its number."""
        ...

    async def list(self, tx: Transaction, wanted: AuditFilter, *, before: int | None = None, limit: int = 50) -> Sequence[StoredAuditEntry]:
        """Return entries, newest first; `before` is the number of the last entry of the page before."""
        ...

    async def find_opening(self, tx: Transaction, operator: str, kind: str, subject: str, *, within_s: float) -> ContentOpening | None:
        """Return when and why this operator last opened this content, if that was at most `within_s` ago by the store's clock."""
        ...

    async def count_opened(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> int:
        """Return how often content of this user was opened; with an account, content of that account, and what belongs to several."""
        ...
