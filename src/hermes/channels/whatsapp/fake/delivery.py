"""The messages that the account sends: the fake checks and accepts them, records them for the person, and posts their statuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hermes.channels.whatsapp.fake.checks import (
    ERROR_BY_CODE,
    ERROR_DOCS_URL,
    MEDIA_KINDS,
    check_message,
    check_read,
    group_of,
    invalid_parameter,
    recipient_of,
    refusal_for_code,
)
from hermes.channels.whatsapp.fake.people import FakeWhatsAppState, PayloadPart, WhatsAppGroup, WhatsAppPerson, unix_seconds_text
from hermes.testing.platforms.exchanges import AcceptedCall, FakeResponse, as_action
from hermes.testing.platforms.world import BucketRate, RateBucket

STATUS_DELAYS = (("sent", 0.5), ("delivered", 1.0), ("read", 3.0))
"""When WhatsApp posts each status, in the platform's seconds after it accepted the message."""


class RefusalTiming(StrEnum):
    """When WhatsApp says that the account cannot write to a person. The real one does both."""

    AT_ONCE = "at once"
    LATER = "later"


@dataclass(slots=True)
class WhatsAppRules:
    """What WhatsApp accepts."""

    refuses: RefusalTiming = RefusalTiming.AT_ONCE
    templates: dict[tuple[str, str], int] = field(default_factory=lambda: {("hello_world", "en_US"): 0, ("still_there", "en"): 1})
    """Approved templates: name and language, and how many parameters their body has."""
    pair: RateBucket = field(default_factory=lambda: RateBucket(BucketRate(6.0, 45)))
    """To one person: 45 at once, and then one every six seconds."""
    throughput: RateBucket = field(default_factory=lambda: RateBucket(BucketRate(1 / 80, 80)))
    """From the number: 80 a second."""


