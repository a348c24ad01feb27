"""Accounts at platforms: what Hermes is told of them, and the webhooks that their platforms send, right down to secret and signature.

Everything follows from a message's number: who sends it, to which account, under which id. So whoever knows the numbers knows what must be
in the inbox. Standard library only: the senders import this, and are to be light."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

TALK = (
    "good morning, how are things with you today",
    "I was thinking about our trip next month and what to pack",
    "tell me something nice about Bali in the rainy season",
    "my sister will join us with her two dogs",
    "that sounds like a plan, let us talk about it tomorrow",
)
"""What people say without needing a tool."""


class Kind(StrEnum):
    """The ways in to Hermes."""

    TELEGRAM = "Telegram"
    DIALOG360 = "WhatsApp, 360dialog"
    CLOUD = "WhatsApp, Cloud API"
    INSTAGRAM = "Instagram"


@dataclass(frozen=True, slots=True)
class Account:
    """One account at a platform."""

    kind: Kind
    number: int

    @property
    def name(self) -> str:
        return f"{self.kind.name.lower()}-{self.number}"

    @property
    def platform(self) -> str:
        return "whatsapp" if self.kind in {Kind.DIALOG360, Kind.CLOUD} else self.kind.name.lower()

    @property
    def id(self) -> str:
        """What the platform calls it: the bot, the number, the professional account."""
        return str(1_000_000_000 + self.number)

    @property
    def secret(self) -> str:
        """What its webhooks prove themselves with."""
        return f"the-secret-of-{self.name}"

    def about(self, url: str) -> dict[str, str]:
        """What Hermes is told: where its platform is, and what opens it. Whoever writes is a user at once."""
        told = {"base_url": url, "is_open": "yes"}
        match self.kind:
            case Kind.TELEGRAM:
                return {**told, "token": f"{self.id}:{'A' * 35}", "secret": self.secret, "username": "bench_bot"}
            case Kind.DIALOG360:
                return {**told, "api_key": f"the-key-of-{self.name}", "webhook_secrets": self.secret}
            case Kind.CLOUD:
                return {**told, "phone_number_id": self.id, "access_token": f"the-token-of-{self.name}", "app_secrets": self.secret}
            case Kind.INSTAGRAM:
                return {**told, "instagram_id": self.id, "access_token": f"the-token-of-{self.name}", "app_secrets": self.secret}

    def event_key(self, number: int) -> str:
        """Under which key Hermes has to store a message."""
        return f"{self.id}:{self._message_id(number)}"

    def _message_id(self, number: int) -> str:
        match self.kind:
            case Kind.TELEGRAM:
                return str(5_000_000_000 + number)
            case Kind.INSTAGRAM:
                return f"aWdfZAG1faXRlbToxOklHTWVzc2FnZAUlEOjE3ODQxNDA1ODIyMzA0OTE0OjM0MDI4MjM2Njg0MTcx{number:012d}ZD"
            case _:
                return f"wamid.HBgMNjI4MTIwMDAwMDAwFQIAEhggQjRENTdGRTM2OUM5{number:012d}AA=="

    # --- webhooks

    def webhook(self, port: int, sender: int, number: int, text: str, now: float) -> bytes:
        """A whole request, as the platform would post it."""
        path, headers = f"/webhooks/{self.platform}/{self.name}", ""
        body = json.dumps(self._payload(sender, number, text, now), separators=(",", ":")).replace("/", "\\/").encode()
        match self.kind:
            case Kind.TELEGRAM:
                headers = f"X-Telegram-Bot-Api-Secret-Token: {self.secret}\r\n"
            case Kind.DIALOG360:
                path = f"{path}/{self.secret}"
            case _:
                headers = f"X-Hub-Signature-256: sha256={hmac.digest(self.secret.encode(), body, 'sha256').hex()}\r\n"
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n{headers}"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def _payload(self, sender: int, number: int, text: str, now: float) -> Mapping[str, Any]:
        match self.kind:
            case Kind.TELEGRAM:
                return self._update(5_000_000_000 + sender, number, text, now)
            case Kind.INSTAGRAM:
                return self._messaging(str(1_780_000_000_000 + sender), number, text, now)
            case _:
                return self._change(f"62812{sender:08d}", sender, number, text, now)

    def _update(self, person: int, number: int, text: str, now: float) -> Mapping[str, Any]:
        sender = {"id": person, "is_bot": False, "first_name": "Ada", "language_code": "en"}
        chat = {"id": person, "first_name": "Ada", "type": "private"}
        message = {"message_id": number + 1, "from": sender, "chat": chat, "date": int(now), "text": text}
        return {"update_id": int(self._message_id(number)), "message": message}

    def _change(self, phone: str, sender: int, number: int, text: str, now: float) -> Mapping[str, Any]:
        user_id = f"ID.{sender:016d}"
        contact = {"profile": {"name": "Ada"}, "wa_id": phone, "user_id": user_id}
        head = {"from": phone, "from_user_id": user_id, "id": self._message_id(number), "timestamp": str(int(now)), "type": "text"}
        value = {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": "6285550100", "phone_number_id": self.id},
            "contacts": [contact],
            "messages": [{**head, "text": {"body": text}}],
        }
        return {"object": "whatsapp_business_account", "entry": [{"id": "1020304050", "changes": [{"value": value, "field": "messages"}]}]}

    def _messaging(self, person: str, number: int, text: str, now: float) -> Mapping[str, Any]:
        at = int(now * 1000)
        message = {"mid": self._message_id(number), "text": text}
        item = {"sender": {"id": person}, "recipient": {"id": self.id}, "timestamp": at, "message": message}
        return {"object": "instagram", "entry": [{"time": at, "id": self.id, "messaging": [item]}]}


ONE_OF_EACH = tuple(Account(kind, 1) for kind in Kind)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Many people, each at one account, who speak one after the other, again and again."""

    accounts: Sequence[Account]
    people: int

    def account(self, number: int) -> Account:
        """To whom a message is sent."""
        return self.accounts[number % self.people % len(self.accounts)]

    def webhook(self, port: int, number: int, now: float) -> bytes:
        return self.account(number).webhook(port, number % self.people, number, f"{TALK[number % len(TALK)]} (m{number})", now)

    def keys(self, numbers: Sequence[int]) -> set[tuple[str, str]]:
        """Account and event key of messages: what the inbox must hold of them."""
        return {(self.account(number).name, self.account(number).event_key(number)) for number in numbers}
