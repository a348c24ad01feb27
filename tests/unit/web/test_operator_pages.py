"""Who sees `/metrics`, `/docs` and `/openapi.json`, and what `/docs` shows."""

import base64
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field

from hermes.config import Secret
from hermes.web.api_page import write_api_page
from hermes.web.errors import install_error_handlers
from hermes.web.hosts import KnownHosts
from hermes.web.limits import RateLimit
from hermes.web.operator_pages import OperatorAccess, operator_app, operator_routes

PATHS = ("/metrics", "/docs", "/openapi.json")
HOSTS = KnownHosts(frozenset({"testserver"}))
TOKEN = "only-for-tésts"  # noqa: S105


async def metrics(accept: str) -> tuple[bytes, str]:
    return b"hermes_up 1\n", "text/plain"


def client_of(token: str | None = None, *, is_production: bool = True, address: str = "127.0.0.1", guesses: int = 60) -> TestClient:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    access = OperatorAccess(Secret(token) if token else None, is_production=is_production, guesses=RateLimit(guesses))
    app.include_router(operator_routes(metrics, app.openapi, access))
    install_error_handlers(app)
    return TestClient(app, client=(address, 50_000))


@pytest.mark.parametrize("path", PATHS)
def test_in_production_without_a_token_they_are_closed_and_say_how_to_open_them(path: str) -> None:
    answer = client_of().get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "operators_only")
    assert "web.metrics_token" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN}", 200),
        ("Basic " + base64.b64encode(f"any:{TOKEN}".encode()).decode(), 200),
        ("Basic " + base64.b64encode(b"any:wrong").decode(), 401),
        ("Basic " + base64.b64encode(TOKEN.encode()).decode(), 401),
        ("Basic %%%", 401),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), 401),
        (f"Digest {TOKEN}", 401),
    ],
)
@pytest.mark.parametrize("is_production", [True, False])
def test_with_a_token_only_its_holder_sees_them(path: str, authorization: str | None, status: int, is_production: bool) -> None:
    headers = {} if authorization is None else {"Authorization": authorization.encode()}
    answer = client_of(TOKEN, is_production=is_production).get(path, headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert 'Basic realm="Hermes"' in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(("address", "status"), [("127.0.0.1", 200), ("::1", 200), ("203.0.113.7", 403), ("testclient", 403)])
def test_in_development_they_are_open_on_this_machine_only(address: str, status: int) -> None:
    assert client_of(is_production=False, address=address).get("/metrics").status_code == status


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_a_proxy_on_this_machine_is_not_the_operator(header: str) -> None:
    assert client_of(is_production=False).get("/metrics", headers={header: "127.0.0.1"}).status_code == 403


def test_guessing_is_slowed_down_and_the_right_token_still_works() -> None:
    client = client_of(TOKEN, guesses=2)
    assert [client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code for _ in range(4)] == [401, 401, 429, 429]
    assert client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}".encode()}).status_code == 200


def test_a_port_of_its_own_needs_no_token_and_a_worker_has_no_api_to_describe() -> None:
    worker = TestClient(operator_app(metrics, HOSTS), client=("203.0.113.7", 1))
    assert [worker.get(path).status_code for path in (*PATHS, "/health", "/")] == [200, 404, 404, 200, 404]
    assert worker.get("/metrics").text == "hermes_up 1\n"
    web = TestClient(operator_app(metrics, HOSTS, FastAPI(title="x", version="1").openapi), client=("203.0.113.7", 1))
    assert [web.get(path).status_code for path in PATHS] == [200, 200, 200]


# --- the page for people


class Inner(BaseModel):
    """A part."""

    url: str = Field(description="Where the <image> is.")
    again: "Inner | None" = None


class Body(BaseModel):
    """A body."""

    text: str = Field(description="What `Ada` says & means.")
    parts: list[Inner] = []
    tone: str | None = None


class TagsClosed(HTMLParser):
    """Checks that every element is closed where it must be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.scripts += tag == "script"
        if tag not in {"meta", "link"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def described() -> FastAPI:
    app = FastAPI(title="Test <b>", version="1.0")

    @app.post("/things/{thing}", tags=["things"], summary="Make a <thing>")
    async def make(thing: str, body: Body, limit: int = 3) -> Inner:
        """First.

        Second, with `code`."""
        raise NotImplementedError

    return app


def test_the_page_shows_routes_fields_and_answers_and_trusts_no_text() -> None:
    page = write_api_page(described().openapi())
    for shown in ("POST", "/things/{thing}", "Make a &lt;thing&gt;", "<code>code</code>", "limit", "integer = <code>3</code>", "422"):
        assert shown in page
    for field in ("text", "parts", "list of object", "Where the &lt;image&gt; is.", "What <code>Ada</code> says &amp; means."):
        assert field in page
    assert "Test &lt;b&gt; 1.0" in page
    tags = TagsClosed()
    tags.feed(page)
    assert (tags.open, tags.scripts) == ([], 0)
    anchors = re.findall(r'href="#([^"]+)"', page)
    assert anchors
    assert all(f'id="{anchor}"' in page for anchor in anchors)


def test_the_page_loads_nothing_from_elsewhere_and_its_policy_allows_only_its_own_style() -> None:
    answer = client_of(is_production=False).get("/docs")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/]{43}='; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        answer.headers["Content-Security-Policy"],
    )
    assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text)
