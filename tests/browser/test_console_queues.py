"""Queues, workers, alerts and the fleet in a real browser, and what their buttons do."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.config import AlertSettings, InboxSettings, NamedTables, Secret
from hermes.ops.alerts import AlertWriter, OperatorAlerts
from hermes.ops.metrics import LogAlerts, Metrics
from hermes.ports.operators import EntryKind, Role
from hermes.ports.users import UserState
from hermes.router.replies import ReplyKind, reply
from hermes.stores.postgres.database import connection_of
from hermes.time_ids import shorten_id
from hermes.turn import Envelope, MessageEvent, Platform
from tests.browser.browser import Page, installed
from tests.browser.console import console_tab, cookie_headers, make_operator, make_secret, token_headers
from tests.fakes.alert_receivers import SLACK_PATH, open_receivers
from tests.flows.echo import Echo
from tests.flows.service import Service, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

APOLOGY = reply(ReplyKind.APOLOGY, "en")


@dataclass
class Sick:
    """A model that fails in a way that no step expects, until it is well."""

    is_well: bool = False
    asked: list[str] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def think(self, text: str) -> None:
        self.asked.append(text)
        if not self.is_well:
            raise LookupError
        await self.may_answer.wait()


@pytest.fixture
def sick() -> Sick:
    return Sick()


@pytest.fixture
async def service(database_url: str, redis_url: str, sick: Sick) -> AsyncIterator[Service]:
    more = {"inbox": InboxSettings(max_attempts=1)}
    async with running(database_url, redis_url, models=Echo(sick.think), more=more) as service:
        yield service


async def say(service: Service, text: str, channel: str = "c") -> UUID:
    event = MessageEvent(platform=Platform.REST, sender_id=f"alice-{channel}", text=text)
    envelope = Envelope(event=event, account="shop", channel_id=channel, event_key=str(uuid4()))
    return (await service.hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)).turn_id


async def rows(service: Service, query: str, *values: Any) -> list[tuple[Any, ...]]:
    async with service.database.begin() as tx:
        return await (await connection_of(tx).execute(query.encode(), values)).fetchall()


async def until(service: Service, query: str, expected: Any, *values: Any) -> None:
    """Wait until a query's first value is this."""
    async with asyncio.timeout(20):
        while (await rows(service, query, *values))[0][0] != expected:  # noqa: ASYNC110  # the database rings no bell for it
            await asyncio.sleep(0.05)


async def bury(service: Service, text: str, channel: str = "c") -> UUID:
    """Return the turn of a message that a real worker tried and gave up."""
    turn_id = await say(service, text, channel)
    await until(service, "select state from inbox where turn_id = %s", "dead", turn_id)
    return turn_id


STATE = "select state from inbox where turn_id = %s"
ANSWERS = """
select (select count(*) from credit_entries where turn_id = %(turn)s and kind = 'post'),
    (select count(*) from outbox where turn_id = %(turn)s), (select count(*) from interactions where turn_id = %(turn)s),
    (select meta ->> 'outcome' from interactions where turn_id = %(turn)s), (select state from runs where turn_id = %(turn)s)
"""


async def answer(service: Service, turn_id: UUID) -> str | None:
    async with service.database.begin() as tx:
        found = await service.hermes.adapters.outbox.answer(tx, turn_id)
    return None if found is None else found.text


async def audited(service: Service) -> list[tuple[Any, ...]]:
    return await rows(
        service,
        "select action, subject, role, face, allowed from audit where action not in ('operator.sign_in', 'operator.link') order by id",
    )


async def texts(page: Page, selector: str = "main") -> str:
    return str(await page.see(f"document.querySelector({selector!r}).innerText"))


