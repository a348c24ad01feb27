"""Telegram's chats with their messages and files, people and groups, and the updates that their actions send to the bot.

Message ids begin at 1 in every chat. The bot finds a file by its id, and fetches it from a link that holds the token and expires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.channels.telegram.fake.checks import bad_request
from hermes.channels.telegram.fake.updates import BotUpdates
from hermes.testing.platforms.message_log import PersonMessage, ReceivedMessage, inspect_image
from hermes.testing.platforms.platform import FakePerson, FakePlatform
from hermes.testing.platforms.world import SeededRandom, unix_seconds

MAX_FILE_BYTES = 20 * 1024 * 1024
LINK_LIFETIME_S = 3_600.0
FOLDERS = {"image/png": "photos/file_{}.png", "image/jpeg": "photos/file_{}.jpg", "audio/ogg": "voice/file_{}.oga"}


@dataclass(slots=True)
class FakeTelegramFile:
    """One file."""

    file_id: str
    unique_id: str
    data: bytes
    path: str
    link_until: float = 0.0
    """Until when its link works; 0: the bot has not asked for one."""


@dataclass(slots=True)
class FakeTelegramFiles:
    """All files that people sent."""

    random: SeededRandom
    _by_id: dict[str, FakeTelegramFile] = field(default_factory=dict)

    def add(self, data: bytes, mime_type: str) -> FakeTelegramFile:
        number = len(self._by_id) + 1
        file_id, unique_id = f"AgACAgUAAxkBAAM{self.random.letters(68, 'file', number)}", f"AQAD{self.random.letters(12, 'file', number)}"
        file = FakeTelegramFile(file_id, unique_id, data, FOLDERS.get(mime_type, "documents/file_{}").format(number))
        self._by_id[file_id] = file
        return file

    def link(self, file_id: str, now: float) -> FakeTelegramFile:
        """The file, with a link that works for at least an hour from now."""
        file = self._by_id.get(file_id)
        if file is None:
            raise bad_request("wrong file_id or the file is temporarily unavailable")
        if len(file.data) > MAX_FILE_BYTES:
            raise bad_request("file is too big")
        file.link_until = now + LINK_LIFETIME_S
        return file

    def at(self, path: str, now: float) -> bytes | None:
        """The file behind a link; None if there is none, or the link has expired."""
        return next((file.data for file in self._by_id.values() if file.path == path and now <= file.link_until), None)


@dataclass(slots=True)
class TelegramChat:
    """A private chat, a group or a supergroup."""

    id: int
    about: Mapping[str, Any]
    """Its `type` and name, as messages contain them."""
    messages: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    threads: set[int] = field(default_factory=set)
    bot_may_write: bool = False
    """A person has written in this chat. In a private chat the bot may not write before."""
    moved_to: int | None = None
    """The id of the supergroup that it became."""

    @property
    def is_group(self) -> bool:
        return self.id < 0

    def add(self, sender: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
        """Add a message, in the form in which Telegram sends messages."""
        number = len(self.messages) + 1
        message = {"message_id": number, "from": sender, "chat": {"id": self.id, **self.about}, "date": unix_seconds(), **content}
        self.messages[number] = message
        return message


@dataclass(slots=True)
class ButtonPress:
    """A button that a person pressed. It waits until the bot answers."""

    id: str
    at: float
    answer: Mapping[str, Any] | None = None


@dataclass(slots=True)
class FakeTelegramState:
    """The state that people and the bot's methods share."""

    platform: FakePlatform
    updates: BotUpdates
    files: FakeTelegramFiles
    bot: Mapping[str, Any]
    """The bot, as messages contain it."""
    chats: dict[int, TelegramChat] = field(default_factory=dict)
    presses: dict[str, ButtonPress] = field(default_factory=dict)

    def record_message(
        self, chat: TelegramChat, sender: Mapping[str, Any], kind: str, text: str, content: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Record a person's message in the chat and in the message log, and send it to the bot."""
        chat.bot_may_write = True
        message = chat.add(sender, content)
        at = self.platform.world.clock.now()
        sent = PersonMessage(
            chat=str(chat.id), sender=str(sender["id"]), message_id=str(message["message_id"]), text=text, kind=kind, at=at
        )
        self.platform.message_log.add_person_message(sent)
        self.updates.add("message", message, str(chat.id))
        return message

    def file(self, data: bytes, mime_type: str, /, **about: Any) -> dict[str, Any]:
        """Store a file, and return it as messages contain it."""
        stored = self.files.add(data, mime_type)
        return {"file_id": stored.file_id, "file_unique_id": stored.unique_id, "file_size": len(data), **about}

    def number(self, digits: int, *about: object) -> int:
        return int(self.platform.world.random.digits(digits, *about))


def command_entities(text: str) -> Sequence[Mapping[str, Any]]:
    """The entity that Telegram adds for a command at the beginning of a message."""
    if not text.startswith("/") or len(text) < 2:
        return ()
    return ({"type": "bot_command", "offset": 0, "length": len(text.split(maxsplit=1)[0])},)


class TelegramGroup:
    """A group with the bot in it. All members see the messages that arrive."""

    def __init__(self, state: FakeTelegramState, title: str, number: int) -> None:
        self._state, self.title = state, title
        self._chat = TelegramChat(-state.number(10, "group", number), {"type": "group", "title": title})
        state.chats[self._chat.id] = self._chat

    @property
    def id(self) -> str:
        return str(self._chat.id)

    @property
    def chat(self) -> TelegramChat:
        return self._chat

    @property
    def received(self) -> list[ReceivedMessage]:
        return self._state.platform.message_log.of(self.id)

    def open_topic(self) -> int:
        """Open a topic; it shows only messages that name it. Returns its thread id."""
        thread = len(self._chat.messages) + 1
        self._chat.add(self._state.bot, {"forum_topic_created": {"name": f"Topic {thread}", "icon_color": 7322096}})
        self._chat.threads.add(thread)
        self._chat.about = {**self._chat.about, "is_forum": True}
        return thread

    def upgrade(self) -> str:
        """Become a supergroup with a new id. A bot that writes to the old id is told the new one. Returns the new id."""
        state, old = self._state, self._chat
        new = TelegramChat(
            -1_000_000_000_000 - state.number(10, "supergroup", old.id),
            {"type": "supergroup", "title": self.title},
            bot_may_write=old.bot_may_write,
        )
        state.chats[new.id], self._chat, old.moved_to = new, new, new.id
        state.updates.add("message", old.add(state.bot, {"migrate_to_chat_id": new.id}), str(old.id))
        state.updates.add("message", new.add(state.bot, {"migrate_from_chat_id": old.id}), str(new.id))
        state.platform.message_log.move(str(old.id), str(new.id))
        return self.id


class TelegramPerson(FakePerson):
    """A person on Telegram. The id of their chat with the bot is their own id."""

    def __init__(self, state: FakeTelegramState, name: str, username: str | None, language: str, number: int) -> None:
        super().__init__(name)
        self._state = state
        first, _, last = name.partition(" ")
        more = {"last_name": last} if last else {}
        more |= {"username": username} if username else {}
        self._id = 5_000_000_000 + state.number(9, "person", number)
        self.about: dict[str, Any] = {"id": self._id, "is_bot": False, "first_name": first, **more, "language_code": language}
        self.chat = TelegramChat(self._id, {"type": "private", "first_name": first, **more})
        state.chats[self._id] = self.chat
        self.is_deactivated = False
        """They have deleted their account."""

    @property
    def id(self) -> str:
        return str(self._id)

    @property
    def platform(self) -> FakePlatform:
        return self._state.platform

    def start(self) -> str:
        """Press the Start button, with which every chat with a bot begins."""
        return self.say("/start")

    def say(self, text: str, *, reply_to: str | None = None, group: TelegramGroup | None = None, thread: int | None = None) -> str:
        content: dict[str, Any] = {"text": text}
        if entities := command_entities(text):
            content["entities"] = list(entities)
        return self._send("text", text, content, reply_to=reply_to, group=group, thread=thread)

    def send_picture(self, picture: bytes | None = None, caption: str = "", *, group: TelegramGroup | None = None) -> str:
        return self._send("photo", caption, self._photo(picture, caption), group=group)

    def send_album(self, pictures: Sequence[bytes | None], caption: str = "") -> list[str]:
        album = str(self._state.number(17, "album", self._id, len(self.chat.messages)))
        return [
            self._send("photo", words, {**self._photo(picture, words), "media_group_id": album})
            for picture, words in zip(pictures, [caption, *[""] * len(pictures)], strict=False)
        ]

    def send_voice(self, sound: bytes = b"OggS") -> str:
        return self._send("voice", "", {"voice": self._state.file(sound, "audio/ogg", duration=2, mime_type="audio/ogg")})

    def send_document(self, data: bytes, name: str = "menu.pdf", mime_type: str = "application/pdf", caption: str = "") -> str:
        content = {"document": self._state.file(data, mime_type, file_name=name, mime_type=mime_type)}
        return self._send("document", caption, {**content, **({"caption": caption} if caption else {})})

    def send_location(self, latitude: float, longitude: float) -> str:
        return self._send("location", "", {"location": {"latitude": latitude, "longitude": longitude}})

    def send_sticker(self, emoji: str = "👍") -> str:
        shape = {"width": 512, "height": 512, "type": "regular", "is_animated": True, "is_video": False, "emoji": emoji}
        return self._send("sticker", emoji, {"sticker": self._state.file(b"sticker", "application/x-tgsticker", **shape)})

    def edit(self, message_id: str, text: str) -> None:
        """Edit one of their messages."""
        edited = {**self.chat.messages[int(message_id)], "text": text, "edit_date": unix_seconds()}
        self.chat.messages[int(message_id)] = edited
        self._state.updates.add("edited_message", edited, self.id)

    @property
    def own_acts(self) -> Mapping[str, Callable[[Mapping[str, Any]], str | None]]:
        return {"press": lambda body: self.press(str(body["message_id"]), str(body["data"]))}

    def press(self, message_id: str, data: str) -> str:
        """Press a button below a message of the bot. Returns the id that the bot must answer; until then the button keeps waiting."""
        press = ButtonPress(str(self._state.number(18, "press", self._id, len(self._state.presses))), self.platform.world.clock.now())
        self._state.presses[press.id] = press
        message = self.chat.messages[int(message_id)]
        query = {"id": press.id, "from": self.about, "message": message, "chat_instance": self.id, "data": data}
        self._state.updates.add("callback_query", query, f"press:{self.id}")
        return press.id

    def react(self, message_id: str, emoji: str) -> None:
        sign = [{"type": "emoji", "emoji": emoji}] if emoji else []
        chat = {"id": self._id, **self.chat.about}
        changed = {
            "chat": chat,
            "message_id": int(message_id),
            "user": self.about,
            "date": unix_seconds(),
            "old_reaction": [],
            "new_reaction": sign,
        }
        self._state.updates.add("message_reaction", changed, self.id)

    def block(self) -> None:
        super().block()
        self._change_membership("member", "kicked")

    def unblock(self) -> None:
        super().unblock()
        self._change_membership("kicked", "member")

    def deactivate(self) -> None:
        """Delete their account."""
        self.is_deactivated = True

    def _change_membership(self, old: str, new: str) -> None:
        states = {
            name: {"user": self._state.bot, "status": status, **({"until_date": 0} if status == "kicked" else {})}
            for name, status in (("old_chat_member", old), ("new_chat_member", new))
        }
        changed = {"chat": {"id": self._id, **self.chat.about}, "from": self.about, "date": unix_seconds(), **states}
        self._state.updates.add("my_chat_member", changed, self.id)

    def _photo(self, picture: bytes | None, caption: str) -> dict[str, Any]:
        image = inspect_image(picture)
        small = self._state.file(image.data[:200], image.mime_type, width=image.width // 4 or 1, height=image.height // 4 or 1)
        whole = self._state.file(image.data, image.mime_type, width=image.width, height=image.height)
        captioned = {"caption": caption} if caption else {}
        return {"photo": [small, whole], **captioned, **({"caption_entities": found} if (found := command_entities(caption)) else {})}

    def _send(
        self,
        kind: str,
        text: str,
        content: dict[str, Any],
        *,
        reply_to: str | None = None,
        group: TelegramGroup | None = None,
        thread: int | None = None,
    ) -> str:
        chat = group.chat if group else self.chat
        if reply_to is not None:
            content["reply_to_message"] = {key: value for key, value in chat.messages[int(reply_to)].items() if key != "reply_to_message"}
        if thread is not None:
            content |= {"message_thread_id": thread, "is_topic_message": True}
        if chat is self.chat:
            self.last_wrote_at = self.platform.world.clock.now()
            self.is_blocking = False  # Telegram shows no input field to a person who blocks a bot, so a person who writes has unblocked it
        return str(self._state.record_message(chat, self.about, kind, text, content)["message_id"])
