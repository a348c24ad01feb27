"""The console's people and API keys in a real browser: masked for a viewer, opened with a trace, and erased for everyone."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from hermes.app.console_access import access_from
from hermes.console.access import Subject
from hermes.console.sign_in import digest_of_secret
from hermes.ports.operators import Actor, EntryKind, Face, Operator, Role
from hermes.ports.users import UserChannel
from hermes.stores.postgres.database import connection_of
from hermes.turn import Platform
from hermes.web.console.visits import SESSION_COOKIE, Visit
from tests.browser.browser import Page, installed
from tests.browser.console import console_tab, cookie_headers, make_operator, make_secret, token_headers
from tests.flows.my_data import change_diet, dream, learn, user_on
from tests.flows.service import Service, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

SENDER = "628123456431"
ADA = UserChannel("shop", Platform.REST, SENDER)
WORDS = ("Bruno", "vegan", "vegetarian", "diet", "Fridays", "sunset")
"""What Ada wrote and what is known about her: content."""
REFUSED_FORM = "Failed to load resource: the server responded with a status of 422 (Unprocessable Entity)"
TEXT = "document.body.innerText"


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url) as service:
        yield service


async def meet_ada(service: Service) -> UUID:
    """Have Ada write, and know something about her."""
    answer = await service.post("/v1/messages", {"text": "find me a sunset bar", "user": SENDER}, await service.key())
    assert answer.status == 200, answer.body
    await learn(service, ADA, "has a dog called Bruno")
    await change_diet(service, ADA)
    await dream(service, ADA)
    return (await user_on(service, ADA)).id


async def open_memory(service: Service, user_id: UUID) -> None:
    """Open a person's memory as the operator of the newest tab does."""
    async with service.database.begin() as tx:
        [name] = await (await connection_of(tx).execute(b"select name from operators order by created_at desc limit 1")).fetchone() or [""]
    operator = await make_operator(service, name=name)
    access = access_from(service.hermes.settings, service.database)
    await access.open(Actor(operator, Face.CONSOLE), Subject(kind="user", id=str(user_id), user_id=user_id), "a question of Ada's")


async def actions(service: Service) -> list[tuple[str, str, bool]]:
    """What the audit log says, but for openings and arrivals."""
    async with service.database.begin() as tx:
        query = b"select action, subject_kind, allowed from audit where action not in ('content.open', 'operator.sign_in') order by id"
        return await (await connection_of(tx).execute(query)).fetchall()


def holds_no_content(shown: str) -> bool:
    return not any(word in shown for word in WORDS)


async def test_a_person_is_opened_given_credits_moved_and_erased(devtools: int, service: Service) -> None:
    user_id = await meet_ada(service)
    async with console_tab(devtools, service) as page:
        await page.go(f"{service.url}/console/people?q=6281234")
        assert await page.see("[...document.querySelectorAll('tbody tr')].length") == 1
        assert SENDER in await page.see(TEXT)
        await press(page, "tbody th a")
        closed = await page.see("document.documentElement.outerHTML")
        assert "2 facts that hold, 1 superseded, 2 dreams" in closed
        assert holds_no_content(closed)

        await open_memory(service, user_id)
        await page.go(f"{service.url}/console/people/{user_id}?again")
        shown = await page.see(TEXT)
        assert all(
            words in shown
            for words in ("has a dog called Bruno", "diet", "vegan", "vegetarian", "goes out on Fridays", "superseded", "rejected")
        )

        await page.see("document.querySelector('input[name=amount]').value = '25'")
        assert "The credits are given." in await press(page, "form[action$='/credit'] button")
        async with service.database.begin() as tx:
            assert (await service.hermes.adapters.credits.balance(tx, user_id)).available == 124
        await page.see("document.querySelector('select[name=tier]').value = 'pro'")
        assert "The tier is changed" in await press(page, "form[action$='/tier'] button")
        assert (await user_on(service, ADA)).tier == "pro"

        assert "nothing was erased" in await type_id_and_erase(page, "another")
        assert (await user_on(service, ADA)).id == user_id
        assert "This person was erased." in await type_id_and_erase(page, str(user_id))
        assert page.complaints == [REFUSED_FORM]
    assert await actions(service) == [(name, "user", True) for name in ("user.credit", "user.tier", "user.forget", "user.forget")]
    await is_erased_for_everyone(service, user_id)


