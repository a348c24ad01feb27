"""WhatsApp's stand-in, with both APIs: what it refuses, what arrives, and what it tells afterwards."""

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from hermes.channels.fakes import FakePlatforms, FakeWhatsApp, RefusalTiming, WhatsAppPerson, open_platforms
from hermes.testing.platforms import Disorder, VerificationFailed, sample_picture
from tests.unit.channels.fakes.receiver import RIGHT, Caller, Receiver, Reply, next_try


class Number:
    """Calls WhatsApp through one of its doors."""

    def __init__(self, caller: Caller, whatsapp: FakeWhatsApp) -> None:
        self.caller, self.whatsapp = caller, whatsapp
        self.is_cloud = whatsapp.name == "whatsapp_cloud"
        self.path = f"/v23.0/{whatsapp.phone_number_id}/messages" if self.is_cloud else "/messages"
        self.headers = {"Authorization": f"Bearer {whatsapp.key}"} if self.is_cloud else {"D360-API-KEY": whatsapp.key}

    async def send(self, body: Mapping[str, Any]) -> Reply:
        return await self.caller.post(self.path, {"messaging_product": "whatsapp", **body}, self.headers)

    async def say(self, text: str, **to: str) -> Reply:
        return await self.send({**to, "type": "text", "text": {"body": text}})

    async def refusal(self, body: Mapping[str, Any]) -> tuple[int, int, str]:
        reply = await self.send(body)
        error = reply.body["error"]
        assert sorted(error.keys() - {"error_data", "error_subcode"}) == ["code", "fbtrace_id", "message", "type"]
        return reply.status, error["code"], error["message"]


@pytest.fixture(params=["whatsapp", "whatsapp_cloud"])
def number(request: pytest.FixtureRequest, platforms: FakePlatforms, caller: Caller) -> Number:
    return Number(caller, getattr(platforms, request.param))


@pytest.fixture
def wayan(number: Number) -> WhatsAppPerson:
    person = number.whatsapp.person("Wayan")
    person.say("halo")
    return person


def parts(receiver: Receiver, into: str = "messages") -> list[Any]:
    """Everything in a list of the payloads, over all levels."""
    return [
        item for got in receiver.got for entry in got.body["entry"] for change in entry["changes"] for item in change["value"].get(into, ())
    ]


# --- what arrives


async def test_a_message_is_accepted_and_on_the_phone(number: Number, wayan: WhatsAppPerson) -> None:
    reply = await number.say("*hi*", to=wayan.id)
    [received] = wayan.received
    assert (reply.status, reply.body) == (
        200,
        {
            "messaging_product": "whatsapp",
            "contacts": [{"input": wayan.id, "wa_id": wayan.id}],
            "messages": [{"id": received.message_id, "message_status": "accepted"}],
        },
    )
    assert (received.text, received.kind, received.is_answered) == ("*hi*", "text", True)


async def test_who_has_a_user_name_only_is_written_to_by_user_id(number: Number, receiver: Receiver) -> None:
    number.whatsapp.connect(receiver.url)
    made = number.whatsapp.person("Made", phone=None)
    made.say("halo")
    await number.whatsapp.wait_until_quiet()
    [message] = parts(receiver)
    [contact] = parts(receiver, "contacts")
    assert ("from" in message, message["from_user_id"], contact.get("wa_id"), contact["user_id"]) == (False, made.id, None, made.id)
    reply = await number.say("hi", recipient=made.id)
    assert reply.body["contacts"] == [{"input": made.id, "user_id": made.id}]
    assert made.texts == ["hi"]
    assert (await number.refusal({"to": made.id, "text": {"body": "x"}}))[:2] == (400, 100), "a user id is no number"


async def test_marks_a_message_as_read_and_shows_that_an_answer_comes(number: Number, wayan: WhatsAppPerson) -> None:
    said = wayan.say("still there?")
    reply = await number.send({"status": "read", "message_id": said, "typing_indicator": {"type": "text"}})
    assert (reply.status, reply.body, wayan.seen_by_account, wayan.typing_shown) == (200, {"success": True}, [said], 1)


