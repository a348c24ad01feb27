"""`hermes replay` beside a running Hermes."""

import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.vendors import Say
from tests.flows.command import hermes
from tests.flows.replaying import SONNET, Shop, replaying


@pytest.fixture
async def shop(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Shop]:
    async with replaying(database_url, redis_url) as shop:
        anthropic = shop.vendors.anthropic
        toml = f'[backends.anthropic]\nbase_url = "{anthropic.url}"\napi_key = "{anthropic.key}"\n'
        (tmp_path / "hermes.toml").write_text(toml, encoding="utf-8")
        yield shop


async def test_one_turn_and_many_turns_are_replayed_at_the_command_line(shop: Shop, tmp_path: Path) -> None:
    anthropic = shop.vendors.anthropic
    anthropic.say("Two cafes.")
    turn_id = await shop.say("Find me a cafe.")
    await shop.say("Thanks")
    anthropic.otherwise = lambda body: Say(text=f"\x1b[2JThree cafes, says {body['model']}.")

    (tmp_path / "other.txt").write_text("Be brief.", encoding="utf-8")
    words = ("replay", turn_id, "--model", "claude-sonnet", "--system", "other.txt", "--temperature", "0.5", "--json")
    code, output, complaints = await hermes(shop.service, tmp_path, *words)
    assert code == 0, complaints
    [told] = json.loads(output)
    assert (told["state"], told["text"], told["recorded_text"]) == ("done", f"\x1b[2JThree cafes, says {SONNET}.", "Two cafes.")
    body = anthropic.requests[-1].body
    assert "Be brief." in json.dumps(body["system"])
    assert body["temperature"] == 0.5

    shown = await hermes(shop.service, tmp_path, "replay", "show", told["id"])
    assert (shown.code, "\ufffd[2JThree cafes" in shown.output, "likeness" in shown.output) == (0, True, True), "it cannot clear the screen"
    kept = await hermes(shop.service, tmp_path, "replay", "keep", told["id"])
    assert (kept.code, "does not allow training" in kept.complaints) == (2, True)

    many = await hermes(
        shop.service, tmp_path, "replay", "--last", 5, "--model", "claude-haiku", "--model", "claude-sonnet", "--yes", "--csv"
    )
    assert many.code == 0, many.complaints
    assert "2 turns, 2 can be replayed" in many.complaints
    rows = list(csv.DictReader(io.StringIO(many.output)))
    assert [row["claude-sonnet state"] for row in rows] == ["done", "done"]
    assert rows[1]["turn_id"] == str(turn_id)
    unanswered = await hermes(shop.service, tmp_path, "replay", "--failed", "--last", 5, "--model", "claude-haiku", "--yes")
    assert (unanswered.code, unanswered.complaints.strip()) == (2, "hermes: no turn matches")
    audited = await shop.ask("select action, face, allowed from audit where action like 'replay.%' order by id")
    assert audited == [("replay.run", "cli", True), ("replay.keep", "cli", True), ("replay.batch", "cli", True)]


async def test_what_is_wrong_is_one_line(shop: Shop, tmp_path: Path) -> None:
    turn_id = await shop.say("Hello")
    for words, expected in (
        (("replay", turn_id), "say which model"),
        (("replay", "--model", "claude-haiku"), "--last"),
        (("replay", "soon", "--model", "claude-haiku"), "'soon' is not an id"),
        (("replay", uuid4(), "--model", "claude-haiku"), "there is no turn"),
        (("replay", turn_id, "--model", "claude-hiku"), "did you mean claude-haiku"),
        (("replay", turn_id, "--model", "claude-haiku", "--system", "nowhere.txt"), "nowhere.txt"),
        (("replay", turn_id, "--model", "claude-haiku", "--set", "top_p=9"), "between 0 and 1"),
        (("replay", "--last", 2, "--where", "color=red", "--model", "claude-haiku"), "the names are agent"),
        (("replay", "stop"), "the id of a batch is missing"),
    ):
        ended = await hermes(shop.service, tmp_path, *words)
        assert (ended.code, expected in ended.complaints, len(ended.complaints.strip().splitlines())) == (2, True, 1), ended


async def test_no_customer_gets_the_tier_of_replays(shop: Shop, tmp_path: Path) -> None:
    """It has no limit but the money of operators."""
    [(user_id,)] = await shop.ask("select id from users limit 1") or [(uuid4(),)]
    for words in (
        ("keys", "create", "cheap", "--tier", "replay"),
        ("users", "create", "--tier", "replay"),
        ("users", "tier", user_id, "replay"),
        ("fleet", "add", "bali", "--tier", "replay"),
    ):
        ended = await hermes(shop.service, tmp_path, *words)
        assert (ended.code, "there is no tier" in ended.complaints) == (2, True), (words, ended)
    asked = {"model": "replay", "messages": [{"role": "user", "content": "Hello"}]}
    assert (await shop.service.post("/v1/chat/completions", asked, shop.key)).status == 404
    assert (await shop.service.post("/v1/chat/completions", {**asked, "model": "hermes", "tier": "replay"}, shop.key)).status in {200, 400}
    assert await shop.ask("select count(*) from calls where tier = 'replay'") == [(0,)]
