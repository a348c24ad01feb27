"""Answer survival: which share of answers is still there after compression to 50 %, 25 % and 10 %, and a plot of it.

    python benchmarks/answer_survival.py memory_recall.jsonl --svg answer_survival.svg --seconds 600

The data are messages and questions with their answers and the ids of the messages that hold them, by scenario; each scenario is one
person who talks for hours, and becomes one long chat. Nothing but the system turn is protected, so everything depends on the summary.
An answer is `present` if its words are in the compressed chat, and `in context` if two of the words that stood around it are still around
it: a list of bare words would be present, but say nothing.

Side by side: the extractive summariser; the small real model on this machine, as many chats as the seconds allow; and two summaries that
anybody could make, the head and the tail of what was said, and sentences drawn at random. Exits with 1 if the extractive summariser is
not clearly better than those two."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes import CallRecord, MessageGraph
from hermes.backends.local import LocalBackend
from hermes.ports.backends import BackendError, ModelRequest
from hermes.trajectories.compress import (
    ExtractiveSummariser,
    ModelSummariser,
    Summariser,
    Summary,
    SummaryRequest,
    TokenCounter,
    compact_to_target,
    load_counter,
    read_settings,
)
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest

SHARES = (0.5, 0.25, 0.1)
CLEARLY = 0.1
"""How much better the extractive summariser is than either baseline, at every share."""
AROUND = 60
"""Characters on either side of an answer that are its context."""
PART_TOKENS = 1_400
"""A prompt that a small model still follows."""
COLOURS = {"extractive": "#2563eb", "smollm2": "#d97706", "random sentences": "#6b7280", "head and tail": "#9ca3af"}


def main() -> int:
    """Measure, print the table, draw the plot."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path, help="messages and questions, one JSON object per line")
    options.add_argument("--svg", type=Path, default=Path("answer_survival.svg"), help="where the plot is written")
    options.add_argument("--seconds", type=float, default=600, help="how long the model may take; 0 leaves it out")
    options.add_argument("--tokenizer", default="estimate", help="how tokens are counted, as in hermes compress")
    chosen = options.parse_args()
    rows = [json.loads(line) for line in chosen.data.read_text(encoding="utf-8").splitlines() if line.strip()]
    people = list(people_of(rows))
    counter = load_counter(chosen.tokenizer)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for person in people:
        print(f"{person.name}: {len(person.texts)} messages, {counter.count(person.messages):,} tokens, {len(person.questions)} questions")
    whole = Tally()
    for person in people:
        look(person, "\n".join(person.texts.values()), whole)
    print(f"before compression {whole.present:.2f} ({whole.in_context:.2f}) of the answers are there")
    tables = {
        "extractive": asyncio.run(survival(people, ExtractiveSummariser(), counter)),
        "random sentences": asyncio.run(survival(people, RandomSentences(), counter)),
        "head and tail": asyncio.run(survival(people, HeadAndTail(), counter)),
    }
    if chosen.seconds:
        tables["smollm2"], beside = asyncio.run(by_model(people, counter, chosen.seconds))
        show({"on the same chats:": {share: Tally() for share in SHARES}, "  smollm2": tables["smollm2"], "  extractive": beside})
    show(tables)
    chosen.svg.write_text(drawn(tables), encoding="utf-8")
    print(f"\nplot: {chosen.svg}")
    ours = tables["extractive"]
    weak = [
        share
        for share in SHARES
        for name in ("random sentences", "head and tail")
        if ours[share].present < tables[name][share].present + CLEARLY
    ]
    if weak:
        print(f"BROKEN: not {CLEARLY:.0%} better than the baselines at {', '.join(f'{share:.0%}' for share in dict.fromkeys(weak))}")
    return int(bool(weak))


# --- people and their questions


@dataclass(frozen=True, slots=True)
class Person:
    """One scenario: everything that was said, and what is asked about it."""

    name: str
    texts: Mapping[str, str]
    questions: Sequence[Mapping[str, Any]]

    @property
    def messages(self) -> list[dict[str, Any]]:
        spoken = ({"role": "user", "content": text} for text in self.texts.values())
        heard = {"role": "assistant", "content": "I see."}
        return [{"role": "system", "content": "You are a helpful assistant."}, *(message for said in spoken for message in (said, heard))]


def people_of(rows: Sequence[Mapping[str, Any]]) -> Iterator[Person]:
    for name in dict.fromkeys(row["scenario"] for row in rows):
        own = [row for row in rows if row["scenario"] == name]
        questions = [row for row in own if row["kind"] == "question"]
        yield Person(name, {row["id"]: row["text"] for row in own if row["kind"] == "message"}, questions)


