"""`hermes export` out of the store of a Hermes: what was said in chat completions becomes training data, and only what people allow."""

import asyncio
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hermes.app.stores import open_session_source
from hermes.config import BackendKind, BackendSettings, CompletionsSettings, ModelSettings, PriceSettings, Secret, TierSettings
from hermes.graph import MessageGraph
from hermes.ports.sessions import SessionQuery
from hermes.stores import embedded
from hermes.stores.postgres.database import connection_of
from hermes.trajectories.verify import verify
from tests.fakes.vendors import vendors
from tests.flows.agent_loop import trained
from tests.flows.command import PATIENCE_S, Ended, hermes
from tests.flows.service import Service, running
from tests.flows.toy_model import Sample, ToyModel, completion_ids, prompt_ids

SYSTEM = {"role": "system", "content": "Be brief."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@dataclass
class House:
    """A Hermes with a vLLM behind it, and a folder to work in."""

    service: Service
    model: ToyModel
    folder: Path

    async def say(
        self, key: dict[str, str], messages: list[Any], name: str = "", headers: dict[str, str] | None = None, **more: Any
    ) -> Any:
        """Ask as somebody; return the first answer."""
        body = {"model": "toy", "messages": messages, "user": name, **more}
        got = await self.service.post("/v1/chat/completions", body, {**key, **(headers or {})})
        assert got.status == 200, got.body
        await self.service.hermes.gateway.wait_settled()  # for what reads the stores next
        return got.body["choices"][0]["message"]

    async def hermes(self, *words: object) -> Ended:
        await self.service.hermes.gateway.wait_settled()
        return await hermes(self.service, self.folder, *words)

    async def export(self, *words: object, out: str = "rows") -> dict[str, Any]:
        """Export, and verify it from its files."""
        said = await self.hermes("export", "--out", out, "--json", *words)
        assert said.code == 0, said.complaints
        assert verify(self.folder / out, []).problems == ()
        summary: dict[str, Any] = json.loads(said.output)
        return summary

    async def do(self, query: str, *values: Any) -> list[Any]:
        await self.service.hermes.gateway.wait_settled()
        async with self.service.database.begin() as tx:
            cursor = await connection_of(tx).execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def let_pass(self, hours: int) -> None:
        """Let everything that was said so far be longer ago."""
        await self.do("update sessions set last_at = last_at - %s * interval '1 hour'", hours)
        await self.do("update calls set created_at = created_at - %s * interval '1 hour'", hours)

    async def who(self, name: str) -> UUID:
        """The user whom a client calls so."""
        [[user_id]] = await self.do("select user_id from user_channels where sender_id like %s", f"%/{name}")
        return UUID(str(user_id))

    def lines(self, out: str = "rows") -> list[dict[str, Any]]:
        _, *lines = map(json.loads, (self.folder / out / "ledger.jsonl").read_text().splitlines())
        return lines

    def written(self) -> list[str]:
        """What lies in the folder, but for the home that no command needs here."""
        return sorted(path.name for path in self.folder.iterdir() if path.name != "elsewhere")


@pytest.fixture
async def house(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with vendors() as fakes:
        model = ToyModel()
        fakes.vllm.models[:] = ["toy-1"]
        fakes.vllm.otherwise = model
        more = {
            "backends": {"gpu": BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key))},
            "models": {"toy": ModelSettings(backend="gpu", id="toy-1", prices=(PriceSettings(input=0.0, output=0.0),))},
            "tiers": {"agents": TierSettings(chain=("toy",), day_tokens=10_000_000)},
            "completions": CompletionsSettings(tier="agents"),
        }
        async with running(database_url, redis_url, has_worker=False, more=more) as service:
            yield House(service, model, tmp_path)