async def test_a_revived_message_is_answered_once(devtools: int, service: Service, sick: Sick) -> None:
    turn_id = await bury(service, "find me a sunset bar")
    assert await answer(service, turn_id) == APOLOGY
    sick.is_well = True
    tries = len(sick.asked)
    async with console_tab(devtools, service, Role.OPERATOR) as page:
        await page.go(f"{service.url}/console/queues")
        assert "No message waits" in await texts(page)
        await page.go(f"{service.url}/console/queues?queue=buried")
        shown = await texts(page)
        assert (str(turn_id)[:8] in shown, "gave up at attempt 2" in shown, "sunset" in shown) == (True, True, False)
        assert f"hermes messages revive {turn_id}" in shown
        await page.click("td .action button")
        await page.until("location.search.includes('done=revived') && document.readyState === 'complete'")
        assert "It waits for a worker" in await texts(page)
        await until(service, "select count(*) from runs where turn_id = %s and state = 'running'", 1, turn_id)
        # While it runs: the page names the process, and a second wish is refused.
        await page.go(f"{service.url}/console/queues?queue=waiting")
        await page.until("document.querySelector('main')?.innerText.includes('running by')")
        headers = await token_headers(service, Role.OPERATOR)
        again = await service.post(f"/v1/ops/turns/{turn_id}/revive", None, headers)
        assert (again.status, again.body["error"]["code"]) == (409, "refused")
        sick.may_answer.set()
        await until(service, STATE, "done", turn_id)
        assert page.complaints == []
    assert (await answer(service, turn_id), len(sick.asked) - tries) == ("find me a sunset bar", 1)
    [found] = await rows(service, ANSWERS.replace("%(turn)s", f"'{turn_id}'"))
    assert found == (1, 1, 1, "answered", "done")
    events = [row[0] for row in await rows(service, "select type from run_events where turn_id = %s order by id", turn_id)]
    assert (events.count("message_revived"), events.count("turn_recorded"), events.count("attempt_cut_off")) == (1, 1, 0)
    assert await audited(service) == [
        ("message.revive", str(turn_id), "operator", "console", True),
        ("message.revive", str(turn_id), "operator", "api", True),
    ]


async def test_of_two_operators_who_revive_at_once_one_does(service: Service, sick: Sick) -> None:
    turn_id = await bury(service, "hello")
    sick.is_well = True
    sick.may_answer.set()
    headers = await token_headers(service, Role.OPERATOR)
    both = await asyncio.gather(*(service.post(f"/v1/ops/turns/{turn_id}/revive", None, headers) for _ in range(2)))
    assert sorted(each.status for each in both) == [200, 409]
    await until(service, STATE, "done", turn_id)
    [found] = await rows(service, ANSWERS.replace("%(turn)s", f"'{turn_id}'"))
    assert (await answer(service, turn_id), found) == ("hello", (1, 1, 1, "answered", "done"))
    viewer = await token_headers(service, Role.VIEWER)
    assert (await service.post(f"/v1/ops/turns/{turn_id}/revive", None, viewer)).status == 403
    assert (await service.post(f"/v1/ops/turns/{uuid4()}/revive", None, headers)).status == 404


async def test_who_waits_is_shown_with_the_reason_and_viewers_see_no_person(devtools: int, service: Service, sick: Sick) -> None:
    sick.is_well = True
    first = await say(service, "tell me a secret", "628123456431")
    await until(service, "select count(*) from runs where turn_id = %s and state = 'running'", 1, first)
    second = await say(service, "and another", "628123456431")
    async with console_tab(devtools, service, Role.VIEWER) as page:
        await page.go(f"{service.url}/console/queues")
        shown = await texts(page)
        assert shown.index(shorten_id(first)) < shown.index(shorten_id(second)), "the oldest comes first"
        for words in ("running by", f"behind {shorten_id(first)}", "628•••431"):
            assert words in shown
        html = str(await page.see("document.documentElement.outerHTML"))
        assert ("secret" in html, "628123456431" in html) == (False, False)
        assert await page.see("document.querySelectorAll('main form').length") == 0, "a viewer can only look"
        await page.go(f"{service.url}/console/queues?queue=jobs")
        assert "spend_sums" in await texts(page)
        for path in ("?after=nonsense", "?queue=dead&after=x~y", "?queue=outbox&after=-1"):
            assert (await service.get(f"/console/queues{path}", await cookie_headers(service, Role.VIEWER))).status == 422
        assert page.complaints == []
    api = await service.get("/v1/ops/queues/waiting?limit=1", await token_headers(service, Role.VIEWER))
    assert ([entry["turn_id"] for entry in api.body["data"]], api.body["data"][0]["channel_id"]) == ([str(first)], "628•••431")
    rest = await service.get(f"/v1/ops/queues/waiting?before={api.body['next']}", await token_headers(service))
    assert ([entry["turn_id"] for entry in rest.body["data"]], rest.body["next"]) == ([str(second)], None)
    assert (rest.body["data"][0]["reason"], rest.body["data"][0]["behind"]) == ("behind", str(first))
    stranger = await make_operator(service, Role.OPERATOR, name="other", accounts=frozenset({"elsewhere"}))
    narrow = {"Authorization": f"Bearer {await make_secret(service, stranger, EntryKind.TOKEN)}"}
    assert (await service.get("/v1/ops/queues/waiting", narrow)).body["data"] == []
    assert (await service.post(f"/v1/ops/turns/{first}/revive", None, narrow)).status == 403
    assert (await service.get("/v1/ops/queues/nothing", narrow)).status == 404
    sick.may_answer.set()
    await until(service, STATE, "done", second)


