"""What must not be read at the console: words of a model in the place of a name, and what a program keeps of a person who was forgotten."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from uuid import UUID

import pytest

from hermes.console.access import Subject
from hermes.console.sign_in import digest_of_secret
from hermes.ports.operators import Actor, EntryKind, Face, Role
from hermes.ports.replays import ReplayChange
from hermes.ports.tools import UNKNOWN_TOOL
from hermes.stores.postgres.database import connection_of
from hermes.web.console.visits import SESSION_COOKIE, Visit
from tests.browser.console import cookie_headers, make_operator, make_secret, token_headers
from tests.fakes.vendors import Say, ToolCall
from tests.flows.replaying import SEARCH, Shop, replaying


@pytest.fixture
async def shop(database_url: str, redis_url: str) -> AsyncIterator[Shop]:
    async with replaying(database_url, redis_url) as shop:
        yield shop


async def test_a_tools_name_that_a_model_made_up_is_written_nowhere_unsealed(shop: Shop) -> None:
    made_up = "ada_expects_a_child"
    shop.vendors.anthropic.say("", tool_calls=[ToolCall(made_up, {}), SEARCH, *[ToolCall(made_up, {"n": n}) for n in range(12)]])
    shop.vendors.anthropic.say("I cannot do that.")
    turn_id = await shop.say("Find me a cafe.")
    page = f"/console/turns/{turn_id}"
    viewer, program = await cookie_headers(shop.service, Role.VIEWER), await token_headers(shop.service, Role.VIEWER)
    paths = ["/console/turns", page, f"{page}?tab=json", f"{page}?tab=calls", "/console/costs?by=tool", "/console/costs.csv?by=tool"]
    read = [(await shop.service.get(path, viewer)).body for path in paths]
    paths = ["/v1/ops/turns", f"/v1/ops/turns/{turn_id}", f"/v1/ops/turns/{turn_id}/why", f"/v1/ops/events?turn={turn_id}"]
    read += [json.dumps((await shop.service.get(path, program)).body) for path in paths]
    assert [path for path in read if made_up in path] == []

    [(tools,)] = await shop.ask(f"select meta -> 'tools' from interactions where turn_id = '{turn_id}'")  # noqa: S608  # our own id
    assert [tool["name"] for tool in tools] == [UNKNOWN_TOOL, "venue_search", *[UNKNOWN_TOOL] * 12]
    rows = await shop.ask("select facts::text from run_events union all select meta::text from interactions")
    assert [text for (text,) in rows if made_up in text] == [], "these outlive the journal's content, and the person's key"
    again = shop.vendors.anthropic.requests[-1].body["messages"][-1]["content"]
    assert "there is no tool" in json.dumps(again[0]), "the model is told"


async def test_a_closed_graph_is_read_again_once_its_owner_was_forgotten(shop: Shop) -> None:
    turn_id = await shop.say("where do the mangroves grow", user="628123456431")
    [(user_id,)] = await shop.ask(f"select user_id from inbox where turn_id = '{turn_id}'")  # noqa: S608  # our own id
    path, headers = f"/v1/ops/conversations/{turn_id}/graph", await token_headers(shop.service, Role.OPERATOR)
    first = await shop.service.get(path, headers)
    known = {"If-None-Match": first.headers["ETag"]}
    assert (await shop.service.get(path, {**headers, **known})).status == 304
    viewer = await shop.service.get(path, {**await token_headers(shop.service, Role.VIEWER), **known})
    assert (viewer.status, viewer.body["session"]["channel"]) == (200, "628•••431"), "another reader's page is another one"
    async with shop.service.database.begin() as tx:
        await shop.service.hermes.adapters.people.forget(tx, user_id)
    after = await shop.service.get(path, {**headers, **known})
    assert (after.status, after.body["session"]["is_erased"]) == (200, True)
    assert "628123456431" in json.dumps(first.body)
    assert "628123456431" not in json.dumps(after.body)


async def test_half_a_character_breaks_no_page_and_no_answer(shop: Shop) -> None:
    shop.vendors.anthropic.say("", tool_calls=[ToolCall("venue_search", '{"query": "cafe \\ud83d", "area": "Ubud"}')])
    shop.vendors.anthropic.say("A cafe is near you.")
    turn_id = await shop.say("Find me a cafe.")
    program = await token_headers(shop.service)
    graph = await shop.service.get(f"/v1/ops/conversations/{turn_id}/graph?content=true", program)
    context = await shop.service.get(f"/v1/ops/turns/{turn_id}/context", program)
    assert json.loads(context.body["data"]["tools"][0]["arguments"]) == {"query": "cafe \ud83d", "area": "Ubud"}

    owner = await make_operator(shop.service)
    session = graph.body["session"]
    await shop.console.access.open(Actor(owner, Face.CONSOLE), Subject(kind="conversation", id=session["conversation_id"], account="shop"))
    cookie = await make_secret(shop.service, owner, EntryKind.SESSION)
    headers = {"Cookie": f"{SESSION_COOKIE.name}={cookie}", "Sec-Fetch-Site": "same-origin"}
    form = {"form_token": Visit(Actor(owner, Face.CONSOLE), digest_of_secret(cookie)).form_token()}
    path = f"/console/conversations/{session['session_id']}"
    pages = [(await shop.service.get(each, headers)).body for each in (f"/console/turns/{turn_id}", path, f"{path}?diff=m1,m2")]
    async with shop.service.client.post(f"{shop.service.url}{path}/export", data=form, headers=headers) as response:
        pages.append(await response.text())
    assert ["cafe ⟨U+D83D⟩" in page for page in pages] == [True] * 4


@dataclass(frozen=True)
class Opened:
    """A turn with a replay, and an owner who has just opened its conversation and the person."""

    shop: Shop
    ids: Mapping[str, str]
    cookie: Mapping[str, str]
    program: Mapping[str, str]

    @property
    def pages(self) -> list[str]:
        names = ("/console/turns/{turn}", "/console/turns/{turn}?tab=answer", "/console/conversations/{session}")
        more = ("/console/conversations/{session}?diff=m0,m1", "/console/replays/{replay}", "/console/turns/{turn}/replay")
        return [name.format(**self.ids) for name in (*names, *more)]

    @property
    def routes(self) -> list[str]:
        names = ("turns/{turn}/context", "conversations/{session}/graph?content=true", "replays/{replay}?content=true")
        return [f"/v1/ops/{name}".format(**self.ids) for name in names]

    async def read(self) -> list[tuple[int, str]]:
        found = [await self.shop.service.get(page, self.cookie) for page in self.pages]
        found += [await self.shop.service.get(route, self.program) for route in self.routes]
        return [(each.status, each.body if isinstance(each.body, str) else json.dumps(each.body)) for each in found]

    async def change(self, *statements: str) -> None:
        async with self.shop.service.database.begin() as tx:
            for statement in statements:
                await connection_of(tx).execute(statement.encode())


@pytest.fixture
async def opened(shop: Shop) -> Opened:
    shop.vendors.anthropic.say("They grow in the lagoon.")
    turn_id = await shop.say("where do the mangroves grow")
    shop.vendors.anthropic.otherwise = lambda _: Say(text="In the lagoon, too.")
    someone = Actor(await make_operator(shop.service, name="root"), Face.CLI)
    [replay_id] = await shop.console.run(someone, await shop.console.find_source(someone, turn_id), "claude-sonnet", ReplayChange())
    shop.console.worker.start([replay_id])
    await shop.ended(replay_id)
    [row] = await shop.ask(
        "select session_id::text, conversation_id::text, i.user_id::text from interactions join inbox as i using (turn_id)"
    )
    owner = await make_operator(shop.service)
    secret = await make_secret(shop.service, owner, EntryKind.SESSION)
    await shop.console.access.open(Actor(owner, Face.CONSOLE), Subject(kind="conversation", id=row[1], account="shop"))
    cookie = {"Cookie": f"{SESSION_COOKIE.name}={secret}", "Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
    ids = {"turn": str(turn_id), "session": row[0], "user": row[2], "replay": str(replay_id)}
    return Opened(shop, ids, cookie, await token_headers(shop.service))


async def test_a_person_whom_another_process_forgot_is_forgotten_here_at_once(opened: Opened) -> None:
    assert sum("lagoon" in text or "mangroves" in text for _, text in await opened.read()) >= 7
    # As another process leaves it: this one has the key in memory for half a minute.
    await opened.change("delete from data_keys", "update users set state = 'deleted', deleted_at = now()", "delete from replays")
    seen = await opened.read()
    assert [status for status, text in seen if "lagoon" in text or "mangroves" in text] == []
    assert max(status for status, _ in seen) < 500
    chat = await opened.shop.service.get(f"/v1/ops/conversations/{opened.ids['session']}/graph?chat=0", opened.program)
    assert chat.status == 410


async def test_what_cannot_be_opened_is_said(opened: Opened) -> None:
    await opened.change(
        "update graph_messages set body = decode('00', 'hex') || body",
        "update graph_samples set body = decode('00', 'hex') || body",
        "update run_events set request = decode('00', 'hex') || request, result = decode('00', 'hex') || result",
        "update replays set change = decode('00', 'hex') || change, result = decode('00', 'hex') || result",
    )
    seen = await opened.read()
    assert [(status, text) for status, text in seen if "cannot be opened" not in text and "unreadable" not in text] == []
    assert {status for status, _ in seen} == {200, 409}
    console, root = opened.shop.console, Actor(await make_operator(opened.shop.service, name="root"), Face.CLI)
    [replay_id] = await console.run(root, await console.find_source(root, UUID(opened.ids["turn"])), "claude-sonnet", ReplayChange())
    console.worker.start([replay_id])
    assert (await opened.shop.ended(replay_id)).state == "refused", "and no worker stumbles over it"
