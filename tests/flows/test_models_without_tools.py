"""A model without tools helps in an outage: it answers what needs no tool, and the record has exactly what it was shown."""

from pathlib import Path
from typing import Any

from hermes.config import BackendKind, BackendSettings, ModelSettings, Secret, TierSettings
from hermes.graph import MessageGraph
from hermes.router.replies import ReplyKind, reply
from hermes.stores.postgres.database import connection_of
from tests.browser.console import token_headers
from tests.fakes.script import ToolCall
from tests.fakes.vendors import vendors
from tests.flows.service import Service, running
from tests.flows.test_completions import PRICE


async def load_graph(service: Service) -> MessageGraph:
    async with service.database.begin() as tx:
        [(session_id,)] = await (await connection_of(tx).execute("select id from sessions")).fetchall()
        return await service.hermes.adapters.graphs.load(tx, session_id)


def shapes(messages: Any) -> list[tuple[str, bool]]:
    """The role of each message, and whether it calls tools."""
    return [(message["role"], bool(message.get("tool_calls"))) for message in messages]


async def test_a_model_without_tools_is_asked_what_needs_none(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with vendors() as fakes:
        fakes.openai.models[:] = ["big-1"]
        more = {
            "backends": {
                "openai": BackendSettings(kind=BackendKind.OPENAI, base_url=fakes.openai.url, api_key=Secret(fakes.openai.key)),
                "ollama": BackendSettings(kind=BackendKind.OLLAMA, base_url=fakes.ollama.url),
            },
            "models": {"big": ModelSettings(backend="openai", id="big-1", prices=PRICE)},
            "tiers": {"free": TierSettings(chain=("big", "ollama"), day_tokens=1_000_000)},
        }
        async with running(database_url, redis_url, echoes=False, more=more) as service:
            key = await service.key()

            async def say(text: str) -> str:
                got = await service.post("/v1/messages", {"text": text, "user": "ada"}, key)
                assert got.status == 200, got.body
                answer: str = got.body["text"]
                return answer

            fakes.openai.say("", tool_calls=[ToolCall("venue_search", {"query": "sunset bar"})])
            fakes.openai.say("There is La Brisa.")
            assert await say("find me a sunset bar in Canggu") == "There is La Brisa."
            [_, before] = [response.message for response in (await load_graph(service)).responses()]
            fakes.openai.fail(403)
            for text, heard in (("thanks", "You are welcome."), ("what rhymes with seven stones?", "Heaven phones.")):
                fakes.ollama.say(heard)
                assert await say(text) == heard
            first, second = (seen.body for seen in fakes.ollama.requests)
            assert [("tools" in body, shapes(body["messages"])) for body in (first, second)] == [
                (False, [("system", False), ("user", False), ("assistant", False), ("user", False)]),
                (False, [("system", False), ("user", False), ("assistant", False), ("user", False), ("assistant", False), ("user", False)]),
            ]
            fakes.openai.fail(403)
            assert await say("find me a beach club in Canggu") == reply(ReplyKind.RETRY_LATER, "en")
            assert len(fakes.ollama.requests) == 2, "what needs a tool is not asked of a model that has none"

            graph = await load_graph(service)
            assert shapes(graph) == [
                *[("user", False), ("assistant", True), ("tool", False), ("assistant", False)],
                *[("user", False), ("assistant", False), ("user", False), ("assistant", False)],
            ], "the list keeps its tool calls"
            assert graph.verify().problems == ()
            *_, thanks, rhyme = graph.responses()
            for response, body in ((thanks, first), (rhyme, second)):
                sent = [{"role": message["role"], "content": message["content"]} for message in body["messages"]]
                assert [{"role": message["role"], "content": message["content"]} for message in response.context] == sent
                assert response.call is not None
                assert response.call.tools is None
            assert before["content"] == "There is La Brisa."
            async with service.database.begin() as tx:
                query = "select turn_id from calls where backend = 'ollama' order by created_at limit 1"
                [(turn_id,)] = await (await connection_of(tx).execute(query)).fetchall()
            shown = await service.get(f"/v1/ops/turns/{turn_id}/context", {**await token_headers(service), "X-Hermes-Reason": "a test"})
            [context] = shown.body["data"]["contexts"]
            assert (shapes(context["messages"]), context["tools"]) == (shapes(first["messages"]), [])
