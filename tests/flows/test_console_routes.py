"""Every route of the console and of `/v1/ops`: who may use it, what a viewer is shown, and what an operator of another account is not.

The tables below have a line for each route. A route without one fails the first test, so a new route cannot forget its role."""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.console.sign_in import digest_of_secret
from hermes.ports.operators import Actor, EntryKind, Face, Operator, Role
from hermes.ports.replays import ReplayChange, ReplayFilter
from hermes.ports.users import UserChannel
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.operators import PostgresOperators
from hermes.turn import Platform
from hermes.web.console.visits import SESSION_COOKIE, Visit
from tests.browser.console import make_operator, make_secret
from tests.flows.my_data import change_diet, dream, learn
from tests.flows.replaying import SEARCH, Shop, replaying
from tests.flows.service import Got, got, running

SENDER = "628123456431"
ADA = UserChannel("shop", Platform.REST, SENDER)
REASON = "a question of Ada's"
WORDS = ("mangroves", "lagoon", "Ubud", "Bruno", "vegan", "vegetarian", "diet", "Fridays", REASON, "undeliverable to")
"""What users, models, operators and platforms wrote, what tools were asked, and what is known of Ada. `diet` is the key of a fact."""
VIEWER, OPERATOR, OWNER = Role
ALL = None
"""Open to everyone, without a session."""

GETS: dict[str, Role | None] = {
    "/console": VIEWER,
    "/console/alerts": VIEWER,
    "/console/arrive": ALL,
    "/console/audit": VIEWER,
    "/console/calls/{call_id}": VIEWER,
    "/console/conversations": VIEWER,
    "/console/conversations/{name}": VIEWER,
    "/console/costs": VIEWER,
    "/console/costs.csv": VIEWER,
    "/console/enter": ALL,
    "/console/events": VIEWER,
    "/console/fleet": VIEWER,
    "/console/keys": VIEWER,
    "/console/operators": OWNER,
    "/console/people": VIEWER,
    "/console/people/{user_id}": VIEWER,
    "/console/queues": VIEWER,
    "/console/replay-batches/new": VIEWER,
    "/console/replay-batches/{batch_id}": VIEWER,
    "/console/replay-batches/{batch_id}/table.csv": VIEWER,
    "/console/replays": VIEWER,
    "/console/replays/{replay_id}": VIEWER,
    "/console/search": VIEWER,
    "/console/settings": VIEWER,
    "/console/static/{name}": ALL,
    "/console/strip": VIEWER,
    "/console/turns": VIEWER,
    "/console/turns/{source_id}/replay": VIEWER,
    "/console/turns/{turn_id}": VIEWER,
    "/console/workers": VIEWER,
    "/v1/ops/alerts": VIEWER,
    "/v1/ops/audit": VIEWER,
    "/v1/ops/calls/{call_id}": VIEWER,
    "/v1/ops/calls/{call_id}/context": OPERATOR,
    "/v1/ops/conversations": VIEWER,
    "/v1/ops/conversations/{name}/graph": VIEWER,
    "/v1/ops/costs": VIEWER,
    "/v1/ops/events": VIEWER,
    "/v1/ops/fleet": VIEWER,
    "/v1/ops/fleet/events": VIEWER,
    "/v1/ops/fleet/{agent}/health": VIEWER,
    "/v1/ops/keys": VIEWER,
    "/v1/ops/overview": VIEWER,
    "/v1/ops/people": VIEWER,
    "/v1/ops/people/{user_id}": VIEWER,
    "/v1/ops/people/{user_id}/memory": OPERATOR,
    "/v1/ops/queues": VIEWER,
    "/v1/ops/queues/{name}": VIEWER,
    "/v1/ops/replay-batches": VIEWER,
    "/v1/ops/replay-batches/{batch_id}": VIEWER,
    "/v1/ops/replays": VIEWER,
    "/v1/ops/replays/{replay_id}": VIEWER,
    "/v1/ops/models": VIEWER,
    "/v1/ops/models/plans": VIEWER,
    "/v1/ops/settings": VIEWER,
    "/v1/ops/turns": VIEWER,
    "/v1/ops/turns/{turn_id}": VIEWER,
    "/v1/ops/turns/{turn_id}/context": OPERATOR,
    "/v1/ops/turns/{turn_id}/why": VIEWER,
    "/v1/ops/workers": VIEWER,
}
"""The least role that a route needs."""

