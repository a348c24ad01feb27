"""A summary without a model: the clauses that say most, in the order in which they were said. Deterministic, no network, no word lists.

What a clause says is the sum of its terms. A term counts by how rare it is in the piece, numbers and names more, and all of it more if
the user said it. A plain word that occurs once counts less: it is a turn of phrase more often than a matter. A term that was taken
already counts little, so what is repeated is kept once. Clauses are taken by what they say for the tokens that they take, until the
target is reached. Of tool calls the name and the arguments compete, of results the first and the last lines."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.trajectories.compress.summariser import Summary, SummaryRequest, call_texts, content_text
from hermes.trajectories.compress.token_counter import TokenCounter
from hermes.trajectories.compress.token_scale import shorten
from hermes.trajectories.sharegpt_turns import SPEAKERS

SPEAKER_WEIGHTS = {"human": 2.5, "gpt": 1.0, "system": 2.0, "tool": 0.7}
"""How much words count, by who said them."""
CALL_WEIGHT = 1.6
"""How much the words of a call count: what was done matters more than what was said about it."""
SPEAKER_NAMES = {"human": "User", "gpt": "Assistant", "system": "System", "tool": "Tool"}
NUMBER_WEIGHT, NAME_WEIGHT, SINGLE_USE_WEIGHT = 3.0, 2.5, 0.4
"""How much a number counts, a name, and a plain word that occurs once, against a plain word that occurs again."""
REPEATED_WEIGHT = 0.05
"""What a term counts for that is said already."""
MAX_CLAUSE_CHARS = 240
"""Characters of one clause: longer ones are cut into pieces, because most of what has no end is data."""
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
    """One unit of choice."""

    message: int
    place: tuple[int, int]
    """Sentence and clause in its message."""
    is_last: bool
    """Of its sentence."""
    text: str
    terms: dict[str, float]
    cost: float


class ExtractiveSummariser:
    """Keeps what was said that says most. Costs nothing, and is never longer than it may be."""

    async def summarise(self, piece: SummaryRequest) -> Summary:
        return Summary(extract(piece.messages, piece.target_tokens, piece.counter))


def extract(messages: Sequence[Mapping[str, Any]], target_tokens: int, counter: TokenCounter) -> str:
    """Return the most telling clauses of these messages, at most so many tokens of them."""
    clauses = list(_clauses(messages))
    order = _choose_clauses(clauses, target_tokens)
    low, high, best = 0, len(order), ""
    while low < high:  # the costs are estimates: find how many really fit
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
    capitals: Tally[str] = Tally()  # how much more often a term is written with a capital, not counting the start of a sentence
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
    """Yield the sentences of a message as clauses, and what their words count. A line of a result is one clause, and so is a call."""
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
    """Yield a clause, in parts if it is too long; of data the first and the last part only."""
    if len(clause) <= MAX_CLAUSE_CHARS:
        yield from filter(None, [clause.strip()])
    elif is_data:
        yield f"{clause[:MAX_CLAUSE_CHARS].rstrip()}…"
        yield f"…{clause[max(MAX_CLAUSE_CHARS, len(clause) - MAX_CLAUSE_CHARS) :].lstrip()}"
    else:
        yield from filter(None, map(str.strip, _LINE.findall(clause)))


def _choose_clauses(clauses: Sequence[Clause], target_tokens: int) -> list[Clause]:
    """Return clauses by what they add for what they cost, the best first, a little more than fits."""
    said: set[str] = set()
    written: set[str] = set()
    budget = 1.5 * target_tokens + 50
    heap = [(-_clause_gain(clause, said), place) for place, clause in enumerate(clauses)]
    heapq.heapify(heap)
    order: list[Clause] = []
    while heap and budget > 0:
        known, place = heapq.heappop(heap)
        gain = _clause_gain(clauses[place], said)
        if gain < -known and heap and gain < -heap[0][0]:
            heapq.heappush(heap, (-gain, place))  # it said more before others said the same
            continue
        if clauses[place].text in written:
            continue
        order.append(clauses[place])
        written.add(clauses[place].text)
        said.update(clauses[place].terms)
        budget -= clauses[place].cost
    return order


def _clause_gain(clause: Clause, said: set[str]) -> float:
    value = sum(weight * (REPEATED_WEIGHT if term in said else 1.0) for term, weight in clause.terms.items())
    return value / clause.cost


def _write_clauses(clauses: Sequence[Clause], messages: Sequence[Mapping[str, Any]]) -> str:
    """Return clauses in their order, a line for each message, with … where something is left out."""
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
