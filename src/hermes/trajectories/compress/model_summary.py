"""A summary by a model: ask, ask again if the answer is not usable, then fall back to the summariser that needs no model.

Every sampled answer, used or not, is in the summary's own chat, so that each sample is accounted for. A middle that is too long for one
prompt is summarised in parts, with one answer for each. Knows nothing about the server behind the model."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hermes.graph import MessageGraph, Turn
from hermes.trajectories.compress.settings import CompressionSettings, SummarizationSettings
from hermes.trajectories.compress.summariser import (
    EXTRACTIVE,
    MODEL,
    SPEAKER_NAMES,
    ExtractiveSummariser,
    Summariser,
    Summary,
    SummaryRequest,
    call_texts,
    content_text,
    extract,
    terms_of,
    time_limit,
)
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
"""How many characters of a protected turn the model sees for context."""
MAX_REPEATS = 4
"""An answer that says its sentences more often than this, on average, repeats itself and is not usable."""
_SENTENCES = re.compile(r".+?(?:[.!?…](?=\s)|\n|\Z)\s*", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_LABEL = re.compile(rf"^\s*(?:{re.escape(SUMMARY_HEADER)}[^\]]*\]:?|(?:here is (?:the|a) )?summary:)\s*", re.IGNORECASE)


class ModelSummariser:
    """Asks a model for summaries. Once the model says that the budget is spent, it is not asked again."""

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
        self._spent_failure: ModelFailed | None = None

    async def summarise(self, request: SummaryRequest) -> Summary:
        """Return the model's summary, cut at a sentence if it is too long; if the model gave none, the fallback's, with the reason."""
        words = int(request.target_tokens * request.user_words_share)
        parts = list(_split_parts(request, self._settings))
        whole = sum(size for _, size in parts)
        summary_chat = _SummaryChat()
        texts, failures = [], []
        for number, (part, size) in enumerate(parts):
            budget = max(1, (request.target_tokens - words) * size // whole)
            name = f"{request.sample_id}#{number}" if number else request.sample_id
            prompt = SummaryPrompt(build_prompt(request, part, budget, self._settings), budget, name, _terms_in([*request.head, *part]))
            try:
                text = await self._answer(summary_chat, prompt)
            except ModelFailed as error:
                # Only this part falls back: the parts that were paid for stay.
                failures.append(" ".join(str(error).split()))
                text = (await self._fallback.summarise(replace(request, messages=part, target_tokens=budget))).text
            texts.append(shorten(text, budget, request.counter))
        if len(failures) < len(parts):
            text = _with_user_words("\n".join(texts), request, words)
        else:
            text = (await self._fallback.summarise(request)).text
        return summary_chat.summary(shorten(text, request.target_tokens, request.counter), _describe_author(len(parts), failures))

    async def _answer(self, summary_chat: _SummaryChat, prompt: SummaryPrompt) -> str:
        """Ask until an answer is usable; raise ModelFailed if none is."""
        settings = self._settings
        if self._spent_failure is not None:
            raise self._spent_failure
        failure = ModelFailed("no model was asked: summarization.max_retries is 0")
        turn = summary_chat.begin(prompt.messages, prompt.name)
        for attempt in range(settings.max_retries):
            if attempt:
                # Jittered: a hundred trajectories that failed at the same time would otherwise ask again at the same time.
                delay = min(settings.retry_delay * 2 ** (attempt - 1), settings.retry_delay_max)
                await self._sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311  # no secret
            request = SampleRequest(
                messages=prompt.messages,
                sampling={"temperature": settings.temperature},
                max_tokens=settings.max_answer_tokens or 2 * prompt.budget,
                sample_id=f"{prompt.name}:{attempt}" if attempt else prompt.name,
                timeout_s=settings.timeout,
            )
            summary_chat.calls += 1
            try:
                async with time_limit(settings.timeout):
                    sampled = await self._model.sample(request)
            except TimeoutError:
                failure = ModelFailed(f"no answer within {settings.timeout:g} s")
            except ModelFailed as error:
                failure = error
            else:
                summary_chat.take(turn, sampled, request.sample_id)
                text = clean_answer(sampled.message)
                if text and prompt.known_share(text) >= settings.known_words_share:
                    return text
                failure = ModelFailed("an answer about something else" if text else "an answer that says nothing")
            summary_chat.errors += 1
            if failure.is_final:
                break
        if failure.is_spent:
            self._spent_failure = failure
        raise failure


@dataclass(frozen=True, slots=True)
class SummaryPrompt:
    """The request for one summary, or for one part of it."""

    messages: list[dict[str, Any]]
    budget: int
    """The longest text that is kept of the answer, in tokens."""
    name: str
    terms: frozenset[str]
    """The terms of the messages that the summary stands for, and of the protected ones before them."""

    def known_share(self, text: str) -> float:
        """Return the share of an answer's terms that occur in `terms`. Short terms occur everywhere and do not count."""
        terms = [term for term in terms_of(text) if len(term) > 3 or not term.isascii() or term.isdigit()]
        return sum(term in self.terms for term in terms) / len(terms) if terms else 1.0


