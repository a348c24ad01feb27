"""What a summariser is asked and returns, how long it may take, and the summariser that needs no model.

The summary without a model has the most telling clauses, in their order. Deterministic, no network, no word lists. The value of a clause
is the sum of its terms' values. A term counts more the rarer it is in the messages; numbers and names count more, and so do the user's
words. A plain word that occurs once counts less: it is more often a turn of phrase than a topic. A term that is in the summary already
counts little, so repeated facts are kept once. Clauses are chosen by value for each token, until the target is reached. Of a tool call the
name and the arguments compete, of a result the first and the last lines."""

from __future__ import annotations

import asyncio
import heapq
import json
import math
import re
from collections import Counter as Tally
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from hermes.graph import MessageGraph
from hermes.trajectories.compress.token_counter import TokenCounter
from hermes.trajectories.compress.token_scale import shorten
from hermes.trajectories.sharegpt_turns import SPEAKERS, part_text

MODEL = "model"
EXTRACTIVE = "extractive"


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Consecutive messages of a conversation that are to be summarised."""

    messages: Sequence[Mapping[str, Any]]
    """Complete: each call with its result, no text cut."""
    target_tokens: int
    """The longest summary that is allowed."""
    sample_id: str
    """Names the summary: a request that is repeated after a crash asks for the same sample."""
    counter: TokenCounter
    head: Sequence[Mapping[str, Any]] = ()
    """The protected messages before these, for context; they stay, and need no summary."""
    user_words_share: float = 0.0
    """The share of a model's summary that is kept for the user's own words."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The text that replaces the messages."""

    text: str
    """Never longer than the request allows."""
    how: str = EXTRACTIVE
    """`model`, `extractive`, or `extractive (model failed: …)`."""
    chat: MessageGraph | None = None
    """The summariser's own chat with every answer that was sampled, used or not."""
    micro_usd: int = 0
    api_calls: int = 0
    errors: int = 0
    """How many of the calls gave no usable answer."""


class Summariser(Protocol):
    """Writes summaries."""

    async def summarise(self, request: SummaryRequest) -> Summary:
        """Return a summary. Never raises for a failure of the model: it returns an extractive summary instead."""
        ...


def content_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, its parts joined; empty if it has none."""
    content = message.get("content")
    return "\n".join(map(part_text, content)) if isinstance(content, list) else content or ""


def call_texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tool calls of a message, each as `name(arguments)`."""
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call
        arguments = function.get("arguments", "")
        yield f"{function.get('name', 'tool')}({arguments if isinstance(arguments, str) else json.dumps(arguments)})"


# Time ------------------------------------------------------------------------------------------------------------

_active_timeouts: ContextVar[tuple[asyncio.Timeout, ...]] = ContextVar("hermes.compress.timeouts", default=())


@asynccontextmanager
async def time_limit(limit_s: float) -> AsyncIterator[None]:
    """Raise TimeoutError if the block takes longer; 0 is no limit.

    async with time_limit(30):
        async with pause_timeouts():
            …  # does not count towards the 30 seconds, nor towards any limit around them: waiting for other tasks is no slowness
    """
    async with asyncio.timeout(limit_s or None) as clock:
        outer = _active_timeouts.set((*_active_timeouts.get(), clock))
        try:
            yield
        finally:
            _active_timeouts.reset(outer)