POSTS: dict[str, tuple[Role | None, dict[str, Any]]] = {
    "/console/alerts/{act}": (OPERATOR, {"id": "{alert_id}"}),
    "/console/conversations/{session_id}/export": (OWNER, {}),
    "/console/enter": (ALL, {"secret": "wrong"}),
    "/console/fleet/cap": (OWNER, {"agent": "hermes", "daily_usd": "5"}),
    "/console/fleet/plan": (OPERATOR, {"old": "claude-sonnet", "new": "scripted"}),
    "/console/fleet/swap": (OPERATOR, {"agent": "hermes"}),
    "/console/keys": (OWNER, {"name": "new"}),
    "/console/keys/{key_id}/revoke": (OWNER, {"confirm": "another"}),
    "/console/leave": (VIEWER, {}),
    "/console/open": (OPERATOR, {"kind": "conversation", "id": "{conversation_id}", "reason": REASON}),
    "/console/operators": (OWNER, {"act": "link", "name": "nameless"}),
    "/console/people/{user_id}/credit": (OWNER, {"amount": "1", "key": str(UUID(int=7))}),
    "/console/people/{user_id}/forget": (OWNER, {"confirm": "another"}),
    "/console/people/{user_id}/tier": (OWNER, {"tier": "free"}),
    "/console/queues/drop": (OWNER, {"id": "{letter}", "confirm": "{letter}"}),
    "/console/queues/requeue": (OPERATOR, {"id": "{letter}"}),
    "/console/queues/revive": (OPERATOR, {"turn_id": "{turn_id}"}),
    "/console/queues/revive-all": (OPERATOR, {"confirm": "all"}),
    "/console/replay-batches": (OPERATOR, {"models": "claude-haiku", "last": "1"}),
    "/console/replay-batches/{batch_id}/resume": (OPERATOR, {}),
    "/console/replay-batches/{batch_id}/stop": (OPERATOR, {}),
    "/console/replays/{replay_id}/keep": (OWNER, {}),
    "/console/settings/kill-switch": (OPERATOR, {"engaged": "on", "reason": "a test"}),
    "/console/turns/{source_id}/replay": (OPERATOR, {"model": "claude-haiku"}),
    "/console/workers/chore": (OPERATOR, {"chore": "watch"}),
    "/console/workers/give-away": (OPERATOR, {"process": "{process_id}"}),
    "/v1/ops/alerts/{alert_id}/end": (OPERATOR, {}),
    "/v1/ops/chores/{name}/run": (OPERATOR, {}),
    "/v1/ops/fleet/{agent}/cap": (OWNER, {"daily_usd": 5.0}),
    "/v1/ops/fleet/{agent}/swap": (OPERATOR, {"adapter": None}),
    "/v1/ops/models/plan": (OPERATOR, {"old": "claude-haiku", "new": "scripted"}),
    "/v1/ops/kill-switch": (OPERATOR, {"engaged": True, "reason": "a test"}),
    "/v1/ops/queues/{name}/requeue": (OPERATOR, {"ids": ["{letter}"]}),
    "/v1/ops/replay-batches": (OPERATOR, {"models": ["claude-haiku"], "last": 1, "confirm": True}),
    "/v1/ops/replay-batches/{batch_id}/resume": (OPERATOR, {}),
    "/v1/ops/replay-batches/{batch_id}/stop": (OPERATOR, {}),
    "/v1/ops/replays": (OPERATOR, {"turn_id": "{turn_id}", "model": "claude-haiku"}),
    "/v1/ops/replays/{replay_id}/keep": (OWNER, {}),
    "/v1/ops/turns/{turn_id}/revive": (OPERATOR, {}),
    "/v1/ops/workers/{process_id}/give-away": (OPERATOR, {}),
}
"""The least role, and a form or body that gets as far as the check of the role."""

