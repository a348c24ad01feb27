"""The settings page in a real browser: the kill switch with its roles and its audit entries, and the keys that every page has."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from hermes.console.access import AccessRefused, ConsoleAccess
from hermes.console.kill_switch import KillSwitchControl
from hermes.ports.errors import StoreUnavailable
from hermes.ports.operators import Actor, AuditEntry, AuditFilter, Face, Role
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.kill_switch import PostgresKillSwitchHistory
from hermes.stores.postgres.operators import PostgresAuditLog
from tests.browser.browser import installed
from tests.browser.console import console_tab, cookie_headers, make_operator, token_headers
from tests.browser.test_console_every_page import HOSTILE, strike
from tests.flows.command import hermes
from tests.flows.service import Service, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url, has_worker=False) as service:
        yield service


async def audited(service: Service) -> list[tuple[str, str, bool, str]]:
    """What the audit log has of the kill switch, oldest first: action, face, allowed, reason."""
    async with service.database.begin() as tx:
        entries = await PostgresAuditLog().list(tx, AuditFilter(subject="kill_switch"))
    return [(each.entry.action, str(each.face), each.entry.allowed, each.entry.reason) for each in reversed(entries)]


async def test_the_kill_switch_is_engaged_by_an_operator_and_released_by_an_owner(devtools: int, service: Service) -> None:
    async with console_tab(devtools, service, Role.OPERATOR) as page:
        await page.go(f"{service.url}/console/settings")
        await page.click("input[name=reason]")
        await page.type(HOSTILE)
        await page.click("button.danger")
        await page.until("document.querySelector('.panel.bad')")
        assert await page.see("document.querySelector('.panel.bad').innerText.includes('<script>window.hacked = 1</script>')")
        assert await page.see("document.querySelector('.panel.bad').innerText.includes('⟨U+202E⟩drow')")
        assert await page.see("window.hacked === undefined && !document.body.innerText.includes('\\u202e')")
        assert await page.see("document.querySelector('form[action$=kill-switch]') === null"), "an operator does not release it"
        assert page.complaints == []
    assert (record := await service.hermes.spend.kill_switch_record()) is not None
    assert record.reason == HOSTILE.strip()
    async with console_tab(devtools, service, Role.OWNER) as page:
        await page.go(f"{service.url}/console/settings")
        await page.click("form[action$=kill-switch] button")
        await page.until("document.querySelector('.panel .chip.ok')")
        assert await page.see("document.querySelectorAll('details[data-remember=switch-history] tbody tr').length") == 1
    assert await service.hermes.spend.kill_switch_record() is None
    assert await audited(service) == [("kill_switch.on", "console", True, HOSTILE.strip()), ("kill_switch.off", "console", True, "")]


async def test_programs_use_the_kill_switch_as_their_role_allows(service: Service) -> None:
    viewer, operator, owner = [await token_headers(service, role) for role in Role]
    stop, allow = {"engaged": True, "reason": "the bill explodes"}, {"engaged": False}
    assert (await service.post("/v1/ops/kill-switch", stop, viewer)).status == 403
    assert (await service.post("/v1/ops/kill-switch", {"engaged": True, "reason": " "}, operator)).body["error"]["code"] == "reason_missing"
    assert (await service.post("/v1/ops/kill-switch", stop, operator)).body["reason"] == "the bill explodes"
    assert (await service.post("/v1/ops/kill-switch", allow, operator)).status == 403
    assert (await service.get("/v1/ops/settings", viewer)).body["kill_switch"]["engaged"] is True
    assert (await service.post("/v1/ops/kill-switch", allow, owner)).body["engaged"] is False
    assert (await service.post("/v1/ops/kill-switch", stop, await service.key())).status == 403
    assert await audited(service) == [
        ("kill_switch.on", "api", False, "the bill explodes"),
        ("kill_switch.on", "api", True, "the bill explodes"),
        ("kill_switch.off", "api", False, ""),
        ("kill_switch.off", "api", True, ""),
    ]
    settings = (await service.get("/v1/ops/settings", viewer)).body
    lines = {(line["section"], line["name"]): line["value"] for line in settings["data"]}
    assert lines["", "database_url"] == "set"
    assert service.hermes.settings.database_url is not None
    assert service.hermes.settings.database_url.reveal() not in str(settings)
    assert {"models", "tiers"} <= settings.keys()


async def test_the_command_is_audited_too(service: Service, tmp_path: Path) -> None:
    assert (await hermes(service, tmp_path, "kill-switch", "on", "the bill explodes", "--by", "ann")).code == 0
    assert (record := await service.hermes.spend.kill_switch_record()) is not None
    assert (record.by, record.reason) == ("ann", "the bill explodes")
    assert (await hermes(service, tmp_path, "kill-switch", "off")).code == 0
    assert await audited(service) == [("kill_switch.on", "cli", True, "the bill explodes"), ("kill_switch.off", "cli", True, "")]


async def test_calls_are_stopped_although_the_audit_log_cannot_be_written(service: Service) -> None:
    class LostAuditLog(PostgresAuditLog):
        async def add(self, tx: Transaction, actor: Actor, entry: AuditEntry) -> NoReturn:
            raise StoreUnavailable("the audit log is away")

    access = ConsoleAccess(service.database, LostAuditLog(), needs_reason=False, now=lambda: datetime.now(UTC))
    switch = KillSwitchControl(access, service.database, service.hermes.spend, PostgresKillSwitchHistory(), cap_micro_usd=None)
    viewer, operator = [Actor(await make_operator(service, role), Face.CONSOLE) for role in (Role.VIEWER, Role.OPERATOR)]
    for actor in (viewer, operator):
        assert await service.hermes.spend.kill_switch_record() is None
        with pytest.raises((StoreUnavailable, AccessRefused)):
            await switch.engage(actor, "the bill explodes")
    assert (record := await service.hermes.spend.kill_switch_record()) is not None
    assert record.by == operator.operator.name


async def test_settings_are_found_by_name_and_by_origin(service: Service) -> None:
    cookie = await cookie_headers(service, Role.VIEWER)
    found = (await service.get("/console/settings?q=web%20port", cookie)).body
    assert ("HERMES_WEB_PORT" in found or "port" in found, "drain_s" in found) == (True, False)
    changed = (await service.get("/console/settings?origin=changed", cookie)).body
    assert ("database_url" in changed, "keep_days" in changed) == (True, False)
    assert "No setting matches" in (await service.get("/console/settings?q=%3Cscript%3E", cookie)).body


async def test_keys_move_and_search_and_can_be_switched_off(devtools: int, service: Service) -> None:
    async with console_tab(devtools, service) as page:
        await page.go(f"{service.url}/console/settings")
        selected = "document.querySelector('tr[aria-selected=true] a')?.textContent"
        tiers = await page.see("[...document.querySelectorAll('tbody tr th a')].map((each) => each.textContent)")
        for key, wanted in (("j", tiers[0]), ("j", tiers[1]), ("k", tiers[0]), ("k", tiers[0])):
            await strike(page, key)
            assert (await page.see(selected), await page.see("document.activeElement.textContent")) == (wanted, wanted)
        await strike(page, "/")
        assert await page.see("document.activeElement.name") == "q"
        await page.type("jk?")
        await strike(page, "j")
        assert await page.see("document.activeElement.value") == "jk?j", "a key that is typed into a field is a letter"
        await page.see("document.activeElement.blur()")
        await strike(page, "f")
        assert await page.see("document.activeElement.closest('.filters') !== null")
        await page.see("document.activeElement.blur()")
        await strike(page, "?")
        assert await page.see("document.querySelector('dialog').innerText.includes('Next and previous row')")
        await page.click("dialog input[type=checkbox]")
        await page.click("dialog button")
        await strike(page, "j")
        assert await page.see(f"{selected} ?? null") is None
        await page.go(f"{service.url}/console/settings")
        await strike(page, "j")
        assert await page.see(f"{selected} ?? null") is None, "the browser remembers it"
        await page.click(".side .keys")
        await page.click("dialog input[type=checkbox]")
        await page.click("dialog button")
        await strike(page, "j")
        await page.press("Enter")
        await page.until(f"location.pathname === '/console/turns' && location.search === '?tier={tiers[0]}'")


async def test_times_are_the_readers_and_commands_are_copied(devtools: int, service: Service) -> None:
    await service.hermes.spend.kill_switch("the bill explodes", "ann")
    async with console_tab(devtools, service) as page:
        await page.do("Emulation.setTimezoneOverride", timezoneId="Asia/Makassar")
        await page.go(f"{service.url}/console/settings")
        history = "document.querySelector('details[data-remember=switch-history]')"
        await page.see(f"{history}.querySelector('summary').click()")
        shown, title, iso = await page.see(
            f"(({{textContent, title, dateTime}}) => [textContent, title, dateTime])({history}.querySelector('time'))"
        )
        zone = "{timeStyle: 'medium', timeZone: 'Asia/Makassar'}"
        assert shown.endswith(await page.see(f"new Intl.DateTimeFormat(undefined, {zone}).format(new Date('{iso}'))"))
        assert title.startswith(iso[:10])
        assert "UTC, " in title
        assert await page.see("document.querySelector('.cli code').dataset.copy") == "hermes kill-switch off"
        await page.click(".cli code")
        await page.until("document.querySelector('#said').textContent === 'Copied'")
        await page.go(f"{service.url}/console/settings")
        assert await page.see(f"{history}.open"), "details stay as the reader left them"
