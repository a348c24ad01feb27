"""WhatsApp's people, with a number or with a user name and a user id only; the state of a number that they write to, its files, and the
payloads of its webhooks.

A caller asks for a file by its id, and fetches it from a link that lives five minutes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.channels.meta_fake import WebhookEvent, WebhookQueue
from hermes.testing.platforms.message_log import PersonMessage, ReceivedMessage, inspect_image
from hermes.testing.platforms.platform import FakePerson, FakePlatform
from hermes.testing.platforms.world import SeededRandom, unix_seconds

LINK_LIFETIME_S = 300.0
MEDIA_PATH = "/whatsapp_business/attachments/"


@dataclass(frozen=True, slots=True)
class FakeWhatsAppFile:
    """One file."""

    id: str
    data: bytes
    mime_type: str

    @property
    def sha256(self) -> str:
        return base64.b64encode(hashlib.sha256(self.data).digest()).decode()


@dataclass(slots=True)
class FakeWhatsAppFiles:
    """All files that people sent to one number, and the links to them."""

    random: SeededRandom
    salt: str
    """Makes the file ids of two numbers different."""
    _by_id: dict[str, FakeWhatsAppFile] = field(default_factory=dict)
    _links: dict[str, tuple[FakeWhatsAppFile, float]] = field(default_factory=dict)
    """By the query of the link, exactly as the caller got it."""

    def add(self, data: bytes, mime_type: str) -> FakeWhatsAppFile:
        file = FakeWhatsAppFile(self.random.digits(16, "medium", self.salt, len(self._by_id)), data, mime_type)
        self._by_id[file.id] = file
        return file

    def message_part(self, file: FakeWhatsAppFile) -> dict[str, Any]:
        """The file as a message contains it. Its URL is Meta's own, which needs a token and does not work here: ask by id."""
        url = f"https://lookaside.fbsbx.com{MEDIA_PATH}?{self._query(file, 'webhook')}"
        return {"mime_type": file.mime_type, "sha256": file.sha256, "id": file.id, "url": url}

    def link(self, media_id: str, host: str, now: float) -> dict[str, Any] | None:
        """What Meta says about a file, with a link that works for five minutes; None for an unknown file."""
        file = self._by_id.get(media_id)
        if file is None:
            return None
        query = self._query(file, "getMedia")
        self._links[query] = (file, now + LINK_LIFETIME_S)
        about = {"mime_type": file.mime_type, "sha256": file.sha256, "file_size": len(file.data), "id": file.id}
        return {"url": f"{host}{MEDIA_PATH}?{query}", **about, "messaging_product": "whatsapp"}

    def at(self, query: str, now: float) -> FakeWhatsAppFile | None:
        """The file behind a link; None unless the query is exactly that of a link that has not expired."""
        file, until = self._links.get(query, (None, 0.0))
        return file if now <= until else None

    def _query(self, file: FakeWhatsAppFile, source: str) -> str:
        salt = len(self._links)
        expires = unix_seconds() + int(LINK_LIFETIME_S)
        return f"mid={file.id}&source={source}&ext={expires}&hash={self.random.letters(43, 'link', file.id, salt)}"


SPREAD_CHANCE = 0.3
"""How likely the next event of a batch begins a new entry, or a new change."""


@dataclass(frozen=True, slots=True)
class PayloadPart:
    """One item, and its place in a payload."""

    field: str
    """The change's field: `messages`, `user_id_update`."""
    into: str
    """The list in the change's value: `messages`, `statuses`, …"""
    item: Mapping[str, Any]
    contact: Mapping[str, Any] | None = None