async def test_dead_letters_are_requeued_and_dropped_by_those_who_may(devtools: int, service: Service, sick: Sick) -> None:
    sick.is_well = True
    sick.may_answer.set()
    turns = [await say(service, f"hello {number}", f"c{number}") for number in range(2)]
    for turn_id in turns:
        await until(service, STATE, "done", turn_id)
    async with service.database.begin() as tx:
        await connection_of(tx).execute(
            "update outbox set state = 'dead', died_at = now(), outcome = 'unauthorized', reason = 'token revoked'"
        )
    [(first,), (last,)] = await rows(service, "select id from outbox order by id")
    operator = await cookie_headers(service, Role.OPERATOR)
    shown = (await service.get("/console/queues?queue=dead", operator)).body
    assert ("token revoked" in shown, "Drop for good" in shown, "Requeue" in shown) == (True, False, True)
    assert "token revoked" not in (await service.get("/console/queues?queue=dead", await cookie_headers(service, Role.VIEWER))).body
    async with console_tab(devtools, service) as page:
        await page.go(f"{service.url}/console/queues?queue=dead")
        await page.click("td .action button")
        await page.until("location.search.includes('done=requeued') && document.readyState === 'complete'")
        await page.click("td details summary")
        await page.click("td details input[name=confirm]")
        await page.type(str(first))
        await page.click("td details button")
        await page.until("location.search.includes('done=dropped') && document.readyState === 'complete'")
        assert page.complaints == []
    journal = await rows(service, "select type, facts ->> 'by' from run_events where type like 'dead_letter%%' order by id")
    assert [row[0] for row in journal] == ["dead_letter_requeued", "dead_letter_dropped"]
    assert [(action, subject) for action, subject, *_ in await audited(service)] == [
        ("dead_letter.requeue", str(last)),
        ("dead_letter.drop", str(first)),
    ]
    refused = await service.post("/v1/ops/queues/dead/requeue", {"ids": ["999"]}, await token_headers(service))
    assert (refused.status, refused.body["error"]["code"]) == (404, "not_found")
    assert (await service.post("/v1/ops/queues/dead/requeue", {"ids": ["x"]}, await token_headers(service))).status == 422


async def test_a_stalled_process_is_named_and_its_turns_are_given_away(devtools: int, service: Service, sick: Sick) -> None:
    """A worker was killed over a turn: the page shows it. With the button another worker takes the turn at once; it is answered once."""
    sick.is_well = True
    turn_id, gone = await say(service, "hello"), uuid4()
    await until(service, "select count(*) from runs where turn_id = %s and state = 'running'", 1, turn_id)
    async with service.database.begin() as tx:
        connection = connection_of(tx)
        about = "insert into processes (id, role, host, pid, version, beat_at) values (%s, 'worker', 'bali-7', 4242, '0.9', %s)"
        await connection.execute(about, [gone, datetime.now(UTC) - timedelta(hours=1)])
        await connection.execute("update runs set worker = %s where turn_id = %s", [gone, turn_id])
    async with console_tab(devtools, service, Role.OPERATOR) as page:
        await page.go(f"{service.url}/console/workers")
        stalled = str(await page.see(f"document.getElementById('{gone}').innerText"))
        assert ("stalled" in stalled, "no beat" in stalled, "bali-7" in stalled, str(turn_id)[:8] in stalled) == (True, True, True, True)
        assert "No process leads" in await texts(page)
        sick.may_answer.set()
        await page.click(f"[id='{gone}'] button")
        await page.until("location.search.includes('done=given') && document.readyState === 'complete'")
        await until(service, STATE, "done", turn_id)
        await until(service, "select count(*) from chores where name = 'watch' and done_at is not null", 1)
        await page.click("form:has(input[value=watch]) button")
        await page.until("location.search.includes('done=asked') && document.readyState === 'complete'")
        assert page.complaints == []
    [found] = await rows(service, ANSWERS.replace("%(turn)s", f"'{turn_id}'"))
    assert (await answer(service, turn_id), found) == ("hello", (1, 1, 1, "answered", "done"))
    headers = await token_headers(service, Role.OPERATOR)
    listed = (await service.get("/v1/ops/workers", headers)).body
    states = {process["id"]: process["state"] for process in listed["data"]}
    assert states[str(gone)] == "stalled"
    assert {"watch", "reminders"} <= {chore["chore"] for chore in listed["chores"]}
    [alive] = [process for process, state in states.items() if state == "live" and process != str(gone)][:1]
    refused = await service.post(f"/v1/ops/workers/{alive}/give-away", None, headers)
    assert (refused.status, "lives and works" in refused.body["error"]["message"]) == (409, True)
    assert (await service.post(f"/v1/ops/workers/{uuid4()}/give-away", None, headers)).status == 404
    assert ("process.give_away", str(gone), "operator", "console", True) in await audited(service)


