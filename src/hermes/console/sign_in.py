"""How operators come in: links that work once, sessions of browsers, tokens of programs. Knows no HTTP; commands and pages share it.

A secret is shown once, and only its digest is stored. It has 256 random bits, so a fast digest is enough."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hermes.ports.operators import (
    Actor,
    AuditEntry,
    AuditLog,
    EntryKind,
    Face,
    Operator,
    OperatorEntry,
    OperatorNameTaken,
    Operators,
    Role,
)
from hermes.ports.runtime import Transaction, Transactions

LINK_TTL_S = 900.0
SESSION_TTL_S = 7 * 86_400.0
SESSION_IDLE_S = 12 * 3_600.0
"""A session that was not used for so long is over."""
SEEN_EVERY_S = 60.0
"""The use of a session is noted at most this often: a page is not to cost a write."""
TOKEN_PREFIX = "ho_"  # noqa: S105  # the beginning of every token, no token
MAX_SECRET_CHARS, MAX_BROWSER_CHARS = 200, 200
ENTER_PATH = "/console/enter"
SIGN_IN_ACTION = "operator.sign_in"


def digest_of_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def new_secret(kind: EntryKind) -> str:
    return (TOKEN_PREFIX if kind is EntryKind.TOKEN else "") + secrets.token_urlsafe(32)


def link_address(base_url: str, secret: str) -> str:
    """Return the link. The secret is its fragment, which a browser sends to no server and no proxy."""
    return f"{base_url.rstrip('/')}{ENTER_PATH}#{secret}"


def is_same_name(name: str, other: str) -> bool:
    """Whether a proxy means the same operator: names in upper and lower case are the same."""
    return name.casefold() == other.casefold()


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where an operator signs in from, as their session shows it."""

    address: str = ""
    browser: str = ""


@dataclass(frozen=True, slots=True)
class SignIn:
    """Makes and checks the secrets of operators."""

    transactions: Transactions
    operators: Operators
    audit: AuditLog

    async def enter(self, secret: str, arrival: Arrival) -> tuple[Operator, str] | None:
        """Use a link up; return its operator and the secret of their new session. None if the link is unknown, used, revoked or too old."""
        if not secret or len(secret) > MAX_SECRET_CHARS:
            return None
        async with self.transactions.begin() as tx:
            operator = await self.operators.use_link(tx, digest_of_secret(secret))
            return None if operator is None else (operator, await self._begin_session(tx, operator, arrival, "link"))

    async def enter_by_proxy(self, name: str, new_role: Role | None, arrival: Arrival) -> tuple[Operator, str] | None:
        """Begin a session for an operator whom a trusted proxy names. An unknown one is added with `new_role`; None: is refused. So is a
        disabled one."""
        async with self.transactions.begin() as tx:
            operator = await self.operators.find(tx, name) or await self._find_spelled_otherwise(tx, name)
            if operator is None and new_role is not None:
                operator = await self._add(tx, name, new_role, Face.CONSOLE)
            if operator is None or operator.disabled_at is not None:
                return None
            return operator, await self._begin_session(tx, operator, arrival, "proxy")

    async def find_session(self, secret: str) -> OperatorEntry | None:
        """Return the session of a browser's cookie, and note at most once a minute that it was used."""
        return await self._find(secret, EntryKind.SESSION)

    async def find_token(self, secret: str) -> OperatorEntry | None:
        """Return the token of a program; notes its use as `find_session` does."""
        return await self._find(secret, EntryKind.TOKEN)

    async def sign_out(self, actor: Actor, entry_id: str) -> None:
        """End the operator's own session."""
        async with self.transactions.begin() as tx:
            await self.operators.revoke(tx, entry_id)
            entry = AuditEntry(action="operator.sign_out", subject_kind="operator", subject=actor.operator.name)
            await self.audit.add(tx, actor, entry)

    async def make_first_owner(self, name: str) -> Operator:
        """Return the operator of this name; if there is none, a new owner. For the person at the machine, who has the database anyway."""
        async with self.transactions.begin() as tx:
            return await self.operators.find(tx, name) or await self._add(tx, name, Role.OWNER, Face.CLI)

    async def make_entry(self, tx: Transaction, operator: Operator, kind: EntryKind, *, ttl_s: float | None, name: str = "") -> str:
        """Store a new link or token; return its secret, which is shown this once."""
        secret = new_secret(kind)
        await self.operators.add_entry(tx, operator.id, kind, digest_of_secret(secret), ttl_s=ttl_s, name=name)
        return secret

    async def _find_spelled_otherwise(self, tx: Transaction, name: str) -> Operator | None:
        """A proxy may pass on what a person typed: `Ada@example.com` is no newcomer beside the disabled `ada@example.com`."""
        return next((operator for operator in await self.operators.list(tx) if is_same_name(operator.name, name)), None)

    async def _add(self, tx: Transaction, name: str, role: Role, face: Face) -> Operator:
        """Add an operator by their own arrival."""
        try:
            operator = await self.operators.add(tx, name, role, by=face)
        except OperatorNameTaken:  # another request was first
            found = await self.operators.find(tx, name)
            if found is None:
                raise
            return found
        entry = AuditEntry(action="operator.add", subject_kind="operator", subject=name, facts={"role": role, "by": face})
        await self.audit.add(tx, Actor(operator, face), entry)
        return operator

    async def _begin_session(self, tx: Transaction, operator: Operator, arrival: Arrival, way: str) -> str:
        secret, browser = new_secret(EntryKind.SESSION), arrival.browser[:MAX_BROWSER_CHARS]
        await self.operators.add_entry(
            tx, operator.id, EntryKind.SESSION, digest_of_secret(secret), ttl_s=SESSION_TTL_S, address=arrival.address, browser=browser
        )
        entry = AuditEntry(action=SIGN_IN_ACTION, subject_kind="operator", subject=operator.name, facts={"by": way})
        await self.audit.add(tx, Actor(operator, Face.CONSOLE, arrival.address), entry)
        return secret

    async def _find(self, secret: str, kind: EntryKind) -> OperatorEntry | None:
        if len(secret) > MAX_SECRET_CHARS:
            return None
        async with self.transactions.once() as tx:
            entry = await self.operators.find_entry(tx, digest_of_secret(secret), idle_s=SESSION_IDLE_S)
            if entry is None or entry.kind is not kind:
                return None
            if entry.seen_at is None or datetime.now(UTC) - entry.seen_at > timedelta(seconds=SEEN_EVERY_S):
                await self.operators.note_seen(tx, entry.digest, every_s=SEEN_EVERY_S)
            return entry
