"""WhatsApp's people: with a number, or with a user name and a user id only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.demo.platforms.message_log import PersonMessage, ReceivedMessage
from hermes.demo.platforms.person import FakePerson, inspect_image
from hermes.demo.platforms.platform import FakePlatform
from hermes.demo.platforms.whatsapp.state import FakeWhatsAppState, PayloadPart, unix_seconds_text

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
