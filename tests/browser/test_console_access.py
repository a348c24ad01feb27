"""Signing in, operators, opening content and the audit log, in a real browser: checks 1 to 6, 8 to 10 of the console."""

import asyncio
import json
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import psycopg
import pytest
from multidict import CIMultiDict

from hermes.config import ConsoleSettings, Environment, Secret, SsoRole
from hermes.ports.operators import EntryKind, Role
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.operators import PostgresOperators
from hermes.stores.seal import new_master_key
from tests.browser.browser import Page, installed, tab
from tests.browser.console import console_tab, cookie_headers, make_operator, make_secret, token_headers
from tests.flows.service import Got, Service, got, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

WORDS = "where do the mangroves grow"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
HTTPS = {"X-Forwarded-Proto": "https"}
"""As a proxy on this machine says it."""


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url, refused_per_minute=20, trusted_proxies=("127.0.0.1",)) as service:
        yield service


async def audit_rows(service: Service, action: str) -> list[dict[str, Any]]:
    """The entries of the audit log with this action, oldest first."""
    async with service.database.pool.connection() as connection:
        rows = await (await connection.execute("select row_to_json(audit) from audit where action = %s order by id", [action])).fetchall()
    return [row for (row,) in rows]


async def send_form(service: Service, path: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> Got:
    """A form as a browser sends it, without following a redirect."""
    body = urlencode(dict(fields))
    async with service.client.post(service.url + path, data=body, headers={**headers, **FORM}, allow_redirects=False) as response:
        return await got(response)


async def form_token(service: Service, headers: Mapping[str, str]) -> str:
    """A form token of a session, out of the page that it shows."""
    page = await service.get("/console/audit", headers)
    found = re.search(r'name="form_token" value="([^"]+)"', page.body)
    assert found is not None
    return found[1]


# --- coming in


async def test_a_fresh_hermes_up_prints_a_link_that_enters_once(devtools: int, database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with hermes_up_on_a_terminal(database_url, redis_url, tmp_path) as link:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/console/enter#[\w-]{43}", link)
        async with tab(devtools) as page, tab(devtools) as other:
            await page.go(link)
            assert "#" not in await page.see("location.href"), "the secret does not stay in the address or the history"
            assert await page.see("document.querySelector('#enter label').hidden") is True
            await page.click("#enter button")
            await page.until("document.body?.dataset.page === 'live'")
            assert await page.see("document.cookie") == "", "no script reads the session"
            await other.go(link)
            await other.click("#enter button")
            await other.until("document.querySelector('[role=alert]')?.innerText === 'This link was used, or is too old.'")
            await other.go(link.partition("/enter")[0])
            assert await other.see("document.body.dataset.page") is None


@asynccontextmanager
async def hermes_up_on_a_terminal(database_url: str, redis_url: str, folder: Path) -> AsyncIterator[str]:
    """Run `hermes up` on a terminal of its own; give the link that it prints."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
    environ |= {"HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url, "HERMES_WEB_PORT": "0", "HERMES_WORK_DRAIN_S": "0.1"}
    environ |= {"HERMES_HOME": str(folder / "home"), "HERMES_MASTER_KEYS": new_master_key()}
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermes", "up"), env=environ, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        link = await asyncio.wait_for(asyncio.to_thread(read_link, ours), 60)
        draining = asyncio.create_task(asyncio.to_thread(read_all, ours))
        yield link
        process.send_signal(signal.SIGTERM)
        await draining  # the terminal ends with its last process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(ours)


def read_link(terminal: int) -> str:
    shown = ""
    while (found := re.search(r"Console: (\S+)\r?\n", shown)) is None:
        shown += os.read(terminal, 4096).decode(errors="replace")
    return found[1]


def read_all(terminal: int) -> None:
    """A terminal that is full would stop the process."""
    with suppress(OSError):
        while os.read(terminal, 4096):
            pass


async def test_without_a_session_a_page_holds_no_data(service: Service) -> None:
    await make_operator(service, name="ada")
    for path in ("/console", "/console/audit", "/console/operators"):
        page = await service.get(path)
        assert page.status == 401
        assert "ada" not in page.body
        assert "form_token" not in page.body
    assert (await service.get("/v1/ops/audit")).body["error"]["code"] == "missing_token"


async def test_a_link_on_another_site_lands_signed_in(devtools: int, service: Service) -> None:
    async with console_tab(devtools, service) as page:
        await leave_to_another_site(page, service)
        await click_link(page, f"{service.url}/console/audit?refused=1#newest")
        await page.until("document.body?.dataset.page === 'audit'")
        assert await page.see("location.href") == f"{service.url}/console/audit?refused=1#newest"
        await leave_to_another_site(page, service)
        await page.do("Emulation.setScriptExecutionDisabled", value=True)
        await click_link(page, f"{service.url}/console/audit")
        await page.until("document.body?.dataset.page === 'audit'")
    async with tab(devtools) as stranger:  # without a session the same link ends at the page that says how to sign in
        await leave_to_another_site(stranger, service)
        await click_link(stranger, f"{service.url}/console/audit")
        await stranger.until("document.body?.innerText.includes('hermes console link')")


async def leave_to_another_site(page: Page, service: Service) -> None:
    """Go to a page that is of another site: `localhost` and `127.0.0.1` are two."""
    await page.go(service.url.replace("127.0.0.1", "localhost") + "/health")
    await page.until("location.hostname === 'localhost'")


async def click_link(page: Page, url: str) -> None:
    script = f"document.body.innerHTML = '<a id=out>out</a>'; document.getElementById('out').href = {json.dumps(url)}; 1"
    await page.see(script)
    await page.click("#out")


async def test_a_form_of_another_site_is_refused_and_audited(devtools: int, service: Service) -> None:
    async with console_tab(devtools, service) as page:
        await leave_to_another_site(page, service)
        form = f"<form method=post action={service.url}/console/leave><button id=out>out</button></form>"
        await page.see(f"document.body.innerHTML = {json.dumps(form)}; 1")
        await page.click("#out")
        await page.until(f"location.href === '{service.url}/console/leave'")
        await page.until("document.body?.innerText.includes('This form does not come from this page')")
        await page.go(f"{service.url}/console")
        assert await page.see("document.body.dataset.page") == "live", "the session goes on"
    headers = await cookie_headers(service)
    token = await form_token(service, headers)
    for wrong in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": service.url},
    ):
        refused = await send_form(service, "/console/leave", {"form_token": token}, {**headers, **wrong})
        assert (refused.status, refused.body["error"]["code"]) == (403, "foreign_form")
    for fields in ({}, {"form_token": "x"}, {"form_token": token[:-8] + "AAAAAAA="}, {"form_token": "é"}):
        assert (await send_form(service, "/console/leave", fields, headers)).status == 403
    only_cookie = {"Cookie": headers["Cookie"]}
    assert (await send_form(service, "/console/leave", {"form_token": token}, only_cookie)).status == 403, "a browser says where it is"
    entries = await audit_rows(service, "form.refused")
    assert [entry["allowed"] for entry in entries] == [False] * 9
    assert (entries[0]["operator"], entries[0]["subject"]) == ("unknown", "/console/leave"), "a strict cookie stays at home"
    assert entries[1]["operator"].startswith("owner-")
    assert (await send_form(service, "/console/leave", {"form_token": token}, headers)).status == 200
    assert (await service.get("/console", headers)).status == 401, "signed out"


async def test_only_known_hosts_are_served_and_guesses_are_slowed_down(service: Service) -> None:
    headers = await cookie_headers(service)
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "127.0.0.1@evil.example", ""):
        for path in ("/console", "/console/static/console.css", "/v1/ops/audit"):
            refused = await service.get(path, {**headers, "Host": host})
            assert (refused.status, refused.body["error"]["code"]) == (421, "unknown_host"), host
    for host in ("localhost:1", "127.0.0.1", "[::1]:80", "hermes.localhost", "LOCALHOST."):
        assert (await service.get("/console", {**headers, "Host": host})).status == 200
    assert (await service.get("/health", {"Host": "evil.example"})).status == 200
    program = await token_headers(service)
    assert (await service.get("/v1/ops/audit", {**program, "Host": "hermes-web.cluster"})).status == 421
    answers = [
        (await send_form(service, "/console/enter", {"secret": f"wrong-{number}"}, {"Origin": service.url})).status for number in range(25)
    ]
    assert answers == [403] * 20 + [429] * 5
    assert len(await audit_rows(service, "operator.sign_in")) == 20


async def test_a_customers_key_opens_nothing_and_a_token_does_what_its_operator_may(service: Service) -> None:
    refused = await service.get("/v1/ops/audit", await service.key())
    assert (refused.status, refused.body["error"]["code"]) == (403, "operators_only")
    assert (await service.get("/v1/ops/audit", await service.key(scopes=["messages", "completions"]))).status == 403
    assert (await service.get("/v1/ops/audit", {"Authorization": "Bearer hk_wrong"})).status == 401
    assert (await service.get("/v1/ops/audit", {"Authorization": "Bearer ho_wrong"})).body["error"]["code"] == "unknown_token"
    assert (await service.get("/v1/ops/audit", await service.key(scopes=["ops"]))).status == 200
    viewer, operator = await token_headers(service, Role.VIEWER), await token_headers(service, Role.OPERATOR)
    for path in ("/v1/ops/audit", "/v1/ops/events", "/v1/ops/fleet"):
        assert (await service.get(path, viewer)).status == 200
    cap = {"daily_usd": 1.0}
    refused = await service.post("/v1/ops/fleet/hermes/cap", cap, viewer)
    assert (refused.status, refused.body["error"]["code"]) == (403, "access_refused")
    assert (await service.post("/v1/ops/fleet/hermes/cap", cap, operator)).status == 403, "a cap is an owner's, as on the page"
    assert (await service.post("/v1/ops/fleet/hermes/cap", cap, await token_headers(service, Role.OWNER))).status == 200
    assert (await service.post("/v1/ops/fleet/hermes/cap", cap, await service.key(scopes=["ops"]))).status == 200
    assert [(entry["face"], entry["allowed"]) for entry in await audit_rows(service, "fleet.cap")] == [
        ("api", False),
        ("api", False),
        ("api", True),
        ("api", True),
    ]
    answers = [(await service.get("/v1/ops/audit", {"Authorization": f"Bearer ho_{number}"})).status for number in range(25)]
    assert set(answers) == {401, 429}
    assert (await service.get("/v1/ops/audit", viewer)).status == 200, "a right token is let in whatever wrong ones do"


async def test_an_operator_of_some_accounts_sees_their_events_only(service: Service) -> None:
    await say(service, await service.key("shop"))
    await say(service, await service.key("clinic"))
    operator = await make_operator(service, Role.OPERATOR, accounts=frozenset({"shop"}))
    headers = {"Authorization": f"Bearer {await make_secret(service, operator, EntryKind.TOKEN)}"}
    events = (await service.get("/v1/ops/events?limit=1000", headers)).body["data"]
    assert {event["account"] for event in events} == {"shop"}
    assert (await service.get("/v1/ops/fleet", headers)).status == 403
    clinic, shop = await conversation_of(service, "clinic"), await conversation_of(service, "shop")
    cookie = {"Cookie": f"hermes_console={await make_secret(service, operator, EntryKind.SESSION)}", "Sec-Fetch-Site": "same-origin"}
    token = await form_token(service, cookie)
    statuses = [
        (await send_form(service, "/console/open", {"form_token": token, "kind": "conversation", "id": str(each)}, cookie)).status
        for each in (clinic, shop)
    ]
    assert statuses == [403, 303]
    seen = (await service.get("/v1/ops/audit", headers)).body["data"]
    assert [(entry["action"], entry["account"]) for entry in seen] == [("content.open", "shop")]


async def say(service: Service, key: Mapping[str, str]) -> None:
    assert (await service.post("/v1/messages", {"text": WORDS, "user": "alice"}, key)).status == 200


async def conversation_of(service: Service, account: str) -> UUID:
    async with service.database.pool.connection() as connection:
        row = await (await connection.execute("select id from conversations where account_id = %s", [account])).fetchone()
    assert row is not None
    return UUID(str(row[0]))


# --- sessions


async def test_a_session_ends_by_rest_by_age_and_by_an_owner(service: Service) -> None:
    headers = await cookie_headers(service)

    async def change(statement: str) -> Any:
        async with service.database.pool.connection() as connection:
            query = psycopg.sql.SQL("update operator_entries set {} where kind = 'session' returning seen_at")
            return await (await connection.execute(query.format(psycopg.sql.SQL(statement)))).fetchone()

    assert (await service.get("/console", headers)).status == 200
    first = await change("browser = browser")
    assert (await service.get("/console", headers)).status == 200
    assert await change("browser = browser") == first, "a second page within a minute writes nothing"
    for lasting, over in (("11 hours", "seen_at"), ("12 hours 1 minute", "seen_at"), ("0 hours", "expires_at")):
        await change(f"{over} = now() - interval '{lasting}'")
        assert (await service.get("/console", headers)).status == (200 if lasting == "11 hours" else 401)
        await change("seen_at = now(), expires_at = now() + interval '1 hour'")
    assert (await service.get("/console", headers)).status == 200
    await change("revoked_at = now()")
    assert (await service.get("/console", headers)).status == 401


async def test_over_https_the_cookie_is_for_this_host_alone(service: Service) -> None:
    operator = await make_operator(service)
    link = await make_secret(service, operator, EntryKind.LINK)
    entered = await send_form(service, "/console/enter", {"secret": link}, {**HTTPS, "Sec-Fetch-Site": "same-origin"})
    cookie = entered.headers["Set-Cookie"]
    assert (entered.status, entered.headers["Location"]) == (303, "/console")
    assert cookie.startswith("__Host-hermes_console=")
    assert {part.strip().lower() for part in cookie.split(";")[1:]} == {"httponly", "max-age=604800", "path=/", "samesite=strict", "secure"}
    value = cookie.split(";")[0].partition("=")[2]
    assert (await service.get("/console", {**HTTPS, "Cookie": f"__Host-hermes_console={value}"})).status == 200
    assert (await service.get("/console", {**HTTPS, "Cookie": f"hermes_console={value}"})).status == 401, "plain HTTP could have set it"


# --- operators and the audit log


async def test_an_owner_adds_an_operator_and_keeps_them_out_again(devtools: int, service: Service) -> None:
    async with console_tab(devtools, service) as owner, tab(devtools) as other:
        await owner.go(f"{service.url}/console/operators")
        await fill(owner, "form.panel", name="grace@example.com", accounts="shop")
        link = await owner.see("document.querySelector('.secret').innerText")
        await other.go(link)
        await other.click("#enter button")
        await other.until("document.body?.dataset.page === 'live'")
        assert await other.see("document.querySelector('.side .who').innerText") == "grace@example.com\nviewer"
        await other.go(f"{service.url}/console/operators")
        await other.until("document.body.innerText.includes('operator.list needs the role owner')")
        await owner.go(f"{service.url}/console/operators?change=grace%40example.com")
        await fill(owner, "#role", role="operator")
        assert await owner.see("document.querySelector('tr[aria-current] td').innerText") == "operator"
        await fill(owner, "#disable", confirm="grace@example.com")
        await owner.until("[...document.querySelectorAll('.chip')].some((chip) => chip.innerText === 'disabled')")
        await other.go(f"{service.url}/console")
        assert await other.see("document.body.dataset.page") is None, "out at once"
        assert owner.complaints == []
        await owner.go(f"{service.url}/console/audit?operator=&action=operator.disable")
        shown = await owner.see("[...document.querySelectorAll('tbody tr')].map((row) => row.children[3].innerText)")
        assert shown == ["operator grace@example.com"]
        await owner.go(f"{service.url}/console/audit?refused=1")
        assert await owner.see("[...document.querySelectorAll('tbody tr')].map((row) => row.children[2].innerText)") == [
            "operator.list refused"
        ]
        await owner.click(".leave button")
        await owner.until("document.body?.innerText.includes('You are signed out')")
    changes = await audit_rows(service, "operator.role")
    assert [(entry["subject"], entry["facts"]) for entry in changes] == [("grace@example.com", {"role": "operator"})]


async def fill(page: Page, form: str, **fields: str) -> None:
    """Fill in a form and press its button."""
    for name, value in fields.items():
        await page.see(f"document.querySelector({json.dumps(f'{form} [name={name}]')}).value = {json.dumps(value)}; 1")
    await page.see("window.isOld = true; 1")
    await page.click(f"{form} button")
    await page.until("!window.isOld && document.readyState === 'complete'")


async def test_no_owner_locks_themselves_out_and_bad_input_is_said(service: Service) -> None:
    headers = await cookie_headers(service)
    token = await form_token(service, headers)
    async with service.database.begin() as tx:
        [operator] = await PostgresOperators().list(tx)
    for fields, said in (
        ({"act": "role", "name": operator.name, "role": "viewer"}, "you cannot change your own role"),
        ({"act": "disable", "name": operator.name, "confirm": operator.name}, "you cannot disable yourself"),
        ({"act": "add", "name": "a b", "role": "viewer"}, "name has up to 100"),
        ({"act": "add", "name": operator.name, "role": "viewer"}, "already"),
        ({"act": "add", "name": "ada", "role": "king"}, "a role is one of viewer, operator, owner"),
        ({"act": "link", "name": "unknown"}, "there is no operator unknown"),
        ({"act": "revoke", "entry": "ffffffffffff"}, "there is no link, session or token"),
        ({"act": "dance"}, "another version"),
    ):
        refused = await send_form(service, "/console/operators", {"form_token": token, **fields}, headers)
        assert (refused.status, said in refused.body) == (422, True), said


async def test_the_audit_log_only_grows(database_url: str, service: Service) -> None:
    await service.get("/console/operators", await cookie_headers(service, Role.VIEWER))
    before = await audit_rows(service, "operator.list")
    assert [entry["allowed"] for entry in before] == [False]
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as psql:
        for statement in ("update audit set allowed = true", "delete from audit", "truncate audit", "delete from audit where false"):
            with pytest.raises(psycopg.errors.RestrictViolation, match="the audit log is append-only"):
                await psql.execute(statement)
    assert await audit_rows(service, "operator.list") == before


async def test_the_log_is_read_by_page_and_a_viewer_reads_no_reason(service: Service) -> None:
    await say(service, await service.key())
    conversation = str(await conversation_of(service, "shop"))
    headers = await cookie_headers(service, Role.OPERATOR)
    fields = {"form_token": await form_token(service, headers), "kind": "conversation", "id": conversation, "reason": "ticket 77"}
    for _ in range(3):
        await send_form(service, "/console/open", fields, headers)
    token, viewer = await token_headers(service), await token_headers(service, Role.VIEWER)
    first = (await service.get("/v1/ops/audit?action=content.open&limit=2", token)).body
    second = (await service.get(f"/v1/ops/audit?action=content.open&limit=2&before={first['next']}", token)).body
    assert ([len(first["data"]), len(second["data"])], second["next"]) == ([2, 1], None)
    assert {entry["reason"] for entry in first["data"]} == {"ticket 77"}
    assert {entry["reason"] for entry in (await service.get("/v1/ops/audit?action=content.open", viewer)).body["data"]} == {"•••"}
    page = await service.get("/console/audit", await cookie_headers(service, Role.VIEWER))
    assert (page.status, "ticket 77" in page.body) == (200, False)
    assert (await service.get("/v1/users/alice/data", await service.key())).body["opened_by_operators"] == 3


async def test_the_time_that_content_stays_open_is_counted_down(devtools: int, service: Service) -> None:
    async with console_tab(devtools, service) as page:

        async def show(seconds: int) -> str:
            """Run the script on a page that shows when content closes."""
            shown = f"'<p id=t data-until=' + new Date(Date.now() + {seconds} * 1000).toISOString() + '>until then</p>'"
            await page.see(
                f"new Promise((done) => {{ document.body.innerHTML = {shown}; const script = document.createElement('script');"
                " script.onload = done; script.src = '/console/static/console.js'; document.head.append(script); })"
            )
            return str(await page.see("document.getElementById('t').innerText"))

        assert re.fullmatch(r"for 5\d s", await show(59))
        assert [await show(seconds) for seconds in (830, 890, -1_200, 3_600)] == [
            "for 14 min",
            "for 15 min",
            "until then",  # a clock that is wrong: the page is not loaded again and again
            "until then",
        ]
        assert page.complaints == []


# --- opening content


@pytest.fixture
async def production(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    more = {
        "environment": Environment.PRODUCTION,
        "master_keys": (Secret(new_master_key()),),
        "console": ConsoleSettings(sso_header="X-Forwarded-User", sso_addresses=("127.0.0.0/8",), sso_role=SsoRole.VIEWER),
    }
    async with running(database_url, redis_url, more=more, hosts=("hermes.internal",), trusted_proxies=("127.0.0.1",)) as service:
        yield service


async def test_in_production_content_is_opened_with_a_reason(production: Service) -> None:
    await say(production, await production.key())
    conversation = await conversation_of(production, "shop")
    headers = await cookie_headers(production, Role.OPERATOR)
    fields = {
        "form_token": await form_token(production, headers),
        "kind": "conversation",
        "id": str(conversation),
        "next": "/console/turns",
    }
    for reason in ("", "  ", "no"):
        refused = await send_form(production, "/console/open", {**fields, "reason": reason}, headers)
        assert (refused.status, "say in a few words why" in refused.body) == (422, True)
    opened = await send_form(production, "/console/open", {**fields, "reason": "ticket 4711\0"}, headers)
    assert (opened.status, opened.headers["Location"]) == (303, "/console/turns")
    entries = await audit_rows(production, "content.open")
    assert [(entry["reason"], entry["allowed"]) for entry in entries] == [("", False)] * 3 + [("ticket 4711", True)]
    assert {entry["subject"] for entry in entries} == {str(conversation)}
    assert {entry["account_id"] for entry in entries} == {"shop"}
    assert all(entry["user_id"] is not None for entry in entries)
    for elsewhere in (
        "//evil.example",
        "https://evil.example/console/",
        "/\\evil.example",
        "/console/../x",
        "/other",
        "/console\r\nX: y",
        "",
    ):
        moved = await send_form(production, "/console/open", {**fields, "reason": "because", "next": elsewhere}, headers)
        assert moved.headers["Location"] == "/console", elsewhere
    assert (await send_form(production, "/console/open", {**fields, "id": "x"}, headers)).status == 404
    assert (await send_form(production, "/console/open", {**fields, "kind": "turn"}, headers)).status == 404
    viewer = await cookie_headers(production, Role.VIEWER)
    theirs = {**fields, "form_token": await form_token(production, viewer), "reason": "curious"}
    assert (await send_form(production, "/console/open", theirs, viewer)).status == 403
    assert (await audit_rows(production, "content.open"))[-1]["allowed"] is False


async def test_every_route_to_content_asks_a_program_for_the_reason_in_the_same_words(production: Service) -> None:
    await say(production, await production.key())
    async with production.database.once() as tx:
        query = b"select i.turn_id, x.session_id, i.user_id from inbox i join interactions x using (turn_id)"
        [(turn, session, user)] = await (await connection_of(tx).execute(query)).fetchall()
    program = await token_headers(production, Role.OPERATOR)
    for path in (f"turns/{turn}/context", f"conversations/{session}/graph?content=true", f"people/{user}/memory"):
        refused = await production.get(f"/v1/ops/{path}", program)
        assert (path, refused.status, refused.body["error"]["code"]) == (path, 403, "reason_missing")
        assert "X-Hermes-Reason" in refused.body["error"]["message"]


async def test_the_entry_of_an_opening_stands_although_the_page_after_it_fails(production: Service) -> None:
    await say(production, await production.key())
    conversation = str(await conversation_of(production, "shop"))
    headers = await cookie_headers(production, Role.OPERATOR)
    fields = {"form_token": await form_token(production, headers), "kind": "conversation", "id": conversation, "reason": "it is broken"}
    opened = await send_form(production, "/console/open", {**fields, "next": "/console/no-such-page"}, headers)
    assert (await production.get(opened.headers["Location"], headers)).status == 404
    assert [entry["reason"] for entry in await audit_rows(production, "content.open")] == ["it is broken"]


async def test_in_production_the_console_is_not_served_over_plain_http(production: Service) -> None:
    headers = await cookie_headers(production)
    assert (await production.get("/console", headers)).status == 200, "this machine"
    for beyond in ({"X-Forwarded-For": "203.0.113.7"}, {"Host": "hermes.internal"}):
        refused = await production.get("/console", {**headers, **beyond})
        assert (refused.status, refused.body["error"]["code"]) == (403, "plain_http")
        assert "HTTPS" in refused.body["error"]["message"]
    assert (await production.get("/console", {**HTTPS, "X-Forwarded-For": "203.0.113.7", "Host": "hermes.internal"})).status == 401


async def test_a_trusted_proxy_names_the_operator(devtools: int, production: Service) -> None:
    async with tab(devtools) as page:
        await page.do("Network.setExtraHTTPHeaders", headers={"X-Forwarded-User": "lin@example.com"})
        await page.go(f"{production.url}/console/audit")
        await page.until("document.body?.dataset.page === 'audit'")
        assert await page.see("document.querySelector('.side .who').innerText") == "lin@example.com\nviewer"
        await page.do("Network.setExtraHTTPHeaders", headers={"X-Forwarded-User": "mei@example.com"})
        await page.go(f"{production.url}/console")
        await page.until("document.querySelector('.side .who')?.innerText.startsWith('mei@example.com')")
    assert [entry["operator"] for entry in await audit_rows(production, "operator.sign_in")] == ["lin@example.com", "mei@example.com"]
    forged = await production.get("/console", {"X-Forwarded-User": "not a name"})
    assert (forged.status, "Set-Cookie" in forged.headers) == (401, False)


async def test_a_header_from_elsewhere_and_an_unknown_name_sign_nobody_in(database_url: str, redis_url: str) -> None:
    header = {"X-Forwarded-User": "lin@example.com", "Sec-Fetch-Site": "none"}
    elsewhere = ConsoleSettings(sso_header="X-Forwarded-User", sso_addresses=("10.0.0.0/8",))
    async with running(database_url, redis_url, has_worker=False, more={"console": elsewhere}) as service:
        for claimed in ({}, {"X-Forwarded-For": "10.0.0.7"}):  # what a client says about itself is not who connects
            answer = await service.get("/console", {**header, **claimed})
            assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)
    unknown = ConsoleSettings(sso_header="X-Forwarded-User", sso_addresses=("127.0.0.1",), sso_role=SsoRole.NONE)
    async with running(database_url, redis_url, has_worker=False, more={"console": unknown}) as service:
        assert (await service.get("/console", header)).status == 401
        await make_operator(service, Role.OPERATOR, name="lin@example.com")
        twice = CIMultiDict(
            [*header.items(), ("X-Forwarded-User", "proxy-says@example.com")]
        )  # a proxy that adds its header to the client's
        assert (await service.get("/console", twice)).status == 401
        entered = await service.get("/console", {**header, "X-Forwarded-User": "Lin@Example.com"})
        assert entered.status == 200
        cookie = entered.headers["Set-Cookie"].partition(";")[0]
        shown = await service.get("/console", {**header, "Cookie": cookie, "X-Forwarded-User": "LIN@example.com"})
        assert (shown.status, "lin@example.com" in shown.body) == (200, True)


async def test_without_a_console_there_are_no_pages(database_url: str, redis_url: str) -> None:
    off = {"console": ConsoleSettings(enabled=False)}
    async with running(database_url, redis_url, has_worker=False, more=off) as service:
        for path in ("/console", "/console/enter", "/console/static/console.css", "/v1/ops/audit"):
            assert (await service.get(path, await cookie_headers(service))).status == 404
        assert (await service.get("/v1/ops/fleet", await service.key(scopes=["ops"]))).status == 200
