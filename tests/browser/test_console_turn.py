"""The Turn page in a real browser: why this answer, why this cost. Strict vendors stand behind the models."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.app.console_access import access_from
from hermes.config import (
    BackendKind,
    BackendSettings,
    CompletionsSettings,
    Environment,
    ModelSettings,
    PriceSettings,
    Secret,
    TierSettings,
    WorkSettings,
)
from hermes.console.access import Subject
from hermes.ports.operators import Actor, Face, Role
from hermes.ports.timeline import PLOT
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.operators import PostgresOperators
from hermes.stores.seal import new_master_key
from hermes.time_ids import shorten_id
from tests.browser.browser import Page, installed
from tests.browser.console import console_tab, cookie_headers, token_headers
from tests.fakes.vendors import ToolCall, Vendors, vendors
from tests.flows.command import hermes
from tests.flows.service import Service, running, stopped

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

PATIENCE_S = 30.0
PHONE = "+6281234567431"
EVIL = "<script>document.title='gone'</script> \u202eevil\u202c مرحبا"
QUESTION = f"find me a sunset bar in Canggu {EVIL}"
ANSWER = "Try Old Man's. <b>It is</b> near."
WORDS = ("sunset", "Canggu", "Old Man", "Good morning", "hello there", PHONE)
TABS = ("context", "answer", "calls", "delivery", "credit", "json")
WORK = {"heartbeat_s": 0.2, "stalled_after_s": 1.0}
PRICES = {"input": 3.0, "output": 15.0, "cache_read": 0.3}


@asynccontextmanager
async def house(database_url: str, redis_url: str) -> AsyncIterator[tuple[Service, Vendors]]:
    """Hermes in production, with two models behind it: `small`, and `spare` if small fails. No worker."""
    async with vendors() as fakes:
        fakes.vllm.models[:], fakes.openai.models[:] = ["small-1"], ["spare-1"]
        key = new_master_key()
        more = {
            "environment": Environment.PRODUCTION,
            "master_keys": (Secret(key),),
            "work": WorkSettings(drain_s=0.1, **WORK),
            "backends": {
                "own": BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key)),
                "spare": BackendSettings(kind=BackendKind.OPENAI, base_url=fakes.openai.url, api_key=Secret(fakes.openai.key)),
            },
            "models": {
                "small": ModelSettings(backend="own", id="small-1", prices=(PriceSettings(**PRICES),)),
                "spare": ModelSettings(backend="spare", id="spare-1", prices=(PriceSettings(**PRICES),)),
            },
            "tiers": {"free": TierSettings(chain=("small", "spare"), day_tokens=1_000_000)},
            "completions": CompletionsSettings(tier="free"),
        }
        async with running(database_url, redis_url, has_worker=False, echoes=False, more=more, answer_timeout_s=30.0) as service:
            assert service.hermes.settings.home is not None
            (service.hermes.settings.home / "master.key").write_text(key, encoding="ascii")  # where tests.flows.command looks
            yield service, fakes


@asynccontextmanager
async def working(service: Service) -> AsyncIterator[None]:
    worker = asyncio.create_task(service.hermes.run_worker())
    try:
        yield
    finally:
        await stopped(worker)


async def ask(service: Service, text: str, key: dict[str, str]) -> str:
    """Send a message, and return the id of its turn when it is answered."""
    got = await service.post("/v1/messages", {"text": text, "user": PHONE}, key)
    assert got.status == 200, got.body
    return str(got.body["turn_id"])


async def rows(service: Service, query: str, **values: Any) -> list[Any]:
    async with service.database.begin() as tx:
        return await (await connection_of(tx).execute(query.encode(), values)).fetchall()


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  # the rows of another process ring no bell
            await asyncio.sleep(0.02)


async def open_content(service: Service, page: Page, turn_id: str) -> None:
    """Open the conversation of a turn for the operator of the page."""
    name = await page.see("document.querySelector('.who').firstChild.textContent.trim()")
    [(conversation_id, user_id, account)] = await rows(
        service, "select conversation_id, user_id, account_id from inbox where turn_id = %(id)s", id=turn_id
    )
    await open_subject(service, str(name), Subject(kind="conversation", id=str(conversation_id), user_id=user_id, account=account))


async def open_subject(service: Service, name: str, subject: Subject) -> None:
    async with service.database.begin() as tx:
        operator = await PostgresOperators().find(tx, name)
    assert operator is not None
    await access_from(service.hermes.settings, service.database).open(Actor(operator, Face.CONSOLE), subject, "a complaint")


async def show(page: Page, service: Service, path: str) -> str:
    """Go to a page, and return the sentence on top of it."""
    await page.go(f"{service.url}/console/{path}")
    return str(await page.see("document.querySelector('#why')?.innerText ?? ''"))


async def shown_messages(page: Page, title: str) -> list[list[str]]:
    """The messages of a context, as the page shows them: role and text."""
    script = f"""[...document.querySelectorAll('.context[data-title={json.dumps(title)}] .message')].map(
        each => [each.dataset.role, [...each.querySelectorAll('pre.content')].map(text => text.textContent).join('')])"""
    found: list[list[str]] = await page.see(script)
    return found


async def shown_steps(page: Page) -> list[tuple[str, list[str]]]:
    """Each attempt with its caption, and its rows as `step: state`."""
    script = """[...document.querySelectorAll('table.plot')].map(table => [table.caption.innerText,
        [...table.tBodies[0].rows].map(row => row.dataset.step + ': ' + row.dataset.state)])"""
    return [(caption, steps) for caption, steps in await page.see(script)]


def sent(body: dict[str, Any]) -> list[list[str]]:
    """The messages that a vendor received. The page makes controls visible; the rest must be equal to the byte."""
    visible = {ord("\u202e"): "⟨U+202E⟩", ord("\u202c"): "⟨U+202C⟩"}
    return [[message["role"], (message["content"] or "").translate(visible)] for message in body["messages"]]


def without_nulls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A backend writes `"content": null` into a message that only calls tools, because its vendor wants the field."""
    return [{name: value for name, value in message.items() if value is not None} for message in messages]


