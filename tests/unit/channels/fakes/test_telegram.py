"""The Bot API's stand-in refuses what Telegram refuses, in Telegram's words, and what it takes is on a user's phone."""

import asyncio
from typing import Any

import pytest

from hermes.channels.fakes import FakePlatforms, TelegramPerson
from hermes.testing.platforms import sample_picture
from tests.unit.channels.fakes.receiver import Caller, Reply

CHEF = "👩‍🍳"  # five UTF-16 code units, three of Python's characters


@pytest.fixture
def ada(still: FakePlatforms) -> TelegramPerson:
    person = still.telegram.person("Ada Lovelace", username="ada")
    person.start()
    return person


class Bot:
    def __init__(self, caller: Caller, platforms: FakePlatforms) -> None:
        self.caller, self.token = caller, platforms.telegram.token

    async def __call__(self, method: str, **values: Any) -> Reply:
        return await self.caller.post(f"/bot{self.token}/{method}", values)

    async def refusal(self, method: str, **values: Any) -> str:
        """What is wrong with a call; the rest of the answer says the same."""
        reply = await self(method, **values)
        assert reply.status == reply.body["error_code"]
        assert reply.body["ok"] is False
        return f"{reply.status} {reply.body['description']}"


@pytest.fixture
def bot(still_caller: Caller, still: FakePlatforms) -> Bot:
    return Bot(still_caller, still)


# --- what arrives


async def test_a_message_is_on_the_phone_with_its_markup(bot: Bot, ada: TelegramPerson) -> None:
    entities = [{"type": "bold", "offset": 0, "length": 5}, {"type": "text_link", "offset": 6, "length": 5, "url": "https://a.example"}]
    reply = await bot("sendMessage", chat_id=int(ada.id), text=f"Ciao, {CHEF}", entities=entities)
    assert reply.status == 200
    assert reply.body["result"]["message_id"] == 2, "the first is /start"
    [received] = ada.received
    assert (received.text, received.entities, received.message_id, received.is_answered) == (f"Ciao, {CHEF}", entities, "2", True)


async def test_the_same_text_twice_is_two_messages(bot: Bot, ada: TelegramPerson, still: FakePlatforms) -> None:
    for _ in range(2):
        await bot("sendMessage", chat_id=ada.id, text="again")
    assert [(one.text, one.message_id) for one in ada.received] == [("again", "2"), ("again", "3")]
    assert still.telegram.message_log.copies() == {(ada.id, "again"): 2}


async def test_an_answer_names_what_it_answers_and_typing_is_seen(bot: Bot, ada: TelegramPerson) -> None:
    asked = ada.say("when?")
    await bot("sendChatAction", chat_id=ada.id, action="typing")
    reply = await bot("sendMessage", chat_id=ada.id, text="now", reply_parameters={"message_id": int(asked)})
    assert reply.body["result"]["reply_to_message"]["text"] == "when?"
    assert (ada.received[0].reply_to, ada.typing_shown) == (asked, 1)


async def test_a_topic_is_kept_to(bot: Bot, ada: TelegramPerson, still: FakePlatforms) -> None:
    group = still.telegram.group("Bali")
    thread = group.open_topic()
    ada.say("hi", group=group, thread=thread)
    await bot("sendMessage", chat_id=group.id, text="hello", message_thread_id=thread)
    assert [(one.text, one.thread) for one in group.received] == [("hello", str(thread))]
    assert await bot.refusal("sendMessage", chat_id=group.id, text="x", message_thread_id=99) == "400 Bad Request: message thread not found"


