"""What people see and take back of what is kept of them, over HTTP, on real stores; and that no user reaches another's."""

import json
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from yarl import URL

from hermes.app.master_keys import visitor_keys
from hermes.ports.errors import UserErased
from hermes.ports.key_limits import KeyLimits
from hermes.ports.users import UserChannel, UserState
from hermes.turn import Platform
from hermes.web.visitors import VISITOR_COOKIE, sign, visitor_id
from tests.flows.my_data import MONDAY, NOW, TURN, change_diet, dream, learn, user_on
from tests.flows.service import Got, Service, got, running
from tests.flows.test_web import error, out_of_reach

ALICE = UserChannel("shop", Platform.REST, "alice")
ALICE_ELSEWHERE = UserChannel("other", Platform.REST, "alice")
KEPT = {"facts": 0, "conversations": 1, "messages": 1, "bookings": 0, "reminders": 0, "price_watchers": 0, "meals": 0, "orders": 0}


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url) as service:
        yield service


async def delete(service: Service, path: str, headers: Mapping[str, str] | None = None) -> Got:
    async with service.client.delete(service.url + path, headers=headers) as response:
        return await got(response)


async def say(service: Service, key: Mapping[str, str], user: str = "alice", text: str = "hi") -> None:
    assert (await service.post("/v1/messages", {"text": text, "user": user}, key)).status == 200


# --- see


async def test_a_program_sees_all_that_is_kept_of_a_user_with_where_it_comes_from(service: Service) -> None:
    key = await service.key()
    await say(service, key)
    user = await user_on(service, ALICE)
    old, new = await change_diet(service, ALICE)
    [free] = await learn(service, ALICE, "has a dog called Bruno")
    insight, rejected = await dream(service, ALICE)
    answer = await service.get("/v1/users/alice/data", key)
    fact = {"expires_at": None, "superseded_at": None, "superseded_by": None, "valid_from": NOW.isoformat()}
    line = {"kind": "insight", "key": None, "evidence": [], "depth": "deep", "period": MONDAY.isoformat()}
    assert user.created_at is not None
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
    assert answer.body == {
        "id": str(user.id),
        "state": "active",
        "tier": "free",
        "language": user.language,
        "trains": False,
        "referral_code": user.referral_code,
        "created_at": user.created_at.isoformat(),
        "credits": {"available": 99, "reserved": 0},
        "channels": [{"account": "shop", "platform": "rest", "sender_id": "alice"}],
        "kept": {**KEPT, "facts": 3},
        "opened_by_operators": 0,
        "facts": [
            {
                **fact,
                "id": str(old.id),
                "text": "vegetarian",
                "key": "diet",
                "origin": "rule",
                "source_turn": str(TURN),
                "confidence": 0.9,
                "superseded_at": NOW.isoformat(),
                "superseded_by": str(new.id),
            },
            {**fact, "id": str(new.id), "text": "vegan", "key": "diet", "origin": "tool", "source_turn": None, "confidence": 1.0},
            {
                **fact,
                "id": str(free.id),
                "text": "has a dog called Bruno",
                "key": None,
                "origin": "said",
                "source_turn": str(TURN),
                "confidence": 1.0,
            },
        ],
        "dreams": [
            {**line, "id": str(insight.id), "text": "goes out on Fridays", "review": "accepted", "reason": ""},
            {**line, "id": str(rejected.id), "text": "owns a boat", "review": "rejected", "reason": "no evidence"},
        ],
    }


async def test_without_a_key_nothing_is_shown_and_nothing_taken(service: Service) -> None:
    await say(service, await service.key())
    refused = [
        await service.get("/v1/users/alice/data"),
        await delete(service, "/v1/users/alice/memory"),
        await delete(service, f"/v1/users/alice/memory/{uuid4()}"),
        await delete(service, "/v1/users/alice"),
    ]
    assert [error(each) for each in refused] == [(401, "invalid_api_key", None)] * 4
    assert (await user_on(service, ALICE)).state is UserState.ACTIVE


async def test_a_user_whom_nobody_knows_is_not_found_and_not_made(service: Service) -> None:
    key = await service.key()
    answers = [
        await service.get("/v1/users/nobody/data", key),
        await delete(service, "/v1/users/nobody/memory", key),
        await delete(service, f"/v1/users/nobody/memory/{uuid4()}", key),
        await delete(service, "/v1/users/nobody", key),
    ]
    assert [error(answer) for answer in answers] == [(404, "unknown_user", None)] * 4
    async with service.database.begin() as tx:
        assert await service.hermes.adapters.people.list(tx) == []