class FakeDelivery:
    """Brings the messages of calls to people."""

    def __init__(self, state: FakeWhatsAppState, members: Sequence[WhatsAppPerson], groups: Mapping[str, WhatsAppGroup]) -> None:
        self._state, self._members, self._groups, self._world = state, members, groups, state.platform.world
        self.rules = WhatsAppRules()
        self.pending_statuses = 0
        """How many statuses are still to be posted."""

    def read_message(self, body: Mapping[str, Any]) -> AcceptedCall:
        kind, text = check_message(body)
        group_id = group_of(body)
        if group_id is not None:
            return self._to_group(group_id, kind, text, body)
        recipient, is_number = recipient_of(body)
        if kind == "template":
            self._check_template(body["template"])
        elif kind in MEDIA_KINDS and "id" in body[kind]:
            raise invalid_parameter(f"Param {kind}['id'] is not a valid whatsapp business account media attachment ID")
        person = next((one for one in self._members if recipient == (one.phone if is_number else one.user_id)), None)
        self._check_rates(recipient)
        failing = None
        if person is None:
            failing = 131026
        elif kind != "template" and not person.is_open:
            failing = 131047
        if failing is not None and self.rules.refuses is RefusalTiming.AT_ONCE:
            raise refusal_for_code(failing)

        async def act(*, is_answered: bool) -> FakeResponse:
            self._count(recipient)
            answer = self.accept(recipient, failing=failing, data=body.get("biz_opaque_callback_data"))
            if person is not None and failing is None and not person.is_blocking:
                self._state.platform.message_log.add_received(
                    chat=person.id,
                    message_id=answer.body["messages"][0]["id"],
                    text=text,
                    kind=kind,
                    reply_to=body.get("context", {}).get("message_id"),
                    is_answered=is_answered,
                    at=self._world.clock.now(),
                    body=body,
                )
            return answer

        return AcceptedCall("messages", person.id if person else recipient, act)

    def _to_group(self, group_id: str, kind: str, text: str, body: Mapping[str, Any]) -> AcceptedCall:
        if group_id not in self._groups:
            raise refusal_for_code(131026)
        if kind != "text":
            raise refusal_for_code(131051, f"The fake accepts no {kind} for groups.")
        self._check_rates(group_id)

        async def act(*, is_answered: bool) -> FakeResponse:
            self._count(group_id)
            message_id = self._state.message_id()
            self._state.platform.message_log.add_received(
                chat=group_id,
                message_id=message_id,
                text=text,
                kind=kind,
                reply_to=body.get("context", {}).get("message_id"),
                is_answered=is_answered,
                at=self._world.clock.now(),
                body=body,
            )
            contact = {"input": group_id, "wa_id": group_id}
            accepted = [{"id": message_id, "message_status": "accepted"}]
            return FakeResponse({"messaging_product": "whatsapp", "contacts": [contact], "messages": accepted})

        return AcceptedCall("messages", group_id, act)

    def accept(self, recipient: str, *, failing: int | None, data: str | None = None) -> FakeResponse:
        """Accept a message, and start the tasks that post its statuses; each status repeats the sender's own `data`."""
        message_id = self._state.message_id()
        named = {"id": message_id, **({"biz_opaque_callback_data": data} if data else {})}
        person = next((one for one in self._members if recipient in {one.phone, one.user_id}), None)
        if failing is not None:
            steps: tuple[tuple[str, float], ...] = (("failed", 1.0),)
        elif person is None or person.is_blocking:
            steps = STATUS_DELAYS[:1]
        else:
            steps = STATUS_DELAYS if person.is_reader else STATUS_DELAYS[:2]
        for status, after_s in steps:
            self.pending_statuses += 1
            self._state.platform.start(self._post_status(person, recipient, {**named, "status": status}, after_s=after_s, failing=failing))
        contact = {"input": recipient, **({"user_id": recipient} if "." in recipient else {"wa_id": recipient})}
        accepted = [{"id": message_id, "message_status": "accepted"}]
        return FakeResponse({"messaging_product": "whatsapp", "contacts": [contact], "messages": accepted})

    async def _post_status(
        self, person: WhatsAppPerson | None, recipient: str, status: Mapping[str, Any], *, after_s: float, failing: int | None
    ) -> None:
        """Post a status of a message to the account."""
        try:
            await self._world.clock.sleep(after_s)
            item: dict[str, Any] = {**status, "timestamp": unix_seconds_text()}
            item |= {"recipient_user_id": recipient} if "." in recipient else {"recipient_id": recipient}
            if failing is not None:
                title = ERROR_BY_CODE[failing].title
                why = {"code": failing, "title": title, "message": title, "error_data": {"details": ERROR_BY_CODE[failing].details}}
                item["errors"] = [{**why, "href": ERROR_DOCS_URL}]
            elif status["status"] == "sent":
                item |= {"pricing": {"billable": False, "pricing_model": "PMP", "category": "service", "type": "free_customer_service"}}
            contact = person.contact if person and failing is None else None
            self._state.posts.add(person.lane if person else recipient, PayloadPart("messages", "statuses", item, contact))
        finally:
            self.pending_statuses -= 1

    def read_mark(self, body: Mapping[str, Any]) -> AcceptedCall:
        message_id = check_read(body)
        sender = self._state.lane_by_message_id.get(message_id)
        person = next((one for one in self._members if one.lane == sender), None)
        if person is None:
            raise refusal_for_code(131009, f"There is no message {message_id} from a person.")
        is_typing = "typing_indicator" in body
        self._check_rates(person.id)

        async def act() -> FakeResponse:
            self._count(person.id)
            if message_id not in person.seen_by_account:
                person.seen_by_account.append(message_id)
            person.typing_shown += is_typing
            self._world.changes.notify()
            return FakeResponse({"success": True})

        return AcceptedCall("typing" if is_typing else "read", person.id, as_action(act))

    def _check_rates(self, recipient: str) -> None:
        now = self._world.clock.now()
        if self.rules.throughput.wait_s(None, now) > 0:
            raise refusal_for_code(130429)
        if self.rules.pair.wait_s(recipient, now) > 0:
            raise refusal_for_code(131056)

    def _count(self, recipient: str) -> None:
        now = self._world.clock.now()
        self.rules.throughput.take(None, now)
        self.rules.pair.take(recipient, now)

    def _check_template(self, template: Mapping[str, Any]) -> None:
        key = (template["name"], template["language"]["code"])
        if key not in self.rules.templates:
            raise refusal_for_code(132001, f"template name ({key[0]}) does not exist in {key[1]}")
        given = sum(len(part.get("parameters", ())) for part in template.get("components", ()) if part["type"] == "body")
        if given != self.rules.templates[key]:
            raise refusal_for_code(
                132000, f"body: number of localizable_params ({given}) does not match the expected ({self.rules.templates[key]})"
            )
