"""The partial that every page with content shows: closed, open, or not for this role."""

import re
from datetime import UTC, datetime
from uuid import UUID

import pytest

from hermes.console.access import Opened, Subject
from hermes.ports.operators import Actor, Face, Operator, Role
from hermes.web.console.pages import ConsolePages
from hermes.web.console.visits import Visit

SUBJECT = Subject(kind="conversation", id="8f0c")


@pytest.fixture
def pages() -> ConsolePages:
    return ConsolePages()


def visit_of(role: Role) -> Visit:
    operator = Operator(id=UUID(int=1), name="ada", role=role, created_at=datetime.now(UTC), created_by="test")
    return Visit(Actor(operator, Face.CONSOLE), b"x" * 32)


def gate(pages: ConsolePages, role: Role, *, opened: Opened | None = None, needs_reason: bool = True) -> str:
    """The gate as a page shows it."""
    template = pages._templates.from_string(
        '{% import "_open.html" as content %}{{ content.gate(visit, subject, opened, needs_reason, "/console/turns/1") }}'
    )
    return template.render(visit=visit_of(role), subject=SUBJECT, opened=opened, needs_reason=needs_reason)


def test_an_operator_opens_with_a_reason_in_production(pages: ConsolePages) -> None:
    shown = gate(pages, Role.OPERATOR)
    assert dict(re.findall(r'name="(kind|id|next)" value="([^"]*)"', shown)) == {
        "kind": "conversation",
        "id": "8f0c",
        "next": "/console/turns/1",
    }
    assert 'name="reason" required' in shown
    assert "reason" not in gate(pages, Role.OPERATOR, needs_reason=False)
    token = re.search(r'name="form_token" value="([^"]+)"', shown)
    assert token is not None
    assert visit_of(Role.OPERATOR).check_form(token[1])


def test_a_viewer_has_no_form(pages: ConsolePages) -> None:
    assert "<form" not in gate(pages, Role.VIEWER)


def test_what_is_open_says_until_when_and_why(pages: ConsolePages) -> None:
    until = datetime(2026, 11, 16, 12, 15, tzinfo=UTC)
    shown = gate(pages, Role.OPERATOR, opened=Opened(visit_of(Role.OPERATOR).actor, SUBJECT, until, "<b>ticket 7</b>"))
    assert "until 2026-11-16 12:15:00 UTC" in shown
    assert "&lt;b&gt;ticket 7&lt;/b&gt;" in shown
    assert "<form" not in shown