@asynccontextmanager
async def pause_timeouts() -> AsyncIterator[None]:
    """Pause every limit of this task while the block runs."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    stopped = [(clock, when) for clock in _active_timeouts.get() if (when := clock.when()) is not None and not clock.expired()]
    for clock, _ in stopped:
        clock.reschedule(None)
    try:
        yield
    finally:
        for clock, when in stopped:
            clock.reschedule(when + loop.time() - begun)


# Without a model -------------------------------------------------------------------------------------------------

SPEAKER_WEIGHTS = {"human": 2.5, "gpt": 1.0, "system": 2.0, "tool": 0.7}
"""How much the words of each speaker count."""
CALL_WEIGHT = 1.6
"""How much the words of a tool call count: an action matters more than the words about it."""
SPEAKER_NAMES = {"human": "User", "gpt": "Assistant", "system": "System", "tool": "Tool"}
NUMBER_WEIGHT, NAME_WEIGHT, SINGLE_USE_WEIGHT = 3.0, 2.5, 0.4
"""How much a number, a name and a plain word that occurs once count; a plain word that occurs again counts 1."""
REPEATED_WEIGHT = 0.05
"""How much a term counts that is in the summary already."""
MAX_CLAUSE_CHARS = 240
"""Longer clauses are split, because a text without punctuation is mostly data."""
RESULT_LINES = 2
"""How many lines of a tool result compete, from its head and from its tail."""

_UNSPACED_SCRIPTS = (
    r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # scripts that put no space between words: two characters are a term
)
_TERM = re.compile(rf"[^\W_{_UNSPACED_SCRIPTS}]+(?:[-'\u2019.][^\W_]+)*|[{_UNSPACED_SCRIPTS}]{{1,2}}")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_CLAUSE = re.compile(r"(?<=[,;])\s+|(?<!\s)\s+[-\u2013\u2014]+\s+|(?<=\w)\u2014(?=\w)|(?<=[\uff0c\uff1b])")
_LINES = re.compile(r"\n+")
_LINE = re.compile(rf".{{1,{MAX_CLAUSE_CHARS}}}(?:\s+|$)|.{{{MAX_CLAUSE_CHARS}}}", re.DOTALL)


@dataclass(slots=True, eq=False)
class Clause:
    """The smallest text that is kept or left out."""

    message: int
    place: tuple[int, int]
    """Sentence and clause in its message."""
    is_last: bool
    """Whether it ends its sentence."""
    text: str
    terms: dict[str, float]
    cost: float


class ExtractiveSummariser:
    """Keeps the most telling clauses. Costs nothing, and never exceeds the target."""

    async def summarise(self, request: SummaryRequest) -> Summary:
        return Summary(extract(request.messages, request.target_tokens, request.counter))


def extract(messages: Sequence[Mapping[str, Any]], target_tokens: int, counter: TokenCounter) -> str:
    """Return the most telling clauses of these messages, at most `target_tokens` tokens together."""
    clauses = list(_clauses(messages))
    order = _choose_clauses(clauses, target_tokens)
    low, high, best = 0, len(order), ""
    while low < high:  # the costs are estimates: find how many clauses really fit
        middle = (low + high + 1) // 2
        text = _write_clauses(order[:middle], messages)
        if counter.count_text(text) <= target_tokens:
            low, best = middle, text
        else:
            high = middle - 1
    if not best and order:
        return shorten(_write_clauses(order[:1], messages), target_tokens, counter)
    return best


def terms_of(text: str) -> list[str]:
    """Return the terms of a text: words, or pairs of characters in scripts without spaces; in lower case, in order."""
    return [term.lower() for term in _TERM.findall(text)]


def _clauses(messages: Sequence[Mapping[str, Any]]) -> Iterator[Clause]:
    drafts: list[tuple[Any, ...]] = []
    seen: Tally[str] = Tally()
    capitals: Tally[str] = Tally()  # how much more often a term has a capital letter than not; the start of a sentence does not count
    for index, message in enumerate(messages):
        for number, (parts, weight) in enumerate(_sentences(message)):
            for place, text in enumerate(parts):
                found = _TERM.findall(text)
                terms = [term.lower() for term in found]
                seen.update(set(terms))
                for at, term in enumerate(found):
                    if not term[0].isupper():
                        capitals[terms[at]] -= 1
                    elif (at or place) and len(term) > 1:
                        capitals[terms[at]] += 1
                drafts.append((index, (number, place), place == len(parts) - 1, text, terms, weight))
    values = {term: _term_value(term, count, len(drafts), is_name=capitals[term] > 0) for term, count in seen.items()}
    for index, where, is_last, text, terms, weight in drafts:
        yield Clause(index, where, is_last, text, {term: weight * values[term] for term in terms}, 1 + len(text) / 4)


def _term_value(term: str, count: int, clauses: int, *, is_name: bool) -> float:
    rarity = math.log((clauses + 1) / count)
    if any(map(str.isdigit, term)):
        return rarity * NUMBER_WEIGHT
    if is_name:
        return rarity * NAME_WEIGHT
    return rarity * (SINGLE_USE_WEIGHT if count == 1 else 1.0)


def _sentences(message: Mapping[str, Any]) -> Iterator[tuple[list[str], float]]:
    """Yield the sentences of a message as clauses, and the weight of their words. A line of a result is one clause, and so is a call."""
    is_result = SPEAKERS[message["role"]] == "tool"
    found = [sentence.strip() for sentence in (_LINES if is_result else _SENTENCE).split(content_text(message))]
    found = [sentence for sentence in found if sentence]
    if is_result and len(found) > 2 * RESULT_LINES:
        found = [*found[:RESULT_LINES], *found[-RESULT_LINES:]]
    for sentence in found:
        clauses = [sentence] if is_result else _CLAUSE.split(sentence)
        yield [part for clause in clauses for part in _split_clause(clause, is_data=is_result)], SPEAKER_WEIGHTS[SPEAKERS[message["role"]]]
    for call in call_texts(message):
        yield list(_split_clause(call, is_data=True)), CALL_WEIGHT


def _split_clause(clause: str, *, is_data: bool) -> Iterator[str]:
    """Yield a clause, in parts if it is too long; of data only the first and the last part."""
    if len(clause) <= MAX_CLAUSE_CHARS:
        yield from filter(None, [clause.strip()])
    elif is_data:
        yield f"{clause[:MAX_CLAUSE_CHARS].rstrip()}…"
        yield f"…{clause[max(MAX_CLAUSE_CHARS, len(clause) - MAX_CLAUSE_CHARS) :].lstrip()}"
    else:
        yield from filter(None, map(str.strip, _LINE.findall(clause)))


def _choose_clauses(clauses: Sequence[Clause], target_tokens: int) -> list[Clause]:
    """Return the clauses with the most gain for each token, the best first, a little more than fits."""
    taken_terms: set[str] = set()
    taken_texts: set[str] = set()
    budget = 1.5 * target_tokens + 50
    heap = [(-_clause_gain(clause, taken_terms), place) for place, clause in enumerate(clauses)]
    heapq.heapify(heap)
    order: list[Clause] = []
    while heap and budget > 0:
        known, place = heapq.heappop(heap)
        gain = _clause_gain(clauses[place], taken_terms)
        if gain < -known and heap and gain < -heap[0][0]:
            heapq.heappush(heap, (-gain, place))  # it gained more before other clauses took its terms
            continue
        if clauses[place].text in taken_texts:
            continue
        order.append(clauses[place])
        taken_texts.add(clauses[place].text)
        taken_terms.update(clauses[place].terms)
        budget -= clauses[place].cost
    return order


def _clause_gain(clause: Clause, taken_terms: set[str]) -> float:
    value = sum(weight * (REPEATED_WEIGHT if term in taken_terms else 1.0) for term, weight in clause.terms.items())
    return value / clause.cost


def _write_clauses(clauses: Sequence[Clause], messages: Sequence[Mapping[str, Any]]) -> str:
    """Return clauses in their order, one line for each message, with … where a clause is left out."""
    lines: list[str] = []
    last: Clause | None = None
    for clause in sorted(clauses, key=lambda one: (one.message, one.place)):
        if last is None or last.message != clause.message:
            lines.append(f"{SPEAKER_NAMES[SPEAKERS[messages[clause.message]['role']]]}: {clause.text}")
        else:
            number, place = last.place
            is_next = clause.place == ((number + 1, 0) if last.is_last else (number, place + 1))
            lines[-1] += f" {clause.text}" if is_next else f" … {clause.text}"
        last = clause
    return "\n".join(lines)