# --- whether an answer is still there


@dataclass(slots=True)
class Tally:
    """How many answers were looked for, and found."""

    asked: int = 0
    found: int = 0
    found_in_context: int = 0

    @property
    def present(self) -> float:
        return self.found / self.asked if self.asked else 0.0

    @property
    def in_context(self) -> float:
        return self.found_in_context / self.asked if self.asked else 0.0


def look(person: Person, text: str, tally: Tally) -> None:
    """Look for every answer in a compressed chat."""
    shown = plain(text)
    for question in person.questions:
        answers = [re.compile(rf"(?<!\w){re.escape(plain(answer))}(?!\w)") for answer in question["answers"]]
        known = {word for of in question["evidence"] for word in around(answers, plain(person.texts[of]))[0]}
        words, places = around(answers, shown)
        tally.asked += 1
        tally.found += places > 0
        tally.found_in_context += any(len(known & one) >= 2 for one in nearby(answers, shown)) if words else 0


def around(answers: Sequence[re.Pattern[str]], text: str) -> tuple[set[str], int]:
    found = list(nearby(answers, text))
    return set().union(*found), len(found)


def nearby(answers: Sequence[re.Pattern[str]], text: str) -> Iterator[set[str]]:
    """Yield the words around each place where an answer stands."""
    for answer in answers:
        for hit in answer.finditer(text):
            near = f"{text[max(0, hit.start() - AROUND) : hit.start()]} {text[hit.end() : hit.end() + AROUND]}"
            yield {word for word in re.findall(r"\w+", near) if len(word) > 3}


def plain(text: str) -> str:
    return " ".join(text.lower().replace("\u2019", "'").replace("-", " ").split())


# --- compression


async def survival(people: Sequence[Person], summariser: Summariser, counter: TokenCounter) -> dict[float, Tally]:
    """Compress every person's chat to every share with one summariser."""
    tallies = {share: Tally() for share in SHARES}
    for share, tally in tallies.items():
        for person in people:
            await one(person, share, summariser, counter, tally)
    return tallies


async def one(person: Person, share: float, summariser: Summariser, counter: TokenCounter, tally: Tally) -> str:
    """Compress one chat and look for the answers; return who summarised."""
    total = counter.count(person.messages)
    target = int(share * total)
    settings = read_settings(
        None,
        {
            "compression": {"target_max_tokens": target, "summary_target_tokens": target},
            "protected_turns": {"first_human": False, "first_gpt": False, "last_n_turns": 0},
            "processing": {"skip_under_target": False, "per_trajectory_timeout": 3_600.0},
        },
    )
    chat = MessageGraph(person.messages, seed=person.name)
    told = await compact_to_target(chat, settings, counter, summariser, sample_id=f"{person.name}/{share}")
    assert told.compressed_tokens <= target, told
    look(person, "\n".join(message["content"] for message in chat), tally)
    return told.summary