async def test_a_template_is_taken_at_any_time(number: Number) -> None:
    silent = number.whatsapp.person("Silent")
    hello = {"name": "hello_world", "language": {"code": "en_US"}}
    still = {
        "name": "still_there",
        "language": {"code": "en"},
        "components": [{"type": "body", "parameters": [{"type": "text", "text": "Wayan"}]}],
    }
    for template in (hello, still):
        assert (await number.send({"to": silent.id, "type": "template", "template": template})).status == 200
    assert [(one.kind, one.text) for one in silent.received] == [("template", "hello_world"), ("template", "still_there")]


# --- what is refused


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"messaging_product": None}, 100, "(#100) The parameter messaging_product is required."),
        ({"text": None}, 100, "(#100) The parameter text is required."),
        ({"text": {}}, 100, "(#100) The parameter text['body'] is required."),
        ({"text": {"body": ""}}, 100, "(#100) Param text['body'] must be a non-empty string."),
        ({"text": {"body": 5}}, 100, "(#100) Param text['body'] must be a string."),
        ({"text": {"body": "x" * 4097}}, 100, "(#100) Param text['body'] must be at most 4096 characters long."),
        ({"text": {"body": "x", "preview": True}}, 100, '(#100) Unexpected key "preview" on param "text".'),
        ({"text": {"body": "x", "preview_url": "no"}}, 100, "(#100) Param text['preview_url'] must be a boolean."),
        ({"recipient": "ID.1"}, 100, "(#100) Give either to or recipient (the fake accepts one of them)"),
        ({"to": None, "recipient": None}, 100, "(#100) Give either to or recipient (the fake accepts one of them)"),
        ({"to": "wayan"}, 100, "(#100) Param to must be a phone number, and is 'wayan'"),
        ({"recipient_type": "list"}, 100, "(#100) Param recipient_type must be one of {INDIVIDUAL, GROUP}"),
        ({"parse_mode": "Markdown"}, 100, '(#100) Unexpected key "parse_mode" on param "body".'),
        ({"type": "poll"}, 131051, "(#131051) Unsupported message type"),
        ({"context": {"id": "x"}}, 100, '(#100) Unexpected key "id" on param "context".'),
        ({"to": "15550001111"}, 131026, "(#131026) Message undeliverable"),
        ({"type": "image", "text": None, "image": {}}, 100, '(#100) Unexpected key "text" on param "body".'),
    ],
)
async def test_refuses_a_message(number: Number, wayan: WhatsAppPerson, body: dict[str, Any], code: int, words: str) -> None:
    whole = {"to": wayan.id, "type": "text", "text": {"body": "hi"}, **body}
    assert await number.refusal(whole) == (400, code, words)
    assert wayan.received == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"type": "image", "image": {"id": "1", "link": "https://a.b/c"}}, "Param image must have either id or link."),
        ({"type": "image", "image": {"link": "nowhere"}}, "Param image['link'] is not a valid URL."),
        ({"type": "image", "image": {"id": "1"}}, "Param image['id'] is not a valid whatsapp business account media attachment ID"),
        (
            {"type": "image", "image": {"link": "https://a.b/c", "caption": "x" * 1025}},
            "Param image['caption'] must be at most 1024 characters long.",
        ),
        (
            {"type": "location", "location": {"latitude": 91, "longitude": 0}},
            "Param location['latitude'] must be a number between -90 and 90.",
        ),
        ({"type": "reaction", "reaction": {"emoji": "x"}}, "The parameter reaction['message_id'] is required."),
        (
            {"type": "interactive", "interactive": {"type": "button", "body": {"text": "x"}, "action": {"buttons": []}}},
            "Invalid buttons count. Min allowed buttons: 1, Max allowed buttons: 3",
        ),
        (
            {
                "type": "interactive",
                "interactive": {
                    "type": "button",
                    "body": {"text": "x"},
                    "action": {"buttons": [{"type": "reply", "reply": {"id": "1", "title": "a title of twenty-one"}}]},
                },
            },
            "Param reply['title'] must be at most 20 characters long.",
        ),
    ],
)
async def test_refuses_what_is_not_text(number: Number, wayan: WhatsAppPerson, body: dict[str, Any], words: str) -> None:
    assert await number.refusal({"to": wayan.id, **body}) == (400, 100, f"(#100) {words}")


async def test_refuses_templates_that_nobody_approved(number: Number, wayan: WhatsAppPerson) -> None:
    async def code(template: Mapping[str, Any]) -> int:
        return (await number.refusal({"to": wayan.id, "type": "template", "template": template}))[1]

    assert await code({"name": "nothing", "language": {"code": "en"}}) == 132001
    assert await code({"name": "hello_world", "language": {"code": "de"}}) == 132001
    assert await code({"name": "still_there", "language": {"code": "en"}}) == 132000


