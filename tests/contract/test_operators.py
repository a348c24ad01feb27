"""Operators, their entries, and the way to content, on PostgreSQL."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from hermes.app.console_access import sign_in_from, subjects_from
from hermes.console.access import OPEN_S, AccessRefused, ConsoleAccess, ReasonMissing
from hermes.console.sign_in import Arrival, SignIn
from hermes.ports.errors import NotFound
from hermes.ports.operators import Actor, AuditFilter, EntryKind, Face, Operator, Role
from hermes.ports.users import UserChannel, UserState
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.operators import PostgresAuditLog, PostgresOperators
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform


@pytest.fixture
def sign_in(database: Database) -> SignIn:
    return sign_in_from(database)


@pytest.fixture
def access(database: Database) -> ConsoleAccess:
    return ConsoleAccess(database, PostgresAuditLog(), needs_reason=True, now=lambda: datetime.now(UTC))


async def make_link(sign_in: SignIn, name: str = "ada", *, ttl_s: float = 900) -> str:
    operator = await sign_in.make_first_owner(name)
    async with sign_in.transactions.begin() as tx:
        return await sign_in.make_entry(tx, operator, EntryKind.LINK, ttl_s=ttl_s)


async def test_of_two_uses_of_a_link_one_comes_in(sign_in: SignIn) -> None:
    link = await make_link(sign_in)
    entered = await asyncio.gather(*(sign_in.enter(link, Arrival()) for _ in range(5)))
    [(operator, session)] = [each for each in entered if each is not None]
    found = await sign_in.find_session(session)
    assert (operator.name, found is not None and found.operator.id) == ("ada", operator.id)
    assert await sign_in.find_token(session) is None, "a session is no token"
    assert await sign_in.find_session(link) is None


async def test_a_link_that_is_too_old_unknown_or_empty_opens_nothing(sign_in: SignIn) -> None:
    for secret in (await make_link(sign_in, ttl_s=-1), "", "unknown", "x" * 10_000, "\ud800"):
        assert await sign_in.enter(secret, Arrival()) is None


async def test_a_disabled_operator_is_out_and_stays_out_of_old_sessions(database: Database, sign_in: SignIn) -> None:
    entered = await sign_in.enter(await make_link(sign_in), Arrival("::1", "Firefox" * 100))
    link = await make_link(sign_in)
    assert entered is not None
    async with database.begin() as tx:
        await PostgresOperators().disable(tx, "ada")
    assert await sign_in.find_session(entered[1]) is None
    assert await sign_in.enter(link, Arrival()) is None
    for name in ("ada", "Ada", "ADA"):
        assert await sign_in.enter_by_proxy(name, Role.OPERATOR, Arrival()) is None, "a proxy may pass on what was typed"
    async with database.begin() as tx:
        await PostgresOperators().enable(tx, "ada")
        assert await PostgresOperators().entries(tx, idle_s=60) == []
        with pytest.raises(NotFound):
            await PostgresOperators().disable(tx, "grace")
    assert await sign_in.find_session(entered[1]) is None


async def test_two_first_arrivals_by_a_proxy_make_one_operator(sign_in: SignIn) -> None:
    entered = await asyncio.gather(*(sign_in.enter_by_proxy("lin", Role.VIEWER, Arrival()) for _ in range(4)))
    assert {each[0].id for each in entered if each is not None} == {entered[0][0].id if entered[0] else None}
    assert await sign_in.enter_by_proxy("mei", None, Arrival()) is None


# --- content


class RenderingFailed(Exception):
    """A page that breaks after the content was opened."""


async def test_the_entry_of_an_opening_stands_although_what_follows_fails(database: Database, access: ConsoleAccess) -> None:
    ada = Actor(operator_of(Role.OPERATOR), Face.CONSOLE)
    user = await new_user(database, "shop")
    subject = await subjects_from(database).find("user", str(user))
    assert (subject.account, await access.find_opened(ada, subject)) == ("shop", None)

    async def show_page() -> None:
        await access.open(ada, subject, "ticket 7")
        raise RenderingFailed

    with pytest.raises(RenderingFailed):
        await show_page()
    opened = await access.find_opened(ada, subject)
    assert opened is not None
    assert opened.reason == "ticket 7"
    assert 0 < (opened.until - datetime.now(UTC)).total_seconds() <= OPEN_S
    assert await access.find_opened(Actor(operator_of(Role.OPERATOR, "lin"), Face.CONSOLE), subject) is None, "for one operator"
    assert await access.find_opened(Actor(operator_of(Role.VIEWER), Face.CONSOLE), subject) is None, "no longer after a demotion"
    with pytest.raises(ReasonMissing):
        await access.open(ada, subject, " x ")
    async with database.begin() as tx:
        audit = PostgresAuditLog()
        assert [await audit.count_opened(tx, user, account=account) for account in (None, "shop", "clinic")] == [1, 1, 0]
        assert len(await audit.list(tx, AuditFilter(user_id=user, only_refused=True))) == 1


async def test_the_memory_of_a_user_of_two_accounts_is_for_operators_of_all(database: Database, access: ConsoleAccess) -> None:
    user = await new_user(database, "shop", "clinic")
    subject = await subjects_from(database).find("user", str(user))
    assert (subject.user_id, subject.account) == (user, None)
    narrow = Actor(operator_of(Role.OWNER, accounts=frozenset({"shop"})), Face.CONSOLE)
    with pytest.raises(AccessRefused, match="another account"):
        await access.open(narrow, subject, "ticket 7")
    for kind, identity in (
        ("user", "x"),
        ("user", "00000000-0000-0000-0000-000000000000"),
        ("turn", str(user)),
        ("conversation", str(user)),
    ):
        with pytest.raises(NotFound):
            await subjects_from(database).find(kind, identity)


def operator_of(role: Role, name: str = "ada", *, accounts: frozenset[str] | None = None) -> Operator:
    return Operator(id=uuid4(), name=name, role=role, accounts=accounts, created_at=datetime.now(UTC), created_by="test")


async def new_user(database: Database, account: str, *others: str) -> UUID:
    """A user who writes to these accounts."""
    users = PostgresUsers(Keyring(MasterKeys.parse([new_master_key()])))
    async with database.begin() as tx:
        user, _ = await users.find_or_create(tx, account, Platform.TELEGRAM, "42", state=UserState.ACTIVE)
        for other in others:
            await users.link(tx, user.id, UserChannel(other, Platform.TELEGRAM, "42"))
    return user.id