async def test_one_alert_of_three_processes_is_one_row_and_one_message_and_is_acknowledged(
    devtools: int, database_url: str, redis_url: str
) -> None:
    async with open_receivers() as receivers:
        slack = AlertSettings(url=Secret(receivers.url + SLACK_PATH))
        async with running(database_url, redis_url, has_worker=False, more={"alerts": NamedTables({"slack": slack})}) as service:
            alerting = service.hermes.adapters.alerting
            for _ in range(3):
                one = OperatorAlerts(LogAlerts(Metrics()))
                one.alert("breaker_opened", platform="telegram", account="bali", failures=10)
                await AlertWriter(one, service.database, alerting.records, send_directly=alerting.sender.send_directly).write()
            [destination] = alerting.sender.destinations
            await asyncio.gather(*(alerting.sender.send_due(destination) for _ in range(3)))
            await until(service, "select count(*) from alert_sends where sent_at is not null", 1)
            async with console_tab(devtools, service, Role.OPERATOR) as page:
                await page.go(f"{service.url}/console/alerts")
                shown = await texts(page)
                for words in ("breaker_opened", "telegram bali", "Too many sends", "slack: sent 1"):
                    assert words in shown.replace("\n", " ")
                assert await page.see("document.querySelectorAll('tbody tr[id^=alert-]').length") == 1
                assert await page.see("document.querySelector('tr[id^=alert-] .number').innerText") == "3"
                await page.click("form[action='/console/alerts/mute'] button")
                await page.until("location.search.includes('done=muted') && document.readyState === 'complete'")
                assert "muted" in await texts(page)
                await page.click("form[action='/console/alerts/unmute'] button")
                await page.until("location.search.includes('done=unmuted') && document.readyState === 'complete'")
                await page.click("form[action='/console/alerts/end'] button")
                await page.until("location.search.includes('done=ended') && document.readyState === 'complete'")
                assert "No alert is open" in await texts(page)
                await page.click("form[action='/console/alerts/test'] button")
                await page.until("document.querySelector('main')?.innerText.includes('it arrived')")
                assert page.complaints == []
            assert len(receivers.arrived["slack"]) == 2, "the alert once, and the test"
            listed = (await service.get("/v1/ops/alerts?show=all", await token_headers(service))).body["data"]
            assert [(each["event"], each["times"], each["told"][0]["messages"]) for each in listed] == [("breaker_opened", 3, 1)]
            ended_by = (await rows(service, "select ended_by from alerts"))[0][0]
            assert str(ended_by).startswith("operator-")
            assert [action for action, *_ in await audited(service)] == ["alert.mute", "alert.unmute", "alert.end", "alert.test"]


async def test_an_agent_is_swapped_rolled_back_and_capped(devtools: int, database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, has_worker=False, echoes=False) as service:
        async with console_tab(devtools, service) as page:
            await page.go(f"{service.url}/console/fleet?check=1")
            assert "chain of" in await texts(page, "#hermes")
            await page.see("document.querySelector('#hermes select').value = 'scripted'")
            await page.click("#hermes form[action='/console/fleet/swap'] button")
            await page.until("location.search.includes('done=swapped') && document.readyState === 'complete'")
            assert await page.see("document.querySelector('#hermes dd strong').innerText") == "scripted"
            await page.see("document.querySelector('#hermes input[name=daily_usd]').value = '2.5'")
            await page.click("#hermes form[action='/console/fleet/cap'] button")
            await page.until("location.search.includes('done=capped') && document.readyState === 'complete'")
            assert "of $2.50" in await texts(page, "#hermes")
            await page.see("[...document.querySelectorAll('#hermes button')].find(b => b.innerText.startsWith('Roll back')).click()")
            await page.until("location.search.includes('done=swapped') && document.readyState === 'complete'")
            assert "chain of" in await texts(page, "#hermes")
            assert page.complaints == []
        assert [(action, allowed) for action, _, _, _, allowed in await audited(service)] == [
            ("fleet.swap", True),
            ("fleet.cap", True),
            ("fleet.swap", True),
        ]
        assert await rows(service, "select daily_micro_usd from agents where name = 'hermes'") == [(2_500_000,)]