async def test_what_people_allow_is_trained_and_everything_else_is_excluded_for_its_reason(house: House) -> None:
    allowed, silent = await house.service.key(trains=True), await house.service.key()

    async def talk(key: dict[str, str], name: str) -> list[Sample]:
        """A chat with an edit, two answers at once and a compaction, and a second chat; return what was sampled."""
        begin = len(house.model.returned)
        chat = {"headers": {"X-Hermes-Session": f"chat of {name}"}}
        one = await house.say(key, [SYSTEM, user(f"{name} one")], name, **chat)
        two = await house.say(key, [SYSTEM, user(f"{name} one"), one, user("two")], name, **chat)
        await house.say(key, [SYSTEM, user(f"{name} ONE"), one, user("two"), two, user("three")], name, **chat)
        await house.say(key, [SYSTEM, user(f"{name} ONE"), one, user("two"), two, user("twice")], name, n=2, **chat)
        await house.say(key, [SYSTEM, user("(summary)"), two, user("four")], name, **chat)
        await house.say(key, [user(f"{name} elsewhere")], name)
        return house.model.returned[begin:]

    ann, bob, eve = await talk(allowed, "ann"), await talk(silent, "bob"), await talk(allowed, "eve")
    async with house.service.database.begin() as tx:  # she has thought better of it
        await house.service.hermes.adapters.people.allow_training(tx, await house.who("eve"), trains=False)

    summary = await house.export("--stored", "--save-graphs", "graphs.jsonl")
    assert (summary["sessions"], summary["samples"], summary["forgotten"]) == (6, 21, 0)
    forbidden = sum(len(completion) for _, completion in bob + eve)
    assert summary["excluded"] == {"no consent": {"samples": 14, "tokens": forbidden}}
    assert trained(house.folder / "rows") == Counter(ann)
    assert summary["tokens"]["trained"] == sum(len(completion) for _, completion in ann)
    rows = await house.do("select id from sessions where user_id = %s", await house.who("ann"))
    assert {line["session"] for line in house.lines() if line["trained"]} == {str(session_id) for (session_id,) in rows}

    assert (await house.hermes("verify", "rows", "--against", "graphs.jsonl")).code == 0
    assert stat.S_IMODE((house.folder / "graphs.jsonl").stat().st_mode) == 0o600
    graphs = [MessageGraph.from_json(line) for line in (house.folder / "graphs.jsonl").read_text().splitlines()]
    notes = [[dict(note) for note in response.annotations] for graph in graphs for response in graph.responses()]
    assert Counter(map(str, notes)) == {"[]": 7, "[{'consent': False}]": 14}
    assert await house.do("select count(*) from graph_annotations") == [(0,)], "the store itself is as it was"
    assert house.written() == ["graphs.jsonl", "rows"]

    async with house.service.database.begin() as tx:
        await house.service.hermes.adapters.people.allow_training(tx, await house.who("eve"), trains=True)
    await house.export("--stored", out="again")
    assert trained(house.folder / "again") == Counter(ann + eve)


async def test_text_formats_leave_out_what_is_not_allowed_too(house: House) -> None:
    await house.say(await house.service.key(trains=True), [user("allowed")])
    await house.say(await house.service.key(), [user("forbidden")])
    summary = await house.export("--stored", "--format", "openai")
    assert summary["excluded"] == {"no consent": {"samples": 1, "tokens": len(completion_ids({"content": "You said: forbidden"}))}}
    said = "".join(file.read_text() for file in (house.folder / "rows").iterdir() if file.name != "ledger.jsonl")
    assert ("You said: allowed" in said, "forbidden" in said) == (True, False)


async def test_conversations_are_named_in_any_way_one_knows_them(house: House) -> None:
    key = await house.service.key(trains=True)
    await house.say(key, [user("game")], headers={"X-Hermes-Session": "game-7"})
    await house.say(key, [user("other")])
    await house.say(await house.service.key("bali", trains=True), [user("far away")])
    [(_, conversation), (other, _), _] = await house.do("select id, conversation_id from sessions order by number")

    def asked(*texts: str) -> Counter[Sample]:
        return Counter((prompt_ids([user(text)]), completion_ids({"content": f"You said: {text}"})) for text in texts)

    for number, (words, texts) in enumerate(
        [
            (("--conversation", "game-7", "--since", "1h"), ["game"]),
            (("--conversation", other, "--conversation", conversation), ["game", "other"]),
            (("--account", "bali"), ["far away"]),
        ]
    ):
        await house.export(*words, out=f"rows{number}")
        assert trained(house.folder / f"rows{number}") == asked(*texts)


async def test_since_counts_back_from_now_or_names_a_moment(house: House) -> None:
    key = await house.service.key(trains=True)
    for text, hours in (("old", 20), ("yesterday", 30), ("now", 0)):
        await house.say(key, [user(text)])
        await house.let_pass(hours)
    assert (await house.export("--since", "24h", out="a"))["samples"] == 1
    in_berlin = (datetime.now(UTC) - timedelta(hours=39)).isoformat(timespec="minutes").replace("+00:00", "+01:00")
    assert (await house.export("--since", in_berlin, out="b"))["samples"] == 2


async def test_a_chat_that_began_long_ago_and_goes_on_is_one_of_those_since(house: House) -> None:
    key = await house.service.key(trains=True)
    one = await house.say(key, [user("one")])
    await house.say(key, [user("over")])
    await house.let_pass(2)
    await house.say(key, [user("one"), one, user("two")])
    assert (await house.export("--since", "1h"))["sessions"] == 1
    assert trained(house.folder / "rows") == Counter([house.model.returned[0], house.model.returned[2]])