# --- what is refused


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"text": ""}, "message text is empty"),
        ({"text": " \n "}, "text must be non-empty"),
        ({"text": "x" * 4097}, "message is too long"),
        ({"text": "😀" * 2049}, "message is too long"),
        ({"text": "x", "chat_id": None}, "chat_id is empty"),
        ({"text": "x", "chat_id": 42}, "chat not found"),
        ({"text": "x", "chat_id": "@nobody"}, "chat not found"),
        ({"text": 5}, 'field "text" must be of type String'),
        ({"text": "x", "disable_notification": 1}, 'field "disable_notification" must be of type Boolean'),
        ({"text": "x", "chat": 1}, "sendMessage has no parameter chat that the fake knows"),
        ({"text": "*x*", "parse_mode": "MarkdownV2"}, "unsupported parse_mode (the fake accepts entities, and parses no text)"),
        ({"text": "x", "reply_parameters": {"message_id": 77}}, "message to be replied not found"),
        ({"text": "x", "reply_parameters": {"quote": "x"}}, 'can\'t find field "message_id"'),
        ({"text": "x", "message_thread_id": 5}, "message thread not found"),
        ({"text": "x", "business_connection_id": "b"}, "business connection not found"),
        ({"text": "x", "link_preview_options": {"is_disabled": "yes"}}, 'field "is_disabled" must be of type Boolean'),
        ({"text": "x", "reply_markup": {"buttons": []}}, "can't parse reply keyboard markup JSON object"),
        ({"text": "x", "reply_markup": {"inline_keyboard": [[{"text": "b", "callback_data": "x" * 65}]]}}, "BUTTON_DATA_INVALID"),
        (
            {"text": "x", "reply_markup": {"inline_keyboard": [[{"text": "b"}]]}},
            "can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard",
        ),
        (
            {"text": "x", "reply_markup": {"inline_keyboard": [[{"text": "b", "url": "nowhere"}]]}},
            "inline keyboard button URL 'nowhere' is invalid: Wrong HTTP URL",
        ),
    ],
)
async def test_refuses_a_message(bot: Bot, ada: TelegramPerson, values: dict[str, Any], words: str) -> None:
    assert await bot.refusal("sendMessage", **{"chat_id": int(ada.id), **values}) == f"400 Bad Request: {words}"
    assert ada.received == []


@pytest.mark.parametrize(
    ("entities", "words"),
    [
        ([{"type": "bold", "offset": 100, "length": 1}], "entity begins after the end of the text at UTF-16 offset 100"),
        (
            [{"type": "bold", "offset": 0, "length": 100}],
            "entity beginning at UTF-16 offset 0 ends after the end of the text at UTF-16 offset 100",
        ),
        ([{"type": "bold", "offset": -1, "length": 1}], "receive an entity with incorrect offset -1"),
        ([{"type": "bold", "offset": 0, "length": 0}], "receive an entity with incorrect length 0"),
        ([{"type": "loud", "offset": 0, "length": 1}], "can't parse MessageEntity: Unsupported type specified"),
        ([{"type": "text_link", "offset": 0, "length": 1}], "can't parse MessageEntity: Can't find field \"url\""),
        ([{"type": "text_link", "offset": 0, "length": 1, "url": "x"}], "entity URL 'x' is invalid: Wrong HTTP URL"),
        (
            [{"type": "text_link", "offset": 0, "length": 1, "url": "ftp://a.b"}],
            "entity URL 'ftp://a.b' is invalid: Unsupported URL protocol",
        ),
        ([{"type": "bold", "offset": 0.5, "length": 1}], 'can\'t parse MessageEntity: Field "offset" must be of type Number'),
        (
            [{"type": "bold", "offset": 0, "length": 4}, {"type": "italic", "offset": 2, "length": 4}],
            "entity beginning at UTF-16 offset 2 ends after the end of the text at UTF-16 offset 6",
        ),
        (
            [{"type": "pre", "offset": 0, "length": 4}, {"type": "bold", "offset": 1, "length": 1}],
            "can't parse entities: bold in pre (Telegram would drop one of them)",
        ),
        (
            [{"type": "bold", "offset": 0, "length": 4}, {"type": "code", "offset": 1, "length": 1}],
            "can't parse entities: code in bold (Telegram would drop one of them)",
        ),
        (
            [{"type": "blockquote", "offset": 0, "length": 4}, {"type": "blockquote", "offset": 1, "length": 1}],
            "can't parse entities: a quote in a quote (Telegram would drop one of them)",
        ),
        ([{"type": "bold", "offset": 6, "length": 1}], "entity ends in a middle of a UTF-16 symbol at byte offset 7"),
        ([{"type": "bold", "offset": 7, "length": 1}], "entity begins in a middle of a UTF-16 symbol at byte offset 7"),
    ],
)
async def test_refuses_markup(bot: Bot, ada: TelegramPerson, entities: list[dict[str, Any]], words: str) -> None:
    refusal = await bot.refusal("sendMessage", chat_id=ada.id, text="hello 😀 there", entities=entities)
    assert refusal == f"400 Bad Request: {words}"


