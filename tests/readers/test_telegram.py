"""aiogram and python-telegram-bot read the updates that our tests are made of, and take the calls that Hermes makes."""

import json
from typing import Any

import pytest
from hypothesis import given, settings

from hermes.channels.telegram import BotApi
from hermes.channels.text import BLOCK_KINDS, read_markdown
from hermes.ports.channels import Destination, InboundMessage, PlatformRequest
from tests.unit.channels.telegram.updates import API, GROUP, NINA, SAMPLES, SECRET, TELEGRAM, happened
from tests.unit.channels.text.answers import MARKDOWN

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs
AIOGRAM = "needs aiogram: pip install aiogram"
TIMES = {"date", "edit_date", "until_date"}
PTB = "needs python-telegram-bot: pip install python-telegram-bot"


def calls() -> list[PlatformRequest | None]:
    [body] = TELEGRAM.render("**bold** [x](https://example.org)\n\n```py\n1\n```\n\n> said")
    return [
        TELEGRAM.encode(body, Destination(channel_id=f"{NINA}@Cx", thread="7", reply_to="41")),
        TELEGRAM.typing(Destination(channel_id=str(GROUP), thread="7"), message_id=None),
        TELEGRAM.typing(Destination(channel_id=str(NINA)), message_id="callback:1"),
        *(
            API.me(),
            API.set_webhook("https://example.org", SECRET),
            API.delete_webhook(),
            API.webhook_info(),
            API.updates(5),
            API.file("F"),
        ),
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_aiogram_reads_every_sample(name: str) -> None:
    types = pytest.importorskip("aiogram.types", reason=AIOGRAM)
    read_back = types.Update.model_validate(SAMPLES[name]).model_dump(mode="json", exclude_none=True, by_alias=True)
    assert contains(read_back, SAMPLES[name])
    for heard in happened(SAMPLES[name]):
        if isinstance(heard, InboundMessage) and "message" in SAMPLES[name]:
            message = types.Update.model_validate(SAMPLES[name]).message
            assert str(message.from_user.id) == heard.envelope.event.sender_id
            assert message.date == heard.envelope.sent_at


def test_aiogram_has_every_call_and_every_parameter() -> None:
    methods = pytest.importorskip("aiogram.methods", reason=AIOGRAM)
    for call in calls():
        assert call is not None
        name = call.url.rpartition("/")[2]
        method = getattr(methods, name[0].upper() + name[1:])
        assert (call.json or {}).keys() <= method.model_fields.keys()
        method.model_validate(dict(call.json or {}))


@settings(max_examples=200, deadline=None)
@given(MARKDOWN)
def test_aiogram_finds_the_same_code_marked(markdown: str) -> None:
    types = pytest.importorskip("aiogram.types", reason=AIOGRAM)
    document, bodies = read_markdown(markdown), TELEGRAM.render(markdown)
    found = [
        types.MessageEntity.model_validate(entity).extract_from(body["text"])
        for body in bodies
        for entity in body.get("entities", ())
        if entity["type"] == "pre"
    ]
    assert len(bodies) > 1 or found == [document.text[span.start : span.end] for span in document.spans if span.kind in BLOCK_KINDS]


@pytest.mark.parametrize("name", SAMPLES)
def test_python_telegram_bot_reads_every_sample(name: str) -> None:
    telegram = pytest.importorskip("telegram", reason=PTB)
    update = telegram.Update.de_json(json.loads(json.dumps(SAMPLES[name])), None)
    assert contains(update.to_dict(), SAMPLES[name])


def test_python_telegram_bot_takes_every_entity() -> None:
    telegram = pytest.importorskip("telegram", reason=PTB)
    [body] = TELEGRAM.render("😀 **bold 😀** _it_ `c` [x](https://example.org)\n\n> said")
    entities = [telegram.MessageEntity.de_json(dict(entity), None) for entity in body["entities"]]
    message = telegram.Message(message_id=1, date=None, chat=None, text=body["text"], entities=entities)
    assert sorted(message.parse_entities().values()) == ["bold 😀", "c", "it", "said", "x"]


def test_the_token_is_where_their_clients_have_it() -> None:
    telegram = pytest.importorskip("telegram", reason=PTB)
    bot = telegram.Bot(API.token)
    assert API.me().url == f"{bot.base_url}/getMe"
    assert API.download("photos/1.jpg") == BotApi(token=API.token).download("photos/1.jpg")
    download = API.download("photos/1.jpg")
    assert download is not None
    assert download.url == f"{bot.base_file_url}/photos/1.jpg"


def contains(read_back: Any, written: Any) -> bool:
    """Whether everything that was written was also read. They add defaults, leave out empty lists, and spell times in their own way."""
    if isinstance(written, dict):
        return all(key in TIMES or value == [] or (key in read_back and contains(read_back[key], value)) for key, value in written.items())
    if isinstance(written, list):
        return len(read_back) == len(written) and all(map(contains, read_back, written))
    return bool(read_back == written)