async def press(page: Page, selector: str) -> str:
    """Press a button or link, wait for the page that follows, and return its words."""
    await page.see("window.isOld = true")
    await page.click(selector)
    await page.until("!window.isOld && document.readyState === 'complete'")
    return str(await page.see(TEXT))


async def type_id_and_erase(page: Page, typed: str) -> str:
    """Type an id and press the button. The browser's own check of the field is left out: the server's must hold alone."""
    await page.see("document.querySelector('form[action$=forget]').noValidate = true")
    await page.see(f"document.querySelector('form[action$=forget] input[name=confirm]').value = '{typed}'")
    return await press(page, "form[action$='/forget'] button")


async def is_erased_for_everyone(service: Service, user_id: UUID) -> None:
    for role in Role:
        page = await service.get(f"/console/people/{user_id}", await cookie_headers(service, role))
        assert page.status == 200
        assert "This person was erased." in page.body
        assert holds_no_content(page.body)
        assert SENDER not in page.body
        assert "/credit" not in page.body
    headers = await token_headers(service, Role.OWNER)
    answer = await service.get(f"/v1/ops/people/{user_id}/memory", {**headers, "X-Hermes-Reason": "a test"})
    assert (answer.status, answer.body["error"]["code"]) == (410, "user_erased")
    assert (await service.get("/v1/ops/people?q=6281234", headers)).body == {"data": [], "next": None}


async def test_a_viewer_sees_no_whole_number_no_fact_and_no_form(service: Service) -> None:
    user_id = await meet_ada(service)
    viewer, token = await cookie_headers(service, Role.VIEWER), await token_headers(service, Role.VIEWER)
    for path in ("/console/people", f"/console/people/{user_id}", "/console/keys", "/console/costs?by=user"):
        page = await service.get(path, viewer)
        assert page.status == 200, path
        assert SENDER not in page.body
        assert holds_no_content(page.body)
        assert 'method="post"' not in page.body.partition("<main")[2].partition("</main>")[0], "the way out is the only form"
    assert "628•••431" in (await service.get("/console/people", viewer)).body
    assert (await service.get(f"/v1/ops/people?q={user_id}", token)).body["data"][0]["channels"] == [
        {"account": "shop", "platform": "rest", "sender": "628•••431"}
    ]
    assert (await service.get("/console/people?q=6281234", viewer)).status == 422
    assert (await service.get("/v1/ops/people?q=6281234", token)).status == 422
    assert (await service.get(f"/v1/ops/people/{user_id}/memory", {**token, "X-Hermes-Reason": "curious"})).status == 403
    operator = await token_headers(service, Role.OPERATOR)
    memory = (await service.get(f"/v1/ops/people/{user_id}/memory", operator)).body["data"]
    assert [fact["text"] for fact in memory["facts"]] == ["has a dog called Bruno", "vegetarian", "vegan"]
    assert (await service.get(f"/v1/ops/people/{user_id}", operator)).body["data"]["opened"] == 1


async def test_an_operator_of_other_accounts_does_not_see_the_person(service: Service) -> None:
    user_id = await meet_ada(service)
    elsewhere = await make_operator(service, Role.OWNER, name="elsewhere", accounts=frozenset({"elsewhere"}))
    headers = {"Authorization": f"Bearer {await make_secret(service, elsewhere, EntryKind.TOKEN)}"}
    assert (await service.get("/v1/ops/people", headers)).body["data"] == []
    assert (await service.get("/v1/ops/people?q=6281234", headers)).body["data"] == []
    assert (await service.get(f"/v1/ops/people/{user_id}", headers)).status == 404
    assert (await service.get(f"/v1/ops/people/{user_id}/memory", headers)).status == 404
    assert (await service.get("/v1/ops/keys", headers)).body["data"] == []
    here = await make_operator(service, Role.OWNER, name="here", accounts=frozenset({"shop"}))
    headers = {"Authorization": f"Bearer {await make_secret(service, here, EntryKind.TOKEN)}"}
    [person] = (await service.get("/v1/ops/people", headers)).body["data"]
    assert person["id"] == str(user_id)
    assert len((await service.get(f"/v1/ops/people/{user_id}/memory", headers)).body["data"]["facts"]) == 3
    assert len((await service.get("/v1/ops/keys", headers)).body["data"]) == 1