async def test_takes_the_longest_text_and_markup_that_nests(bot: Bot, ada: TelegramPerson) -> None:
    nested = [
        {"type": "blockquote", "offset": 0, "length": 10},
        {"type": "bold", "offset": 0, "length": 5},
        {"type": "italic", "offset": 0, "length": 5},
        {"type": "code", "offset": 6, "length": 3},
    ]
    assert (await bot("sendMessage", chat_id=ada.id, text="😀" * 2048, entities=[])).status == 200
    assert (await bot("sendMessage", chat_id=ada.id, text="hello code", entities=nested)).status == 200
    assert ada.received[1].entities == nested


async def test_keeps_a_hundred_entities_and_drops_the_rest_without_a_word(bot: Bot, ada: TelegramPerson) -> None:
    many = [{"type": "bold", "offset": 2 * at, "length": 1} for at in range(120)]
    assert (await bot("sendMessage", chat_id=ada.id, text="x " * 120, entities=many)).status == 200
    assert ada.received[0].entities == many[:100]


async def test_a_wrong_token_is_401_and_a_broken_one_404(still_caller: Caller, still: FakePlatforms) -> None:
    number = still.telegram.token.split(":")[0]
    wrong = await still_caller.post(f"/bot{number}:{'x' * 35}/getMe", {})
    broken = await still_caller.post("/botnonsense/getMe", {})
    unknown = await still_caller.post(f"/bot{still.telegram.token}/sendCake", {})
    assert [(one.status, one.body["description"]) for one in (wrong, broken, unknown)] == [
        (401, "Unauthorized"),
        (404, "Not Found"),
        (404, "Not Found: method not found"),
    ]


async def test_nobody_is_written_to_who_did_not_begin_who_blocks_or_who_is_gone(bot: Bot, still: FakePlatforms) -> None:
    stranger, blocker, gone = (still.telegram.person(name) for name in ("Stranger", "Blocker", "Gone"))
    blocker.start()
    blocker.block()
    gone.start()
    gone.deactivate()
    assert [await bot.refusal("sendMessage", chat_id=who.id, text="hi") for who in (stranger, blocker, gone)] == [
        "403 Forbidden: bot can't initiate conversation with a user",
        "403 Forbidden: bot was blocked by the user",
        "403 Forbidden: user is deactivated",
    ]
    blocker.unblock()
    assert (await bot("sendMessage", chat_id=blocker.id, text="hi")).status == 200


async def test_a_group_that_moved_says_where_to(bot: Bot, still: FakePlatforms) -> None:
    group = still.telegram.group("Bali")
    old, new = group.id, group.upgrade()
    reply = await bot("sendMessage", chat_id=old, text="hi")
    assert (reply.status, reply.body) == (
        400,
        {
            "ok": False,
            "error_code": 400,
            "description": "Bad Request: group chat was upgraded to a supergroup chat",
            "parameters": {"migrate_to_chat_id": int(new)},
        },
    )
    assert (await bot("sendMessage", chat_id=new, text="hi")).status == 200
    assert [one.text for one in group.received] == ["hi"]


