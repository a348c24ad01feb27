"""An operator at the console of a running Hermes: over HTTP, and in a real browser."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes.console.sign_in import LINK_TTL_S, SESSION_TTL_S, digest_of_secret, new_secret
from hermes.ports.operators import EntryKind, Operator, Role
from hermes.stores.postgres.operators import PostgresOperators
from hermes.web.console.visits import SESSION_COOKIE
from tests.browser.browser import Page, tab
from tests.flows.service import Service


async def make_operator(service: Service, role: Role = Role.OWNER, *, name: str = "", accounts: frozenset[str] | None = None) -> Operator:
    """Return the operator of this name; a new one if there is none."""
    wanted = name or f"{role}-{secrets.token_hex(3)}"
    async with service.database.begin() as tx:
        found = await PostgresOperators().find(tx, wanted)
        return found or await PostgresOperators().add(tx, wanted, role, accounts=accounts, by="test")


async def make_secret(service: Service, operator: Operator, kind: EntryKind) -> str:
    """Return the secret of a new link, session or token."""
    secret = new_secret(kind)
    ttl_s = LINK_TTL_S if kind is EntryKind.LINK else SESSION_TTL_S
    async with service.database.begin() as tx:
        await PostgresOperators().add_entry(tx, operator.id, kind, digest_of_secret(secret), ttl_s=ttl_s)
    return secret


async def cookie_headers(service: Service, role: Role = Role.OWNER) -> dict[str, str]:
    """The headers of a browser that is signed in and on one of our pages, for `service.get` and `service.post`."""
    operator = await make_operator(service, role)
    return {"Cookie": f"{SESSION_COOKIE.name}={await make_secret(service, operator, EntryKind.SESSION)}", "Sec-Fetch-Site": "same-origin"}


async def token_headers(service: Service, role: Role = Role.OWNER, accounts: frozenset[str] | None = None) -> dict[str, str]:
    """The headers of an operator's program."""
    operator = await make_operator(service, role, accounts=accounts)
    return {"Authorization": f"Bearer {await make_secret(service, operator, EntryKind.TOKEN)}"}


@asynccontextmanager
async def console_tab(devtools: int, service: Service, role: Role = Role.OWNER) -> AsyncIterator[Page]:
    """A tab that has entered the console by a link, as a person does."""
    operator = await make_operator(service, role)
    link = await make_secret(service, operator, EntryKind.LINK)
    async with tab(devtools) as page:
        await page.go(f"{service.url}/console/enter#{link}")
        await page.click("#enter button")
        await page.until("document.body?.dataset.page === 'live'")
        yield page
