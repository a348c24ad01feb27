"""Instagram's stand-in, by both logins: what it refuses, what arrives, and what comes back as an echo."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from hermes.channels.fakes import FakeInstagram, FakePlatforms, InstagramPerson, open_platforms
from hermes.testing.platforms import Disorder, sample_picture
from tests.unit.channels.fakes.receiver import RIGHT, Caller, Receiver, Reply


class Account:
    """Calls Instagram by one of its logins."""

    def __init__(self, caller: Caller, instagram: FakeInstagram) -> None:
        self.caller, self.instagram = caller, instagram
        self.headers = {"Authorization": f"Bearer {instagram.token}"}

    async def send(self, body: Mapping[str, Any], node: str = "me") -> Reply:
        return await self.caller.post(f"/v23.0/{node}/messages", body, self.headers)

    async def say(self, person: InstagramPerson, text: str) -> Reply:
        return await self.send({"recipient": {"id": person.id}, "message": {"text": text}})

    async def refusal(self, body: Mapping[str, Any]) -> tuple[int, int, int | None, str]:
        reply = await self.send(body)
        error = reply.body["error"]
        assert error["type"] == ("IGApiException" if self.instagram.name == "instagram" else "OAuthException")
        return reply.status, error["code"], error.get("error_subcode"), error["message"]


@pytest.fixture(params=["instagram", "instagram_page"])
def account(request: pytest.FixtureRequest, platforms: FakePlatforms, caller: Caller) -> Account:
    return Account(caller, getattr(platforms, request.param))


@pytest.fixture
def nina(account: Account) -> InstagramPerson:
    person = account.instagram.person("Nina")
    person.say("hola")
    return person


def events(receiver: Receiver, into: str = "messaging") -> list[Any]:
    return [event for got in receiver.got for entry in got.body["entry"] for event in entry.get(into, ())]


async def test_a_message_is_on_the_phone(account: Account, nina: InstagramPerson) -> None:
    reply = await account.say(nina, "Do you ship to Córdoba?")
    [received] = nina.received
    assert (reply.status, reply.body) == (200, {"recipient_id": nina.id, "message_id": received.message_id})
    assert received.text == "Do you ship to Córdoba?"
    assert "X-Business-Use-Case-Usage" in reply.headers


async def test_each_login_has_its_own_node(platforms: FakePlatforms, caller: Caller) -> None:
    for instagram, node in (
        (platforms.instagram, platforms.instagram.account_id),
        (platforms.instagram_page, platforms.instagram_page.page_id),
    ):
        account, nina = Account(caller, instagram), instagram.person("Nina")
        nina.say("hola")
        assert (await account.send({"recipient": {"id": nina.id}, "message": {"text": "hi"}}, node)).status == 200
    wrong = await Account(caller, platforms.instagram).send({}, platforms.instagram_page.page_id)
    assert (wrong.status, wrong.body["error"]["code"]) == (401, 190)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({}, "message must have either text or attachment"),
        ({"text": ""}, "Param message[text] must be a non-empty UTF-8 encoded string"),
        ({"text": "x" * 1001}, "Length of param message[text] must be less than or equal to 1000"),
        ({"text": "ภ" * 334}, "Length of param message[text] must be less than or equal to 1000"),
        ({"text": "x", "attachment": {}}, "message must have either text or attachment"),
        ({"text": "x", "parse_mode": "y"}, 'Unexpected key "parse_mode" on param "message"'),
        ({"attachment": {"type": "image", "payload": {"url": "nowhere"}}}, "Param message[attachment][payload][url] is not a valid URL"),
        ({"attachment": {"type": "poem", "payload": {}}}, "Param message[attachment][type] must be one of"),
    ],
)
async def test_refuses_a_message(account: Account, nina: InstagramPerson, message: dict[str, Any], words: str) -> None:
    status, code, _, said = await account.refusal({"recipient": {"id": nina.id}, "message": message})
    assert (status, code) == (400, 100)
    assert said.startswith(f"(#100) {words}")
    assert nina.received == []


async def test_takes_a_thousand_bytes(account: Account, nina: InstagramPerson) -> None:
    assert (await account.say(nina, "ภ" * 333)).status == 200
    assert (await account.say(nina, "x" * 1000)).status == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"message": {"text": "x"}}, "(#100) The parameter recipient is required"),
        ({"recipient": {"id": 5}, "message": {"text": "x"}}, "(#100) Param recipient[id] must be of type str"),
        ({"recipient": {"phone": "1"}}, '(#100) Unexpected key "phone" on param "recipient"'),
        ({"to": "x"}, '(#100) Unexpected key "to" on param "body"'),
    ],
)
async def test_refuses_a_body(account: Account, body: dict[str, Any], words: str) -> None:
    assert (await account.refusal(body))[3] == words


async def test_nobody_is_written_to_who_is_unknown_blocks_or_was_silent_for_a_day(
    account: Account, nina: InstagramPerson, platforms: FakePlatforms
) -> None:
    def body(person_id: str, **more: str) -> dict[str, Any]:
        return {"recipient": {"id": person_id}, "message": {"text": "hi"}, **more}

    assert (await account.refusal(body("1")))[:3] == (400, 100, 2534014)
    nina.block()
    assert (await account.refusal(body(nina.id)))[:3] == (400, 551, 1545041)
    nina.unblock()
    platforms.skip(86_401)
    closed = (403, 10, 2534022, "This message is sent outside of allowed window.")
    assert await account.refusal(body(nina.id)) == closed
    assert (await account.send(body(nina.id, messaging_type="MESSAGE_TAG", tag="HUMAN_AGENT"))).status == 200
    assert nina.received[0].body["tag"] == "HUMAN_AGENT", "a bot that says so is caught by it"
    platforms.skip(6 * 86_400)
    assert await account.refusal(body(nina.id, messaging_type="MESSAGE_TAG", tag="HUMAN_AGENT")) == closed


async def test_the_token_goes_into_a_header_and_nowhere_else(account: Account, nina: InstagramPerson) -> None:
    body = {"recipient": {"id": nina.id}, "message": {"text": "hi"}}
    own = account.instagram.account_id if account.instagram.name == "instagram" else account.instagram.page_id
    refused = [
        await account.caller.post(f"/v23.0/{own}/messages?access_token={account.instagram.token}", body),
        await account.caller.post(f"/v23.0/{own}/messages", {**body, "access_token": account.instagram.token}),
        await account.caller.post(f"/v23.0/{own}/messages", body),
        await account.caller.post(f"/v23.0/{own}/messages", body, {"Authorization": "Bearer wrong"}),
        await account.caller.post("/v23.0/me/messages", body, {"Authorization": "Bearer wrong"}),
    ]
    assert [(one.status, one.body["error"]["code"]) for one in refused] == [(400, 100), (400, 100), (401, 104), (401, 190), (401, 190)]
    assert "ends up in logs" in refused[0].body["error"]["message"]


async def test_typing_and_reading_are_seen(account: Account, nina: InstagramPerson) -> None:
    for action in ("typing_on", "mark_seen"):
        reply = await account.send({"recipient": {"id": nina.id}, "sender_action": action})
        assert (reply.status, reply.body) == (200, {"recipient_id": nina.id})
    assert (nina.typing_shown, len(nina.seen_by_account)) == (1, 1)
    assert (await account.refusal({"recipient": {"id": nina.id}, "sender_action": "dance"}))[1] == 100
    both = {"recipient": {"id": nina.id}, "sender_action": "typing_on", "message": {"text": "x"}}
    assert (await account.refusal(both))[3] == "(#100) sender_action and message need two calls"


async def test_300_calls_a_second_are_enough(still: FakePlatforms, still_caller: Caller) -> None:
    account, nina = Account(still_caller, still.instagram), still.instagram.person("Nina")
    nina.say("hola")
    statuses = [(await account.send({"recipient": {"id": nina.id}, "sender_action": "typing_on"})).status for _ in range(301)]
    assert statuses == [200] * 300 + [400]


# --- webhooks


async def test_webhooks_are_signed_and_an_echo_follows(account: Account, receiver: Receiver) -> None:
    await account.instagram.subscribe(receiver.url, RIGHT)
    nina = account.instagram.person("Nina")
    mid = nina.say("¿mañana?")
    sent = (await account.say(nina, "sí")).body["message_id"]
    await account.instagram.wait_until_quiet()
    for got in receiver.got:
        digest = hmac.new(account.instagram.app_secret.encode(), got.raw, hashlib.sha256).hexdigest()
        assert got.headers["X-Hub-Signature-256"] == f"sha256={digest}"
    heard, echo, read = events(receiver)
    own = account.instagram.account_id
    assert (heard["sender"], heard["recipient"], heard["message"]) == ({"id": nina.id}, {"id": own}, {"mid": mid, "text": "¿mañana?"})
    assert (echo["sender"], echo["recipient"]) == ({"id": own}, {"id": nina.id})
    assert echo["message"] == {"mid": sent, "text": "sí", "is_echo": True}
    assert read["read"] == {"mid": sent}


async def test_an_echo_may_come_before_the_call_returns(account: Account, nina: InstagramPerson, receiver: Receiver) -> None:
    account.instagram.connect(receiver.url)
    account.instagram.disorder = Disorder(early_echoes=1.0)
    await account.say(nina, "hi")
    assert [event["message"]["is_echo"] for event in events(receiver)] == [True], "it is there when the answer comes"


async def test_other_things_that_people_do(account: Account, nina: InstagramPerson, receiver: Receiver, caller: Caller) -> None:
    account.instagram.connect(receiver.url)
    nina.send_album([None, None])
    nina.mention_in_story()
    nina.react("mid.1", "❤️")
    nina.react("mid.1", "")
    nina.press("Track order", "track")
    nina.unsend("mid.2")
    nina.send_unsupported()
    await account.instagram.wait_until_quiet()
    album, story, love, unloved, postback, unsent, unsupported = events(receiver)
    assert [one["type"] for one in album["message"]["attachments"]] == ["image", "image"]
    url = album["message"]["attachments"][0]["payload"]["url"]
    assert (await caller.get(url)).body == sample_picture()
    assert (await caller.get(url, account.headers)).status == 400, "the CDN wants no token"
    assert story["message"]["attachments"][0]["type"] == "story_mention"
    assert love["reaction"] == {"mid": "mid.1", "action": "react", "reaction": "love", "emoji": "❤️"}
    assert unloved["reaction"] == {"mid": "mid.1", "action": "unreact"}
    assert (postback["postback"]["title"], postback["postback"]["payload"]) == ("Track order", "track")
    assert (unsent["message"], unsupported["message"]["is_unsupported"]) == ({"mid": "mid.2", "is_deleted": True}, True)


async def test_standby_and_the_test_button(account: Account, nina: InstagramPerson, receiver: Receiver) -> None:
    account.instagram.connect(receiver.url)
    account.instagram.hand_over(to_others=True)
    nina.say("for somebody else")
    await account.instagram.wait_until_quiet()
    assert (events(receiver), len(events(receiver, "standby"))) == ([], 1)
    await account.instagram.press_test_button()
    [entry] = receiver.got[-1].body["entry"]
    assert (entry["id"], entry["changes"][0]["value"]["timestamp"]) == ("0", "1527459824")


async def test_many_events_come_in_one_webhook(account: Account, receiver: Receiver) -> None:
    account.instagram.connect(receiver.url)
    account.instagram.disorder = Disorder(batch_s=50)
    nina = account.instagram.person("Nina")
    for number in range(20):
        nina.say(str(number))
    await account.instagram.wait_until_quiet()
    assert [event["message"]["text"] for event in events(receiver)] == [str(number) for number in range(20)]
    assert (len(receiver.got), len(receiver.got[0].body["entry"]) > 1) == (1, True)


async def test_links_can_name_metas_own_host(client: aiohttp.ClientSession, receiver: Receiver) -> None:
    async with open_platforms(media_url="https://lookaside.fbsbx.com") as platforms:
        platforms.instagram.connect(receiver.url)
        platforms.instagram.person("Nina").send_picture()
        await platforms.instagram.wait_until_quiet()
        url = events(receiver)[0]["message"]["attachments"][0]["payload"]["url"]
        path = url.removeprefix("https://lookaside.fbsbx.com")
        assert path.startswith("/ig_messaging_cdn/?asset_id=")
        assert (await Caller(client, platforms.url).get(path)).body == sample_picture()


async def test_an_answer_by_hand_comes_as_an_echo_of_a_message_that_nobody_sent(
    account: Account, nina: InstagramPerson, receiver: Receiver
) -> None:
    account.instagram.connect(receiver.url)
    mid = await account.instagram.answer_by_hand(nina, "this is Maria")
    await account.instagram.wait_until_quiet()
    await account.instagram.deliver({"object": "instagram", "entry": [{"id": "1", "time": 1, "dreaming": []}]})
    assert events(receiver)[0]["message"] == {"mid": mid, "text": "this is Maria", "is_echo": True}
    assert (nina.texts, receiver.got[-1].body["entry"]) == (["this is Maria"], [{"id": "1", "time": 1, "dreaming": []}])
