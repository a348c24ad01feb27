"""The visitors of the chat page: browsers with a cookie that Hermes made.

A cookie is 16 random bytes and a code over them. Hermes takes no other one, so no person chooses the cookie of another. It stores only its
digest, so a person who reads the database cannot write as the visitor."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request

from hermes.web.cookies import BrowserCookie

VISITOR_COOKIE = BrowserCookie("hermes_visitor", ttl_s=31_536_000)
COOKIE_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}")
RANDOM_BYTES = 16


@dataclass(frozen=True, slots=True)
class Visitors:
    """Makes the cookies of visitors, and knows them again."""

    keys: Sequence[bytes]
    """The first one makes cookies, all others know theirs: one for each master key."""

    def find(self, request: Request) -> str | None:
        """Return the cookie of a request; None without one that Hermes made."""
        cookie = VISITOR_COOKIE.read(request)
        if cookie is None or COOKIE_PATTERN.fullmatch(cookie) is None:
            return None
        own = decode(cookie)[:RANDOM_BYTES]
        return cookie if any(hmac.compare_digest(cookie, sign(own, key)) for key in self.keys) else None

    def new_cookie(self) -> str:
        return sign(secrets.token_bytes(RANDOM_BYTES), self.keys[0])


def visitor_id(cookie: str) -> str:
    """Return the id under which a visitor is stored."""
    return hashlib.sha256(cookie.encode()).hexdigest()[:32]


def sign(own: bytes, key: bytes) -> str:
    code = hmac.digest(key, own, "sha256")[: 32 - RANDOM_BYTES]
    return base64.urlsafe_b64encode(own + code).decode().rstrip("=")


def decode(cookie: str) -> bytes:
    return base64.urlsafe_b64decode(f"{cookie}=")