@dataclass(slots=True)
class FakeWhatsAppState:
    """The state that the people and the calls of one number share."""

    platform: FakePlatform
    media: FakeWhatsAppFiles
    account_id: str
    phone_number_id: str
    display_number: str
    posts: WebhookQueue = field(init=False)
    lane_by_message_id: dict[str, str] = field(default_factory=dict)
    """The conversation of each message that a person sent."""
    message_count: int = 0

    def message_id(self) -> str:
        self.message_count += 1
        return f"wamid.HBgM{self.platform.world.random.letters(48, 'wamid', self.platform.name, self.message_count)}=="

    def record_message(self, message: PersonMessage, lane: str, item: Mapping[str, Any], contact: Mapping[str, Any]) -> str:
        """Record a person's message in the message log, and send it to the receiver."""
        self.lane_by_message_id[message.message_id] = lane
        self.platform.message_log.add_person_message(message)
        self.posts.add(lane, PayloadPart("messages", "messages", item, contact))
        return message.message_id

    def compose(self, events: Sequence[WebhookEvent]) -> dict[str, Any]:
        """Several events as one payload, spread over all of its levels."""
        random = self.platform.world.random
        entries: list[dict[str, Any]] = []
        for place, event in enumerate(events):
            part: PayloadPart = event.part
            if not entries or random.happens(SPREAD_CHANCE, "entry", event.lane, event.place, place):
                entries.append({"id": self.account_id, "changes": []})
            changes = entries[-1]["changes"]
            last = changes[-1] if changes else None
            fits = last is not None and last["field"] == part.field and part.into in last["value"]
            if not fits or random.happens(SPREAD_CHANCE, "change", event.lane, event.place, place):
                changes.append({"value": self._value(), "field": part.field})
            value = changes[-1]["value"]
            if part.contact is not None and part.contact not in value.setdefault("contacts", []):
                value["contacts"].append(part.contact)
            value.setdefault(part.into, []).append(part.item)
        return {"object": "whatsapp_business_account", "entry": entries}

    def _value(self) -> dict[str, Any]:
        metadata = {"display_phone_number": self.display_number, "phone_number_id": self.phone_number_id}
        return {"messaging_product": "whatsapp", "metadata": metadata}


def unix_seconds_text() -> str:
    """The time as WhatsApp writes it."""
    return str(unix_seconds())


REPLY_WINDOW_S = 24 * 3_600.0
"""How long after a person's last message the account may send them free text."""


class WhatsAppGroup:
    """A group with the number in it. All members see the messages that arrive, and the number receives every message of the group."""

    def __init__(self, state: FakeWhatsAppState, title: str, number: int) -> None:
        self._state, self.title = state, title
        self.id = f"Y2FwaV9ncm91cDo{state.platform.world.random.letters(24, 'group', state.platform.name, number)}"

    @property
    def received(self) -> list[ReceivedMessage]:
        return self._state.platform.message_log.of(self.id)


