"""A summary by a model: ask, ask again if nothing usable came, and after that fall back to the summariser that needs no model.

Whatever was sampled on the way, also what was not taken, is in the summary's own chat, so that no sample goes unaccounted for. A middle
too long for one prompt is summarised in parts, one answer each. Knows nothing about who stands behind the model."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hermes.graph import MessageGraph, Turn
from hermes.trajectories.compress.extractive_summary import SPEAKER_NAMES, ExtractiveSummariser, extract, terms_of
from hermes.trajectories.compress.settings import CompressionSettings, SummarizationSettings
from hermes.trajectories.compress.summariser import EXTRACTIVE, MODEL, Summariser, Summary, SummaryRequest, call_texts, content_text
from hermes.trajectories.compress.timeout import time_limit
from hermes.trajectories.compress.token_scale import SUMMARY_HEADER, shorten
from hermes.trajectories.compress.turns import units_of
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest, SamplingModel
from hermes.trajectories.sharegpt_turns import SPEAKERS
from hermes.trajectories.text_rows import reasoning_of

PROMPT = """\
A summary will stand in the place of the conversation below, and what follows it goes on from there. Keep exact values, paths and \
identifiers, which tools were called with what came out, errors too, and what is still open.

{head}Conversation:

{turns}

Write a short summary of the conversation, in its language, at most {words} words, with all names, numbers, dates and decisions, and \
with what the user asked for and said about themselves, in their own words. Write the summary now. Summary:"""
HEAD_PROMPT = """\
How the conversation began, for context; do not summarise it:

{turns}

"""
USER_WORDS = "In the user's own words:"
MAX_HEAD_CHARS = 400
"""How much of a protected turn is shown for context."""
MAX_REPEATS = 4
"""An answer that says each of its sentences more often than this goes round in circles."""
_SENTENCES = re.compile(r".+?(?:[.!?…](?=\s)|\n|\Z)\s*", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_LABEL = re.compile(rf"^\s*(?:{re.escape(SUMMARY_HEADER)}[^\]]*\]:?|(?:here is (?:the|a) )?summary:)\s*", re.IGNORECASE)


class ModelSummariser:
    """Asks a model. Once the budget for all of them is spent, nobody is asked any more."""

    def __init__(
        self,
        model: SamplingModel,
        settings: CompressionSettings,
        fallback: Summariser | None = None,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._model = model
        self._settings = settings.summarization
        self._fallback = fallback or ExtractiveSummariser()
        self._sleep = sleep
        self._spent: ModelFailed | None = None

    async def summarise(self, piece: SummaryRequest) -> Summary:
        """Return the model's summary, cut at a sentence if it is too long; the fallback's, with the reason, where the model gave none."""
        words = int(piece.target_tokens * piece.user_words_share)
        parts = list(_split_parts(piece, self._settings))
        whole = sum(size for _, size in parts)
        asked = _SummaryChat()
        texts, failures = [], []
        for number, (part, size) in enumerate(parts):
            budget = max(1, (piece.target_tokens - words) * size // whole)
            name = f"{piece.sample_id}#{number}" if number else piece.sample_id
            question = SummaryPrompt(build_prompt(piece, part, budget, self._settings), budget, name, _terms_in([*piece.head, *part]))
            try:
                text = await self._answer(asked, question)
            except ModelFailed as error:
                # Of a part only that part: what was paid for the others stays.
                failures.append(" ".join(str(error).split()))
                text = (await self._fallback.summarise(replace(piece, messages=part, target_tokens=budget))).text
            texts.append(shorten(text, budget, piece.counter))
        if len(failures) < len(parts):
            text = _with_user_words("\n".join(texts), piece, words)
        else:
            text = (await self._fallback.summarise(piece)).text
        return asked.summary(shorten(text, piece.target_tokens, piece.counter), _describe_author(len(parts), failures))

    async def _answer(self, asked: _SummaryChat, question: SummaryPrompt) -> str:
        """Ask until something usable comes; raise ModelFailed if nothing does."""
        settings = self._settings
        if self._spent is not None:
            raise self._spent
        failure = ModelFailed("no model was asked: summarization.max_retries is 0")
        turn = asked.begin(question.messages, question.name)
        for attempt in range(settings.max_retries):
            if attempt:
                # Jittered: a hundred trajectories that failed together would otherwise ask together again.
                delay = min(settings.retry_delay * 2 ** (attempt - 1), settings.retry_delay_max)
                await self._sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311  # no secret
            request = SampleRequest(
                messages=question.messages,
                sampling={"temperature": settings.temperature},
                max_tokens=settings.max_answer_tokens or 2 * question.budget,
                sample_id=f"{question.name}:{attempt}" if attempt else question.name,
                timeout_s=settings.timeout,
            )
            asked.calls += 1
            try:
                async with time_limit(settings.timeout):
                    sampled = await self._model.sample(request)
            except TimeoutError:
                failure = ModelFailed(f"no answer within {settings.timeout:g} s")
            except ModelFailed as error:
                failure = error
            else:
                asked.take(turn, sampled, request.sample_id)
                text = clean_answer(sampled.message)
                if text and question.known_share(text) >= settings.known_words_share:
                    return text
                failure = ModelFailed("an answer about something else" if text else "an answer that says nothing")
            asked.errors += 1
            if failure.is_final:
                break
        if failure.is_spent:
            self._spent = failure
        raise failure


@dataclass(frozen=True, slots=True)
class SummaryPrompt:
    """What a model is asked for one summary, or for a part of one."""

    messages: list[dict[str, Any]]
    budget: int
    """The longest answer that will do, in tokens."""
    name: str
    terms: frozenset[str]
    """What is spoken of."""

    def known_share(self, text: str) -> float:
        """Return which share of an answer's terms occurs in what it is to stand for; short ones, which occur everywhere, do not count."""
        terms = [term for term in terms_of(text) if len(term) > 3 or not term.isascii() or term.isdigit()]
        return sum(term in self.terms for term in terms) / len(terms) if terms else 1.0