NOTHING_FOUND = {("/console/keys/{key_id}/revoke", 422), ("/v1/ops/replay-batches", 422), ("/console/replay-batches", 409)}
"""How routes say that there is no such key or turn."""
STREAMS = ("/console/events",)
BY_KEY = ("/v1/ops/fleet", "/v1/ops/events")
"""Where an API key with the scope `ops` may act, as before the console."""
QUERIES = {
    "/console/search": "?q=62812",
    "/console/replay-batches/new": "?last=5&model_name=claude-haiku",
    "/console/conversations/{name}": "?versions=all",
    "/console/queues": "?queue=dead",
    "/v1/ops/alerts": "?show=all",
    "/console/alerts": "?show=all",
    "/console/turns/{turn_id}": "?tab=json",
    "/console/costs": "?by=user",
    "/console/costs.csv": "?by=user",
    "/v1/ops/costs": "?by=user",
}
"""Where a route shows more with them."""

PARTS = {
    "/console/turns/{turn_id}": [f"?tab={tab}" for tab in ("context", "answer", "calls", "delivery", "credit", "json")],
    "/console/calls/{call_id}": [f"?tab={tab}" for tab in ("context", "answer", "calls", "json")],
    "/console/conversations/{name}": ["?diff=m0,m1", "?diff=v1,now", "?chat=0", "?row=0&whole=0"],
    "/console/turns": ["?part=rows", "?status=undelivered", "?purpose=any"],
    "/console": ["?part=live"],
    "/console/queues": [f"?queue={queue}" for queue in ("waiting", "buried", "outbox", "dead", "jobs")],
    "/console/costs.csv": [f"?by={by}" for by in ("key", "tool", "agent")],
    "/console/people": [f"?q={SENDER}", f"?q={SENDER[:6]}"],
    "/v1/ops/people": [f"?q={SENDER[:6]}"],
    "/v1/ops/conversations/{name}/graph": ["?content=true", "?chat=0"],
    "/v1/ops/replays/{replay_id}": ["?content=true"],
}
"""What a viewer may ask for besides, or tries to."""


