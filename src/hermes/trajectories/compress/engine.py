"""Compress one conversation: weigh it, plan, have the middle summarised, and put the result in with one edit of kind `compaction`.

The graph keeps the version before wherever a model's answer was sampled in it, so nothing that was sampled is lost. A summary that a
model wrote carries its own chat. Knows nothing about files: one graph in, the same graph edited and its numbers out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hermes.graph import MessageGraph
from hermes.graph.node import Node, same
from hermes.trajectories.compress.counting import Counter
from hermes.trajectories.compress.extract import Extractive
from hermes.trajectories.compress.measure import REFUSED, Scale, shorten
from hermes.trajectories.compress.pieces import Piece, Summariser, Summary
from hermes.trajectories.compress.plan import Cut, Planner, Trims, assemble, outside, trim_to_fit
from hermes.trajectories.compress.result import Compressed, Region
from hermes.trajectories.compress.settings import CompressionSettings
from hermes.trajectories.compress.turns import MARK, Layout, lay_out, turns_of
from hermes.trajectories.errors import SessionError

COMPACTION = "compaction"


async def compress(
    chat: MessageGraph, settings: CompressionSettings, counter: Counter, summariser: Summariser, *, sample_id: str, tools: Sequence[Any] = ()
) -> Compressed:
    """Bring a conversation to the target of the settings, in one edit of kind `compaction`; return what was done.

    What fits is not touched, and what was compressed is not compressed again. What cannot fit is made as short as it gets, and
    flagged. Raises SessionError, and changes nothing, if the chat template refuses the conversation, or if somebody edited it
    meanwhile; messages that were appended meanwhile stay. `sample_id` names the summary, so that after a crash it is not paid twice."""
    messages = list(chat.versions[-1])
    scale = Scale(settings, counter, tools)
    total = scale.counted(messages)
    if total <= scale.target and settings.processing.skip_under_target:
        return _unchanged(total, len(turns_of(messages)), scale)
    layout = lay_out(messages, settings.protected_turns, scale.headers)
    planner = Planner(messages, layout, scale)
    plan = planner.plan(total)
    summaries = [
        await _summarised(messages, layout, cut, summariser, f"{sample_id}/{number}" if number else sample_id, scale)
        for number, cut in enumerate(plan.cuts)
    ]
    draft = _finished(messages, plan.cuts, summaries, planner, scale)
    after = scale.total(draft.messages)
    if after >= REFUSED or not draft.is_changed(messages):
        reason = "the chat template refuses a summary in this conversation" if after >= REFUSED else _too_long(total, scale)
        return replace(_unchanged(total, len(layout.turns), scale), over_limit_reason=reason, still_over_limit=bool(reason))
    start, stop = draft.changed(messages)
    now = chat.versions[-1]
    if len(now) < len(messages) or not all(same(one, other) for one, other in zip(messages, now, strict=False)):
        raise SessionError("the conversation was edited while it was summarised; compress it again")
    end = len(draft.messages) - (len(messages) - stop)
    chat.replace(slice(start, stop), draft.messages[start:end], kind=COMPACTION)
    turns = turns_of(draft.messages)
    return Compressed(
        original_tokens=total,
        compressed_tokens=after,
        tokens_saved=total - after,
        compression_ratio=after / total if total else 1.0,
        original_turns=len(layout.turns),
        compressed_turns=len(turns),
        turns_removed=len(layout.turns) - len(turns),
        compression_region=Region(layout.turn_of(start), layout.turn_of(stop - 1) + 1, sum(cut.turns for cut in plan.cuts)),
        was_compressed=True,
        still_over_limit=after > scale.target,
        summarization_api_calls=sum(summary.api_calls for summary in summaries),
        summarization_errors=sum(summary.errors for summary in summaries),
        over_limit_reason=_too_long(after, scale),
        trimmed_results=len(draft.trims),
        summary="; ".join(dict.fromkeys(summary.how for summary in summaries)),
        micro_usd=sum(summary.micro_usd for summary in summaries),
        tokens_estimated=counter.is_estimate,
        first_off_policy=start,
    )


async def compact(
    chat: MessageGraph,
    settings: CompressionSettings,
    counter: Counter,
    summariser: Summariser,
    *,
    limit_tokens: int,
    sample_id: str,
    tools: Sequence[Any] = (),
) -> Compressed:
    """Compress a running conversation before its next call, if it takes more of the context limit than `live.trigger_share`.

    As `compress`, under the settings of `live`: old tool output is cut first, a summary says that it is for reference only, and the
    user's own words are kept longest. Reasoning is not counted, because it is not sent again."""
    live = live_settings(settings, limit_tokens)
    trigger = int(limit_tokens * settings.live.trigger_share)
    scale = Scale(live, counter, tools)
    messages = list(chat.versions[-1])
    total = scale.counted(messages)
    if total <= trigger:
        return _unchanged(total, len(turns_of(messages)), scale)
    return await compress(chat, live, counter, summariser, sample_id=sample_id, tools=tools)


