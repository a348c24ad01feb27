"""Generated sessions, the same in every run. Uses only what every commit of Hermes has, so that an older commit can write them too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes import CallRecord, MessageGraph

VOCABULARY = 150_000
WORDS = "the a sunset bar with quiet music and good tea near beach for two people tonight at eight please find book ask tell show me"


def write_sessions(kind: str, count: int, file: Path) -> None:
    """Write so many sessions of a kind as JSONL."""
    with file.open("w", encoding="utf-8") as lines:
        for graph in sessions(kind, count):
            lines.write(graph.to_json() + "\n")


def sessions(kind: str, count: int) -> Iterator[MessageGraph]:
    if kind == "long":
        yield long_session()[0]
    for number in range(count if kind != "long" else 0):
        yield small_session(number) if kind == "small" else short_session(number)[0]


def small_session(number: int) -> MessageGraph:
    """A question and its answer, in every third session two: a small row of text, with token ids."""
    rng = random.Random(number)
    words = WORDS.split()
    graph = MessageGraph([{"role": "system", "content": "You are a concierge. Be brief."}], seed=f"small {number}")
    tokens = _tokens(rng, 20)
    for turn in range(2 if number % 3 == 0 else 1):
        graph.append({"role": "user", "content": " ".join(rng.choices(words, k=rng.randint(4, 15)))})
        tokens += _tokens(rng, 12)
        answer = _tokens(rng, rng.randint(10, 30))
        call = CallRecord(
            model="generated",
            policy_version="step-1",
            tokenizer="generated",
            finish_reason="stop",
            sampling={"temperature": 1.0},
            prompt_token_ids=tokens,
            token_ids=answer,
            logprobs=[-rng.random() for _ in answer],
            sample_id=f"small {number} {turn}",
        )
        graph.append({"role": "assistant", "content": " ".join(rng.choices(words, k=rng.randint(10, 30)))}, call=call)
        tokens += answer
    return graph


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(count)]


@dataclass(slots=True)
class Writer:
    """An agent's chat, and the tokens that a server would have been sent for it."""

    random: random.Random
    name: str
    chat: MessageGraph
    tokens: list[int] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)
    """How many tokens each message takes, by its text."""

    def some(self, low: int, high: int) -> list[int]:
        return [self.random.randrange(VOCABULARY) for _ in range(self.random.randint(low, high))]

    def say(self, role: str, tokens: list[int], **metadata: Any) -> None:
        text = self._text(tokens)
        self.chat.append({"role": role, "content": text, **({"metadata": metadata} if metadata else {})})
        self.tokens = self.tokens + tokens

    def sample(self, low: int, high: int) -> list[int]:
        tokens = self.some(low, high)
        text = self._text(tokens)
        logprobs = [-self.random.random() for _ in tokens]
        call = CallRecord(
            prompt_token_ids=self.tokens, token_ids=tokens, logprobs=logprobs, sample_id=f"sample {text}", tokenizer="generated"
        )
        self.chat.append({"role": "assistant", "content": text}, call=call)
        self.tokens = self.tokens + tokens
        return tokens

    def _text(self, tokens: list[int]) -> str:
        text = f"{self.name} {len(self.lengths)}"
        self.lengths[text] = len(tokens)
        return text

    def opened(self, name: str, chat: MessageGraph, tokens: list[int]) -> Writer:
        return Writer(self.random, name, chat, tokens, self.lengths)


def long_session() -> tuple[MessageGraph, dict[str, int]]:
    """300 turns, a subagent of 5 calls every 10 turns, 3 compactions whose summaries are sampled: 453 calls, 7 M call tokens."""
    agent = Writer(random.Random(0), "agent", MessageGraph(seed="long"))
    rules = agent.some(1500, 1500)
    agent.say("system", rules)
    agent.say("user", agent.some(300, 300))
    for turn in range(1, 301):
        agent.sample(50, 330)
        subagent = _subagent(agent) if turn % 10 == 0 else None
        agent.say("tool", agent.some(50, 630), **({"chat": subagent} if subagent is not None else {}))
        if turn % 75 == 0 and turn < 300:
            summariser = agent.opened("summariser", agent.chat.fork(), agent.tokens)
            summariser.say("user", agent.some(60, 60))
            summary = summariser.sample(400, 400)
            text = agent._text(summary)
            agent.chat.compact(slice(1, None), {"role": "user", "content": text, "metadata": {"chat": summariser.chat}})
            agent.tokens = rules + summary
    return agent.chat, agent.lengths


def _subagent(agent: Writer) -> MessageGraph:
    subagent = agent.opened("subagent", MessageGraph(seed=f"subagent {len(agent.lengths)}"), [])
    subagent.say("system", agent.some(700, 700))
    for _ in range(5):
        subagent.sample(50, 330)
        subagent.say("tool", agent.some(50, 630))
    return subagent.chat


def short_session(number: int) -> tuple[MessageGraph, dict[str, int]]:
    """Two questions and their answers; in every fourth session the first question is edited and asked again."""
    writer = Writer(random.Random(number), str(number), MessageGraph(seed=str(number)))
    system = writer.some(150, 250)
    writer.say("system", system)
    for _ in range(2):
        writer.say("user", writer.some(20, 60))
        writer.sample(30, 90)
    if number % 4 == 0:
        question = writer.some(20, 60)
        writer.chat[1:] = [{"role": "user", "content": writer._text(question)}]
        writer.tokens = system + question
        writer.sample(30, 90)
    return writer.chat, writer.lengths
