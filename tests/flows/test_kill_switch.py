"""The kill switch ends calls that are under way, in every process, and each of them is paid for once and exactly.

One process engages it: the command. Two others have calls: streams and an answer of completions, and a turn."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from hermes.config import BackendKind, BackendSettings, ModelSettings, Secret, TierSettings, WorkSettings
from hermes.router.replies import ReplyKind, reply
from hermes.stores.postgres.database import connection_of
from hermes.stores.seal import new_master_key
from tests.fakes.vendors import vendors
from tests.flows.command import hermes
from tests.flows.service import Service, running
from tests.flows.test_completions import PRICE

STREAMS = 4


async def read_stream(service: Service, key: dict[str, str], has_begun: asyncio.Event) -> tuple[float, list[Any]]:
    """Return when a stream ended, and the data of its events."""
    body = {"model": "hermes", "messages": [{"role": "user", "content": "count"}], "stream": True}
    lines = []
    async with service.client.post(f"{service.url}/v1/chat/completions", json=body, headers=key) as response:
        async for line in response.content:
            if line.startswith(b"data: "):
                lines.append(line.removeprefix(b"data: ").strip())
                if b'"content":"word' in line:
                    has_begun.set()
    return time.monotonic(), [line if line == b"[DONE]" else json.loads(line) for line in lines]


async def test_the_kill_switch_ends_what_is_under_way_in_every_process(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with vendors() as fakes:
        fakes.vllm.models[:] = ["small-1"]
        fakes.openai.models[:] = ["turns-1"]
        tier: dict[str, Any] = {"day_tokens": 1_000_000}
        key_ring = (Secret(new_master_key()),)
        (tmp_path / "elsewhere").mkdir()
        more = {
            "master_keys": key_ring,
            "work": WorkSettings(drain_s=0.1, stalled_after_s=60.0),
            "backends": {
                "own": BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key)),
                "turns": BackendSettings(kind=BackendKind.OPENAI, base_url=fakes.openai.url, api_key=Secret(fakes.openai.key)),
            },
            "models": {
                "small": ModelSettings(backend="own", id="small-1", prices=PRICE),
                "turns": ModelSettings(backend="turns", id="turns-1", prices=PRICE),
            },
            "tiers": {"free": TierSettings(chain=("turns",), **tier), "agents": TierSettings(chain=("small",), **tier)},
        }
        async with (
            running(database_url, redis_url, echoes=False, more=more) as one,
            running(database_url, redis_url, echoes=False, has_worker=False, more=more) as two,
        ):
            assert (await hermes(one, tmp_path, "kill-switch", "status")).code == 0  # its modules are loaded now
            key, begun = await one.key(tier="agents"), [asyncio.Event() for _ in range(STREAMS)]
            for _ in range(STREAMS):
                fakes.vllm.say(" ".join(f"word{at}" for at in range(100)), drip_s=0.2)
            readers = [asyncio.create_task(read_stream((one, two)[at % 2], key, begun[at])) for at in range(STREAMS)]
            for event in begun:
                await event.wait()
            fakes.openai.hang()
            turn = asyncio.create_task(one.post("/v1/messages", {"text": "find me a bar", "user": "ada"}, await one.key()))
            async with asyncio.timeout(10):
                while not fakes.openai.requests:  # noqa: ASYNC110  # what is looked at is behind a socket
                    await asyncio.sleep(0.02)
            ended = await hermes(one, tmp_path, "kill-switch", "on", "the bill explodes")
            assert ended.code == 0, ended.complaints
            at = time.monotonic()
            streams = await asyncio.gather(*readers)
            assert max(when for when, _ in streams) - at < 1.0, "the record was committed before the command ended"
            for _, events in streams:
                assert events[-1]["error"]["type"] == "server_error"
                assert events[-1]["error"]["code"] == "paused"
            answered = await turn
            assert (answered.status, answered.body["text"]) == (200, reply(ReplyKind.PAUSED, "en", resets_at=None))
            for service in (one, two):
                await service.hermes.gateway.wait_settled()
            async with one.database.begin() as tx:
                connection = connection_of(tx)
                rows = await (
                    await connection.execute("select source, outcome, error, tokens_in, tokens_out, micro_usd, user_id from calls")
                ).fetchall()
                answers = await (await connection.execute("select count(*) from outbox")).fetchall()
            kinds = sorted((source, outcome, error) for source, outcome, error, *_ in rows)
            assert kinds == [("completions", "cancelled", "CallsPaused: kill switch")] * STREAMS + [
                ("router", "cancelled", "CallsPaused: kill switch")
            ]
            assert answers == [(1,)], "the user is told once"
            for source, _, _, tokens_in, tokens_out, micro_usd, user_id in rows:
                assert tokens_in > 0
                assert (tokens_out > 0) is (source == "completions"), "the model of the turn had said nothing"
                assert micro_usd > 0
                used = await one.hermes.adapters.budgets.used(user_id)
                mine = [row for row in rows if row[6] == user_id]
                assert (used.day_tokens, used.day_held) == (sum(row[3] + row[4] for row in mine), 0)
                assert used.day_micro_usd == sum(row[5] for row in mine)
            assert (await hermes(one, tmp_path, "kill-switch", "off")).code == 0
            fakes.vllm.say("on we go")
            body = {"model": "hermes", "messages": [{"role": "user", "content": "and now?"}]}
            async with asyncio.timeout(2):  # the other process looks at the record every quarter of a second
                while (await two.post("/v1/chat/completions", body, key)).status != 200:  # noqa: ASYNC110  # it is another process
                    await asyncio.sleep(0.05)
