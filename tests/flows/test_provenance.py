"""What answers is named as itself, from the HTTP reply to the export; what a script said is no training data."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes.config import BackendKind, BackendSettings, CompletionsSettings, LlmSettings, ModelSettings, StandIn, TierSettings
from hermes.graph import MessageGraph
from hermes.stores.postgres.database import connection_of
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.verify import verify
from tests.flows.command import Ended, hermes
from tests.flows.service import Service, running

CHAT = "/v1/chat/completions"
SONNET = "claude-sonnet-4-6"
SMOLLM = "SmolLM2-135M-Instruct.Q4_1"
"""What the file of weights is called."""
TEXT_FORMATS = {"sharegpt", "llamafactory", "openai", "atif"}


def body(model: str = SONNET, text: str = "Hello!", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


@dataclass
class House:
    """A Hermes without any key, and a folder to work in."""

    service: Service
    folder: Path

    async def hermes(self, *words: object) -> Ended:
        return await hermes(self.service, self.folder, *words)

    async def rows(self, query: str) -> list[Any]:
        async with self.service.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode())).fetchall()

    async def streamed(self, key: dict[str, str], **wanted: Any) -> list[dict[str, Any]]:
        """The chunks of a stream."""
        async with self.service.client.post(self.service.url + CHAT, json=body(**wanted, stream=True), headers=key) as response:
            lines = (await response.text()).splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]

    async def save(self) -> list[MessageGraph]:
        """Write all graphs of the store into `graphs.jsonl`."""
        said = await self.hermes("export", "--stored", "--out", "saving", "--save-graphs", "graphs.jsonl")
        assert said.code == 0, said.complaints
        return [MessageGraph.from_json(line) for line in (self.folder / "graphs.jsonl").read_text().splitlines()]

    async def export(self, form: str, *words: str) -> tuple[dict[str, Any], str]:
        """Export the saved graphs; return the manifest and what was complained about. What comes out holds, against the graphs too."""
        out = "-".join((form, *words))
        said = await self.hermes("export", "graphs.jsonl", "--format", form, "--out", out, "--json", *words)
        assert said.code == 0, said.complaints
        assert verify(self.folder / out, [self.folder / "graphs.jsonl"]).problems == ()
        manifest: dict[str, Any] = json.loads(said.output)
        return manifest, said.complaints


@pytest.fixture
async def house(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with running(database_url, redis_url, echoes=False) as service:
        yield House(service, tmp_path)


async def test_a_scripted_answer_is_named_as_itself_wherever_it_is_told(house: House) -> None:
    key = await house.service.key(trains=True)
    for asked in (SONNET, "claude-sonnet", "hermes"):
        got = await house.service.post(CHAT, body(asked, logprobs=True), key)
        assert (got.status, got.body["model"], got.body["hermes"]["backend"]) == (200, "scripted", "scripted"), asked
        assert got.body["choices"][0]["logprobs"] is None
        assert {chunk["model"] for chunk in await house.streamed(key, model=asked)} == {"scripted"}
    listed = await house.service.get("/v1/models", key)
    assert [model["id"] for model in listed.body["data"]] == ["hermes", "claude-sonnet"], "what can be asked for keeps its name"
    said = await house.service.post("/v1/messages", {"text": "Hello!", "user": "ann"}, key)
    assert said.status == 200, said.body
    calls = await house.rows("select model, backend, answered_by, attempts, micro_usd from calls")
    assert {row[:3] for row in calls} == {("scripted", "scripted", "scripted")}
    assert {(attempt["backend"], attempt["model"]) for row in calls for attempt in row[3]} == {("scripted", "scripted")}
    assert sum(row[4] for row in calls) == 0
    assert await house.rows("select distinct meta->>'llm_model', meta->>'llm_backend' from interactions") == [("scripted", "scripted")]
    assert SONNET not in (await house.service.get("/metrics")).body
    records = [response.call for graph in await house.save() for response in graph.responses()]
    assert len(records) == 7
    for call in records:
        assert call is not None
        assert (call.model, call.tokenizer, call.prompt_token_ids, call.token_ids, call.logprobs) == ("scripted", None, None, None, None)


async def test_a_scripted_answer_is_in_no_export_unless_it_is_asked_for(house: House) -> None:
    key = await house.service.key(trains=True)
    for text in ("Hello!", "Find me a cafe in Ubud"):
        assert (await house.service.post(CHAT, body(text=text), key)).status == 200
    await house.save()
    for form in sorted(FORMATS):
        manifest, complaint = await house.export(form)
        assert manifest["rows"] == 0, form
        assert {reason: count["samples"] for reason, count in manifest["excluded"].items()} == {"scripted answer": 2}, form
        assert (
            "nothing in this export is trained: 2 samples: scripted answer; the answers of a script are not training data: connect a model"
            in complaint
        )
        assert 'llm.stand_in = "local"' in complaint
        manifest, _ = await house.export(form, "--include", "scripted")
        excluded = {reason: count["samples"] for reason, count in manifest["excluded"].items()}
        assert excluded == ({} if form in TEXT_FORMATS else {"no token ids": 2}), form
        assert manifest["rows"] == (2 if form in TEXT_FORMATS else 0), form


async def test_a_script_under_a_name_of_the_operators_is_still_a_script(database_url: str, redis_url: str, tmp_path: Path) -> None:
    script = '[[rule]]\nwhen = "break"\nsay = "It does not come to its end."\ncut_after = 3\n[[rule]]\nsay = "Hello."'
    (tmp_path / "script.toml").write_text(script, "utf-8")
    more = {
        "llm": LlmSettings(script=tmp_path / "script.toml"),
        "backends": {"mine": BackendSettings(kind=BackendKind.SCRIPTED, slots=5)},
        "models": {"gpt": ModelSettings(backend="mine", id="gpt-9")},
        "tiers": {"agents": TierSettings(chain=("gpt",), day_tokens=1_000_000)},
        "completions": CompletionsSettings(tier="agents"),
    }
    async with running(database_url, redis_url, has_worker=False, more=more) as service:
        house = House(service, tmp_path)
        key = await service.key(trains=True)
        assert (await service.post(CHAT, body("gpt-9"), key)).body["model"] == "scripted"
        assert {chunk["model"] for chunk in await house.streamed(key, model="gpt-9")} == {"scripted"}
        *chunks, error = await house.streamed(key, model="gpt-9", text="break")
        assert ({chunk["model"] for chunk in chunks}, error["error"]["code"]) == ({"scripted"}, "cut_short")
        calls = [response.call for graph in await house.save() for response in graph.responses()]
        assert Counter((call.model, call.finish_reason) for call in calls if call) == {
            ("scripted", "stop"): 2,
            ("scripted", "cut_short"): 1,
        }
        manifest, _ = await house.export("sharegpt")
        assert {reason: count["samples"] for reason, count in manifest["excluded"].items()} == {"scripted answer": 3}


async def test_a_local_model_is_named_as_itself_and_trained_off_policy_as_its_prompts_are_derived(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp")
    more = {"llm": LlmSettings(stand_in=StandIn.LOCAL)}
    async with running(database_url, redis_url, has_worker=False, more=more) as service:
        house = House(service, tmp_path)
        key = await service.key(trains=True)
        got = await service.post(CHAT, body(max_tokens=8, temperature=0.0), key)
        assert (got.status, got.body["model"], got.body["hermes"]["backend"]) == (200, SMOLLM, "local"), got.body
        assert {chunk["model"] for chunk in await house.streamed(key, max_tokens=8)} == {SMOLLM}
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        got = await service.post(CHAT, body(tools=[tool]), key)
        assert (got.body["model"], got.body["hermes"]["backend"]) == ("scripted", "scripted"), "the small model takes no tools"
        await house.save()
        manifest, complaint = await house.export("parquet")
        assert manifest["excluded"]["scripted answer"]["samples"] == 1
        assert manifest["excluded"]["prompt tokens derived, not recorded"]["samples"] >= 1
        assert manifest["trained"]["on_policy"] == {"rows": 0, "samples": 0, "tokens": 0}
        assert "nothing in this export is trained" in complaint
        manifest, _ = await house.export("parquet", "--include", "derived")
        assert manifest["trained"]["on_policy"]["samples"] == 0
        assert manifest["trained"]["off_policy"]["samples"] >= 1
        lines = [json.loads(line) for line in (tmp_path / "parquet---include-derived" / "ledger.jsonl").read_text().splitlines()[1:]]
        assert {line["tokenizer"] for line in lines if line["trained"]} == {SMOLLM}
        manifest, _ = await house.export("sharegpt")
        assert {reason: count["samples"] for reason, count in manifest["excluded"].items()} == {"scripted answer": 1}


async def test_a_live_conversation_as_text_has_its_system_prompt_and_the_users_own_words(house: House) -> None:
    key = await house.service.key(trains=True)
    for text in ("Hello!", "Find me a cafe in Ubud"):
        got = await house.service.post("/v1/messages", {"text": text, "user": "ann"}, key)
        assert got.status == 200, got.body
    graphs = await house.save()
    [sent] = {
        response.context[0]["content"] for graph in graphs for response in graph.responses() if response.context[0]["role"] == "system"
    }
    manifest, _ = await house.export("sharegpt", "--include", "scripted")
    rows = [json.loads(line) for line in (house.folder / "sharegpt---include-scripted" / "sharegpt.jsonl").read_text().splitlines()]
    assert {row["conversations"][0]["from"] for row in rows} == {"system"}
    assert {row["conversations"][0]["value"] for row in rows} == {sent}
    said = {turn["value"] for row in rows for turn in row["conversations"] if turn["from"] == "human"}
    assert said == {"Hello!", "Find me a cafe in Ubud"}
    assert all(row["hermes"]["left_out"]["notes"] >= 1 and "notes of user messages left out" in row["hermes"]["off_policy"] for row in rows)
    assert (manifest["trained"]["on_policy"]["rows"], manifest["trained"]["off_policy"]["rows"]) == (0, len(rows))
    await house.export("openai", "--include", "scripted")
    messages = [
        message
        for line in (house.folder / "openai---include-scripted" / "openai.jsonl").read_text().splitlines()
        for message in json.loads(line)["messages"]
    ]
    assert {message["content"] for message in messages if message["role"] == "user"} == said
    assert {message["content"] for message in messages if message["role"] == "system"} == {sent}


async def test_an_answer_of_a_turn_that_comes_from_the_cache_is_a_copy_and_no_second_sample(house: House) -> None:
    key = await house.service.key(trains=True)
    answers: list[dict[str, Any]] = []
    for _ in range(2):
        got = await house.service.post("/v1/messages", {"text": "thanks!", "user": "ann", "channel": f"c{len(answers)}"}, key)
        assert got.status == 200, got.body
        answers.append(got.body)
    assert [(answer["text"], answer["cache_hit"]) for answer in answers] == [(answers[0]["text"], False), (answers[0]["text"], True)]
    graphs = await house.save()
    samples = {response.call.sample_id for graph in graphs for response in graph.responses() if response.call is not None}
    assert len(samples) == 1
    [copy_of] = [message["metadata"]["copy_of"] for graph in graphs for message in graph if "copy_of" in (message.get("metadata") or {})]
    assert copy_of in samples, "it names the sample that it is a copy of"