@pytest.mark.parametrize("name", ["team/alice", "alice/memory", "Grüße 👩‍💻", "a b?c#d%2F", "..", "alice/memory/x"])
async def test_a_name_is_whatever_a_program_calls_its_user(service: Service, name: str) -> None:
    key = await service.key()
    for user in ("alice", "team", name):
        await say(service, key, user)
    path = f"/v1/users/{quote(name, safe='')}".replace("..", "%2E%2E")
    [fact] = await learn(service, UserChannel("shop", Platform.REST, name), "likes tea")
    [others] = await learn(service, ALICE, "likes coffee")
    url = f"{service.url}{path}"

    async def ask(method: str, below: str) -> Got:
        async with service.client.request(method, URL(url + below, encoded=True), headers=key) as response:
            return await got(response)

    assert [each["text"] for each in (await ask("GET", "/data")).body["facts"]] == ["likes tea"]
    assert (await ask("DELETE", f"/memory/{fact.id}")).status == 204
    assert (await ask("DELETE", "/memory")).body == {"forgotten": 0}
    assert (await ask("DELETE", "")).status == 204
    assert (await ask("GET", "/data")).status == 404
    kept = await service.get("/v1/users/alice/data", key)
    assert [each["id"] for each in kept.body["facts"]] == [str(others.id)], "and alice is another one"


@pytest.mark.parametrize(("name", "status"), [("a%00b", 422), ("a%0Ab", 422), ("x" * 129, 422), ("%FF", 404), ("", 404)])
async def test_what_is_no_name_is_refused(service: Service, name: str, status: int) -> None:
    async with service.client.get(URL(f"{service.url}/v1/users/{name}/data", encoded=True), headers=await service.key()) as response:
        assert error(await got(response))[0] == status


# --- take back


async def test_one_fact_is_forgotten_for_good_and_the_next_answer_is_given_without_it(service: Service) -> None:
    key = await service.key()
    await say(service, key)
    old, new = await change_diet(service, ALICE)
    assert (await delete(service, f"/v1/users/alice/memory/{old.id}", key)).status == 204
    assert error(await delete(service, f"/v1/users/alice/memory/{old.id}", key)) == (404, "unknown_fact", None)
    assert error(await delete(service, "/v1/users/alice/memory/7", key)) == (422, "uuid_parsing", "fact_id")
    facts = (await service.get("/v1/users/alice/data", key)).body["facts"]
    assert [fact["id"] for fact in facts] == [str(new.id)]


async def test_the_cached_soul_is_dropped_with_what_it_was_made_of(service: Service) -> None:
    key = await service.key()
    await say(service, key)
    user = await user_on(service, ALICE)
    [first, second] = await learn(service, ALICE, "one", "two")
    bases = service.hermes.adapters.bases
    for path in (f"/memory/{first.id}", "/memory", ""):
        await bases.put(user.id, b"what was known", (await bases.get(user.id)).mark)
        assert (await bases.get(user.id)).value == b"what was known"
        assert (await delete(service, f"/v1/users/alice{path}", key)).status < 300
        async with service.hermes.redis.pipeline() as pipe:
            assert await pipe.exists(f"soul:{user.id}:base").execute() == [0]
    assert second.id != first.id


async def test_all_that_is_known_is_forgotten_and_the_user_stays(service: Service) -> None:
    key = await service.key()
    await say(service, key)
    user = await user_on(service, ALICE)
    await change_diet(service, ALICE)
    await dream(service, ALICE)
    answer = await delete(service, "/v1/users/alice/memory", key)
    assert (answer.status, answer.body) == (200, {"forgotten": 2})
    data = (await service.get("/v1/users/alice/data", key)).body
    assert (data["id"], data["facts"], data["dreams"], data["kept"], data["credits"]["available"]) == (str(user.id), [], [], KEPT, 99)


async def test_a_user_is_forgotten_with_their_key_and_whoever_comes_next_is_somebody_new(service: Service) -> None:
    key = await service.key()
    await say(service, key)
    user = await user_on(service, ALICE)
    await learn(service, ALICE, "has a dog called Bruno")
    assert (await delete(service, "/v1/users/alice", key)).status == 204
    assert error(await delete(service, "/v1/users/alice", key)) == (404, "unknown_user", None)
    async with service.database.begin() as tx:
        with pytest.raises(UserErased):
            await service.hermes.keyring.of(tx, user.id)
    await say(service, key)
    data = (await service.get("/v1/users/alice/data", key)).body
    assert (data["id"] == str(user.id), data["facts"], data["kept"]["messages"]) == (False, [], 1)