async def test_too_much_in_one_chat_is_refused_until_the_time_that_is_told(still: FakePlatforms, still_caller: Caller) -> None:
    bot, ada = Bot(still_caller, still), still.telegram.person("Ada")
    ada.start()
    for number in range(5):
        assert (await bot("sendMessage", chat_id=ada.id, text=str(number))).status == 200
    refused = await bot("sendChatAction", chat_id=ada.id, action="typing")
    assert (refused.status, refused.body["parameters"], refused.headers["Retry-After"]) == (429, {"retry_after": 1}, "1")
    still.skip(1)
    assert (await bot("sendMessage", chat_id=ada.id, text="5")).status == 200
    assert ada.texts == ["0", "1", "2", "3", "4", "5"]


# --- updates, fetched


async def test_updates_wait_until_they_are_confirmed(bot: Bot, ada: TelegramPerson) -> None:
    ada.say("one")
    first = (await bot("getUpdates")).body["result"]
    assert [update["message"]["text"] for update in first] == ["/start", "one"]
    assert first[0]["message"]["entities"] == [{"type": "bot_command", "offset": 0, "length": 6}]
    assert first == (await bot("getUpdates")).body["result"], "nobody has confirmed them"
    assert first[0]["update_id"] > 2**32
    [second] = (await bot("getUpdates", offset=first[1]["update_id"])).body["result"]
    assert second["message"]["text"] == "one"
    assert (await bot("getUpdates", offset=second["update_id"] + 1)).body["result"] == []


async def test_a_long_poll_ends_with_news_and_another_one_ends_it(still: FakePlatforms, still_caller: Caller) -> None:
    bot, ada = Bot(still_caller, still), still.telegram.person("Ada")
    waiting = asyncio.create_task(bot("getUpdates", timeout=50))
    await until_asked(still, 1)
    other = asyncio.create_task(bot("getUpdates", timeout=50))
    ended = await waiting
    assert (ended.status, ended.body["description"].split(";")[0]) == (409, "Conflict: terminated by other getUpdates request")
    ada.say("hi")
    [update] = (await other).body["result"]
    assert update["message"]["text"] == "hi"


async def test_fetching_and_webhook_exclude_each_other(bot: Bot) -> None:
    assert (await bot("setWebhook", url="http://127.0.0.1:1/hook")).body["result"] is True
    assert (await bot.refusal("getUpdates")).startswith("409 Conflict: can't use getUpdates method while webhook is active")
    await bot("deleteWebhook")
    assert (await bot("getUpdates")).body["result"] == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"url": "nowhere"}, "bad webhook: invalid URL"),
        ({"url": "http://a.b/c", "secret_token": "no spaces"}, "secret token contains unallowed characters"),
        ({"url": "http://a.b/c", "max_connections": 101}, "max_connections must be between 1 and 100"),
        ({"url": "http://a.b/c", "allowed_updates": [1]}, "can't parse allowed_updates: expected an Array of Strings"),
    ],
)
async def test_refuses_a_webhook(bot: Bot, values: dict[str, Any], words: str) -> None:
    assert await bot.refusal("setWebhook", **values) == f"400 Bad Request: {words}"


async def test_reactions_come_only_to_who_asks_for_them(bot: Bot, ada: TelegramPerson) -> None:
    ada.react("1", "👍")
    assert [list(update) for update in (await bot("getUpdates")).body["result"]] == [["update_id", "message"]]
    await bot("getUpdates", allowed_updates=["message_reaction"])
    ada.react("1", "👍")
    ada.say("not asked for")
    assert list((await bot("getUpdates", offset=-1)).body["result"][0]) == ["update_id", "message_reaction"]


# --- everything else that people do