class WhatsAppPerson(FakePerson):
    """A person on WhatsApp, known by number; a person with a user name may be known by user id only."""

    def __init__(self, state: FakeWhatsAppState, name: str, phone: str | None, username: str | None, number: int) -> None:
        super().__init__(name)
        self._state, self._number = state, number
        self.phone, self.username = phone, username
        self._rotations = 0
        self.user_id = self._new_user_id()
        """The business-scoped user id."""

    @property
    def id(self) -> str:
        return self.phone or self.user_id

    @property
    def platform(self) -> FakePlatform:
        return self._state.platform

    @property
    def lane(self) -> str:
        """Their conversation, whatever number and user id they have."""
        return f"person {self._number}"

    @property
    def is_open(self) -> bool:
        """Whether the account may send them free text: they wrote within the last 24 hours."""
        return self.last_wrote_at is not None and self.platform.world.clock.now() - self.last_wrote_at < REPLY_WINDOW_S

    def say(self, text: str, *, reply_to: str | None = None, group: WhatsAppGroup | None = None) -> str:
        return self._send("text", text, {"text": {"body": text}}, reply_to=reply_to, group=group)

    def send_picture(self, picture: bytes | None = None, caption: str = "") -> str:
        image = inspect_image(picture)
        return self._send_file("image", image.data, image.mime_type, caption)

    def send_album(self, pictures: Sequence[bytes | None], caption: str = "") -> list[str]:
        """WhatsApp has no albums: sends the images one by one, with the caption at the first."""
        return [self.send_picture(picture, caption if place == 0 else "") for place, picture in enumerate(pictures)]

    def send_voice(self, sound: bytes = b"OggS") -> str:
        return self._send_file("audio", sound, "audio/ogg; codecs=opus", "", voice=True)

    def send_document(self, data: bytes, name: str = "menu.pdf", mime_type: str = "application/pdf", caption: str = "") -> str:
        return self._send_file("document", data, mime_type, caption, filename=name)

    def send_location(self, latitude: float, longitude: float) -> str:
        return self._send("location", "", {"location": {"latitude": latitude, "longitude": longitude}})

    @property
    def own_acts(self) -> Mapping[str, Callable[[Mapping[str, Any]], str | None]]:
        def press(body: Mapping[str, Any]) -> str:
            data = str(body["data"])
            return self.press(str(body["message_id"]), data, str(body.get("title", data)))

        return {"press": press, "number": lambda body: self.change_number(str(body["phone"]))}

    def press(self, message_id: str, button_id: str, title: str) -> str:
        """Press a button of an interactive message."""
        reply = {"type": "button_reply", "button_reply": {"id": button_id, "title": title}}
        return self._send("interactive", title, {"interactive": reply}, reply_to=message_id)

    def send_unsupported(self) -> str:
        """Send something that the API does not support: a poll, an image to be viewed once."""
        why = {"code": 131051, "title": "Message type unknown", "message": "Message type unknown"}
        return self._send("unsupported", "", {"errors": [{**why, "error_data": {"details": "Message type is currently not supported."}}]})

    def react(self, message_id: str, emoji: str) -> None:
        sign = {"message_id": message_id, **({"emoji": emoji} if emoji else {})}
        item = {**self._head("reaction"), "reaction": sign}
        self._state.posts.add(self.lane, PayloadPart("messages", "messages", item, self.contact))

    def edit(self, message_id: str, text: str) -> None:
        """Edit one of their messages."""
        item = {**self._head("edit"), "edit": {"original_message_id": message_id, "message": {"type": "text", "text": {"body": text}}}}
        self._state.posts.add(self.lane, PayloadPart("messages", "messages", item, self.contact))

    def revoke(self, message_id: str) -> None:
        """Delete one of their messages for all."""
        item = {**self._head("revoke"), "revoke": {"original_message_id": message_id}}
        self._state.posts.add(self.lane, PayloadPart("messages", "messages", item, self.contact))

    def change_number(self, phone: str) -> None:
        """Change the number, and with it the user id. WhatsApp tells the account; the old number belongs to no person then."""
        old_id, old_phone, old_user_id = self.id, self.phone, self.user_id
        head = self._head("system")
        self.phone, self.user_id = phone, self._new_user_id()
        words = f"User {self.name} changed from {old_phone} to {phone}"
        system = {"body": words, "wa_id": phone, "user_id": self.user_id, "type": "user_changed_number"}
        self._state.posts.add(self.lane, PayloadPart("messages", "messages", {**head, "system": system}))
        self._post_user_id_change(old_user_id)
        self.platform.message_log.move(old_id, self.id)

    def rotate_user_id(self) -> None:
        """Get another user id; WhatsApp changes it now and then."""
        old_id, old_user_id = self.id, self.user_id
        self.user_id = self._new_user_id()
        self._post_user_id_change(old_user_id)
        if old_id != self.id:
            self.platform.message_log.move(old_id, self.id)

    @property
    def contact(self) -> dict[str, Any]:
        """The person, as payloads contain them."""
        profile = {"name": self.name, **({"username": self.username} if self.username else {})}
        return {"profile": profile, **({"wa_id": self.phone} if self.phone else {}), "user_id": self.user_id}

    def _post_user_id_change(self, old: str) -> None:
        known = {"wa_id": self.phone} if self.phone else {}
        change = {"detail": f"User id for {self.name} has been updated.", "user_id": {"previous": old, "current": self.user_id}}
        contact = {key: value for key, value in self.contact.items() if key != "user_id"}
        self._state.posts.add(
            self.lane, PayloadPart("user_id_update", "user_id_update", {**known, **change, "timestamp": unix_seconds_text()}, contact)
        )

    def _new_user_id(self) -> str:
        self._rotations += 1
        return f"ID.{self.platform.world.random.digits(16, 'user id', self.platform.name, self._number, self._rotations)}"

    def _head(self, kind: str) -> dict[str, Any]:
        sender = {"from": self.phone} if self.phone else {}
        return {**sender, "from_user_id": self.user_id, "id": self._state.message_id(), "timestamp": unix_seconds_text(), "type": kind}

    def _send_file(self, kind: str, data: bytes, mime_type: str, caption: str, **about: Any) -> str:
        part = {
            **self._state.media.message_part(self._state.media.add(data, mime_type)),
            **about,
            **({"caption": caption} if caption else {}),
        }
        return self._send(kind, caption, {kind: part})

    def _send(
        self, kind: str, text: str, content: dict[str, Any], *, reply_to: str | None = None, group: WhatsAppGroup | None = None
    ) -> str:
        now = self.platform.world.clock.now()
        item = {**self._head(kind), **content, **({"group_id": group.id} if group else {})}
        if group is None:
            self.last_wrote_at = now
        if reply_to is not None:
            item["context"] = {"from": self._state.display_number, "id": reply_to}
        message = PersonMessage(chat=group.id if group else self.id, sender=self.id, message_id=item["id"], text=text, kind=kind, at=now)
        return self._state.record_message(message, group.id if group else self.lane, item, self.contact)