async def post_form(service: Service, operator: Operator, path: str, **fields: str) -> int:
    """Send a form with the token of its page, as an operator whose page has no such form could forge it; return the status."""
    secret = await make_secret(service, operator, EntryKind.SESSION)
    token = Visit(Actor(operator, Face.CONSOLE), digest_of_secret(secret)).form_token()
    headers = {"Cookie": f"{SESSION_COOKIE.name}={secret}", "Sec-Fetch-Site": "same-origin"}
    async with service.client.post(
        service.url + path, data={"form_token": token, **fields}, headers=headers, allow_redirects=False
    ) as response:
        return response.status


async def test_what_needs_an_owner_is_refused_to_others_and_the_audit_log_has_it(service: Service) -> None:
    user_id = await meet_ada(service)
    operator = await make_operator(service, Role.OPERATOR)
    page = f"/console/people/{user_id}"
    assert await post_form(service, operator, f"{page}/credit", amount="5", key=str(UUID(int=1))) == 403
    assert await post_form(service, operator, f"{page}/tier", tier="pro") == 403
    assert await post_form(service, operator, f"{page}/forget", confirm=str(user_id)) == 403
    assert await post_form(service, operator, "/console/keys", name="mine") == 403
    refused = [
        (name, kind, False)
        for name, kind in (("user.credit", "user"), ("user.tier", "user"), ("user.forget", "user"), ("key.create", "key"))
    ]
    assert await actions(service) == refused
    assert (await user_on(service, ADA)).tier == "free"

    owner = await make_operator(service, Role.OWNER, name="of the shop", accounts=frozenset({"shop"}))
    assert await post_form(service, owner, "/console/keys", name="mine", account="elsewhere") == 403
    assert await post_form(service, owner, "/console/keys", name="mine", account="shop", scope_ops="yes") == 422
    for status in (303, 303):  # the second time the same form gives nothing
        assert await post_form(service, owner, f"{page}/credit", amount="5", key=str(UUID(int=1))) == status
    async with service.database.begin() as tx:
        assert (await service.hermes.adapters.credits.balance(tx, user_id)).available == 104
    assert await post_form(service, owner, f"{page}/credit", amount="-5", key=str(UUID(int=2))) == 422
    assert await post_form(service, owner, f"{page}/tier", tier="god") == 422
    assert await post_form(service, owner, f"{page}/forget", confirm=str(user_id)) == 303
    assert (await service.get(page, await cookie_headers(service, Role.VIEWER))).body.count("This person was erased.") == 1


async def test_a_key_is_made_shown_once_and_revoked_by_its_name(devtools: int, service: Service) -> None:
    async with console_tab(devtools, service) as page:
        await page.go(f"{service.url}/console/keys")
        assert "There is no API key yet" in await page.see(TEXT)
        await page.see("document.querySelector('input[name=name]').value = '=shop (1)'")
        await page.see("document.querySelector('input[name=account]').value = 'shop'")
        await page.click("input[name=scope_messages]")
        await press(page, ".new-key button.main")
        secret = await page.see("document.getElementById('secret').innerText")
        headers = {"Authorization": f"Bearer {secret}"}
        assert (await service.post("/v1/messages", {"text": "hello"}, headers)).status == 200
        assert (await service.post("/v1/chat/completions", {"model": "hermes", "messages": []}, headers)).status == 403
        await page.go(f"{service.url}/console/keys")
        shown = await page.see("document.documentElement.outerHTML")
        assert (secret in shown, secret[:11] in shown, "=shop (1)" in shown) == (False, True, True)
        for typed, state in (("shop", "active"), ("=shop (1)", "revoked")):
            await page.click("td details summary")
            await page.see(f"document.querySelector('td input[name=confirm]').value = '{typed}'")
            await press(page, "td details button.danger")
            assert await page.see("document.querySelector('tbody .chip').innerText") == state
        assert page.complaints == [REFUSED_FORM]
    assert await actions(service) == [("key.create", "key", True), ("key.revoke", "key", True), ("key.revoke", "key", True)]
    async with service.database.begin() as tx:
        [row] = await (await connection_of(tx).execute(b"select revoked_at is not null from api_keys")).fetchall()
    assert row == (True,)