async def test_marks_nothing_that_nobody_said(number: Number) -> None:
    assert (await number.refusal({"status": "read", "message_id": "wamid.x"}))[1] == 131009
    assert (await number.refusal({"status": "seen", "message_id": "wamid.x"}))[2] == "(#100) Param status must be one of {READ}"


@pytest.mark.parametrize("door", ["whatsapp", "whatsapp_cloud"])
async def test_free_text_is_taken_for_a_day_after_the_last_message(still: FakePlatforms, still_caller: Caller, door: str) -> None:
    number = Number(still_caller, getattr(still, door))
    wayan = number.whatsapp.person("Wayan")
    wayan.say("halo")
    still.skip(86_399)
    assert (await number.say("in time", to=wayan.id)).status == 200
    still.skip(1)
    assert await number.refusal({"to": wayan.id, "text": {"body": "late"}}) == (400, 131047, "(#131047) Re-engagement message")
    wayan.say("back")
    assert (await number.say("welcome", to=wayan.id)).status == 200
    assert wayan.texts == ["in time", "welcome"]


async def test_a_closed_window_may_also_be_told_later(number: Number, receiver: Receiver) -> None:
    number.whatsapp.rules.refuses = RefusalTiming.LATER
    number.whatsapp.connect(receiver.url)
    silent = number.whatsapp.person("Silent")
    accepted = await number.say("hi", to=silent.id)
    await number.whatsapp.wait_until_quiet()
    [status] = parts(receiver, "statuses")
    assert (status["id"], status["status"], status["errors"][0]["code"]) == (accepted.body["messages"][0]["id"], "failed", 131047)
    assert silent.received == []


async def test_one_person_takes_45_at_once_and_then_one_every_six_seconds(still: FakePlatforms, still_caller: Caller) -> None:
    number = Number(still_caller, still.whatsapp)
    wayan = still.whatsapp.person("Wayan")
    wayan.say("halo")
    for text in range(45):
        assert (await number.say(str(text), to=wayan.id)).status == 200
    words = "(#131056) (Business Account, Consumer Account) pair rate limit hit"
    assert await number.refusal({"to": wayan.id, "text": {"body": "x"}}) == (400, 131056, words)
    still.skip(6)
    assert (await number.say("45", to=wayan.id)).status == 200


async def test_a_number_takes_80_a_second(still: FakePlatforms, still_caller: Caller) -> None:
    number = Number(still_caller, still.whatsapp_cloud)
    people = [still.whatsapp_cloud.person(f"P{place}") for place in range(81)]
    for person in people:
        person.say("halo")
    codes = [(await number.say("hi", to=person.id)).status for person in people]
    assert codes == [200] * 80 + [429]


# --- keys


async def test_360dialog_takes_its_key_and_nothing_else(platforms: FakePlatforms, caller: Caller) -> None:
    body = {"messaging_product": "whatsapp", "to": "62811111", "text": {"body": "x"}}
    right = {"D360-API-KEY": platforms.whatsapp.key}
    refused = [
        await caller.post("/messages", body),
        await caller.post("/messages", body, {"D360-API-KEY": "wrong"}),
        await caller.post("/messages", body, {**right, "Authorization": "Bearer x"}),
        await caller.post(f"/{platforms.whatsapp.phone_number_id}/messages", body, right),
        await caller.post("/v1/messages", body, right),
    ]
    assert [one.status for one in refused] == [401, 401, 400, 404, 404]
    assert refused[1].body == {"meta": {"success": False, "http_code": 401, "developer_message": "Invalid api_key"}}


async def test_the_cloud_api_takes_its_token_in_a_header_only(platforms: FakePlatforms, caller: Caller) -> None:
    number = Number(caller, platforms.whatsapp_cloud)
    body = {"messaging_product": "whatsapp", "to": "62811111", "text": {"body": "x"}}
    refused = [
        await caller.post(number.path, body),
        await caller.post(number.path, body, {"Authorization": "Bearer wrong"}),
        await caller.post(f"{number.path}?access_token={number.whatsapp.key}", body),
        await caller.post("/v23.0/123/messages", body, number.headers),
    ]
    assert [(one.status, one.body["error"]["code"]) for one in refused] == [(401, 104), (401, 190), (400, 100), (400, 100)]
    assert refused[3].body["error"]["error_subcode"] == 33


