"""`hermes graph` beside a running Hermes: conversations of the store, drawn under the console's rules."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.stores.postgres.database import connection_of
from tests.flows.command import hermes
from tests.flows.service import Service, running

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url) as service:
        yield service


async def chat(service: Service, *texts: str) -> dict[str, str]:
    """Hold a conversation; return the ids of its session, conversation and newest turn."""
    key = await service.key()
    for text in texts:
        assert (await service.post("/v1/messages", {"text": text}, key)).status == 200
    async with service.database.begin() as tx:
        query = (
            "select sessions.id, conversation_id, turn_id from sessions join interactions on session_id = sessions.id "
            "order by interactions.created_at desc limit 1"
        )
        row = await (await connection_of(tx).execute(query)).fetchone()
    assert row is not None
    return dict(zip(("session", "conversation", "turn"), map(str, row), strict=True))


async def audited(service: Service) -> list[tuple[str, str, bool]]:
    async with service.database.begin() as tx:
        rows = await (await connection_of(tx).execute("select action, coalesce(reason, ''), allowed from audit order by id")).fetchall()
    return [(str(action), str(reason), bool(allowed)) for action, reason, allowed in rows]


async def test_it_lists_and_draws_what_the_store_holds(service: Service, tmp_path: Path) -> None:
    ids = await chat(service, "where is a bar?", "and <for> dinner?")
    listed = await hermes(service, tmp_path, "graph", "--list", "--json")
    assert [row["session_id"] for row in json.loads(listed.output)["data"]] == [ids["session"]], listed.complaints
    by_session = await hermes(service, tmp_path, "graph", "--session", ids["session"])
    assert (by_session.code, by_session.complaints) == (0, "")
    assert "and <for> dinner?" in by_session.output
    assert by_session.output == (await hermes(service, tmp_path, "graph", "--conversation", ids["conversation"])).output
    by_turn = await hermes(service, tmp_path, "graph", "--turn", ids["turn"])
    marked = [line for line in by_turn.output.splitlines() if "▸" in line]
    assert [line.split()[3] for line in marked] == ["user", "assistant"], (marked, "the question and the answer of that turn")
    assert by_turn.output.replace("▸", " ") == by_session.output
    closed = await hermes(service, tmp_path, "graph", "--session", ids["session"], "--closed", "--json")
    assert (json.loads(closed.output)["is_open"], "dinner" in closed.output) == (False, False)


async def test_it_writes_an_image_and_the_audit_log_has_it(service: Service, tmp_path: Path) -> None:
    ids = await chat(service, "where is a bar?", "and <for> dinner?")
    words = ("graph", "--turn", ids["turn"], "--svg", "chat.svg", "--reason", "ticket 812")
    assert (await hermes(service, tmp_path, *words)).code == 0
    assert await audited(service) == [("content.open", "ticket 812", True), ("conversation.export", "ticket 812", True)]
    image = ET.parse(tmp_path / "chat.svg").getroot()  # noqa: S314  # written by this test
    texts = ["".join(text.itertext()) for text in image.iter(f"{SVG}text")]
    assert texts[0] == f"Conversation {ids['session'][:8]}"
    assert any("and <for> dinner?" in text for text in texts)
    assert re.fullmatch(r"Exported by \S+@cli on .* UTC from Hermes .*, with what was said\.", texts[-1])
    assert len([each for each in image.iter(f"{SVG}rect") if each.get("class") == "marked"]) == 2
    again = await hermes(service, tmp_path, *words)
    assert (again.code, again.complaints) == (2, "hermes: chat.svg exists already\n")
    shape = await hermes(service, tmp_path, "graph", "--session", ids["session"], "--closed", "--svg", "shape.svg")
    assert (shape.code, "dinner" in (tmp_path / "shape.svg").read_text("utf-8")) == (0, False)


async def test_in_production_nothing_is_opened_without_a_reason(service: Service, tmp_path: Path) -> None:
    ids = await chat(service, "where is a bar?")
    (tmp_path / "hermes.toml").write_text('environment = "production"\n', encoding="utf-8")
    refused = await hermes(service, tmp_path, "graph", "--session", ids["session"], "--svg", "chat.svg")
    assert (refused.code, refused.complaints) == (1, "hermes: say in a few words why you open this; the words go into the audit log\n")
    assert not (tmp_path / "chat.svg").exists()
    assert (await hermes(service, tmp_path, "graph", "--session", ids["session"], "--reason", "ticket 1")).code == 0


async def test_an_unknown_id_is_refused(service: Service, tmp_path: Path) -> None:
    unknown = await hermes(service, tmp_path, "graph", "--session", "nothing")
    assert (unknown.code, unknown.complaints) == (2, "hermes: there is no session, turn, call, conversation or sender 'nothing'\n")
    assert (await hermes(service, tmp_path, "graph", "--turn", "nothing")).code == 2
