"""What owners do with operators: add them, change their role and accounts, keep them out, make links and tokens, end sessions.

Every act is in the audit log before it is done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hermes.console.access import ConsoleAccess, Subject
from hermes.console.sign_in import LINK_TTL_S, SESSION_IDLE_S, SignIn
from hermes.ports.errors import NotFound, PortError
from hermes.ports.operators import Actor, EntryKind, Face, Operator, OperatorEntry, Role

OPERATOR_NAME = re.compile(r"[\w.@+-]{1,100}")
ACCOUNT_NAME = re.compile(r"[^\s,\x00-\x1f\x7f]{1,100}")
MAX_TITLE_CHARS = 100


class OperatorChangeRefused(PortError):
    """This change of an operator makes no sense; the text says why."""


@dataclass(frozen=True, slots=True)
class OperatorDesk:
    """The acts of owners. Each raises AccessRefused for other roles, NotFound for an unknown operator, and OperatorChangeRefused."""

    access: ConsoleAccess
    sign_in: SignIn

    async def list(self) -> Sequence[Operator]:
        async with self.sign_in.transactions.once() as tx:
            return await self.sign_in.operators.list(tx)

    async def entries(self) -> Sequence[OperatorEntry]:
        """Return the links, sessions and tokens that can still be used."""
        async with self.sign_in.transactions.once() as tx:
            return await self.sign_in.operators.entries(tx, idle_s=SESSION_IDLE_S)

    async def add(self, actor: Actor, name: str, role: Role, accounts: frozenset[str] | None = None) -> Operator:
        """Raises OperatorNameTaken too."""
        if not OPERATOR_NAME.fullmatch(name):
            raise OperatorChangeRefused("an operator's name has up to 100 letters, digits and . @ + - _")
        await self._permit(actor, "operator.add", name, {"role": role, "accounts": show_accounts(accounts)})
        async with self.sign_in.transactions.begin() as tx:
            return await self.sign_in.operators.add(tx, name, role, accounts=accounts, by=actor.operator.name)

    async def set_role(self, actor: Actor, name: str, role: Role) -> Operator:
        refuse_own(actor, name, "change your own role")
        await self._permit(actor, "operator.role", name, {"role": role})
        async with self.sign_in.transactions.begin() as tx:
            return await self.sign_in.operators.set_role(tx, name, role)

    async def set_accounts(self, actor: Actor, name: str, accounts: frozenset[str] | None) -> Operator:
        refuse_own(actor, name, "change your own accounts")
        await self._permit(actor, "operator.accounts", name, {"accounts": show_accounts(accounts)})
        async with self.sign_in.transactions.begin() as tx:
            return await self.sign_in.operators.set_accounts(tx, name, accounts)

    async def disable(self, actor: Actor, name: str) -> Operator:
        """Keep an operator out from now on: their links, sessions and tokens end."""
        refuse_own(actor, name, "disable yourself")
        await self._permit(actor, "operator.disable", name)
        async with self.sign_in.transactions.begin() as tx:
            return await self.sign_in.operators.disable(tx, name)

    async def enable(self, actor: Actor, name: str) -> Operator:
        await self._permit(actor, "operator.enable", name)
        async with self.sign_in.transactions.begin() as tx:
            return await self.sign_in.operators.enable(tx, name)

    async def make_link(self, actor: Actor, name: str) -> str:
        """Return the secret of a link that signs a browser in as this operator, once, within a quarter of an hour."""
        return await self._make(actor, name, EntryKind.LINK, LINK_TTL_S)

    async def make_token(self, actor: Actor, name: str, title: str = "", *, ttl_s: float | None = None) -> str:
        """Return a new token for a program of this operator; `title` says in lists which program."""
        return await self._make(actor, name, EntryKind.TOKEN, ttl_s, title.strip()[:MAX_TITLE_CHARS])

    async def revoke(self, actor: Actor, entry_id: str) -> OperatorEntry:
        """End a link, session or token."""
        await self._permit(actor, "operator.revoke", entry_id, kind="entry")
        async with self.sign_in.transactions.begin() as tx:
            return await self.sign_in.operators.revoke(tx, entry_id)

    async def _make(self, actor: Actor, name: str, kind: EntryKind, ttl_s: float | None, title: str = "") -> str:
        await self._permit(actor, f"operator.{kind}", name, {"title": title} if title else None)
        async with self.sign_in.transactions.begin() as tx:
            operator = await self.sign_in.operators.find(tx, name)
            if operator is None:
                raise NotFound(f"there is no operator {name}")
            if operator.disabled_at is not None:
                raise OperatorChangeRefused(f"{name} is disabled; enable them first: hermes console operators enable {name}")
            return await self.sign_in.make_entry(tx, operator, kind, ttl_s=ttl_s, name=title)

    async def _permit(
        self, actor: Actor, action: str, subject: str, facts: dict[str, Any] | None = None, *, kind: str = "operator"
    ) -> None:
        await self.access.permit(actor, Role.OWNER, action, Subject(kind=kind, id=subject), facts=facts)


def refuse_own(actor: Actor, name: str, what: str) -> None:
    """An owner at the console cannot lock themselves out, so there is always one left. The command line is always an owner."""
    if actor.face is not Face.CLI and actor.operator.name == name:
        raise OperatorChangeRefused(f"you cannot {what}; another owner can, or `hermes console operators` on the machine")


def read_accounts(text: str) -> frozenset[str] | None:
    """Read `shop, bar`: the accounts that an operator sees; None for an empty text: all. Raises OperatorChangeRefused."""
    names = frozenset(part.strip() for part in text.split(",") if part.strip())
    if any(not ACCOUNT_NAME.fullmatch(name) for name in names):
        raise OperatorChangeRefused("accounts are names with commas between them; empty means all")
    return names or None


def show_accounts(accounts: frozenset[str] | None) -> str:
    return "all" if accounts is None else ", ".join(sorted(accounts))