# --- webhooks


async def test_statuses_follow_each_message(number: Number, wayan: WhatsAppPerson, receiver: Receiver) -> None:
    number.whatsapp.connect(receiver.url)
    accepted = await number.say("hi", to=wayan.id)
    await number.whatsapp.wait_until_quiet()
    statuses = parts(receiver, "statuses")
    assert [one["status"] for one in statuses] == ["sent", "delivered", "read"]
    assert {one["id"] for one in statuses} == {accepted.body["messages"][0]["id"]}
    wayan.is_reader = False
    receiver.got.clear()
    await number.say("hi", to=wayan.id)
    await number.whatsapp.wait_until_quiet()
    assert [one["status"] for one in parts(receiver, "statuses")] == ["sent", "delivered"]


async def test_who_blocks_gets_nothing_and_the_account_hears_no_more_than_sent(
    number: Number, wayan: WhatsAppPerson, receiver: Receiver
) -> None:
    number.whatsapp.connect(receiver.url)
    wayan.block()
    assert (await number.say("hi", to=wayan.id)).status == 200
    await number.whatsapp.wait_until_quiet()
    assert ([one["status"] for one in parts(receiver, "statuses")], wayan.received) == (["sent"], [])


async def test_accepted_and_failed_later(number: Number, wayan: WhatsAppPerson, receiver: Receiver) -> None:
    number.whatsapp.connect(receiver.url)
    number.whatsapp.fail_later(130472)
    assert (await number.say("lost", to=wayan.id)).status == 200
    assert (await number.say("there", to=wayan.id)).status == 200
    await number.whatsapp.wait_until_quiet()
    failed = [one for one in parts(receiver, "statuses") if one["status"] == "failed"]
    assert ([one["errors"][0]["code"] for one in failed], wayan.texts) == ([130472], ["there"])


async def test_the_cloud_api_signs_and_360dialog_sends_a_header(platforms: FakePlatforms, receiver: Receiver) -> None:
    for whatsapp in (platforms.whatsapp, platforms.whatsapp_cloud):
        whatsapp.connect(receiver.url)
        whatsapp.person("Wayan").say("mañana / besok")
        await whatsapp.wait_until_quiet()
    plain, signed = receiver.got
    name, value = platforms.whatsapp.secret_header
    assert (plain.headers[name], "X-Hub-Signature-256" in plain.headers) == (value, False)
    digest = hmac.new(platforms.whatsapp_cloud.app_secret.encode(), signed.raw, hashlib.sha256).hexdigest()
    assert signed.headers["X-Hub-Signature-256"] == f"sha256={digest}"
    assert rb"ma\u00f1ana \/ besok" in signed.raw, "who writes it again gets other bytes"


async def test_meta_asks_before_it_subscribes(platforms: FakePlatforms, receiver: Receiver) -> None:
    await platforms.whatsapp_cloud.subscribe(receiver.url, RIGHT)
    assert platforms.whatsapp_cloud.receiver is not None
    with pytest.raises(VerificationFailed, match="403"):
        await platforms.whatsapp_cloud.subscribe(receiver.url, "wrong")


async def test_a_failed_webhook_is_tried_again_and_holds_nothing_up(still: FakePlatforms, receiver: Receiver) -> None:
    statuses = iter([500, 301, 202, 404])
    receiver.answers = lambda got: web.Response(status=next(statuses, 200) if b'"one"' in got.raw else 200)
    still.whatsapp.connect(receiver.url)
    wayan = still.whatsapp.person("Wayan")
    wayan.say("one")
    wayan.say("two")
    for pause_s in (0, 0, 0, 60, 120, 240):
        await next_try(still, still.whatsapp, pause_s)
    await still.whatsapp.wait_until_quiet()
    texts = [item["text"]["body"] for item in parts(receiver)]
    assert (sorted(texts), texts[0], texts[-1]) == (["one"] * 5 + ["two"], "one", "one"), "nothing but 200 is good enough"
    assert "two" in texts[:3], "it did not wait"


