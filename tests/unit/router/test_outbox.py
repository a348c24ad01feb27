"""An answer on its way outward: rendered for its platform, in the outbox before the commit, sent or announced after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any
from uuid import UUID

from hermes.ports.inbox import AnswerSignal, Claim
from hermes.ports.outbox import OutboxState
from hermes.router.outbox import deliver_answer, first_state, put_answer, render_text
from hermes.router.services import Services
from hermes.testing.memory import RouterHarness
from hermes.turn import SEND_PLATFORMS, Envelope, MessageEvent, Platform
from tests.fakes.simple_channel import SimpleChannel
from tests.flows.directory import Directory
from tests.unit.router.test_pipeline import house


def envelope_on(platform: Platform, account: str = "bali") -> Envelope:
    return Envelope(event=MessageEvent(platform=platform, sender_id="42", text="hi"), account=account, channel_id="42", event_key="k")


class Mute(SimpleChannel):
    """A channel that nothing is left of a text in."""

    def render(self, markdown: str) -> Sequence[Mapping[str, Any]]:
        return []


def test_an_answer_is_rendered_as_its_platform_wants_it_and_never_vanishes() -> None:
    channels, here = Directory([SimpleChannel()]), envelope_on(Platform.TELEGRAM)
    assert render_text(here, "one\n\n*two*", channels) == [{"text": "one"}, {"text": "two", "entities": [{"type": "bold"}]}]
    assert render_text(replace(here, account="lombok"), "one\n\ntwo", channels) == ["one\n\ntwo"], "it is rendered when it is sent"
    assert render_text(here, " \n\n ", channels) == []
    assert render_text(here, "---", Directory([Mute()])) == [{"text": "---"}]


def test_where_clients_fetch_their_answers_they_are_not_rendered_and_count_as_sent() -> None:
    fetched = [platform for platform in Platform if platform not in SEND_PLATFORMS]
    assert fetched == [Platform.REST, Platform.WEB, Platform.COMPLETIONS]
    for platform in fetched:
        channels = Directory([SimpleChannel(platform=platform)])
        assert render_text(envelope_on(platform), "one\n\n*two*", channels) == ["one\n\n*two*"]
        assert first_state(envelope_on(platform)) is OutboxState.SENT
    assert {first_state(envelope_on(platform)) for platform in SEND_PLATFORMS} == {OutboxState.PENDING}


class Outside:
    """Notes what leaves: announcements by turn, deliveries by conversation."""

    def __init__(self) -> None:
        self.announced: list[UUID] = []
        self.delivered: list[UUID] = []

    async def announce(self, turn_id: UUID) -> None:
        self.announced.append(turn_id)

    def listen(self, turn_id: UUID) -> AbstractAsyncContextManager[AnswerSignal]:
        raise NotImplementedError

    async def deliver(self, conversation_id: UUID) -> None:
        self.delivered.append(conversation_id)


def on(platform: Platform, made: RouterHarness, outside: Outside) -> tuple[Claim, Services]:
    claim = replace(made.claim("hi"), envelope=envelope_on(platform))
    channels = Directory([SimpleChannel()])
    return claim, replace(made.services, channels=channels, answer_signals=outside, deliver=outside.deliver)


async def test_an_answer_is_sent_after_its_commit() -> None:
    made, outside = house(), Outside()
    claim, services = on(Platform.TELEGRAM, made, outside)
    await put_answer(None, claim, "one\n\n*two*", services)
    assert made.outbox.answers[claim.turn_id] == [{"text": "one"}, {"text": "two", "entities": [{"type": "bold"}]}]
    assert len(made.outbox.queued_messages) == 2
    assert outside.delivered == []
    await deliver_answer(claim, services)
    assert (outside.delivered, outside.announced) == ([claim.conversation_id], [])


async def test_an_answer_that_its_client_fetches_is_announced() -> None:
    made, outside = house(), Outside()
    claim, services = on(Platform.REST, made, outside)
    await put_answer(None, claim, "one", services)
    assert (made.outbox.answers[claim.turn_id], made.outbox.queued_messages) == (["one"], [])
    await deliver_answer(claim, services)
    assert (outside.delivered, outside.announced) == ([], [claim.turn_id])
