"""Calls to the Bot API, and what their answers mean."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.telegram import (
    ALLOWED_UPDATES,
    BotApi,
    BotProfile,
    PolledUpdates,
    TelegramChannel,
    TelegramFile,
    WebhookState,
    file_in,
    look_up,
    profile_in,
    updates_in,
    webhook_state_in,
)
from hermes.ports.channels import Channel, Destination, PlatformRequest, PlatformResponse, SendOutcome, SendResult, Webhook
from tests.unit.channels.meta.shaken import ANYTHING
from tests.unit.channels.telegram.updates import API, BOT, GROUP, NINA, NOW, SAMPLES, SECRET, SENT_AT, STAMP, TELEGRAM, TOKEN, US, update

ADDRESS = f"https://api.telegram.org/bot{TOKEN}"
CHANNEL: Channel = TELEGRAM


def reply(body: Any, status: int = 200, **headers: str) -> PlatformResponse:
    return PlatformResponse(status=status, headers=headers, body=body if isinstance(body, bytes) else json.dumps(body).encode())


def refusal(code: int, words: str, **parameters: Any) -> PlatformResponse:
    more = {"parameters": parameters} if parameters else {}
    return reply({"ok": False, "error_code": code, "description": words} | more, code)


# --- what is sent


def test_a_message_is_sent_with_its_entities_and_without_a_preview() -> None:
    call = TELEGRAM.encode({"text": "hi", "entities": [{"type": "bold", "offset": 0, "length": 2}]}, Destination(channel_id=str(NINA)))
    assert (call.method, call.url, call.headers) == ("POST", f"{ADDRESS}/sendMessage", {})
    assert call.json == {
        "chat_id": NINA,
        "text": "hi",
        "entities": [{"type": "bold", "offset": 0, "length": 2}],
        "link_preview_options": {"is_disabled": True},
    }


def test_a_topic_is_answered_in_itself_and_a_message_as_a_reply() -> None:
    call = TELEGRAM.encode({"text": "hi"}, Destination(channel_id=str(GROUP), thread="7", reply_to="41"))
    assert call.json == {
        "chat_id": GROUP,
        "message_thread_id": 7,
        "text": "hi",
        "link_preview_options": {"is_disabled": True},
        "reply_parameters": {"message_id": 41, "allow_sending_without_reply": True},
    }


def test_a_business_customer_is_answered_in_the_business_name() -> None:
    call = TELEGRAM.encode({"text": "hi"}, Destination(channel_id=f"{NINA}@Cx_9", reply_to="callback:1"))
    assert call.json == {
        "chat_id": NINA,
        "business_connection_id": "Cx_9",
        "text": "hi",
        "link_preview_options": {"is_disabled": True},
    }


def test_typing_is_shown_where_the_answer_will_be() -> None:
    call = TELEGRAM.typing(Destination(channel_id=str(GROUP), thread="7"), message_id="41")
    assert call == PlatformRequest(
        method="POST", url=f"{ADDRESS}/sendChatAction", json={"chat_id": GROUP, "message_thread_id": 7, "action": "typing"}
    )


def test_a_pressed_button_is_answered_instead() -> None:
    call = TELEGRAM.typing(Destination(channel_id=str(NINA)), message_id="callback:4382")
    assert call == PlatformRequest(method="POST", url=f"{ADDRESS}/answerCallbackQuery", json={"callback_query_id": "4382"})


@pytest.mark.parametrize(
    ("call", "method", "parameters"),
    [
        (API.me(), "getMe", {}),
        (
            API.set_webhook("https://example.org/webhooks/telegram/bali", SECRET),
            "setWebhook",
            {
                "url": "https://example.org/webhooks/telegram/bali",
                "secret_token": SECRET,
                "max_connections": 40,
                "allowed_updates": list(ALLOWED_UPDATES),
                "drop_pending_updates": False,
            },
        ),
        (API.delete_webhook(drop_pending=True), "deleteWebhook", {"drop_pending_updates": True}),
        (API.webhook_info(), "getWebhookInfo", {}),
        (API.updates(None), "getUpdates", {"timeout": 50, "limit": 100, "allowed_updates": list(ALLOWED_UPDATES)}),
        (
            API.updates(12, wait_s=0, limit=1),
            "getUpdates",
            {"offset": 12, "timeout": 0, "limit": 1, "allowed_updates": list(ALLOWED_UPDATES)},
        ),
        (look_up(API, "telegram:F1"), "getFile", {"file_id": "F1"}),
    ],
)
def test_every_other_call(call: PlatformRequest, method: str, parameters: dict[str, Any]) -> None:
    assert call == PlatformRequest(method="POST", url=f"{ADDRESS}/{method}", json=parameters)


def test_a_server_of_ones_own_is_called_instead() -> None:
    assert BotApi(token=TOKEN, base_url="http://127.0.0.1:8081").me().url == f"http://127.0.0.1:8081/bot{TOKEN}/getMe"


def test_a_secret_that_telegram_would_refuse_is_refused_here() -> None:
    with pytest.raises(ValueError, match="1 to 256 characters") as error:
        API.set_webhook("https://example.org", "not a secret")
    assert "not a secret" not in str(error.value)


@pytest.mark.parametrize("token", ["", "hello", "98765", f"{TOKEN}/x", f"{TOKEN}\n", "bot" + TOKEN])
def test_what_is_no_token_is_refused_and_not_quoted(token: str) -> None:
    with pytest.raises(ValueError, match="not the token of a bot") as error:
        BotApi(token=token)
    assert not token or token not in str(error.value)


def test_no_secret_is_shown() -> None:
    shown = repr([TELEGRAM, API, API.me(), TELEGRAM.typing(Destination(channel_id="1"), message_id=None), API.download("a/b")])
    assert TOKEN.partition(":")[2] not in shown
    assert SECRET not in shown


# --- what an answer means

OK = {"ok": True, "result": {"message_id": 92, "chat": {"id": NINA}, "date": STAMP, "text": "hi"}}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (reply(OK), SendResult(outcome=SendOutcome.SENT, message_id="92")),
        (reply({"ok": True, "result": True}), SendResult(outcome=SendOutcome.SENT)),
        (
            refusal(429, "Too Many Requests: retry after 14", retry_after=14),
            SendResult(outcome=SendOutcome.RATE_LIMITED, retry_after_s=14.0, detail="429: Too Many Requests: retry after 14"),
        ),
        (
            reply(b"<html>429</html>", 429, **{"retry-after": "8"}),
            SendResult(outcome=SendOutcome.RATE_LIMITED, retry_after_s=8.0, detail="HTTP 429: not an answer of the Bot API"),
        ),
        (
            refusal(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=GROUP),
            SendResult(
                outcome=SendOutcome.REJECTED, moved_to=str(GROUP), detail="400: Bad Request: group chat was upgraded to a supergroup chat"
            ),
        ),
        (
            refusal(400, "Bad Request: can't parse entities: Can't find end of the entity starting at byte offset 4"),
            SendResult(
                outcome=SendOutcome.REJECTED,
                plain_might_help=True,
                detail="400: Bad Request: can't parse entities: Can't find end of the entity starting at byte offset 4",
            ),
        ),
        (
            reply(b"<html><h1>502 Bad Gateway</h1></html>", 502),
            SendResult(outcome=SendOutcome.SERVICE_UNAVAILABLE, detail="HTTP 502: not an answer of the Bot API"),
        ),
        (reply(b"", 200), SendResult(outcome=SendOutcome.AMBIGUOUS, detail="HTTP 200: an answer that does not say whether it was sent")),
        (reply(b"", 500), SendResult(outcome=SendOutcome.SERVICE_UNAVAILABLE, detail="HTTP 500: not an answer of the Bot API")),
    ],
)
def test_an_answer_is_classified(answer: PlatformResponse, verdict: SendResult) -> None:
    assert CHANNEL.classify(answer) == verdict


@pytest.mark.parametrize(
    ("code", "words", "outcome"),
    [
        (400, "Bad Request: chat not found", SendOutcome.INVALID_RECIPIENT),
        (400, "Bad Request: PEER_ID_INVALID", SendOutcome.INVALID_RECIPIENT),
        (400, "Bad Request: not enough rights to send text messages to the chat", SendOutcome.INVALID_RECIPIENT),
        (400, "Bad Request: need administrator rights in the channel chat", SendOutcome.INVALID_RECIPIENT),
        (400, "Bad Request: message is too long", SendOutcome.REJECTED),
        (400, "Bad Request: message text is empty", SendOutcome.REJECTED),
        (400, "Bad Request: message thread not found", SendOutcome.REJECTED),
        (401, "Unauthorized", SendOutcome.UNAUTHORIZED),
        (403, "Forbidden: bot was blocked by the user", SendOutcome.INVALID_RECIPIENT),
        (403, "Forbidden: user is deactivated", SendOutcome.INVALID_RECIPIENT),
        (403, "Forbidden: bot can't initiate conversation with a user", SendOutcome.INVALID_RECIPIENT),
        (403, "Forbidden: bot was kicked from the supergroup chat", SendOutcome.INVALID_RECIPIENT),
        (404, "Not Found", SendOutcome.UNAUTHORIZED),
        (409, "Conflict: terminated by other getUpdates request", SendOutcome.SERVICE_UNAVAILABLE),
        (413, "Request Entity Too Large", SendOutcome.REJECTED),
        (420, "Flood", SendOutcome.RATE_LIMITED),
        (429, "Too Many Requests", SendOutcome.RATE_LIMITED),
        (500, "Internal Server Error", SendOutcome.SERVICE_UNAVAILABLE),
        (503, "", SendOutcome.SERVICE_UNAVAILABLE),
    ],
)
def test_which_refusal_it_is(code: int, words: str, outcome: SendOutcome) -> None:
    verdict = CHANNEL.classify(refusal(code, words))
    assert (verdict.outcome, verdict.detail) == (outcome, f"{code}: {words}" if words else str(code))


def test_a_body_that_says_otherwise_than_the_status_is_believed() -> None:
    assert (
        CHANNEL.classify(reply({"ok": False, "error_code": 403, "description": "Forbidden"}, 200)).outcome is SendOutcome.INVALID_RECIPIENT
    )


@pytest.mark.parametrize("status", [301, 400, 403, 404])
def test_a_page_of_somebody_in_between_is_an_outage(status: int) -> None:
    assert CHANNEL.classify(reply(b"<html>blocked</html>", status)).outcome is SendOutcome.SERVICE_UNAVAILABLE


@pytest.mark.parametrize("token", [TOKEN, TOKEN.replace(":", "%3A"), SECRET, "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"])
def test_no_verdict_quotes_a_token(token: str) -> None:
    verdict = CHANNEL.classify(refusal(404, f"cannot POST\n /bot{token}/sendMessage"))
    assert verdict.detail == ("404: cannot POST /bot***/sendMessage")


def test_long_words_are_cut() -> None:
    assert CHANNEL.classify(refusal(400, "x" * 900)).detail == "400: " + "x" * 200 + "…"


@given(ANYTHING, st.integers(100, 599))
def test_whatever_the_answer_is_it_is_classified(body: Any, status: int) -> None:
    assert CHANNEL.classify(reply(body, status)).outcome in SendOutcome


@given(st.dictionaries(st.sampled_from(["ok", "result", "error_code", "description", "parameters"]), ANYTHING))
def test_also_when_it_looks_like_one_of_theirs(body: Any) -> None:
    found = reply(body)
    assert CHANNEL.classify(found).outcome in SendOutcome
    updates_in(found)
    profile_in(found)
    webhook_state_in(found, now=NOW)
    file_in(API, found)


# --- asking for updates


def test_updates_are_taken_in_order_and_the_next_ones_asked_for() -> None:
    first, second = SAMPLES["text"], update() | {"update_id": SAMPLES["text"]["update_id"] + 3}
    found = updates_in(reply({"ok": True, "result": [first, second]}))
    assert found == PolledUpdates(
        webhooks=[Webhook(headers={}, body=json.dumps(each).encode()) for each in (first, second)],
        offset=second["update_id"] + 1,
    )
    [webhook, _] = found.webhooks
    assert len(TELEGRAM.parse(webhook, now=NOW)) == 1


def test_after_a_quiet_week_a_smaller_number_is_followed() -> None:
    found = updates_in(reply({"ok": True, "result": [{"update_id": 5}]}))
    assert found is not None
    assert found.offset == 6


def test_an_empty_answer_forgets_the_offset() -> None:
    assert updates_in(reply({"ok": True, "result": []})) == PolledUpdates(webhooks=[], offset=None)


@pytest.mark.parametrize("answer", [refusal(409, "Conflict"), reply(b"<html>", 502), reply({"ok": True}), reply(OK)])
def test_what_is_no_answer_moves_nothing(answer: PlatformResponse) -> None:
    assert updates_in(answer) is None


# --- files


def test_a_file_is_fetched_by_its_path() -> None:
    found = file_in(API, reply({"ok": True, "result": {"file_id": "F", "file_path": "photos/file 1.jpg", "file_size": 77}}))
    assert found == TelegramFile(
        call=PlatformRequest(method="GET", url=f"https://api.telegram.org/file/bot{TOKEN}/photos/file%201.jpg"), bytes=77
    )


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../bot", "a/../b", "a//b", "a\\b", "a\nb", None])
def test_a_path_that_leads_elsewhere_is_no_file(path: str | None) -> None:
    assert file_in(API, reply({"ok": True, "result": {"file_path": path}})) is None


def test_a_file_that_is_too_large_is_none() -> None:
    assert file_in(API, refusal(400, "Bad Request: file is too big")) is None


def test_only_its_own_references_are_looked_up() -> None:
    assert [look_up(API, reference) for reference in ("whatsapp:1", "https://example.org/x", "telegram:", "")] == [None] * 4


# --- setting up


def test_a_bot_says_who_it_is() -> None:
    found = profile_in(reply({"ok": True, "result": US | {"can_read_all_group_messages": True}}))
    assert found == BotProfile(id=str(BOT), username="SunsetBot", name="Sunset", hears_groups=True)
    assert profile_in(refusal(401, "Unauthorized")) is None


def test_a_webhook_says_how_it_goes() -> None:
    state = {
        "url": "https://example.org/x",
        "pending_update_count": 3,
        "last_error_date": STAMP,
        "last_error_message": "Connection refused",
    }
    assert webhook_state_in(reply({"ok": True, "result": state}), now=NOW) == WebhookState(
        url="https://example.org/x", pending=3, last_error="Connection refused", last_error_at=SENT_AT
    )
    assert webhook_state_in(reply({"ok": True, "result": {"url": ""}}), now=NOW) == WebhookState(
        url="", pending=0, last_error="", last_error_at=None
    )


def test_two_bots_never_take_each_others_updates_for_their_own() -> None:
    other = TelegramChannel(account="bali", api=BotApi(token="42:" + "x" * 30))
    keys = {
        happening.envelope.event_key
        for bot in (TELEGRAM, other)
        for happening in bot.parse(Webhook(headers={}, body=json.dumps(SAMPLES["text"]).encode()), now=NOW)
    }  # type: ignore[union-attr]
    assert len(keys) == 2