async def test_without_the_database_nothing_is_promised(service: Service, database_url: str) -> None:
    key = await service.key()
    await say(service, key)
    with out_of_reach(database_url):
        answers = [await service.get("/v1/users/alice/data", key), await delete(service, "/v1/users/alice", key)]
    assert [(error(answer), answer.headers["Retry-After"]) for answer in answers] == [((503, "store_unavailable", None), "1")] * 2


# --- two accounts, one name


async def test_two_accounts_with_a_user_of_the_same_name_never_cross(service: Service) -> None:
    ours, theirs = await service.key("shop"), await service.key("other")
    await say(service, ours)
    assert error(await service.get("/v1/users/alice/data", theirs)) == (404, "unknown_user", None), "nobody learns that there is one"
    assert error(await delete(service, "/v1/users/alice", theirs)) == (404, "unknown_user", None)
    await say(service, theirs)
    [our_fact], [their_fact] = await learn(service, ALICE, "likes tea"), await learn(service, ALICE_ELSEWHERE, "likes coffee")
    before = await service.get("/v1/users/alice/data", ours)
    other = await service.get("/v1/users/alice/data", theirs)
    assert [data.body["facts"][0]["text"] for data in (before, other)] == ["likes tea", "likes coffee"]
    assert before.body["id"] != other.body["id"]
    assert error(await delete(service, f"/v1/users/alice/memory/{our_fact.id}", theirs)) == (404, "unknown_fact", None)
    assert (await delete(service, f"/v1/users/alice/memory/{their_fact.id}", theirs)).status == 204
    assert (await delete(service, "/v1/users/alice/memory", theirs)).body == {"forgotten": 0}
    assert (await delete(service, "/v1/users/alice", theirs)).status == 204
    assert (await service.get("/v1/users/alice/data", ours)).body == before.body


async def test_where_else_somebody_writes_from_is_not_told(service: Service) -> None:
    key = await service.key(limits=KeyLimits(users=["alice"]))
    await say(service, key)
    user = await user_on(service, ALICE)
    async with service.database.begin() as tx:
        await service.hermes.adapters.people.link(tx, user.id, UserChannel("bali", Platform.WHATSAPP, "628123456"))
    answer = await service.get("/v1/users/alice/data", key)
    assert answer.body["channels"] == [{"account": "shop", "platform": "rest", "sender_id": "alice"}]
    assert "628123456" not in json.dumps(answer.body)


# --- one person, two accounts


async def linked(service: Service) -> tuple[dict[str, str], dict[str, str], UUID, UUID]:
    """Somebody who said something to the clinic, and something else to the shop; return both keys, and what is known from each."""
    clinic, shop = await service.key("clinic"), await service.key("shop")
    at_clinic = await service.post("/v1/messages", {"text": "I take pills", "user": "ada"}, clinic)
    user = await user_on(service, ADA)
    async with service.database.begin() as tx:
        await service.hermes.adapters.people.link(tx, user.id, ALICE)
    at_shop = await service.post("/v1/messages", {"text": "I wear size 43", "user": "alice"}, shop)
    [pills] = await learn(service, ADA, "takes pills", source_turn=UUID(at_clinic.body["turn_id"]))
    [shoes] = await learn(service, ADA, "wears size 43", source_turn=UUID(at_shop.body["turn_id"]))
    await learn(service, ADA, "nobody knows where this was said", source_turn=None)
    await dream(service, ADA)
    return clinic, shop, pills.id, shoes.id


ADA = UserChannel("clinic", Platform.REST, "ada")


async def texts(service: Service, path: str, key: Mapping[str, str]) -> list[str]:
    return [fact["text"] for fact in (await service.get(path, key)).body["facts"]]


async def test_an_account_sees_what_was_said_to_it_and_no_more(service: Service) -> None:
    clinic, shop, *_ = await linked(service)
    data = (await service.get("/v1/users/alice/data", shop)).body
    assert ([fact["text"] for fact in data["facts"]], data["dreams"], data["kept"]) == (["wears size 43"], [], {**KEPT, "facts": 1})
    assert await texts(service, "/v1/users/ada/data", clinic) == ["takes pills"]


async def test_an_account_takes_back_what_was_said_to_it_and_no_more(service: Service) -> None:
    clinic, shop, pills, shoes = await linked(service)
    assert error(await delete(service, f"/v1/users/alice/memory/{pills}", shop)) == (404, "unknown_fact", None)
    assert (await delete(service, "/v1/users/alice/memory", shop)).body == {"forgotten": 1}
    assert error(await delete(service, f"/v1/users/alice/memory/{shoes}", shop)) == (404, "unknown_fact", None)
    assert await texts(service, "/v1/users/ada/data", clinic) == ["takes pills"]
    assert (await delete(service, f"/v1/users/ada/memory/{pills}", clinic)).status == 204