async def test_a_webhook_is_given_up_in_the_end(platforms: FakePlatforms, receiver: Receiver) -> None:
    receiver.then(*[500] * 1000)
    platforms.whatsapp.connect(receiver.url)
    platforms.whatsapp.person("Wayan").say("one")
    for _ in range(8):
        await asyncio.sleep(0.02)
        platforms.skip(24 * 3_600)
    await platforms.whatsapp.wait_until_quiet()
    assert {got.body["entry"][0]["changes"][0]["value"]["messages"][0]["text"]["body"] for got in receiver.got} == {"one"}


async def test_events_are_gathered_over_all_levels_and_none_is_lost(receiver: Receiver) -> None:
    async def run() -> list[Any]:
        receiver.got.clear()
        disorder = Disorder(batch_s=50, duplicates=0.2, held_back=0.3)
        async with open_platforms(seed=3, speed=1000, disorder=disorder) as platforms:
            platforms.whatsapp.connect(receiver.url)
            people = [platforms.whatsapp.person(f"P{place}") for place in range(4)]
            for number in range(10):
                for person in people:
                    person.say(f"{person.name} {number}")
            await platforms.whatsapp.wait_until_quiet()
        return [got.body["entry"] for got in receiver.got]

    payloads = await run()
    said = [item["text"]["body"] for item in parts(receiver)]
    assert {f"P{place} {number}" for place in range(4) for number in range(10)} == set(said)
    assert len(said) > 40, "some came twice"
    assert max(len(entries) for entries in payloads) > 1
    assert max(len(entry["changes"]) for entries in payloads for entry in entries) > 1
    assert max(len(change["value"]["messages"]) for entries in payloads for entry in entries for change in entry["changes"]) > 1
    assert [text for text in dict.fromkeys(said) if text.startswith("P0")] != [f"P0 {number}" for number in range(10)], "out of order"
    ids = [item["id"] for got in receiver.got[:1] for item in parts(Receiver(got=[got]))]
    assert len(ids) > len(set(ids)), "the same one twice in one payload"


async def test_statuses_come_out_of_order_when_they_are_held_back(platforms: FakePlatforms, caller: Caller, receiver: Receiver) -> None:
    platforms.whatsapp.connect(receiver.url)
    platforms.whatsapp.disorder = Disorder(held_back=0.5, held_back_s=20)
    number, wayan = Number(caller, platforms.whatsapp), platforms.whatsapp.person("Wayan")
    wayan.say("halo")
    for text in range(10):
        await number.say(str(text), to=wayan.id)
    await platforms.whatsapp.wait_until_quiet()
    by_message: dict[str, list[str]] = {}
    for status in parts(receiver, "statuses"):
        by_message.setdefault(status["id"], []).append(status["status"])
    assert {frozenset(told) for told in by_message.values()} == {frozenset({"sent", "delivered", "read"})}
    assert any(told != ["sent", "delivered", "read"] for told in by_message.values())


# --- people


async def test_another_number_is_told_and_the_old_one_is_nobodys(number: Number, wayan: WhatsAppPerson, receiver: Receiver) -> None:
    await number.say("before", to=wayan.id)
    number.whatsapp.connect(receiver.url)
    old, old_user_id = wayan.id, wayan.user_id
    wayan.change_number("628999999999")
    await number.whatsapp.wait_until_quiet()
    system = next(item for item in parts(receiver) if item["type"] == "system")
    assert (system["from"], system["system"]["wa_id"], system["system"]["type"]) == (old, "628999999999", "user_changed_number")
    [update] = parts(receiver, "user_id_update")
    assert update["user_id"] == {"previous": old_user_id, "current": wayan.user_id}
    assert (await number.refusal({"to": old, "text": {"body": "x"}}))[1] == 131026
    await number.say("after", to=wayan.id)
    assert wayan.texts == ["before", "after"]


async def test_reactions_edits_and_what_cannot_be_shown_are_told(number: Number, wayan: WhatsAppPerson, receiver: Receiver) -> None:
    await number.whatsapp.wait_until_quiet()
    number.whatsapp.connect(receiver.url)
    sent = (await number.say("hi", to=wayan.id)).body["messages"][0]["id"]
    said = wayan.say("halo", reply_to=sent)
    wayan.react(sent, "👍")
    wayan.react(sent, "")
    wayan.edit(said, "hello")
    wayan.revoke(said)
    wayan.send_unsupported()
    await number.whatsapp.wait_until_quiet()
    items = parts(receiver)
    assert [item["type"] for item in items] == ["text", "reaction", "reaction", "edit", "revoke", "unsupported"]
    assert items[0]["context"] == {"from": number.whatsapp.display_number, "id": sent}
    assert (items[1]["reaction"], items[2]["reaction"]) == ({"message_id": sent, "emoji": "👍"}, {"message_id": sent})