@dataclass(slots=True)
class _SummaryChat:
    """What was asked and sampled for one summary so far."""

    chat: MessageGraph = field(default_factory=MessageGraph)
    calls: int = 0
    answers: int = 0
    errors: int = 0
    micro_usd: int = 0

    def begin(self, messages: list[dict[str, Any]], name: str) -> Turn:
        """Go on with a prompt; the chat keeps an earlier one that was answered as a version."""
        if self.answers:
            self.chat.replace(slice(None), messages, kind="continuation")
        else:
            self.chat = MessageGraph(messages, seed=name)
        return self.chat.prepare()

    def take(self, turn: Turn, sampled: SampledMessage, name: str) -> None:
        """Record an answer: a second one to the same prompt is a second sample, on a branch of its own."""
        call = sampled.call if sampled.call.sample_id is not None else replace(sampled.call, sample_id=name)
        self.chat.commit(turn, sampled.message, call)
        self.answers += 1
        self.micro_usd += sampled.micro_usd

    def summary(self, text: str, how: str) -> Summary:
        return Summary(text, how, self.chat if self.answers else None, self.micro_usd, self.calls, self.errors)


def _terms_in(messages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(term for message in messages for text in (content_text(message), *call_texts(message)) for term in terms_of(text))


def _describe_author(parts: int, failures: Sequence[str]) -> str:
    """Say who summarised: the model, the fallback, or each some parts."""
    instead = f"{EXTRACTIVE} (model failed: {'; '.join(dict.fromkeys(failures))})"
    if not failures:
        return MODEL
    return instead if len(failures) == parts else f"{MODEL} and {instead}"


def build_prompt(
    piece: SummaryRequest, messages: Sequence[Mapping[str, Any]], tokens: int, settings: SummarizationSettings
) -> list[dict[str, Any]]:
    """Return what a model is asked."""
    # Without the system's instructions: they are for somebody else, and a summariser would follow them.
    head = "\n\n".join(
        _format_turn(message, MAX_HEAD_CHARS, MAX_HEAD_CHARS, 0) for message in piece.head if message["role"] not in ("system", "developer")
    )
    turns = "\n\n".join(_format_turns(messages, settings))
    words = max(10, tokens * 2 // 3)
    return [{"role": "user", "content": PROMPT.format(words=words, head=HEAD_PROMPT.format(turns=head) if head else "", turns=turns)}]


def clean_answer(message: Mapping[str, Any]) -> str:
    """Return the summary in an answer: without thoughts, a label of its own, or what it says a second time; empty if there is none.

    Small models go round in circles. What was sampled stays as it is in the summary's chat."""
    text = _LABEL.sub("", _THOUGHT.sub("", content_text(message))).strip()
    sentences = {" ".join(sentence.split()): sentence for sentence in reversed(_SENTENCES.findall(text))}
    is_round = MAX_REPEATS * len(sentences) < len(_SENTENCES.findall(text))
    return "" if is_round else "".join(reversed(sentences.values())).strip()


def _format_turns(messages: Sequence[Mapping[str, Any]], settings: SummarizationSettings) -> Iterator[str]:
    for message in messages:
        yield _format_turn(message, settings.turn_max_chars, settings.turn_head_chars, settings.turn_tail_chars)


def _format_turn(message: Mapping[str, Any], longest: int, head: int, tail: int) -> str:
    """Return a message with its speaker, only its head and tail if it is too long."""
    thought = reasoning_of(message)
    said = [f"(thinks: {thought})" if thought else "", content_text(message), *call_texts(message)]
    text = "\n".join(filter(None, said))
    if len(text) > max(longest, head + tail):
        text = f"{text[:head]}\n[… {len(text) - head - tail:,} characters left out …]\n{text[len(text) - tail :]}"
    return f"{SPEAKER_NAMES[SPEAKERS[message['role']]]}: {text}"


def _split_parts(piece: SummaryRequest, settings: SummarizationSettings) -> Iterator[tuple[list[Mapping[str, Any]], int]]:
    """Yield the messages that go into one prompt each, and how long they are there; no call without its results."""
    limit = settings.max_prompt_tokens
    if limit is None:
        yield list(piece.messages), 1
        return
    count = piece.counter.count_text
    room = max(1, limit - count(build_prompt(piece, [], piece.target_tokens, settings)[0]["content"]))
    part: list[Mapping[str, Any]] = []
    used = 0
    for unit in units_of(piece.messages):
        messages = piece.messages[unit.start : unit.stop]
        size = sum(count(turn) + 2 for turn in _format_turns(messages, settings))
        if part and used + size > room:
            yield part, used
            part, used = [], 0
        part += messages
        used += size
    if part:
        yield part, used


def _with_user_words(text: str, piece: SummaryRequest, tokens: int) -> str:
    """Return a summary with the user's own words behind it, so many tokens of them, out of the whole piece."""
    said = [message for message in piece.messages if SPEAKERS[message["role"]] == "human"]
    room = tokens - piece.counter.count_text(f"\n\n{USER_WORDS}\n")
    words = extract(said, room, piece.counter) if said and room > 0 else ""
    return f"{text}\n\n{USER_WORDS}\n{words}" if words else text