async def test_pictures_come_in_sizes_and_are_fetched_by_id(
    bot: Bot, ada: TelegramPerson, still_caller: Caller, still: FakePlatforms
) -> None:
    ada.send_picture(caption="this one")
    message = (await bot("getUpdates", offset=-1)).body["result"][0]["message"]
    assert (message["caption"], [size["width"] for size in message["photo"]]) == ("this one", [24, 96])
    path = (await bot("getFile", file_id=message["photo"][-1]["file_id"])).body["result"]["file_path"]
    address = f"/file/bot{still.telegram.token}/{path}"
    assert (await still_caller.get(address)).body == sample_picture()
    still.skip(3_601)
    assert (await still_caller.get(address)).status == 404, "links die"
    assert await bot.refusal("getFile", file_id="x") == "400 Bad Request: wrong file_id or the file is temporarily unavailable"


async def test_a_file_over_20_megabytes_is_not_given_out(bot: Bot, ada: TelegramPerson) -> None:
    ada.send_document(b"x" * (20 * 1024 * 1024 + 1))
    file_id = (await bot("getUpdates", offset=-1)).body["result"][0]["message"]["document"]["file_id"]
    assert await bot.refusal("getFile", file_id=file_id) == "400 Bad Request: file is too big"


async def test_an_album_is_several_messages_with_one_name_and_one_caption(bot: Bot, ada: TelegramPerson) -> None:
    ada.send_album([None, None, None], "from today")
    messages = [update["message"] for update in (await bot("getUpdates")).body["result"]][1:]
    assert len({message["media_group_id"] for message in messages}) == 1
    assert [message.get("caption") for message in messages] == ["from today", None, None]


async def test_a_button_spins_until_it_is_answered_and_not_for_ever(bot: Bot, ada: TelegramPerson, still: FakePlatforms) -> None:
    keyboard = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}
    sent = (await bot("sendMessage", chat_id=ada.id, text="sure?", reply_markup=keyboard)).body["result"]
    press = ada.press(str(sent["message_id"]), "y")
    query = (await bot("getUpdates", offset=-1)).body["result"][0]["callback_query"]
    assert (query["id"], query["data"], query["from"]["id"], query["message"]["text"]) == (press, "y", int(ada.id), "sure?")
    assert still.telegram.is_spinning(press)
    await bot("answerCallbackQuery", callback_query_id=press)
    assert not still.telegram.is_spinning(press)
    late = ada.press(str(sent["message_id"]), "y")
    still.skip(151)
    assert (await bot.refusal("answerCallbackQuery", callback_query_id=late)).startswith("400 Bad Request: query is too old")


async def test_blocking_editing_and_moving_are_told(bot: Bot, ada: TelegramPerson, still: FakePlatforms) -> None:
    said = ada.say("one")
    ada.edit(said, "two")
    ada.block()
    group = still.telegram.group("Bali")
    old, new = group.id, group.upgrade()
    updates = (await bot("getUpdates")).body["result"][2:]
    assert [list(update)[1] for update in updates] == ["edited_message", "my_chat_member", "message", "message"]
    assert updates[0]["edited_message"]["text"] == "two"
    assert updates[1]["my_chat_member"]["new_chat_member"]["status"] == "kicked"
    assert (updates[2]["message"]["migrate_to_chat_id"], updates[3]["message"]["migrate_from_chat_id"]) == (int(new), int(old))


async def test_after_a_silent_week_update_ids_begin_somewhere_else(bot: Bot, ada: TelegramPerson, still: FakePlatforms) -> None:
    ada.say("one")
    before = (await bot("getUpdates", offset=-1)).body["result"][0]["update_id"]
    still.skip(8 * 86_400)
    ada.say("two")
    [after] = (await bot("getUpdates")).body["result"]
    assert after["update_id"] < before, "what was said before is a day old, and gone"


async def until_asked(platforms: FakePlatforms, count: int) -> None:
    await platforms.world.changes.wait_until(lambda: len(platforms.telegram.requests) >= count, 5)