@dataclass(frozen=True)
class House:
    """A service with one of each thing in the account `shop`, and their ids by the names of the routes."""

    shop: Shop
    ids: Mapping[str, str]

    def path(self, pattern: str) -> str:
        names = {**self.ids, "name": self.ids["session_id"]}
        if pattern.startswith(("/v1/ops/queues", "/v1/ops/chores", "/console/static")):
            names["name"] = {"/v1/ops/queue": "dead", "/v1/ops/chore": "watch"}.get(pattern[:13], "console.css")
        return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], pattern)

    def fields(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        text = re.sub(r"\{(\w+)\}", lambda found: self.ids[found[1]], json.dumps(wanted))
        return dict(json.loads(text))

    async def get(self, pattern: str, headers: Mapping[str, str], query: str | None = None) -> Got:
        url = self.shop.service.url + self.path(pattern) + (QUERIES.get(pattern, "") if query is None else query)
        async with self.shop.service.client.get(url, headers=headers, allow_redirects=False) as response:
            if pattern in STREAMS and response.status == 200:
                return Got(200, "", response.headers)
            return await got(response)

    async def post(self, pattern: str, headers: Mapping[str, str], token: str = "") -> Got:
        service, fields = self.shop.service, self.fields(POSTS[pattern][1])
        body: dict[str, Any] = {"json": fields} if pattern.startswith("/v1/") else {"data": {"form_token": token, **fields}}
        async with service.client.post(service.url + self.path(pattern), headers=headers, allow_redirects=False, **body) as response:
            return await got(response)

    async def browser(self, operator: Operator) -> tuple[dict[str, str], str]:
        """The headers of a signed-in browser, and a form token of its session."""
        secret = await make_secret(self.shop.service, operator, EntryKind.SESSION)
        token = Visit(Actor(operator, Face.CONSOLE), digest_of_secret(secret)).form_token()
        return {"Cookie": f"{SESSION_COOKIE.name}={secret}", "Sec-Fetch-Site": "same-origin"}, token

    async def program(self, operator: Operator) -> dict[str, str]:
        return {"Authorization": f"Bearer {await make_secret(self.shop.service, operator, EntryKind.TOKEN)}"}

    async def enter(self, pattern: str, operator: Operator) -> dict[str, str]:
        return await self.program(operator) if pattern.startswith("/v1/") else (await self.browser(operator))[0]

    async def send(self, pattern: str, operator: Operator) -> Got:
        """A form or body as this operator sends it."""
        if pattern.startswith("/v1/"):
            return await self.post(pattern, await self.program(operator))
        return await self.post(pattern, *await self.browser(operator))


@pytest.fixture
async def house(database_url: str, redis_url: str) -> AsyncIterator[House]:
    async with replaying(database_url, redis_url, refused_per_minute=1_000) as shop:
        service, anthropic = shop.service, shop.vendors.anthropic
        anthropic.say("", tool_calls=[SEARCH])
        for _ in range(20):
            anthropic.say("They grow in the lagoon.")
        turn_id = await shop.say("where do the mangroves grow", user=SENDER)
        await learn(service, ADA, "has a dog called Bruno", source_turn=turn_id)
        await change_diet(service, ADA)
        await dream(service, ADA)
        owner = Actor(await make_operator(service, name="root"), Face.CLI)
        source = await shop.console.find_source(owner, turn_id)
        [replay_id] = await shop.console.run(owner, source, "claude-haiku", ReplayChange(), reason=REASON)
        await shop.ended(replay_id)
        plan = await shop.console.plan(owner, ReplayFilter(), ["claude-haiku"], 1)
        batch_id = await shop.console.run_batch(owner, plan)
        process_id = uuid4()
        async with service.database.begin() as tx:
            run = connection_of(tx).execute
            await run(
                "insert into processes (id, role, host, pid, version, beat_at)"
                " values (%s, 'worker', 'w', 1, '0', now() - interval '1 hour')",
                [process_id],
            )
            found = await run(
                "update outbox set state = 'dead', outcome = 'rejected', died_at = now(), reason = %s where turn_id = %s returning id",
                [f"undeliverable to {SENDER}", turn_id],
            )
            [letter] = (await found.fetchall())[0]
            found = await run(
                "insert into alerts (event, subject, level, facts) values ('breaker_opened', 'rest shop', 'warning', %s) returning id",
                ['{"platform": "rest", "account": "shop"}'],
            )
            [alert_id] = (await found.fetchall())[0]
            [row] = await (
                await run(
                    "select a.id::text, x.session_id::text, i.conversation_id::text, x.user_id::text, k.id::text from interactions as x"
                    " join inbox as i using (turn_id) join calls as a on a.turn_id = x.turn_id, api_keys as k where i.turn_id = %s limit 1",
                    [turn_id],
                )
            ).fetchall()
        names = ("call_id", "session_id", "conversation_id", "user_id", "key_id")
        ids = {**dict(zip(names, row, strict=True)), "turn_id": str(turn_id), "source_id": str(turn_id), "replay_id": str(replay_id)}
        ids |= {"batch_id": str(batch_id), "process_id": str(process_id), "letter": str(letter), "alert_id": str(alert_id)}
        yield House(shop, {**ids, "agent": "hermes", "act": "end"})


def test_every_route_has_its_least_role() -> None:
    lines = (Path(__file__).parents[1] / "contract_names.txt").read_text().splitlines()
    routes = [line.split()[1:] for line in lines if line.startswith("route ")]
    ours = {(method, path) for method, path in routes if re.match(r"/(console|v1/ops)(/|\.|$)", path)}
    assert ours == {("GET", path) for path in GETS} | {("POST", path) for path in POSTS}


async def test_a_route_opens_to_its_least_role_and_to_none_below(house: House) -> None:
    people = {role: await make_operator(house.shop.service, role, name=f"the-{role}") for role in Role}
    wrong: dict[str, list[Any]] = {}
    for pattern, least in GETS.items():
        for role, operator in people.items():
            status = (await house.get(pattern, await house.enter(pattern, operator))).status
            is_open = least is ALL or role.covers(least)
            if status >= 500 or (status in {401, 403, 404}) == is_open:
                wrong.setdefault(pattern, []).append((str(role), status))
    for pattern, (least, _) in POSTS.items():
        for role, operator in people.items():
            if least is ALL or role.covers(least):
                continue
            if (status := (await house.send(pattern, operator)).status) != 403:
                wrong.setdefault(pattern, []).append((str(role), status))
    for pattern, (least, _) in POSTS.items():
        if least is not ALL and ((status := (await house.send(pattern, people[least])).status) in {401, 403} or status >= 500):
            wrong.setdefault(pattern, []).append((str(least), status))
    assert wrong == {}


async def test_without_a_valid_session_or_token_no_route_opens(house: House) -> None:
    service = house.shop.service
    gone = await make_operator(service, name="gone")
    cookie, form = await house.browser(gone)
    token = await house.program(gone)
    async with service.database.begin() as tx:
        await PostgresOperators().disable(tx, "gone")
        await PostgresOperators().enable(tx, "gone")  # what was revoked stays revoked
    old = await make_operator(service, name="old")
    expired, expired_token = await house.browser(old), await house.program(old)
    async with service.database.begin() as tx:
        await connection_of(tx).execute("update operator_entries set expires_at = now() where operator_id = %s", [old.id])
    customer = await service.key()
    wrong: dict[str, Any] = {}
    for pattern, least in GETS.items():
        if least is ALL:
            continue
        kinds = [{}, token, expired_token] if pattern.startswith("/v1/") else [{}, cookie, expired[0], token]
        statuses = [(await house.get(pattern, headers)).status for headers in kinds]
        statuses += [(await house.get(pattern, customer)).status + (0 if pattern.startswith("/console") else -2)]
        if set(statuses) != {401}:
            wrong[f"GET {pattern}"] = statuses
    for pattern, (least, _) in POSTS.items():
        if least is ALL:
            continue
        if pattern.startswith("/v1/"):
            statuses = [(await house.post(pattern, headers)).status for headers in ({}, token, expired_token)]
            statuses += [(await house.post(pattern, customer)).status - 2]
        else:
            same = {"Sec-Fetch-Site": "same-origin"}
            statuses = [(await house.post(pattern, *sent)).status for sent in ((same, ""), (cookie, form), expired)]
        if set(statuses) != {401}:
            wrong[f"POST {pattern}"] = statuses
    assert wrong == {}


async def test_no_form_is_taken_without_its_own_token_and_origin(house: House) -> None:
    owner = await make_operator(house.shop.service, name="the-owner")
    cookie, token = await house.browser(owner)
    _, other = await house.browser(owner)
    wrong: dict[str, Any] = {}
    for pattern in POSTS:
        if pattern.startswith("/v1/"):
            continue
        sent = [({**cookie, "Sec-Fetch-Site": "cross-site"}, token), ({**cookie, "Origin": "https://evil.example"}, token)]
        sent += [] if pattern == "/console/enter" else [(cookie, ""), (cookie, other), (cookie, "🜏"), ({"Cookie": cookie["Cookie"]}, token)]
        answers = [await house.post(pattern, *each) for each in sent]
        if [answer.body["error"]["code"] if answer.status == 403 else answer.status for answer in answers] != ["foreign_form"] * len(sent):
            wrong[pattern] = [answer.status for answer in answers]
    assert wrong == {}


async def test_an_api_key_of_operators_reads_as_a_viewer_and_opens_nothing(house: House) -> None:
    key = await house.shop.service.key(scopes=["ops"])
    wrong = {}
    for pattern, least in GETS.items():
        if pattern.startswith("/v1/") and (status := (await house.get(pattern, key)).status) != (200 if least is VIEWER else 403):
            wrong[pattern] = status
    for pattern in POSTS:
        if pattern.startswith("/v1/") and not pattern.startswith(BY_KEY) and (status := (await house.post(pattern, key)).status) != 403:
            wrong[pattern] = status
    assert wrong == {}


async def test_a_viewer_reads_no_word_and_no_whole_number(house: House) -> None:
    viewer = await make_operator(house.shop.service, VIEWER, name="the-viewer")
    cookie, token = await house.browser(viewer)
    assert (await house.post("/console/open", cookie, token)).status == 403
    found = {}
    asked = [(pattern, None) for pattern, least in GETS.items() if least is not ALL]
    asked += [(pattern, query) for pattern, queries in PARTS.items() for query in queries]
    for pattern, query in asked:
        answer = await house.get(pattern, await house.enter(pattern, viewer), query)
        text = json.dumps(answer.body, ensure_ascii=False) if isinstance(answer.body, dict) else answer.body
        # What the viewer asked for is in the field again; it says nothing about whether it is there.
        text = text.replace(f'value="{SENDER}"', "").replace(f"q={SENDER}", "") if query is not None else text
        if (seen := [word for word in (*WORDS, SENDER) if word in text]) or answer.status >= 500:
            found[f"{pattern}{query or ''}"] = seen
    assert found == {}


async def test_an_operator_of_another_account_is_shown_nothing_of_this_one(house: House) -> None:
    stranger = await make_operator(house.shop.service, OWNER, name="stranger", accounts=frozenset({"clinic"}))
    named = {name: value for name, value in house.ids.items() if name not in {"agent", "act", "letter", "alert_id", "process_id"}}
    found: dict[str, Any] = {}
    for pattern, least in GETS.items():
        if least is ALL:
            continue
        answer = await house.get(pattern, await house.enter(pattern, stranger))
        text = json.dumps(answer.body) if isinstance(answer.body, dict) else answer.body
        own = {name for name in re.findall(r"\{(\w+)\}", pattern) if name != "agent"} - ({"name"} if "queues" in pattern else set())
        if own and answer.status not in {403, 404}:
            found[pattern] = answer.status
        seen = [name for name, value in named.items() if value in text or value[:8] in text] if not own else []
        seen += [word for word in ("breaker_opened", SENDER, "rest shop", '"shop"', ">shop<", *WORDS) if word in text]
        if seen or answer.status >= 500:
            found[pattern] = (answer.status, seen)
    for pattern, (least, _) in POSTS.items():
        if least is ALL or pattern in {"/console/leave", "/console/keys", "/console/queues/revive-all"}:
            continue
        answer = await house.send(pattern, stranger)
        if answer.status not in {403, 404} and (pattern, answer.status) not in NOTHING_FOUND:
            found[f"POST {pattern}"] = answer.status
    assert found == {}


# --- what belongs to several accounts


async def test_a_person_of_two_accounts_is_opened_by_operators_of_both_alone(house: House) -> None:
    service, user_id = house.shop.service, UUID(house.ids["user_id"])
    here = await make_operator(service, OWNER, name="here", accounts=frozenset({"shop"}))
    both = await make_operator(service, OWNER, name="everywhere")
    headers, page = await house.program(here), f"/v1/ops/people/{user_id}"
    alone = (await service.get(page, headers)).body["data"]
    assert (await service.get(f"{page}/memory", headers)).status == 200
    async with service.database.begin() as tx:
        run = connection_of(tx).execute
        await run("insert into accounts (id) values ('clinic') on conflict do nothing")
        await run(
            "insert into user_channels (account_id, platform, sender_id, user_id) values ('clinic', 'rest', 'patient-7', %s)", [user_id]
        )
        await run("insert into credit_entries (user_id, kind, amount, event) values (%s, 'grant', 5, 'elsewhere')", [user_id])
    await learn(service, ADA, "sees a doctor", source_turn=uuid4())
    shared = (await service.get(page, headers)).body["data"]
    assert (alone["memory"]["facts"], shared["memory"]) == (2, {"facts": 1, "superseded": 0, "dreams": 0}), "Bruno was told here"
    assert shared["opened"] == 1
    assert (await service.get(f"{page}/memory", headers)).status == 403
    cookie, token = await house.browser(here)
    forms = [f"/console/people/{user_id}/credit", f"/console/people/{user_id}/tier"]
    fields = {"form_token": token, "kind": "user", "id": str(user_id), "amount": "1", "key": str(UUID(int=9)), "tier": "free"}
    for path in ("/console/open", *forms):
        async with service.client.post(service.url + path, data=fields, headers=cookie, allow_redirects=False) as response:
            assert response.status == 403, path
    facts = (await service.get(f"{page}/memory", await house.program(both))).body["data"]["facts"]
    assert "sees a doctor" in {fact["text"] for fact in facts}
    async with service.database.begin() as tx:
        counts = [await service.hermes.my_data.audit.count_opened(tx, user_id, account=each) for each in (None, "shop", "clinic")]
    assert counts == [2, 2, 1], "what belongs to both accounts was opened for the person at each"


async def test_a_batch_over_two_accounts_is_counted_by_account_and_stopped_by_operators_of_both(house: House) -> None:
    service = house.shop.service
    await service.post("/v1/messages", {"text": "hello", "user": "ben"}, await service.key("clinic"))
    console, owner = house.shop.console, Actor(await make_operator(service, name="root"), Face.CLI)
    batch_id = await console.run_batch(owner, await console.plan(owner, ReplayFilter(), ["claude-haiku"], 10))
    whole = (await console.get_batch(owner, batch_id))[0]
    operator = await make_operator(service, OPERATOR, name="here", accounts=frozenset({"shop"}))
    headers = await house.program(operator)
    seen = (await service.get(f"/v1/ops/replay-batches/{batch_id}", headers)).body
    assert (whole.total, seen["total"], len(seen["data"])) == (2, 1, 1)
    for act in ("stop", "resume"):
        assert (await service.post(f"/v1/ops/replay-batches/{batch_id}/{act}", {}, headers)).status == 403
    assert (await service.post(f"/v1/ops/replay-batches/{batch_id}/stop", {}, await house.program(owner.operator))).status == 200


# --- what a refused operator leaves behind, and how long a stream lasts


async def test_a_refused_act_leaves_a_short_entry(house: House) -> None:
    viewer = await make_operator(house.shop.service, VIEWER, name="the-viewer")
    cookie, token = await house.browser(viewer)
    fields = {"form_token": token, "act": "disable", "name": "x" * 50_000, "confirm": "x" * 50_000}
    async with house.shop.service.client.post(house.shop.service.url + "/console/operators", data=fields, headers=cookie) as response:
        assert response.status == 403
    [(longest,)] = await house.shop.ask("select max(length(subject)) from audit where operator = 'the-viewer'")
    assert longest == 200, "no entry is ever deleted: a viewer must not fill the log"


async def test_what_a_stranger_writes_into_an_address_is_not_kept_for_ever(house: House) -> None:
    service = house.shop.service
    for path in (f"/console/conversations/{SENDER}/export", f"/console/people/{SENDER}/forget"):
        async with service.client.post(service.url + path, headers={"Origin": "https://evil.example"}) as response:
            assert response.status == 403
    subjects = await house.shop.ask("select subject from audit where action = 'form.refused' order by id")
    assert subjects == [("/console/conversations/{session_id}/export",), ("/console/people/{user_id}/forget",)]


async def test_a_command_to_copy_runs_nothing_of_the_address(house: House) -> None:
    cookie, _ = await house.browser(await make_operator(house.shop.service, name="the-owner"))
    for path, name in (("/console/audit", "operator"), ("/console/conversations", "platform")):
        async with house.shop.service.client.get(house.shop.service.url + path, params={name: "x; rm -rf ~"}, headers=cookie) as response:
            [command] = re.findall(rf"hermes [a-z ]+ --{name} [^<]*", await response.text())
        assert shlex.split(unescape(command))[-1] == "x; rm -rf ~"


async def test_odd_input_is_refused_and_no_fault(house: House) -> None:
    owner = await make_operator(house.shop.service, name="the-owner")
    cookie, program, service = (await house.browser(owner))[0], await house.program(owner), house.shop.service
    odd = ["?platform=%00", "?before=99999999999999999999", "/%00", "/%ED%A0%80"]
    statuses = [(await service.get(f"/console/conversations{each}", cookie)).status for each in odd]
    statuses += [(await service.get(f"/v1/ops/conversations{each}", program)).status for each in (*odd[:2], "/%00/graph")]
    assert statuses == [422, 422, 422, 404, 422, 422, 422]
    assert (await service.post("/v1/ops/kill-switch", {"engaged": True, "reason": "a\0b"}, program)).status == 200
    asked = {"turn_id": house.ids["turn_id"], "model": "claude-haiku", "sampling": {"frequency_penalty": 1}}
    assert (await service.post("/v1/ops/replays", asked, program)).status == 422, "it would ask the same as before, and seem to be changed"


async def test_a_stream_ends_with_the_right_to_it(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, has_worker=False, ping_s=0.1) as service:
        operator = await make_operator(service, VIEWER, name="leaver")
        token = {"Authorization": f"Bearer {await make_secret(service, operator, EntryKind.TOKEN)}", "Accept": "text/event-stream"}
        async with service.client.get(service.url + "/v1/ops/events", headers=token) as response:
            assert response.status == 200
            async for line in response.content:
                if line.startswith(b": ping"):
                    break
            async with service.database.begin() as tx:
                await PostgresOperators().disable(tx, "leaver")
            async with asyncio.timeout(20):
                assert await response.content.read() is not None, "it ends by itself"
