"""Random clients of chat completions: whatever they do to their chats, every sample stands once, under exactly what was sent."""

import json
import random
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.gateway.chat_request import read_request
from hermes.gateway.client_chats import ChatRecorder, ChatStores
from hermes.graph.message import canonical
from hermes.ports.backends import Completion, Usage
from hermes.ports.models import CallOutcome, CallSource, ModelCall
from hermes.ports.users import UserState
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.sessions import PostgresClientChats
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
WORDS = ["ok", "done", "yes", "a", "b"]

Chat = list[dict[str, Any]]


@dataclass(frozen=True)
class Asked:
    """One request of a client, and the answers to it."""

    messages: Chat
    tools: list[Any] | None
    name: str | None
    answers: Chat
    is_reasoning_sent: bool


class Client:
    """Keeps some chats, and does to them whatever comes to its mind: edits, cuts, summaries, retries, forks; shows its model's thoughts
    again, or not, or those of this turn."""

    def __init__(self, seed: int) -> None:
        self._any = random.Random(seed)
        self._chats: list[Chat] = []

    def asks(self, times: int) -> Iterator[Asked]:
        for _ in range(times):
            at = self._choose()
            messages = self._changed([dict(message) for message in self._chats[at]])
            answers = [self._answer() for _ in range(self._any.choice([1, 1, 1, 1, 2, 3]))]
            shown = [self._dressed(message) for message in self._shown(messages, ("turn", "all", "none", "some")[at % 4])]
            tools = TOOLS if self._any.random() < 0.5 else None
            yield Asked(shown, tools, self._any.choice([*[None] * 6, "x", "y"]), answers, self._any.random() < 0.8)
            if self._any.random() < 0.85:
                self._chats[at] = [*messages, self._any.choice(answers)]
            elif self._any.random() < 0.5:
                self._chats.append([*messages, self._any.choice(answers)])

    def _choose(self) -> int:
        if not self._chats or self._any.random() < 0.12:
            self._chats.append([{"role": "system", "content": self._any.choice(["S", "T"])}] if self._any.random() < 0.5 else [])
            return len(self._chats) - 1
        return self._any.randrange(len(self._chats))

    def _changed(self, chat: Chat) -> Chat:
        what, any_ = self._any.random(), self._any
        if chat and what < 0.12:
            at = any_.randrange(len(chat))
            chat[at] = {**chat[at], "content": any_.choice(WORDS)}
        elif chat and what < 0.22:
            chat = chat[: any_.randrange(len(chat) + 1)]
        elif len(chat) > 3 and what < 0.32:
            start = any_.randrange(1, len(chat) - 1)
            chat[start : any_.randrange(start, len(chat))] = [{"role": "user", "content": "(summary)"}]
        elif chat and what < 0.37:
            del chat[any_.randrange(len(chat))]
        elif chat and what < 0.42:
            forged = {"reasoning": "forged"} if any_.random() < 0.5 else {}
            chat.insert(any_.randrange(len(chat) + 1), {"role": "assistant", "content": any_.choice(WORDS), **forged})
        is_retry = chat and chat[-1]["role"] != "assistant" and any_.random() < 0.3
        if not is_retry and chat and chat[-1].get("tool_calls"):
            chat.append({"role": "tool", "tool_call_id": "c1", "content": any_.choice(WORDS)})
        elif not is_retry:
            chat.append({"role": "user", "content": any_.choice(WORDS)})
        return chat

    def _shown(self, chat: Chat, style: str) -> Chat:
        style = style if self._any.random() < 0.8 else self._any.choice(["all", "none", "turn", "some"])
        turn = max((at for at, message in enumerate(chat) if message["role"] == "user"), default=0)
        hidden = {
            "all": lambda _: False,
            "none": lambda _: True,
            "turn": lambda at: at < turn,
            "some": lambda _: self._any.random() < 0.5,
        }[style]
        return [
            {name: value for name, value in message.items() if name != "reasoning"} if hidden(at) else message
            for at, message in enumerate(chat)
        ]

    def _dressed(self, message: dict[str, Any]) -> dict[str, Any]:
        """What clients do to a message that they echo, without changing it."""
        dressed = dict(message)
        if self._any.random() < 0.3:
            dressed |= {"refusal": message.get("refusal"), "audio": None, "annotations": []}
        if isinstance(message.get("content"), str) and message["content"] and self._any.random() < 0.2:
            dressed["content"] = [{"type": "text", "text": message["content"]}]
        return dressed

    def _answer(self) -> dict[str, Any]:
        kind = self._any.random()
        thought = {"reasoning": self._any.choice(["hm", "ha"])} if self._any.random() < 0.5 else {}
        if kind > 0.97:
            return {"role": "assistant", "content": "", "reasoning": "only"}
        if kind > 0.85:
            return {"role": "assistant", "content": None, "tool_calls": [CALL], **thought}
        if kind > 0.82:
            return {"role": "assistant", "content": None, "refusal": "no"}
        return {"role": "assistant", "content": self._any.choice(WORDS), **thought}