async def test_who_was_deleted_is_left_out_and_said_to_be(house: House) -> None:
    key = await house.service.key(trains=True)
    for name in ("ann", "bob", "bob"):
        await house.say(key, [user(f"{name} says")], name)
    async with house.service.database.begin() as tx:
        await house.service.hermes.adapters.people.forget(tx, await house.who("bob"))
    said = await house.hermes("export", "--stored", "--out", "rows", "--json")
    assert (said.code, said.complaints) == (0, "hermes: 2 sessions are left out: their users were erased\n")
    summary = json.loads(said.output)
    assert (summary["sessions"], summary["samples"], summary["forgotten"], summary["broken"]) == (1, 1, 2, [])
    assert trained(house.folder / "rows") == Counter(house.model.returned[:1])


async def test_a_session_that_was_tampered_with_is_named_and_the_rest_is_exported(house: House) -> None:
    key = await house.service.key(trains=True)
    for text in ("one", "two"):
        await house.say(key, [user(text)])
    [(bad,), (good,)] = await house.do("select id from sessions order by number")
    await house.do("update graph_messages set body = body || '\\x00' where session_id = %s", bad)
    said = await house.hermes("export", "--stored", "--out", "rows", "--save-graphs", "graphs.jsonl", "--json")
    assert (said.code, len(said.complaints.splitlines())) == (1, 1)
    assert said.complaints.startswith(f"hermes: session {bad}: The sealed contents were changed")
    assert {line["session"] for line in house.lines()} == {str(good)}
    assert (await house.hermes("verify", "rows", "--against", "graphs.jsonl")).code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--conversation", "nowhere"], "there is no conversation or session 'nowhere'"),
        (["--account", "nobody"], "there is no account 'nobody'"),
        (["--stored", "--format", "csv"], "unknown format 'csv'"),
    ],
)
async def test_bad_arguments_are_one_line_code_2_and_nothing_is_written(house: House, words: list[str], complaint: str) -> None:
    said = await house.hermes("export", "--out", "rows", *words)
    assert (said.code, said.output, len(said.complaints.splitlines())) == (2, "", 1)
    assert said.complaints.startswith("hermes: ")
    assert complaint in said.complaints
    assert house.written() == []


async def test_a_store_that_is_away_is_one_line_and_code_1(house: House) -> None:
    away = replace(house.service.hermes.settings, database_url=Secret("postgresql://nobody@127.0.0.1:1/none"))
    service = replace(house.service, hermes=replace(house.service.hermes, settings=away))
    said = await hermes(service, house.folder, "export", "--stored", "--out", "rows")
    assert (said.code, said.output, len(said.complaints.splitlines())) == (1, "", 1)
    assert said.complaints.startswith("hermes: PostgreSQL cannot be used")
    assert house.written() == []


async def test_no_transaction_stays_open_between_two_sessions_and_an_answer_meanwhile_is_read_where_it_comes(house: House) -> None:
    key = await house.service.key(trains=True)
    one = await house.say(key, [user("one")])
    await house.say(key, [user("else")])
    async with open_session_source(house.service.hermes.settings) as stored:
        first, second = await stored.find(SessionQuery())
        read = [await stored.read(second)]
        open_now = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%%'"
        assert await house.do(open_now) == [(0,)]
        await house.say(key, [user("one"), one, user("two")])
        read.append(await stored.read(first))
    assert [len(list(session.graph.responses())) for session in read if not isinstance(session, Exception)] == [1, 2]


def test_the_stores_of_a_hermes_that_does_not_run_are_started_and_stopped_again(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:  # a short one, because a socket's path must be short
        home = Path(folder) / "home"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")} | {"HERMES_HOME": str(home)}
        command = [sys.executable, "-m", "hermes", "export", "--stored", "--out", "rows"]
        ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (ended.returncode, ended.stderr) == (0, "hermes: nothing in this export is trained: there is no session\n")
        status = embedded.status(home)
        assert (status.postgres, status.valkey) == (None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


async def test_several_exports_of_one_store_are_the_same_bytes(house: House) -> None:
    key = await house.service.key(trains=True)
    for text in ("one", "two", "three"):
        await house.say(key, [user(text)])
    await asyncio.gather(house.export("--stored", out="a"), house.export("--stored", out="b"))
    contents = [{file.name: file.read_bytes() for file in (house.folder / out).iterdir()} for out in ("a", "b")]
    assert contents[0] == contents[1]