def live_settings(settings: CompressionSettings, limit_tokens: int) -> CompressionSettings:
    """Return the settings for a running conversation with this context limit."""
    live = settings.live
    target = max(1, int(limit_tokens * live.target_share))
    return replace(
        settings,
        tokenizer=replace(settings.tokenizer, count_reasoning=False),
        compression=replace(settings.compression, target_max_tokens=target, prune_results=live.prune_results),
        protected_turns=replace(settings.protected_turns, last_n_turns=live.last_n_turns),
        summarization=replace(settings.summarization, user_words_share=live.user_words_share),
        output=replace(settings.output, summary_header=live.summary_header, add_summary_notice=False),
        processing=replace(settings.processing, skip_under_target=True),
    )


@dataclass(frozen=True, slots=True)
class Draft:
    """The list as it is to be."""

    messages: list[Mapping[str, Any]]
    trims: Trims

    def is_changed(self, before: Sequence[Node]) -> bool:
        return len(self.messages) != len(before) or any(one is not other for one, other in zip(self.messages, before, strict=True))

    def changed(self, before: Sequence[Node]) -> tuple[int, int]:
        """Return which stretch of the list before is replaced."""
        start = 0
        while self.messages[start] is before[start]:
            start += 1
        tail = 0
        while self.messages[-1 - tail] is before[-1 - tail]:
            tail += 1
        return start, len(before) - tail


async def _summarised(
    messages: Sequence[Node], layout: Layout, cut: Cut, summariser: Summariser, sample_id: str, scale: Scale
) -> Summary:
    """Return a summary of one stretch, from the extractive summariser if the one asked takes too long."""
    if not cut.budget:
        return Summary("")
    head = [messages[index] for index in range(cut.start) if index in layout.protected]
    piece = Piece(messages[cut.start : cut.stop], cut.budget, sample_id, scale.counter, head)
    limit = scale.settings.processing.per_trajectory_timeout
    try:
        async with asyncio.timeout(limit):
            return await summariser.summarise(piece)
    except TimeoutError:
        summary = await Extractive().summarise(piece)
        return replace(summary, how=f"{summary.how} (model failed: no summary within {limit:g} s)", api_calls=1, errors=1)


def _finished(messages: Sequence[Node], cuts: Sequence[Cut], summaries: Sequence[Summary], planner: Planner, scale: Scale) -> Draft:
    """Put the summaries in; then cut tool results, and at last the summaries themselves, until it fits or nothing more can be done."""
    texts = [shorten(summary.text.strip(), cut.budget, scale.counter) for cut, summary in zip(cuts, summaries, strict=True)]
    stand_ins = [_stand_in(cut, summary, text, scale) for cut, summary, text in zip(cuts, summaries, texts, strict=True)]
    trims: Trims = {}
    total = REFUSED
    for order in (planner.soft, planner.hard):
        trims, total = trim_to_fit(messages, cuts, stand_ins, trims, outside(order, cuts), scale)
    draft = Draft(assemble(messages, cuts, stand_ins, trims), trims)
    if total <= scale.target:
        return draft
    trims, total = trim_to_fit(messages, cuts, stand_ins, trims, outside(planner.last_resort, cuts), scale)
    shorter = list(stand_ins)
    for place, (cut, summary) in enumerate(zip(cuts, summaries, strict=True)):
        text = texts[place]
        while total > scale.target and text:
            over = total - scale.target
            text = shorten(text, min(scale.counter.count_text(text) - 1, scale.counter.count_text(text) - over), scale.counter)
            shorter[place] = _stand_in(cut, summary, text, scale, has_notice=False)
            total = scale.total(assemble(messages, cuts, shorter, trims))
    return Draft(assemble(messages, cuts, shorter, trims), trims) if total <= scale.target else draft


def _stand_in(cut: Cut, summary: Summary, text: str, scale: Scale, *, has_notice: bool = True) -> dict[str, Any]:
    message = scale.stand_in(text, has_notice=has_notice) if text else scale.bare(cut.turns)
    side: dict[str, Any] = {MARK: {"how": summary.how, "turns": cut.turns, "tokens": cut.tokens}}
    if summary.chat is not None:
        side["chat"] = summary.chat
    return {**message, "metadata": side}


def _unchanged(total: int, turns: int, scale: Scale) -> Compressed:
    fits = total <= scale.target
    return Compressed(
        original_tokens=total,
        compressed_tokens=total,
        original_turns=turns,
        compressed_turns=turns,
        skipped_under_target=fits,
        still_over_limit=not fits,
        over_limit_reason=_too_long(total, scale),
        tokens_estimated=scale.counter.is_estimate,
    )


def _too_long(total: int, scale: Scale) -> str:
    if total <= scale.target:
        return ""
    return f"what may not be summarised or cut has {total:,} tokens, the target is {scale.target:,}"