class Locked(ChatRecorder):
    """Records without the short way."""

    async def append(self, call: ModelCall, completion: Completion) -> UUID | None:
        return None


class House:
    """A store of chats for one user, and what must be in it."""

    def __init__(self, database: Database, keyring: Keyring, user_id: UUID, way: type[ChatRecorder]) -> None:
        self.database, self.user_id, self.way = database, user_id, way
        self.graphs = PostgresGraphs(keyring)
        chats = PostgresClientChats(database, keyring)
        self.stores = ChatStores(chats=chats, graphs=self.graphs, calls=PostgresModelCalls(), transactions=database)
        self.wanted: dict[str, tuple[UUID, list[bytes], Any]] = {}

    async def answer(self, asked: Asked) -> None:
        body = {"model": "m", "messages": asked.messages, "n": len(asked.answers), **({"tools": asked.tools} if asked.tools else {})}
        request = read_request(body, max_choices=8)
        recorder = self.way(request, self.stores, account="shop", user_id=self.user_id, name=asked.name)
        async with recorder.open_chat() if len(asked.answers) > 1 else nullcontext():
            for message in asked.answers:
                await self.record(recorder, request.messages, message, asked)

    async def record(self, recorder: ChatRecorder, sent: Any, message: dict[str, Any], asked: Asked) -> None:
        usage = Usage(tokens_in=1, tokens_out=1)
        call = ModelCall(
            id=uuid4(),
            day=date(2026, 11, 15),
            account_id="shop",
            source=CallSource.COMPLETIONS,
            tier="t",
            user_id=self.user_id,
            model="m",
            outcome=CallOutcome.ANSWERED,
            latency_ms=1,
            usage=usage,
        )
        done = Completion(
            message=message, finish_reason="stop", usage=usage, model="m", request_digest="", is_reasoning_sent=asked.is_reasoning_sent
        )
        session_id = await recorder.record(call, done)
        seen = [{k: v for k, v in each.items() if asked.is_reasoning_sent or k != "reasoning"} for each in sent]
        self.wanted[str(call.id)] = (session_id, [canonical(each) for each in seen], asked.tools)

    async def check(self) -> None:
        found: dict[str, tuple[UUID, list[bytes], Any]] = {}
        async with self.database.begin() as tx:
            sessions = await (await connection_of(tx).execute("select id from sessions")).fetchall()
            rows = dict(await (await connection_of(tx).execute("select id::text, session_id from calls")).fetchall())
            for (session_id,) in sessions:
                graph = await self.graphs.load(tx, session_id)
                assert graph.verify()
                for response in graph.responses():
                    assert response.sample_id not in found, "each sample once"
                    tools = json.loads(json.dumps(response.overlay.tools)) if response.overlay.tools else None
                    found[response.sample_id] = (session_id, [canonical(message) for message in response.context], tools)
        assert found == self.wanted
        assert rows == {call_id: session_id for call_id, (session_id, _, _) in self.wanted.items()}


@pytest.mark.parametrize("way", [ChatRecorder, Locked])
@pytest.mark.parametrize("seed", range(6))
async def test_every_sample_stands_once_under_exactly_what_was_sent(database: Database, seed: int, way: type[ChatRecorder]) -> None:
    keyring = Keyring(MasterKeys.parse([new_master_key()]))
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "shop", Platform.COMPLETIONS, "u", state=UserState.ACTIVE)
    house = House(database, keyring, user.id, way)
    for asked in Client(seed).asks(40):
        await house.answer(asked)
    await house.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 150))
async def test_many_more_clients(database: Database, seed: int) -> None:
    await test_every_sample_stands_once_under_exactly_what_was_sent(database, seed, ChatRecorder)
