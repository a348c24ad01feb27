"""Packs on the whole of Hermes: with none, with another than the concierge, on new databases and on those of earlier versions."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from hermes.app.packs import migration_folders, script_from
from hermes.backends import ScriptedBackend
from hermes.config import PackSettings, Secret
from hermes.packs import Pack, PackNotFound, find_pack
from hermes.packs.concierge import PACK as CONCIERGE
from hermes.ports.backends import ModelRequest
from hermes.ports.models import Answer, Caller
from hermes.soul.extract_answer import extraction_prompt
from hermes.soul.my_data import forget_user
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.migrate import SPLIT_DIGEST, SPLIT_MIGRATION, SPLIT_PARTS, migrate, own_migrations
from hermes.stores.seal import new_master_key
from hermes.tools.images import open_note
from tests.fakes.weather_pack import PACK as WEATHER
from tests.flows.service import running
from tests.flows.test_router import Guest, ask

WEATHER_PLACE = "tests.fakes.weather_pack:PACK"
ROOT = Path(__file__).parents[2]
CONCIERGE_WORDS = ("venue", "booking", "food", "diet", "calorie", "restaurant", "concierge")


def packs(*names: str) -> dict[str, Any]:
    return {"packs": PackSettings(enabled=names)}


def tables(database_url: str) -> set[str]:
    with psycopg.connect(database_url) as connection:
        return {name for (name,) in connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()}


def help_of(enabled: str) -> str:
    """What `hermes --help` prints in a process of its own."""
    environ = {**os.environ, "HERMES_PACKS_ENABLED": enabled}
    return subprocess.run(
        [sys.executable, "-m", "hermes", "--help"], cwd=ROOT, env=environ, capture_output=True, check=True, text=True
    ).stdout


@dataclass
class Recorder:
    """The port Models, with the rules of these packs behind it; it keeps what it was asked."""

    packs: Sequence[Pack] = ()
    asked: list[ModelRequest] = field(default_factory=list)

    async def complete(self, ask: ModelRequest, _: Caller) -> Answer:
        self.asked.append(ask)
        completion = await ScriptedBackend(script_from(self.packs)).complete(ask, "scripted", timeout_s=5)
        return Answer(uuid4(), completion, "scripted", "scripted", 0, {}, (), 1)

    @property
    def prompts(self) -> str:
        """Everything that it was sent, tools included."""
        return json.dumps([[ask.messages, ask.tools] for ask in self.asked], default=plain)


def plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)


async def test_without_a_pack_hermes_talks_remembers_and_forgets(empty_database_url: str, redis_url: str) -> None:
    async with running(empty_database_url, redis_url, echoes=False, more={"packs": PackSettings(enabled=())}) as service:
        guest = Guest(service, await service.key())
        assert await guest.say("hello") == "Hello! What can I do for you today?"
        assert await guest.say("I'm allergic to nuts") == "Noted, I will remember that: nuts."
        assert await guest.say("what do you know about me?") == "This is what I know:\n\n• allergies: nuts"
        assert await guest.say("forget my allergies") == "I have forgotten that: nuts."
        assert await guest.say("find me a sunset bar in Canggu") == "I am not sure I understood that. Could you say it in other words?"
    assert tables(empty_database_url).isdisjoint({"venues", "bookings", "foods", "reminders", "weather_watches"})


async def test_without_a_pack_no_prompt_speaks_of_venues_or_food(empty_database_url: str, redis_url: str) -> None:
    models = Recorder()
    async with running(empty_database_url, redis_url, models=models, more=packs()) as service:
        guest = Guest(service, await service.key())
        await guest.say("what is the meaning of all this, and who wrote it?")
        await guest.say("I like jazz, and I live in Rome")
    assert [tool["function"]["name"] for tool in models.asked[0].tools] == ["save_preference", "recall_memory", "forget_memory"]
    assert models.asked[0].messages[0]["content"].startswith("You are hermes, a personal assistant.")
    sent = models.prompts + open_note(()) + json.dumps(extraction_prompt("hello", []))
    assert [word for word in CONCIERGE_WORDS if word in sent.casefold()] == []


async def test_another_pack_brings_its_tool_table_words_key_reply_and_rules(empty_database_url: str, redis_url: str) -> None:
    async with running(empty_database_url, redis_url, echoes=False, more=packs(WEATHER_PLACE)) as service:
        headers = await service.key()
        guest = Guest(service, headers)
        assert await guest.say("hello") == "Hello! Which town shall I watch?"
        assert await guest.say("how is the weather in Ubud?") == "Watching Ubud. Take an umbrella."
        assert (await guest.meta())["tools_gated"] == "weather"
        hermes, now = service.hermes, datetime.now(UTC)
        assert await hermes.background_jobs.proactive.remind(now) == 0
        async with service.database.begin() as tx:
            await connection_of(tx).execute("update weather_watches set rains = true")
        assert await hermes.background_jobs.proactive.remind(now) == 1
        [news] = (await service.get("/v1/news?user=ada", headers)).body["news"]
        assert news["text"] == "It begins to rain.\nIt rains in Ubud."
        assert await guest.say("how is the weather in Sanur?") == "Watching Sanur. Take an umbrella."
        [[user_id]] = await ask(service, "select distinct user_id from inbox")
        async with service.database.begin() as tx:
            kept = await hermes.adapters.people.count_data(tx, user_id)
            in_shop = await hermes.adapters.people.count_data(tx, user_id, account="shop")
        assert (kept.records, in_shop.records) == ({"weather_watches": 1}, {"weather_watches": 1})
        await forget_user(user_id, hermes.my_data)
        assert await ask(service, "select count(*) from weather_watches") == [(0,)]
    assert "venues" not in tables(empty_database_url)


async def test_another_pack_says_in_prompts_what_the_agent_is_and_which_keys_there_are(empty_database_url: str, redis_url: str) -> None:
    models = Recorder([WEATHER])
    async with running(empty_database_url, redis_url, models=models, more=packs(WEATHER_PLACE)) as service:
        await Guest(service, await service.key()).say("does it rain?")
    assert models.asked[0].messages[0]["content"].startswith("You are hermes, a personal weather guide.")
    assert [tool["function"]["name"] for tool in models.asked[0].tools] == [
        "watch_weather",
        "save_preference",
        "recall_memory",
        "forget_memory",
    ]
    assert "rain_gear" in models.asked[0].tools[1]["function"]["description"]


async def test_rows_of_a_pack_that_was_switched_off_are_still_erased(database_url: str, redis_url: str) -> None:
    keys = {"master_keys": (Secret(new_master_key()),)}
    async with running(database_url, redis_url, echoes=False, more=keys) as service:
        guest = Guest(service, await service.key())
        await guest.say("remind me tomorrow at 9 to call mum")
        assert await ask(service, "select count(*) from reminders") == [(1,)]
    async with running(database_url, redis_url, echoes=False, more={**keys, **packs()}) as service:
        [[user_id]] = await ask(service, "select distinct user_id from inbox")
        await forget_user(user_id, service.hermes.my_data)
        assert await ask(service, "select count(*) from reminders") == [(0,)]


async def test_a_table_that_a_switched_off_pack_has_not_made_yet_stops_no_erasure(database_url: str, redis_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("drop table orders")  # as if a later version of the pack made it: its migration waits until the pack is on
    async with running(database_url, redis_url, more=packs()) as service:
        await Guest(service, await service.key()).say("hello")
        [[user_id]] = await ask(service, "select distinct user_id from inbox")
        async with service.database.begin() as tx:
            kept = await service.hermes.adapters.people.count_data(tx, user_id)
        assert kept.records == {"bookings": 0, "reminders": 0, "price_watchers": 0, "meals": 0}
        await forget_user(user_id, service.hermes.my_data)
        assert await ask(service, "select state from users") == [("deleted",)]


async def test_a_database_of_an_earlier_version_goes_on_with_and_without_the_pack(empty_database_url: str) -> None:
    # An earlier version had one migration for the tables of the tools and of the concierge.
    await migrate(empty_database_url, migration_folders([CONCIERGE]))
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("delete from schema_migrations where name = any(%s)", [list(SPLIT_PARTS)])
        connection.execute("insert into schema_migrations (name, digest) values (%s, %s)", [SPLIT_MIGRATION, SPLIT_DIGEST])
        connection.execute("insert into foods select 'x', 'x', '{}', '{}', 1, 1, 1, 1, 1, 1, ''")
    assert await migrate(empty_database_url, migration_folders([CONCIERGE])) == []
    assert await migrate(empty_database_url) == []
    assert await migrate(empty_database_url, migration_folders([WEATHER])) == ["weather/0001_watches"]
    assert await migrate(empty_database_url, migration_folders([CONCIERGE, WEATHER])) == []
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("select id from foods").fetchall() == [("x",)]


async def test_a_pack_that_is_switched_on_later_gets_its_tables(empty_database_url: str) -> None:
    ran = await migrate(empty_database_url)
    assert SPLIT_PARTS[0] in ran
    assert "venues" not in tables(empty_database_url)
    assert await migrate(empty_database_url, migration_folders([CONCIERGE])) == ["concierge/0001_tables"]
    assert {"venues", "bookings", "reminders", "products", "price_watchers", "foods", "meals", "orders"} <= tables(empty_database_url)


def test_both_parts_of_the_split_migration_make_what_it_made() -> None:
    parts = {each.name: each.sql for each in own_migrations(migration_folders([CONCIERGE])) if each.name in SPLIT_PARTS}
    tools, concierge = (parts[name] for name in SPLIT_PARTS)
    opening = "-- What tools do: effects that happen once, offers that wait for a word, and the tables of the concierge.\n"
    joined = opening + tools.partition("\n")[2] + "\n" + concierge.partition("\n\n")[2]
    assert hashlib.sha256(joined.encode()).hexdigest() == SPLIT_DIGEST


def test_the_command_line_has_the_commands_of_the_packs_that_are_on() -> None:
    assert " venues " in help_of("concierge")
    assert " weather " in help_of(WEATHER_PLACE)
    assert not {" venues ", " weather "} & {word for word in (" venues ", " weather ") if word in help_of("none")}


def test_a_pack_that_does_not_exist_is_named() -> None:
    assert find_pack("concierge") is CONCIERGE
    assert find_pack(WEATHER_PLACE) is WEATHER
    for name, reason in (("conciege", "did you mean 'concierge'"), ("json:dumps", "is no pack"), ("no.such:PACK", "cannot be loaded")):
        with pytest.raises(PackNotFound, match=reason):
            find_pack(name)


def test_the_document_shows_the_small_pack_as_it_is() -> None:
    code = (ROOT / "tests/fakes/weather_pack/__init__.py").read_text(encoding="utf-8")
    assert code.rstrip() in (ROOT / "docs/packs.md").read_text(encoding="utf-8")
