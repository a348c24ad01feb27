"""The libraries that bots are written with take our stand-in for Telegram: it says what they expect, in answers, updates and errors.

So a channel that is proved against the stand-in is proved against more than our own idea of the protocol."""

import asyncio
import io
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp: pip install aiohttp")
pytest.importorskip("babel", reason="needs babel: pip install babel")

from hermes.channels.fakes import FakePlatforms, TelegramPerson, open_platforms
from hermes.testing.platforms import sample_picture

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs

KINDS = ["message", "edited_message", "callback_query", "my_chat_member", "message_reaction"]


def with_platforms(talk: Callable[[FakePlatforms], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with open_platforms() as platforms:
            await talk(platforms)

    asyncio.run(main())


def do_everything(ada: TelegramPerson, platforms: FakePlatforms, button_under: str) -> None:
    """One of each thing that people do."""
    said = ada.say("hi")
    ada.edit(said, "hello")
    ada.send_picture(caption="look")
    ada.send_album([None, None], "two")
    ada.send_voice()
    ada.send_document(b"%PDF")
    ada.send_location(-8.65, 115.14)
    ada.send_sticker()
    ada.press(button_under, "yes")
    ada.react(said, "👍")
    ada.block()
    ada.unblock()
    group = platforms.telegram.group("Bali")
    ada.say("in a topic", group=group, thread=group.open_topic())
    group.upgrade()


def test_aiogram_reads_answers_updates_files_and_errors() -> None:
    aiogram = pytest.importorskip("aiogram", reason="needs aiogram: pip install aiogram")
    errors = pytest.importorskip("aiogram.exceptions")
    api = pytest.importorskip("aiogram.client.telegram")
    sessions = pytest.importorskip("aiogram.client.session.aiohttp")
    types = aiogram.types

    async def talk(platforms: FakePlatforms) -> None:
        telegram, ada = platforms.telegram, platforms.telegram.person("Ada Lovelace", username="ada")
        session = sessions.AiohttpSession(api=api.TelegramAPIServer.from_base(platforms.url))
        async with aiogram.Bot(telegram.token, session=session) as bot:
            assert (await bot.get_me()).username == "hermes_fake_bot"
            await bot.get_updates(allowed_updates=KINDS)
            ada.start()
            button = types.InlineKeyboardButton(text="Yes", callback_data="yes")
            sent = await bot.send_message(
                int(ada.id),
                "👩‍🍳 sure?",
                entities=[types.MessageEntity(type="bold", offset=6, length=5)],
                reply_markup=types.InlineKeyboardMarkup(inline_keyboard=[[button]]),
                reply_parameters=types.ReplyParameters(message_id=1),
            )
            assert (sent.html_text, sent.reply_to_message.text) == ("👩‍🍳 <b>sure?</b>", "/start")
            assert await bot.send_chat_action(int(ada.id), "typing")
            do_everything(ada, platforms, str(sent.message_id))
            updates = await bot.get_updates()
            assert {update.event_type for update in updates} == set(KINDS)
            photo = next(update.message for update in updates if update.message and update.message.photo)
            fetched = io.BytesIO()
            await bot.download(photo.photo[-1], fetched)
            assert (photo.caption, fetched.getvalue()) == ("look", sample_picture())
            query = next(update.callback_query for update in updates if update.callback_query)
            assert await query.answer("thanks")

            async def failing(error: type[Exception]) -> Any:
                with pytest.raises(error) as caught:
                    await bot.send_message(int(ada.id), "x")
                return caught.value

            telegram.fail(429, retry_after=7)
            assert (await failing(errors.TelegramRetryAfter)).retry_after == 7
            telegram.fail(
                400, message="Bad Request: group chat was upgraded to a supergroup chat", parameters={"migrate_to_chat_id": -1001}
            )
            assert (await failing(errors.TelegramMigrateToChat)).migrate_to_chat_id == -1001
            telegram.fail(401)
            await failing(errors.TelegramUnauthorizedError)
            telegram.fail(502)
            await failing(errors.TelegramServerError)
            ada.block()
            await failing(errors.TelegramForbiddenError)
            with pytest.raises(errors.TelegramBadRequest, match="chat not found"):
                await bot.send_message(1, "x")
            assert await bot.set_webhook("http://127.0.0.1:1/hook", secret_token="s3cret", max_connections=5)  # noqa: S106  # nobody's
            with pytest.raises(errors.TelegramConflictError):
                await bot.get_updates()
            assert (await bot.get_webhook_info()).max_connections == 5
            assert await bot.delete_webhook()

    with_platforms(talk)


def test_python_telegram_bot_reads_answers_updates_files_and_errors() -> None:
    library = pytest.importorskip("telegram", reason="needs python-telegram-bot: pip install python-telegram-bot")
    errors = pytest.importorskip("telegram.error")

    async def talk(platforms: FakePlatforms) -> None:
        telegram, ada = platforms.telegram, platforms.telegram.person("Ada Lovelace", username="ada")
        async with library.Bot(telegram.token, base_url=f"{platforms.url}/bot", base_file_url=f"{platforms.url}/file/bot") as bot:
            await bot.get_updates(allowed_updates=KINDS)
            ada.start()
            keyboard = library.InlineKeyboardMarkup([[library.InlineKeyboardButton("Yes", callback_data="yes")]])
            entities = [library.MessageEntity("bold", 6, 5)]
            sent = await bot.send_message(int(ada.id), "👩‍🍳 sure?", entities=entities, reply_markup=keyboard)
            assert sent.text_html == "👩‍🍳 <b>sure?</b>"
            do_everything(ada, platforms, str(sent.message_id))
            updates = await bot.get_updates()
            assert len(updates) == 17
            photo = next(update.message for update in updates if update.message and update.message.photo)
            file = await photo.photo[-1].get_file()
            assert bytes(await file.download_as_bytearray()) == sample_picture()
            query = next(update.callback_query for update in updates if update.callback_query)
            assert await query.answer()
            telegram.fail(429, retry_after=7)
            with pytest.raises(errors.RetryAfter):
                await bot.send_message(int(ada.id), "x")
            old = platforms.telegram.group("Old")
            number = int(old.id)
            new = int(old.upgrade())
            with pytest.raises(errors.ChatMigrated) as moved:
                await bot.send_message(number, "x")
            assert moved.value.new_chat_id == new
            ada.block()
            with pytest.raises(errors.Forbidden):
                await bot.send_message(int(ada.id), "x")
            with pytest.raises(errors.BadRequest):
                await bot.send_message(1, "x")

    with_platforms(talk)