async def test_an_account_forgets_somebody_for_itself_and_the_last_one_for_good(service: Service) -> None:
    clinic, shop, *_ = await linked(service)
    user = await user_on(service, ADA)
    gone = await delete(service, "/v1/users/alice", shop)
    assert (gone.status, gone.body, gone.headers["Cache-Control"]) == (200, {"forgotten": "account"}, "no-store")
    assert error(await service.get("/v1/users/alice/data", shop)) == (404, "unknown_user", None)
    assert await texts(service, "/v1/users/ada/data", clinic) == ["takes pills", "nobody knows where this was said"]
    await say(service, shop)
    assert (await user_on(service, ALICE)).id != user.id
    assert (await delete(service, "/v1/users/ada", clinic)).status == 204
    async with service.database.begin() as tx:
        assert (await service.hermes.adapters.people.get(tx, user.id)).state is UserState.DELETED


# --- the chat page's visitor


def visitor(service: Service, name: str) -> tuple[dict[str, str], UserChannel]:
    """The cookie of a browser, and its user."""
    cookie = sign(name.encode() * 16, visitor_keys(service.hermes.settings)[0])
    return {"Cookie": f"{VISITOR_COOKIE.name}={cookie}"}, UserChannel("web", Platform.WEB, visitor_id(cookie))


async def enter(service: Service, cookie: Mapping[str, str]) -> None:
    accepted = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())}, cookie)
    assert accepted.status == 202


async def test_a_visitor_sees_and_takes_back_their_own_and_nobody_elses(service: Service) -> None:
    (mine_headers, me), (your_headers, you) = visitor(service, "a"), visitor(service, "b")
    for cookie in (mine_headers, your_headers):
        await enter(service, cookie)
    mine, yours = await learn(service, me, "likes tea", "has a dog"), await learn(service, you, "likes coffee")
    assert [fact["text"] for fact in (await service.get("/web/my-data", mine_headers)).body["facts"]] == ["likes tea", "has a dog"]
    assert error(await delete(service, f"/web/my-data/memory/{yours[0].id}", mine_headers)) == (404, "unknown_fact", None)
    assert (await delete(service, f"/web/my-data/memory/{mine[0].id}", mine_headers)).status == 204
    assert (await delete(service, "/web/my-data/memory", mine_headers)).body == {"forgotten": 1}
    gone = await delete(service, "/web/my-data", mine_headers)
    assert gone.status == 204
    assert gone.headers["Set-Cookie"].startswith(f'{VISITOR_COOKIE.name}=""; ')
    assert "Max-Age=0" in gone.headers["Set-Cookie"]
    assert error(await service.get("/web/my-data", mine_headers)) == (404, "unknown_user", None)
    assert [fact["text"] for fact in (await service.get("/web/my-data", your_headers)).body["facts"]] == ["likes coffee"]


async def test_without_a_cookie_or_from_another_page_nothing_is_shown_and_nothing_taken(service: Service) -> None:
    mine_headers, _ = visitor(service, "a")
    await enter(service, mine_headers)
    for cookie in ({}, {"Cookie": f"{VISITOR_COOKIE.name}=x"}, {"Cookie": f"{VISITOR_COOKIE.name}={'c' * 43}"}):
        assert error(await service.get("/web/my-data", cookie)) == (404, "unknown_user", None)
        assert error(await delete(service, "/web/my-data", cookie)) == (404, "unknown_user", None)
    foreign = {**mine_headers, "Origin": "https://evil.example"}
    for answer in (
        await service.get("/web/my-data", foreign),
        await delete(service, "/web/my-data/memory", foreign),
        await delete(service, f"/web/my-data/memory/{uuid4()}", foreign),
        await delete(service, "/web/my-data", foreign),
    ):
        assert error(answer) == (403, "foreign_origin", None)
    assert (await service.get("/web/my-data", {**mine_headers, "Origin": service.url})).status == 200


async def test_the_api_describes_the_routes(service: Service) -> None:
    paths = (await service.get("/openapi.json")).body["paths"]
    found = {path: sorted(paths[path]) for path in paths if path.startswith("/v1/users")}
    assert found == {
        "/v1/users/{user}/data": ["delete", "get"],
        "/v1/users/{user}/memory": ["delete"],
        "/v1/users/{user}/memory/{fact_id}": ["delete"],
        "/v1/users/{user}": ["delete"],
    }
    assert [path for path in paths if "my-data" in path] == []
    metrics = (await service.get("/metrics")).body
    await service.get("/v1/users/alice/data")
    metrics = (await service.get("/metrics")).body
    assert 'route="/v1/users/{user}/data",status="401"' in metrics
    assert "alice" not in metrics
