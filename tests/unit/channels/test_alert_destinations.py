"""Slack, Discord, Telegram and signed webhooks: what arrives at a strict receiver, and what is said without secrets when it does not."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from hermes.channels.alert_destinations import (
    DiscordDestination,
    HttpAlertDestination,
    SlackDestination,
    TelegramDestination,
    WebhookDestination,
    sign_webhook,
    signing_key,
)
from hermes.channels.telegram.api import BotApi
from hermes.http_client import HttpClient
from hermes.ports.alerts import AlertLevel, AlertMessage, AlertNotSent
from tests.fakes.alert_receivers import CHAT, DISCORD_PATH, SECRET, SECRETS, SLACK_PATH, TOKEN, AlertReceivers, Fault, open_receivers

TEXT = "Hermes: critical: breaker_opened (telegram my_shop_x)\n<!channel> @everyone *bold* & more"
MESSAGE = AlertMessage(
    id="alert_7_raised_0", kind="raised", level=AlertLevel.CRITICAL, text=TEXT, at=datetime(2026, 11, 16, tzinfo=UTC), data={"event": "x"}
)
KINDS = ("slack", "discord", "telegram", "webhook")


@pytest.fixture
async def receivers() -> AsyncIterator[AlertReceivers]:
    async with open_receivers() as receivers:
        yield receivers
        assert receivers.refused == []


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


def destination_at(url: str, kind: str, client: HttpClient) -> HttpAlertDestination:
    made: dict[str, HttpAlertDestination] = {
        "slack": SlackDestination("slack", client, url + SLACK_PATH),
        "discord": DiscordDestination("discord", client, url + DISCORD_PATH),
        "telegram": TelegramDestination("telegram", client, BotApi(token=TOKEN, base_url=url), CHAT),
        "webhook": WebhookDestination("webhook", client, f"{url}/hook", SECRET),
    }
    return made[kind]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_arrives_as_plain_text(receivers: AlertReceivers, client: HttpClient, kind: str) -> None:
    await destination_at(receivers.url, kind, client).send(MESSAGE, timeout_s=5)
    [body] = receivers.arrived[kind]
    shown = {
        "slack": lambda: (body["blocks"][0]["text"], body["text"].count("&lt;!channel&gt;")),
        "discord": lambda: body["content"].replace("\\", ""),
        "telegram": lambda: (body["text"], body.keys()),
        "webhook": lambda: (body["id"], body["type"], body["data"]),
    }
    expected = {
        "slack": ({"type": "plain_text", "text": TEXT, "emoji": False}, 1),
        "discord": TEXT,
        "telegram": (TEXT, {"chat_id", "text"}),
        "webhook": ("alert_7_raised_0", "hermes.alert.raised", {"event": "x", "level": "critical", "text": TEXT}),
    }
    assert shown[kind]() == expected[kind]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_message_is_cut_to_what_the_receiver_takes(receivers: AlertReceivers, client: HttpClient, kind: str) -> None:
    long = AlertMessage(id="a", kind="raised", level=AlertLevel.WARNING, text="_é" * 9_000, at=MESSAGE.at, data={})
    await destination_at(receivers.url, kind, client).send(long, timeout_s=5)
    assert len(receivers.arrived[kind]) == 1


@pytest.mark.parametrize(
    ("kind", "fault", "says", "pause_s"),
    [
        ("slack", Fault(429, "rate_limited", {"Retry-After": "30"}), "it answered 429 (rate_limited)", 30.0),
        ("slack", Fault(404, "no_service"), "it answered 404 (no_service)", None),
        ("slack", Fault(500, "<html>slack-secret"), "it answered 500", None),
        ("discord", Fault(429, '{"message": "slow", "retry_after": 1.5, "global": false}'), "it answered 429", 1.5),
        ("discord", Fault(429, "not json", {"Retry-After": "soon"}), "it answered 429", None),
        (
            "telegram",
            Fault(429, '{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 7","parameters":{"retry_after":7}}'),
            "it answered 429 (Too Many Requests: retry after 7)",
            7.0,
        ),
        ("telegram", Fault(404, f'{{"ok":false,"description":"no bot {TOKEN}"}}'), "it answered 404", None),
        ("webhook", Fault(302, "", {"Location": "http://127.0.0.1:1/"}), "it answered 302", None),
        ("webhook", Fault(503, "[]", {"Retry-After": "-5"}), "it answered 503", None),
    ],
)
async def test_a_refusal_is_said_with_its_reason_and_its_pause(  # noqa: PLR0917  # fixtures and one row of the table
    receivers: AlertReceivers, client: HttpClient, kind: str, fault: Fault, says: str, pause_s: float | None
) -> None:
    receivers.faults[kind].append(fault)
    with pytest.raises(AlertNotSent) as raised:
        await destination_at(receivers.url, kind, client).send(MESSAGE, timeout_s=5)
    assert (str(raised.value), raised.value.retry_after_s) == (says, pause_s)
    assert not [secret for secret in SECRETS if secret in str(raised.value)]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_receiver_that_hangs_or_is_gone_is_said_without_its_address(
    receivers: AlertReceivers, client: HttpClient, kind: str
) -> None:
    receivers.faults[kind].append(Fault(hangs=True))
    with pytest.raises(AlertNotSent, match=r"^no whole answer within 0\.2 s$"):
        await destination_at(receivers.url, kind, client).send(MESSAGE, timeout_s=0.2)
    with pytest.raises(AlertNotSent, match="cannot connect") as raised:
        await destination_at("http://127.0.0.1:1", kind, client).send(MESSAGE, timeout_s=5)
    assert not [secret for secret in SECRETS if secret in repr(raised.value)]


async def test_a_wrong_token_and_a_wrong_chat_are_named(receivers: AlertReceivers, client: HttpClient) -> None:
    api = BotApi(token="123456789:AAH-another-token", base_url=receivers.url)  # noqa: S106  # of a fake
    with pytest.raises(AlertNotSent, match=r"401 \(Unauthorized\)"):
        await TelegramDestination("t", client, api, CHAT).send(MESSAGE, timeout_s=5)
    with pytest.raises(AlertNotSent, match=r"400 \(Bad Request: chat not found\)"):
        await TelegramDestination("t", client, BotApi(token=TOKEN, base_url=receivers.url), "1").send(MESSAGE, timeout_s=5)


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the reference implementations of Standard Webhooks."""
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    signature = sign_webhook(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signing_key("any text") == b"any text"
    with pytest.raises(ValueError, match="base64"):
        signing_key("whsec_***")
    with pytest.raises(ValueError, match="base64"):
        signing_key("whsec_")  # else an empty key would sign, and any forger has that one


async def test_a_message_that_is_cancelled_leaves_no_request(receivers: AlertReceivers, client: HttpClient) -> None:
    receivers.faults["slack"].append(Fault(hangs=True))
    sending = asyncio.create_task(destination_at(receivers.url, "slack", client).send(MESSAGE, timeout_s=30))
    await receivers.wait_asked(1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert receivers.arrived["slack"] == []