class HeadAndTail:
    """Half of the room for the beginning of what was said, half for the end."""

    async def summarise(self, piece: SummaryRequest) -> Summary:
        text = " ".join(message["content"] for message in piece.messages if message["role"] == "user")
        head = piece.counter.head(text, piece.target_tokens // 2)
        return Summary(f"{head} {piece.counter.tail(text[len(head) :], piece.target_tokens // 2 - 2)}")


class Nothing:
    """Steps in for the model where it fails, and says nothing: what the model did not keep is not kept."""

    async def summarise(self, piece: SummaryRequest) -> Summary:  # noqa: ARG002  # the shape of a summariser
        return Summary("")


class RandomSentences:
    """Whole sentences of the user, drawn until there is no room, in their order."""

    async def summarise(self, piece: SummaryRequest) -> Summary:
        said = [message["content"] for message in piece.messages if message["role"] == "user"]
        sentences = [sentence for text in said for sentence in re.split(r"(?<=[.!?])\s+", text)]
        drawn_ones = random.Random(8).sample(range(len(sentences)), len(sentences))
        count = piece.counter.count_text
        chosen: list[int] = []
        used = 0
        for place in drawn_ones:
            used += count(f"{sentences[place]} ") + 1
            if used > piece.target_tokens:
                break
            chosen.append(place)
        return Summary(" ".join(sentences[place] for place in sorted(chosen)))


# --- the small model on this machine


async def by_model(people: Sequence[Person], counter: TokenCounter, seconds: float) -> tuple[dict[float, Tally], dict[float, Tally]]:
    """Let the local model summarise, the shortest chat first, until the seconds are over; and the extractive summariser the same chats."""
    tallies, beside = ({share: Tally() for share in SHARES} for _ in range(2))
    asking = {"max_prompt_tokens": PART_TOKENS, "max_retries": 2, "retry_delay": 0.0, "timeout": 300.0, "known_words_share": 0.4}
    settings = read_settings(None, {"summarization": asking})
    start = time.monotonic()
    async with local_model() as model:
        for person in sorted(people, key=lambda one: sum(map(len, one.texts.values()))):
            for share in sorted(SHARES):
                if time.monotonic() - start > seconds:
                    print(f"no time left for {person.name} to {share:.0%}")
                    continue
                began, tokens = time.monotonic(), model.tokens
                how = await one(person, share, ModelSummariser(model, settings, Nothing()), counter, tallies[share])
                took, written = time.monotonic() - began, model.tokens - tokens
                print(f"smollm2, {person.name} to {share:.0%}: {how}, {took:.0f} s, {written:,} tokens written", flush=True)
                await one(person, share, ExtractiveSummariser(), counter, beside[share])
    return tallies, beside


class LocalModel:
    """The backend `local`, as the model that trajectories ask."""

    name = "smollm2"

    def __init__(self, backend: LocalBackend) -> None:
        self._backend = backend
        self.tokens = 0

    async def sample(self, request: SampleRequest) -> SampledMessage:
        ask = ModelRequest(messages=request.messages, max_tokens=(request.max_tokens or 512) // 2, sampling={**request.sampling, "seed": 8})
        try:
            answer = await self._backend.complete(ask, self.name, timeout_s=request.timeout_s or 300)
        except BackendError as error:
            raise ModelFailed(str(error)) from error
        self.tokens += answer.usage.tokens_out
        return SampledMessage(answer.message, CallRecord(model=answer.model, finish_reason=answer.finish_reason, sampling=request.sampling))


@asynccontextmanager
async def local_model() -> Any:
    backend = LocalBackend()
    try:
        yield LocalModel(backend)
    finally:
        await backend.aclose()


# --- table and plot


def show(tables: Mapping[str, Mapping[float, Tally]]) -> None:
    print("\nanswers present (in context), by how much of the chat was left")
    print(f"{'':<20}" + "".join(f"{f'{share:.0%}':>20}" for share in SHARES))
    for name, tallies in tables.items():
        cells = [
            f"{tally.present:.2f} ({tally.in_context:.2f}) of {tally.asked}" if tally.asked else "-"
            for tally in map(tallies.__getitem__, SHARES)
        ]
        print(f"{name:<20}" + "".join(f"{cell:>20}" for cell in cells))


def drawn(tables: Mapping[str, Mapping[float, Tally]]) -> str:
    """Return the plot as SVG: a line for each summariser, solid for present, dashed for in context."""
    left, top, width, height = 60, 50, 460, 280
    across = {share: left + width * place / (len(SHARES) - 1) for place, share in enumerate(SHARES)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 190} {top + height + 60}"',
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="24" font-size="15">Answers that survive compression (dashed: in context)</text>',
    ]
    for step in range(6):
        y = top + height - height * step / 5
        parts.append(f'<line x1="{left}" y1="{y:.0f}" x2="{left + width}" y2="{y:.0f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.0f}" text-anchor="end">{step * 20} %</text>')
    parts += [f'<text x="{x:.0f}" y="{top + height + 22}" text-anchor="middle">{share:.0%}</text>' for share, x in across.items()]
    parts.append(f'<text x="{left + width / 2:.0f}" y="{top + height + 46}" text-anchor="middle">of the tokens are left</text>')
    for place, (name, tallies) in enumerate(tables.items()):
        for measure, dash in (("present", ""), ("in_context", ' stroke-dasharray="5 4"')):
            known = [(across[share], getattr(tallies[share], measure)) for share in SHARES if tallies[share].asked]
            line = " ".join(f"{x:.1f},{top + height * (1 - value):.1f}" for x, value in known)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"{dash}/>')
            parts += [f'<circle cx="{x:.1f}" cy="{top + height * (1 - value):.1f}" r="3" fill="{COLOURS[name]}"/>' for x, value in known]
        y = top + 20 + 24 * place
        parts.append(
            f'<line x1="{left + width + 20}" y1="{y}" x2="{left + width + 44}" y2="{y}" stroke="{COLOURS[name]}" stroke-width="2"/>'
        )
        parts.append(f'<text x="{left + width + 50}" y="{y + 4}">{name}, {max(tally.asked for tally in tallies.values())} answers</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(main())
