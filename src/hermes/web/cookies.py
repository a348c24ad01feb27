"""The cookies of browsers.

Over TLS a cookie is `Secure` and its name begins with `__Host-`: no other host, and no page over plain HTTP, can set it in our place. Over
plain HTTP it has another name, because a browser takes such a cookie from HTTPS only."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response

from hermes.web.hosts import OVER_TLS


@dataclass(frozen=True, slots=True)
class BrowserCookie:
    """A cookie of this host alone, which no script reads and which no other site's page causes to be sent."""

    name: str
    ttl_s: int

    def name_for(self, request: Request) -> str:
        return f"__Host-{self.name}" if is_over_tls(request) else self.name

    def read(self, request: Request) -> str | None:
        return request.cookies.get(self.name_for(request))

    def put(self, request: Request, response: Response, value: str) -> None:
        secure = is_over_tls(request)
        response.set_cookie(self.name_for(request), value, max_age=self.ttl_s, path="/", secure=secure, httponly=True, samesite="strict")

    def delete(self, request: Request, response: Response) -> None:
        response.delete_cookie(self.name_for(request), path="/", secure=is_over_tls(request), httponly=True, samesite="strict")


def is_over_tls(request: Request) -> bool:
    return bool(request.scope.get(OVER_TLS, request.url.scheme == "https"))