async def test_an_answer_by_hand_is_echoed_under_a_name_of_its_own(number: Number, wayan: WhatsAppPerson, receiver: Receiver) -> None:
    await number.whatsapp.wait_until_quiet()
    number.whatsapp.connect(receiver.url)
    message_id = number.whatsapp.answer_by_hand(wayan, "this is Maria")
    await number.whatsapp.wait_until_quiet()
    [echo] = parts(receiver, "message_echoes")
    assert (echo["id"], echo["to"], echo["text"], wayan.texts) == (message_id, wayan.id, {"body": "this is Maria"}, ["this is Maria"])
    assert receiver.got[0].body["entry"][0]["changes"][0]["field"] == "smb_message_echoes"
    taken = await number.whatsapp.deliver({"object": "whatsapp_business_account", "entry": []})
    assert taken is not None
    assert taken.status == 200


# --- files


async def media_of(number: Number, receiver: Receiver) -> dict[str, Any]:
    number.whatsapp.connect(receiver.url)
    number.whatsapp.person("Wayan").send_picture(caption="look")
    await number.whatsapp.wait_until_quiet()
    image: dict[str, Any] = parts(receiver)[0]["image"]
    return image


async def test_a_file_of_360dialog_names_metas_host_and_is_fetched_from_its_own(
    still: FakePlatforms, still_caller: Caller, receiver: Receiver
) -> None:
    number = Number(still_caller, still.whatsapp)
    image = await media_of(number, receiver)
    found = await still_caller.get(f"/{image['id']}", number.headers)
    assert (found.body["mime_type"], found.body["file_size"]) == ("image/png", len(sample_picture()))
    assert found.body["url"].startswith("https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid=")
    path = found.body["url"].removeprefix("https://lookaside.fbsbx.com")
    assert (await still_caller.get(path, number.headers)).body == sample_picture()
    assert (await still_caller.get(f"{path}&x=1", number.headers)).status == 404, "the query is part of the address"
    assert (await still_caller.get(path, {**number.headers, "Authorization": "Bearer x"})).status == 400
    assert (await still_caller.get(path)).status == 401
    still.skip(301)
    assert (await still_caller.get(path, number.headers)).status == 404, "links live five minutes"


async def test_a_file_of_the_cloud_api_is_fetched_with_its_token(still: FakePlatforms, still_caller: Caller, receiver: Receiver) -> None:
    number = Number(still_caller, still.whatsapp_cloud)
    image = await media_of(number, receiver)
    url = (await still_caller.get(f"/v23.0/{image['id']}", number.headers)).body["url"]
    assert (await still_caller.get(url, number.headers)).body == sample_picture()
    assert (await still_caller.get(url)).status == 401
    other = await still_caller.get(f"/v23.0/{image['id']}?phone_number_id=1", number.headers)
    assert (other.status, other.body["error"]["code"]) == (400, 100), "a file of another number"


async def test_twenty_wrong_files_close_360dialog_for_half_an_hour(still: FakePlatforms, still_caller: Caller, receiver: Receiver) -> None:
    number = Number(still_caller, still.whatsapp)
    image = await media_of(number, receiver)
    for _ in range(20):
        assert (await still_caller.get("/123", number.headers)).body["error"]["code"] == 100
    assert (await still_caller.get(f"/{image['id']}", number.headers)).body["meta"][
        "developer_message"
    ] == "You have exceeded the endpoint rate limit."
    still.skip(1_801)
    assert (await still_caller.get(f"/{image['id']}", number.headers)).status == 200


async def test_what_is_sent_to_a_group_arrives_there_and_nobody_is_written_to(number: Number, wayan: WhatsAppPerson) -> None:
    group = number.whatsapp.group("Friends")
    wayan.say("halo semua", group=group)
    reply = await number.send({"recipient_type": "group", "to": group.id, "type": "text", "text": {"body": "hello all"}})
    assert reply.status == 200
    assert [(each.chat, each.text) for each in group.received] == [(group.id, "hello all")]
    assert wayan.texts == []
    unknown = {"recipient_type": "group", "to": "Y2FwaQ", "type": "text", "text": {"body": "x"}}
    assert (await number.refusal(unknown))[1] == 131026