async def test_why_this_answer_and_why_this_cost(devtools: int, database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with house(database_url, redis_url) as (service, fakes):
        key = await service.key()
        async with working(service):
            fakes.vllm.say("Good morning!")
            first = await ask(service, "hello there", key)
            fakes.vllm.fail(500)
            call = ToolCall("search_venues", {"query": "sunset", "area": "Canggu"})
            fakes.openai.say("", tool_calls=[call], tokens_in=900, tokens_out=20, cached=600)
            fakes.vllm.say(ANSWER, tokens_in=1_200, tokens_out=40)
            turn = await ask(service, QUESTION, key)
            await service.hermes.gateway.wait_settled()
        await a_viewer_sees_no_word(service, turn)
        await content_needs_a_reason(service, turn, tmp_path)
        async with console_tab(devtools, service) as page:
            # 13: the first backend fails with 500, and the sentence names both models.
            why = await show(page, service, f"turns/{turn}")
            assert why.startswith("spare called the tools after small failed with 500, then small answered; 1 tool, 1 failed; $"), why
            text = await page.see("document.documentElement.outerHTML")
            assert not [word for word in WORDS[:5] if word in text], "it is closed"
            # 11: ten rows in plot order, and no negative duration.
            [(_, steps)] = await shown_steps(page)
            assert steps == [f"{step}: done" for step in PLOT]
            times = await page.see("[...document.querySelectorAll('.plot td.number')].map(cell => cell.innerText)")
            assert all(re.fullmatch(r"(< )?[\d.]+ m?s", time) for time in times), times
            bars = await page.see("[...document.querySelectorAll('.beam')].map(bar => [bar.x.baseVal.value, bar.width.baseVal.value])")
            assert all(x >= 0 and width > 0 and x + width <= 1_000 for x, width in bars), bars
            await the_cost_is_the_sum_of_the_calls(page, service, turn)
            await open_content(service, page, turn)
            await the_context_is_what_was_sent(page, service, fakes, turn)
            # [ and ] lead along the conversation.
            assert await page.see("document.querySelector('a[rel=prev]').getAttribute('href')") == f"/console/turns/{first}?tab=context"
            await show(page, service, f"turns/{turn}?tab=answer")
            shown = await page.see("[...document.querySelectorAll('pre.text')].map(each => each.textContent)")
            assert (shown[0], shown.count(ANSWER)) == (QUESTION.replace("\u202e", "⟨U+202E⟩").replace("\u202c", "⟨U+202C⟩"), 2)
            # 23: what people and models write stays text.
            assert (await page.see("document.title"), await page.see("document.querySelectorAll('main script, main b').length")) == (
                f"Turn {shorten_id(turn)} · Hermes",
                0,
            )
            for tab in TABS:
                await show(page, service, f"turns/{turn}?tab={tab}")
                assert await page.see("document.querySelector('.tabs [aria-current]').innerText.toLowerCase()") == tab
                await page.size(360, 740)
                assert await page.see("document.documentElement.scrollWidth") <= 360, tab
                await page.size(1100, 760)
            assert page.complaints == []


async def the_cost_is_the_sum_of_the_calls(page: Page, service: Service, turn: str) -> None:
    """14: the turn's dollars equal the sum over `calls`, and each call is tokens times rate."""
    [(micro_usd, count)] = await rows(service, "select sum(micro_usd)::bigint, count(*) from calls where turn_id = %(id)s", id=turn)
    why = await show(page, service, f"turns/{turn}?tab=calls")
    assert (micro_usd, count) == (5_580, 2)
    assert await page.see("document.querySelector('#total').textContent") == "$0.00558"
    assert "; $0.00558; " in why
    lines = await page.see(
        "[...document.querySelectorAll('.price')[0].querySelectorAll('tbody tr')].map(row => row.innerText.split('\\t'))"
    )
    assert lines == [
        ["in", "300", "$3.00", "$0.0009"],
        ["cache read", "600", "$0.30", "$0.00018"],
        ["out", "20", "$15.00", "$0.0003"],
        ["Sum", "920", "rounded up", "$0.00138"],
    ]


async def the_context_is_what_was_sent(page: Page, service: Service, fakes: Vendors, turn: str) -> None:
    """15: the Context tab's messages equal what the vendor received, of the first call and of the one after the tools."""
    await show(page, service, f"turns/{turn}?tab=context")
    assert await shown_messages(page, "answer") == sent(fakes.openai.requests[-1].body)
    after = await shown_messages(page, "after the tools")
    assert (after, len(after)) == (sent(fakes.vllm.requests[-1].body), 6)
    got = await service.get(f"/v1/ops/turns/{turn}/context", {**await token_headers(service, Role.OPERATOR), "X-Hermes-Reason": "a test"})
    assert [context["messages"] for context in got.body["data"]["contexts"]] == [
        without_nulls(fakes.openai.requests[-1].body["messages"]),
        without_nulls(fakes.vllm.requests[-1].body["messages"]),
    ]
    await show(page, service, f"turns/{turn}?tab=context&show=new")
    new = await shown_messages(page, "answer")
    assert [role for role, _ in new] == ["assistant", "user"], "the system message and the first question were there before"
    assert [role for role, _ in await shown_messages(page, "after the tools")] == ["assistant", "tool"]


async def a_viewer_sees_no_word(service: Service, turn: str) -> None:
    """7: no message word and no whole phone number, neither on the page nor in the API."""
    viewer, program = await cookie_headers(service, Role.VIEWER), await token_headers(service, Role.VIEWER)
    answers = [await service.get(f"/console/turns/{turn}?tab={tab}", viewer) for tab in TABS]
    answers += [await service.get(f"/v1/ops/turns/{turn}{path}", program) for path in ("", "/why")]
    for got in answers:
        assert got.status == 200
        assert not [word for word in WORDS if word in str(got.body)]
    assert "+62•••431" in answers[0].body
    refused = await service.get(f"/v1/ops/turns/{turn}/context", {**program, "X-Hermes-Reason": "curious"})
    assert (refused.status, refused.body["error"]["code"]) == (403, "access_refused")
    assert (await service.get(f"/console/turns/{uuid4()}", viewer)).status == 404
    assert (await service.get("/console/turns/nonsense", viewer)).status == 404
    assert (await service.get(f"/console/turns/{turn}")).status == 401
    foreign = await service.get(f"/v1/ops/turns/{turn}", await token_headers(service, Role.OWNER, frozenset({"another"})))
    assert foreign.status == 404, "a turn of an account that the operator does not see"


async def content_needs_a_reason(service: Service, turn: str, folder: Path) -> None:
    """8: content is refused in production without a reason, in the API and at the command line; each refusal is in the audit log."""
    program = await token_headers(service, Role.OPERATOR)
    refused = await service.get(f"/v1/ops/turns/{turn}/context", program)
    assert (refused.status, refused.body["error"]["code"]) == (403, "reason_missing")
    (folder / "hermes.toml").write_text('environment = "production"\n')
    told = await hermes(service, folder, "turns", "show", turn, "--content")
    assert (told.code, told.output) == (2, "")
    assert "--reason" in told.complaints
    entries = "select face, allowed, reason from audit where action = 'content.open' order by id"
    refusals = [("api", False, "curious"), ("api", False, ""), ("cli", False, "")]
    assert await rows(service, entries) == refusals
    told = await hermes(service, folder, "turns", "show", turn, "--reason", "a complaint")
    assert told.code == 0, told.complaints
    for words in ("spare called the tools", "call_model", "$0.00558", "sunset bar", "Try Old Man's.", "600 cache read x $0.30/M"):
        assert words in told.output
    assert await rows(service, entries) == [*refusals, ("cli", True, "a complaint")]
    why = await hermes(service, folder, "turns", "why", turn)
    assert (why.code, "  1. waited " in why.output, "sunset" in why.output) == (0, True, False)
    whole = await hermes(service, folder, "turns", "show", turn, "--json")
    assert json.loads(whole.output) == (await service.get(f"/v1/ops/turns/{turn}", await token_headers(service))).body["data"]


async def test_a_worker_that_is_killed_and_content_that_is_gone(devtools: int, database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with house(database_url, redis_url) as (service, fakes):
        key = await service.key()
        sending = asyncio.create_task(service.post("/v1/messages", {"text": QUESTION, "user": PHONE}, key))
        await until(lambda: rows(service, "select 1 from inbox"))
        [(turn,)] = await rows(service, "select turn_id::text from inbox")
        async with console_tab(devtools, service) as page:
            why = await show(page, service, f"turns/{turn}")
            assert re.fullmatch(r"has waited \d+ s: no worker is alive", why), why
            # 12: a worker of its own process is killed while the model thinks. Another one answers.
            fakes.vllm.hang()
            killed = await start_worker(service, fakes, tmp_path)
            await fakes.vllm.asked(1, timeout_s=PATIENCE_S)
            why = await show(page, service, f"turns/{turn}")
            assert re.fullmatch(r"attempt 1 has run for \d+ s at call_model; received \d+ s ago", why), why
            killed.kill()
            await killed.wait()
            fakes.vllm.say(ANSWER)
            async with working(service):
                assert (await sending).status == 200
                fakes.vllm.say("Good morning!")
                answered = await ask(service, "hello there", key)
                chat = await service.post(
                    "/v1/chat/completions", {"model": "small", "messages": [{"role": "user", "content": QUESTION}]}, key
                )
                assert chat.status == 200, chat.body
                await service.hermes.gateway.wait_settled()
            # The page that was left open at the running turn has read it again by itself.
            await page.until("document.querySelector('h1 .chip')?.innerText === 'answered'")
            why = await show(page, service, f"turns/{turn}")
            assert why.startswith("small answered; attempt 1 was cut off at call_model; $"), why
            (first, steps), (second, more_steps) = await shown_steps(page)
            assert re.fullmatch(r"Attempt 1 cut off at call_model by worker [0-9a-f]{8}.*", first), first
            assert re.fullmatch(r"Attempt 2 ended by worker [0-9a-f]{8} .*", second), second
            states = [*["no record"] * 7, "cut off", "not reached", "not reached"]
            assert steps == [f"{step}: {state}" for step, state in zip(PLOT, states, strict=True)]
            assert more_steps == [f"{step}: done" for step in PLOT]
            await a_call_without_a_turn(page, service, fakes)
            await content_that_is_gone(page, service, turn, answered)
            assert page.complaints == []


async def start_worker(service: Service, fakes: Vendors, folder: Path) -> asyncio.subprocess.Process:
    """A worker in a process of its own, with the settings of the house."""
    settings = service.hermes.settings
    assert settings.database_url is not None
    assert settings.redis_url is not None
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")} | {
        "HERMES_DATABASE_URL": settings.database_url.reveal(),
        "HERMES_REDIS_URL": settings.redis_url.reveal(),
        "HERMES_MASTER_KEYS": settings.master_keys[0].reveal(),
        "HERMES_HOME": str(folder / "worker"),
        "HERMES_BACKENDS_OWN_API_KEY": fakes.vllm.key,
    }
    toml = [
        *("[work]", f"heartbeat_s = {WORK['heartbeat_s']}", f"stalled_after_s = {WORK['stalled_after_s']}"),
        *("[memory]", "asks_models = false"),
        *("[backends.own]", 'kind = "vllm"', f'base_url = "{fakes.vllm.url}"'),
        *("[models.small]", 'backend = "own"', 'id = "small-1"', "prices = [{input = 3.0, output = 15.0}]"),
        *("[tiers.free]", 'chain = ["small"]', "day_tokens = 1000000"),
    ]
    file = folder / "worker.toml"
    file.write_text("\n".join(toml))
    command = [sys.executable, "-m", "hermes", "worker", "--config", str(file)]
    return await asyncio.create_subprocess_exec(*command, env=environ, cwd=folder, stderr=asyncio.subprocess.DEVNULL)


async def a_call_without_a_turn(page: Page, service: Service, fakes: Vendors) -> None:
    """A call of the completions API has no turn; its context is the graph's."""
    columns = "c.id::text, s.conversation_id::text, c.user_id, c.account_id"
    query = f"select {columns} from calls c join sessions s on s.id = c.session_id where source = 'completions'"  # noqa: S608
    [(call, conversation_id, user_id, account)] = await rows(service, query)
    await page.go(f"{service.url}/console/calls/{call}")
    assert "sunset" not in await page.see("document.body.innerText")
    name = await page.see("document.querySelector('.who').firstChild.textContent.trim()")
    await open_subject(service, name, Subject(kind="conversation", id=conversation_id, user_id=user_id, account=account))
    await page.go(f"{service.url}/console/calls/{call}")
    assert await shown_messages(page, "call") == sent(fakes.vllm.requests[-1].body)
    got = await service.get(f"/v1/ops/calls/{call}/context", {**await token_headers(service), "X-Hermes-Reason": "a test"})
    assert got.body["data"]["messages"] == fakes.vllm.requests[-1].body["messages"]


async def content_that_is_gone(page: Page, service: Service, turn: str, answered: str) -> None:
    """What cannot be read says why: it expired, its bytes were changed, its user was forgotten. The rest of the page stays."""
    await open_content(service, page, turn)
    hidden = "[...document.querySelectorAll('.hidden-line')].map(line => line.dataset.hidden)"
    await rows(service, "update run_events set request = null, result = null where turn_id = %(id)s returning 1", id=turn)
    await show(page, service, f"turns/{turn}?tab=context")
    assert await page.see(hidden) == ["expired"]
    assert "expired after 30 days" in await page.see("document.querySelector('.hidden-line').innerText")
    damage = "update run_events set request = set_byte(request, 40, 255 - get_byte(request, 40))"
    await rows(service, f"{damage} where turn_id = %(id)s and request is not null returning 1", id=answered)
    await show(page, service, f"turns/{answered}?tab=context")
    assert await page.see(hidden) == ["unreadable"]
    [(user_id,)] = await rows(service, "select user_id from inbox where turn_id = %(id)s", id=answered)
    async with service.database.begin() as tx:
        await service.hermes.adapters.people.forget(tx, UUID(str(user_id)))
    why = await show(page, service, f"turns/{answered}?tab=answer")
    assert (why.startswith("small answered; $"), set(await page.see(hidden))) == (True, {"erased"})
    assert PHONE not in await page.see("document.documentElement.outerHTML")
