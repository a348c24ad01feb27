"""A reaction on a user's phone, as an annotation on the very response that it is about."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from hermes.app.stores import SessionSource
from hermes.channels.fakes import open_platforms, webhook_url
from hermes.channels.telegram import ALLOWED_UPDATES
from hermes.graph import MessageGraph
from hermes.ports.channels import ChannelAccount, Reaction, Webhook
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import GraphEntry, SessionQuery
from hermes.router.feedback import MAX_TRIES, Feedback
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.testing.platforms import FakePerson
from hermes.testing.platforms import FakePlatform as Fake
from hermes.trajectories.source import ExportSession
from hermes.turn import Platform
from tests.flows.service import Service, running

pytestmark = pytest.mark.usefixtures("redis_url")


@dataclass(frozen=True)
class Talk:
    """Somebody who asked twice, and was answered twice."""

    service: Service
    fake: Fake
    ada: FakePerson
    answers: list[str]
    """The ids of the answers' messages."""

    @property
    def platform(self) -> Platform:
        return Platform(self.fake.name)

    def feedback(self, graphs: Any = None) -> Feedback:
        parts = self.service.hermes.adapters
        return Feedback(transactions=self.service.database, tracking=parts.outbox.tracking, graphs=graphs or parts.graphs)

    async def react(self, message_id: str, emoji: str) -> None:
        """React on the phone; what the platform tells of it is taken in."""
        before = len(self.told())
        self.ada.react(message_id, emoji)
        await self.fake.world.changes.wait_until(lambda: len(self.told()) > before, 5)
        await self.hear(self.told()[-1])

    def told(self) -> list[Reaction]:
        """The reactions that the platform has told of."""
        channel = self.service.hermes.account_channels.get(self.platform, "fake")
        assert channel is not None
        webhooks = [Webhook(headers={}, body=attempt.body) for attempt in self.fake.attempts]
        happened = [happening for webhook in webhooks for happening in channel.parse(webhook, now=datetime.now(UTC))]
        return [happening for happening in happened if isinstance(happening, Reaction)]

    async def hear(self, reaction: Reaction, feedback: Feedback | None = None) -> bool:
        return await (feedback or self.feedback()).apply(self.platform, "fake", reaction)

    async def noted(self) -> dict[str, list[tuple[str, float | None]]]:
        """What an export finds: the reactions to each response, by what it said."""
        parts = self.service.hermes.adapters
        stored = SessionSource(self.service.database, parts.sessions, parts.graphs)
        [session_id] = await stored.find(SessionQuery(account="fake"))
        session = await stored.read(session_id)
        assert isinstance(session, ExportSession)
        return {
            str(response.message["content"]): [(note["reaction"], note["reward"]) for note in response.annotations if "reaction" in note]
            for response in session.graph.responses()
        }


@pytest.fixture(params=["telegram", "whatsapp", "instagram"])
async def talk(request: pytest.FixtureRequest, database_url: str, redis_url: str) -> AsyncIterator[Talk]:
    async with open_platforms() as platforms, running(database_url, redis_url) as service:
        platforms.connect(service.url)
        # Reactions come only to who asks for them, as `hermes channels add` does.
        platforms.telegram.connect(webhook_url(service.url, "telegram", "fake"), allowed_updates=list(ALLOWED_UPDATES))
        bot, number, page = platforms.telegram, platforms.whatsapp, platforms.instagram
        fake = {"telegram": bot, "whatsapp": number, "instagram": page}[request.param]
        about = {
            "telegram": {"token": bot.token, "secret": bot.secret},
            "whatsapp": {"api_key": number.key, "secret_header": number.secret_header[0], "webhook_secrets": number.secret_header[1]},
            "instagram": {"instagram_id": page.account_id, "access_token": page.token, "app_secrets": page.app_secret},
        }[request.param]
        account = ChannelAccount(platform=Platform(fake.name), account="fake", about={**about, "base_url": platforms.url, "is_open": "yes"})
        async with service.database.begin() as tx:
            await service.hermes.adapters.channel_accounts.put(tx, account)
        await service.hermes.account_channels.refresh()
        ada = fake.person("Ada")
        for count, text in enumerate(("one", "two"), start=1):
            ada.say(text)
            await ada.wait_for_messages(count, timeout_s=20)
        await until_sent(service, 2)
        yield Talk(service, fake, ada, [received.message_id for received in ada.received])