@dataclass(slots=True)
class _SummaryChat:
    """The prompts and answers for one summary so far."""

    chat: MessageGraph = field(default_factory=MessageGraph)
    calls: int = 0
    answers: int = 0
    errors: int = 0
    micro_usd: int = 0

    def begin(self, messages: list[dict[str, Any]], name: str) -> Turn:
        """Put a new prompt into the chat; an earlier prompt that was answered stays as a version."""
        if self.answers:
            self.chat.replace(slice(None), messages, kind="continuation")
        else:
            self.chat = MessageGraph(messages, seed=name)
        return self.chat.prepare()

    def take(self, turn: Turn, sampled: SampledMessage, name: str) -> None:
        """Record an answer. A second answer to the same prompt is a second sample, on its own branch."""
        call = sampled.call if sampled.call.sample_id is not None else replace(sampled.call, sample_id=name)
        self.chat.commit(turn, sampled.message, call)
        self.answers += 1
        self.micro_usd += sampled.micro_usd

    def summary(self, text: str, how: str) -> Summary:
        return Summary(text, how, self.chat if self.answers else None, self.micro_usd, self.calls, self.errors)


def _terms_in(messages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(term for message in messages for text in (content_text(message), *call_texts(message)) for term in terms_of(text))


def _describe_author(parts: int, failures: Sequence[str]) -> str:
    """Say what wrote the summary: the model, the fallback, or both in parts."""
    instead = f"{EXTRACTIVE} (model failed: {'; '.join(dict.fromkeys(failures))})"
    if not failures:
        return MODEL
    return instead if len(failures) == parts else f"{MODEL} and {instead}"


def build_prompt(
    request: SummaryRequest, messages: Sequence[Mapping[str, Any]], tokens: int, settings: SummarizationSettings
) -> list[dict[str, Any]]:
    """Return the messages that ask a model for a summary of at most `tokens` tokens."""
    # Without the system message: its instructions are for the assistant, and a summariser would follow them.
    shown = [message for message in request.head if message["role"] not in ("system", "developer")]
    head = "\n\n".join(_format_turn(message, MAX_HEAD_CHARS, MAX_HEAD_CHARS, 0) for message in shown)
    turns = "\n\n".join(_format_turns(messages, settings))
    words = max(10, tokens * 2 // 3)
    return [{"role": "user", "content": PROMPT.format(words=words, head=HEAD_PROMPT.format(turns=head) if head else "", turns=turns)}]


def clean_answer(message: Mapping[str, Any]) -> str:
    """Return the summary in an answer without its thoughts, its label and repeated sentences; empty if nothing usable is left.

    Small models repeat themselves. The summary's chat keeps the answer as it was sampled."""
    text = _LABEL.sub("", _THOUGHT.sub("", content_text(message))).strip()
    sentences = {" ".join(sentence.split()): sentence for sentence in reversed(_SENTENCES.findall(text))}
    is_repetitive = MAX_REPEATS * len(sentences) < len(_SENTENCES.findall(text))
    return "" if is_repetitive else "".join(reversed(sentences.values())).strip()


def _format_turns(messages: Sequence[Mapping[str, Any]], settings: SummarizationSettings) -> Iterator[str]:
    for message in messages:
        yield _format_turn(message, settings.turn_max_chars, settings.turn_head_chars, settings.turn_tail_chars)


def _format_turn(message: Mapping[str, Any], max_chars: int, head: int, tail: int) -> str:
    """Return a message with its speaker; of a message that is too long, only the head and the tail."""
    thought = reasoning_of(message)
    texts = [f"(thinks: {thought})" if thought else "", content_text(message), *call_texts(message)]
    text = "\n".join(filter(None, texts))
    if len(text) > max(max_chars, head + tail):
        text = f"{text[:head]}\n[… {len(text) - head - tail:,} characters left out …]\n{text[len(text) - tail :]}"
    return f"{SPEAKER_NAMES[SPEAKERS[message['role']]]}: {text}"


def _split_parts(request: SummaryRequest, settings: SummarizationSettings) -> Iterator[tuple[list[Mapping[str, Any]], int]]:
    """Yield the messages of each prompt, and their tokens there. A call and its results stay in one prompt."""
    limit = settings.max_prompt_tokens
    if limit is None:
        yield list(request.messages), 1
        return
    count = request.counter.count_text
    room = max(1, limit - count(build_prompt(request, [], request.target_tokens, settings)[0]["content"]))
    part: list[Mapping[str, Any]] = []
    used = 0
    for unit in units_of(request.messages):
        messages = request.messages[unit.start : unit.stop]
        size = sum(count(turn) + 2 for turn in _format_turns(messages, settings))
        if part and used + size > room:
            yield part, used
            part, used = [], 0
        part += messages
        used += size
    if part:
        yield part, used


def _with_user_words(text: str, request: SummaryRequest, tokens: int) -> str:
    """Return a summary followed by words of the user: the most telling clauses of all requested messages, at most so many tokens."""
    user_messages = [message for message in request.messages if SPEAKERS[message["role"]] == "human"]
    room = tokens - request.counter.count_text(f"\n\n{USER_WORDS}\n")
    words = extract(user_messages, room, request.counter) if user_messages and room > 0 else ""
    return f"{text}\n\n{USER_WORDS}\n{words}" if words else text
