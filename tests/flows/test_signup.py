"""From the first message of a stranger to the first answer: what is said on the way, and what it costs."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from hermes.ports.credits import Balance
from hermes.ports.users import NewUser, User, UserChannel, UserState
from hermes.router.replies import ReplyKind, reply
from hermes.router.signup import Signup
from hermes.turn import Envelope, MessageEvent, Platform
from tests.flows.service import Service, running

PHONE = UserChannel("bali", Platform.WHATSAPP, "628123456")
SIGN_UP = reply(ReplyKind.SIGNUP, "en", link=None)
ACTIVATE = reply(ReplyKind.ACTIVATION, "en", link=None)


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url) as service:
        yield service


async def write(service: Service, text: str) -> str:
    """Write from the phone, and return what is said to it."""
    event = MessageEvent(platform=PHONE.platform, sender_id=PHONE.sender_id, text=text)
    envelope = Envelope(event=event, account=PHONE.account, channel_id=PHONE.sender_id, event_key=str(uuid4()))
    receipt = await service.hermes.intake.accept(envelope, newcomer=UserState.STRANGER)
    async with asyncio.timeout(20):
        while True:
            async with service.database.begin() as tx:
                answer = await service.hermes.adapters.outbox.answer(tx, receipt.turn_id)
                origin = await service.hermes.adapters.inbox.origin(tx, receipt.turn_id)
            if answer is not None and origin is not None and origin.has_ended:
                return answer.text
            await asyncio.sleep(0.02)


def signup_of(service: Service) -> Signup:
    adapters, given = service.hermes.adapters, service.hermes.settings.credits
    return Signup(people=adapters.people, credits=adapters.credits, signup_grant=given.signup_grant, referral_reward=given.referral_reward)


async def who(service: Service) -> tuple[User, Balance]:
    async with service.database.begin() as tx:
        user = await service.hermes.adapters.people.find(tx, PHONE)
        assert user is not None
        return user, await service.hermes.adapters.credits.balance(tx, user.id)


async def test_a_stranger_is_told_to_sign_up_and_answered_once_they_are_let_in(service: Service) -> None:
    assert await write(service, "find me a sunset bar in Canggu") == SIGN_UP
    stranger, balance = await who(service)
    assert (stranger.state, balance, service.thinker.asked) == (UserState.STRANGER, Balance(0, 0), [])
    async with service.database.begin() as tx:
        await signup_of(service).activate(tx, stranger.id)
    assert await write(service, "find me a sunset bar in Canggu") == "find me a sunset bar in Canggu"
    user, balance = await who(service)
    assert (user.id, user.state, balance) == (stranger.id, UserState.ACTIVE, Balance(99, 0))


async def test_who_signed_up_is_told_to_activate_on_the_channel_on_which_they_were_a_stranger(service: Service) -> None:
    assert await write(service, "is there somebody at the door?") == SIGN_UP
    stranger, _ = await who(service)
    async with service.database.begin() as tx:
        invited = await signup_of(service).create(tx, NewUser(language="en"))
        linked = await service.hermes.adapters.people.link(tx, invited.id, PHONE)
    assert linked.replaced == stranger.id
    assert await write(service, "and what about now, please?") == ACTIVATE
    async with service.database.begin() as tx:
        await signup_of(service).activate(tx, invited.id)
    assert await write(service, "and what about now, please?") == "and what about now, please?"
    user, balance = await who(service)
    assert (user.id, user.state, balance) == (invited.id, UserState.ACTIVE, Balance(99, 0))
    assert service.thinker.asked == ["and what about now, please?"], "nothing of what was refused is shown to a model"