async def until_sent(service: Service, count: int) -> None:
    for _ in range(100):
        async with service.database.begin() as tx:
            [[sent]] = await (await connection_of(tx).execute("select count(*) from outbox where message_id is not null")).fetchall()
        if sent == count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the answers were not sent")


async def test_a_reaction_becomes_a_reward_on_the_response_behind_the_message(talk: Talk) -> None:
    await talk.react(talk.answers[1], "👍")
    assert await talk.noted() == {"one": [], "two": [("👍", 1.0)]}
    await talk.react(talk.answers[0], "👎")
    await talk.react(talk.answers[1], "👍")
    assert await talk.noted() == {"one": [("👎", -1.0)], "two": [("👍", 1.0)]}
    await talk.react(talk.answers[1], "")
    assert await talk.noted() == {"one": [("👎", -1.0)], "two": [("👍", 1.0), ("", None)]}


async def test_a_reaction_to_what_nobody_knows_changes_nothing(talk: Talk) -> None:
    where = talk.ada.id if talk.platform is Platform.TELEGRAM else None
    own = talk.ada.say("three")
    await talk.ada.wait_for_messages(3, timeout_s=20)
    for message_id in ("4711", own):
        assert not await talk.hear(Reaction(message_id=message_id, sender_id=talk.ada.id, emoji="👍", channel_id=where))
    assert not await talk.hear(Reaction(message_id=talk.answers[0], sender_id=talk.ada.id, emoji="👍", channel_id="elsewhere"))
    assert await talk.noted() == {"one": [], "two": [], "three": []}


class Raced:
    """Graphs in which somebody always says something between reading and writing, so many times."""

    def __init__(self, talk: Talk, times: int) -> None:
        self._graphs, self._database, self._left = talk.service.hermes.adapters.graphs, talk.service.database, times
        assert isinstance(self._graphs, PostgresGraphs)

    async def load(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        graph = await self._graphs.load(tx, session_id)
        if self._left:
            self._left -= 1
            async with self._database.begin() as another:
                await self._graphs.append(another, session_id, graph.head, [GraphEntry({"role": "user", "content": "meanwhile"})])
        return graph

    async def save(self, tx: Transaction, session_id: UUID, head: str, graph: MessageGraph) -> str:
        return await self._graphs.save(tx, session_id, head, graph)


@pytest.mark.parametrize("talk", ["telegram"], indirect=True)
@pytest.mark.parametrize(("times", "is_noted"), [(MAX_TRIES - 1, True), (MAX_TRIES, False)])
async def test_a_conversation_that_goes_on_meanwhile_is_read_again_a_few_times(talk: Talk, times: int, is_noted: bool) -> None:
    reaction = Reaction(message_id=talk.answers[0], sender_id=talk.ada.id, emoji="🔥", channel_id=talk.ada.id)
    assert await talk.hear(reaction, talk.feedback(Raced(talk, times))) is is_noted
    assert (await talk.noted())["one"] == ([("🔥", 1.0)] if is_noted else [])


@pytest.mark.parametrize("talk", ["telegram"], indirect=True)
async def test_many_reactions_at_once_are_all_noted(talk: Talk) -> None:
    reactions = [Reaction(message_id=talk.answers[0], sender_id=str(who), emoji="👍", channel_id=talk.ada.id) for who in range(3)]
    assert await asyncio.gather(*(talk.hear(reaction) for reaction in reactions)) == [True] * 3
    assert (await talk.noted())["one"] == [("👍", 1.0)] * 3
