"""Compact one conversation: count its tokens, plan, have the middle summarised, and apply the result in one edit of kind `compaction`.

The graph keeps the version before if a model's answer was sampled in it, so no sample is lost. A summary that a model wrote carries its
own chat. Knows nothing about files: takes one graph, edits it, and returns the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hermes.graph import MessageGraph
from hermes.graph.node import Node, is_same_content
from hermes.trajectories.compress.plan import Planner, Rewrite, SummaryCut, trim_to_fit
from hermes.trajectories.compress.settings import CompressionSettings
from hermes.trajectories.compress.summariser import ExtractiveSummariser, Summariser, Summary, SummaryRequest, time_limit
from hermes.trajectories.compress.token_counter import TokenCounter
from hermes.trajectories.compress.token_scale import TokenScale, shorten
from hermes.trajectories.compress.turns import SUMMARY_METADATA, Layout, lay_out, turns_of
from hermes.trajectories.errors import SessionError

SUMMARY_REASON = "a summary stands for turns that the later answers were sampled with"
TRIM_REASON = "tool results are shorter than the later answers were sampled with"


@dataclass(frozen=True, slots=True)
class Region:
    """The turns [start_idx, end_idx), counted before compression, in which something was summarised or cut."""

    start_idx: int = -1
    end_idx: int = -1
    turns_count: int = 0
    """How many of them were summarised."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The numbers of one trajectory."""

    original_tokens: int = 0
    compressed_tokens: int = 0
    tokens_saved: int = 0
    compression_ratio: float = 1.0
    """Compressed tokens divided by original tokens; 1.0 if nothing was done."""
    original_turns: int = 0
    compressed_turns: int = 0
    turns_removed: int = 0
    compression_region: Region = Region()
    was_compressed: bool = False
    still_over_limit: bool = False
    skipped_under_target: bool = False
    summarization_api_calls: int = 0
    summarization_errors: int = 0
    over_limit_reason: str = ""
    """Why it is still too long; empty if it is not."""
    trimmed_results: int = 0
    """How many tool results were cut."""
    summary: str = ""
    """What wrote the summary: `model`, `extractive`, `extractive (model failed: …)`; empty if there is none."""
    micro_usd: int = 0
    tokens_estimated: bool = False
    """Whether tokens were estimated instead of counted."""
    first_off_policy: int | None = None
    """Index of the first changed message, in the list as it is now: answers after it were sampled in another context. None: no change."""

    @property
    def off_policy_reason(self) -> str:
        """Why rows of the compressed list are off-policy; empty if they are not."""
        if not self.was_compressed:
            return ""
        reasons = [SUMMARY_REASON] if self.summary else []
        return "; ".join([*reasons, *([TRIM_REASON] if self.trimmed_results else [])])

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as JSON values."""
        values: Mapping[str, Any] = asdict(self)
        return {**values, "compression_ratio": round(self.compression_ratio, 4), "off_policy_reason": self.off_policy_reason}


COMPACTION = "compaction"
NO_SUMMARY = "the chat template takes no summary in this conversation"


async def compact_to_target(
    chat: MessageGraph,
    settings: CompressionSettings,
    counter: TokenCounter,
    summariser: Summariser,
    *,
    sample_id: str,
    tools: Sequence[Any] = (),
) -> CompactionResult:
    """Bring a conversation to the target of the settings, in one edit of kind `compaction`; return its numbers.

    A conversation that fits is not touched, and an earlier summary is not summarised again on its own. A conversation that cannot fit is
    made as short as possible, and flagged. Raises SessionError, and changes nothing, if the chat template refuses the conversation, or if
    the caller edited it meanwhile; messages that were appended meanwhile stay. `sample_id` names the summary, so that it is not paid twice
    after a crash."""
    messages = list(chat.versions[-1])
    scale = TokenScale(settings, counter, tools)
    total = scale.count(messages)
    if total <= scale.target and settings.processing.skip_under_target:
        return _unchanged_result(total, len(turns_of(messages)), scale)
    layout = lay_out(messages, settings.protected_turns, scale.headers)
    planner = Planner(messages, layout, scale)
    cuts = planner.cuts(total)
    limit_s = settings.processing.per_trajectory_timeout
    summaries = [await _summarise(request, summariser, limit_s) for request in _summary_requests(messages, layout, cuts, scale, sample_id)]
    edit = _apply_summaries(messages, cuts, summaries, planner, scale)
    rewritten = edit.messages
    after = scale.total(rewritten)
    start, stop = edit.changed_range
    if after >= total:  # compaction gains nothing
        untouched = _unchanged_result(total, len(layout.turns), scale)
        return replace(untouched, over_limit_reason=NO_SUMMARY) if untouched.still_over_limit and planner.is_refused else untouched
    now = chat.versions[-1]
    if len(now) < len(messages) or not all(is_same_content(one, other) for one, other in zip(messages, now, strict=False)):
        raise SessionError("the conversation was edited while it was summarised; compress it again")
    chat.replace(slice(start, stop), rewritten[start : len(rewritten) - (len(messages) - stop)], kind=COMPACTION)
    turns = turns_of(rewritten)
    return CompactionResult(
        original_tokens=total,
        compressed_tokens=after,
        tokens_saved=total - after,
        compression_ratio=after / total if total else 1.0,
        original_turns=len(layout.turns),
        compressed_turns=len(turns),
        turns_removed=len(layout.turns) - len(turns),
        compression_region=Region(layout.turn_of(start), layout.turn_of(stop - 1) + 1, sum(cut.turns for cut in cuts)),
        was_compressed=True,
        still_over_limit=after > scale.target,
        summarization_api_calls=sum(summary.api_calls for summary in summaries),
        summarization_errors=sum(summary.errors for summary in summaries),
        over_limit_reason=_over_limit_reason(after, scale),
        trimmed_results=len(edit.trims),
        summary="; ".join(dict.fromkeys(summary.how for summary in summaries)),
        micro_usd=sum(summary.micro_usd for summary in summaries),
        tokens_estimated=counter.is_estimate,
        first_off_policy=start,
    )


async def compact_when_full(
    chat: MessageGraph,
    settings: CompressionSettings,
    counter: TokenCounter,
    summariser: Summariser,
    *,
    limit_tokens: int,
    sample_id: str,
    tools: Sequence[Any] = (),
) -> CompactionResult:
    """Compact a running conversation before its next call, if it takes more of the context limit than `live.trigger_share`.

    As `compact_to_target`, under the settings of `live`: old tool results are cut first, a summary says that it is for reference only,
    and a share of a model's summary quotes the user. Reasoning is not counted, because it is not sent again."""
    live = live_settings(settings, limit_tokens)
    trigger = int(limit_tokens * settings.live.trigger_share)
    scale = TokenScale(live, counter, tools)
    messages = list(chat.versions[-1])
    total = scale.count(messages)
    if total <= trigger:
        untouched = _unchanged_result(total, len(turns_of(messages)), scale)
        return replace(untouched, skipped_under_target=True, still_over_limit=False, over_limit_reason="")
    return await compact_to_target(chat, live, counter, summariser, sample_id=sample_id, tools=tools)


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


async def _summarise(request: SummaryRequest, summariser: Summariser, limit_s: float) -> Summary:
    """Return a summary for one request; from the extractive summariser if the given one takes too long."""
    if not request.target_tokens:
        return Summary("")
    try:
        async with time_limit(limit_s):
            return await summariser.summarise(request)
    except TimeoutError:
        summary = await ExtractiveSummariser().summarise(request)
        return replace(summary, how=f"{summary.how} (model failed: no summary within {limit_s:g} s)", api_calls=1, errors=1)


def _summary_requests(
    messages: Sequence[Node], layout: Layout, cuts: Sequence[SummaryCut], scale: TokenScale, sample_id: str
) -> Iterator[SummaryRequest]:
    share = scale.settings.summarization.user_words_share
    for number, cut in enumerate(cuts):
        head = [messages[index] for index in range(cut.start) if index in layout.protected]
        name = f"{sample_id}/{number}" if number else sample_id
        shown = [scale.without_frame(message) for message in messages[cut.start : cut.stop]]
        yield SummaryRequest(shown, cut.budget, name, scale.counter, head, share)


def _apply_summaries(
    messages: Sequence[Node], cuts: Sequence[SummaryCut], summaries: Sequence[Summary], planner: Planner, scale: TokenScale
) -> Rewrite:
    """Put the summaries in; then cut tool results, and last the summaries themselves, until the list fits or nothing more can be cut."""
    texts = [shorten(summary.text.strip(), cut.budget, scale.counter) for cut, summary in zip(cuts, summaries, strict=True)]
    stand_ins = tuple(_summary_message(*one, scale) for one in zip(cuts, summaries, texts, strict=True))
    edit, _ = trim_to_fit(Rewrite(messages, cuts, stand_ins), planner.early_trims, scale)
    edit, total = trim_to_fit(edit, planner.late_trims, scale)
    if total <= scale.target:
        return edit
    shorter, total = trim_to_fit(edit, planner.last_resort, scale)
    for place, (cut, summary) in enumerate(zip(cuts, summaries, strict=True)):
        text, has_notice = texts[place], True
        while total > scale.target and (text or has_notice):
            if not has_notice:
                text = shorten(text, scale.counter.count_text(text) - (total - scale.target), scale.counter)
            has_notice = False
            short = _summary_message(cut, summary, text, scale, has_notice=False)
            shorter = replace(shorter, stand_ins=[*shorter.stand_ins[:place], short, *shorter.stand_ins[place + 1 :]])
            total = scale.total(shorter.messages)
    return shorter if total <= scale.target else edit


def _summary_message(cut: SummaryCut, summary: Summary, text: str, scale: TokenScale, *, has_notice: bool = True) -> dict[str, Any]:
    message = scale.shortest_stand_in(cut.turns)
    if len(text) > len(message["content"]) - len(scale.settings.output.summary_header):  # a shorter text says less than `N turns left out.`
        message = scale.stand_in(text, has_notice=has_notice)
    side: dict[str, Any] = {SUMMARY_METADATA: {"how": summary.how, "turns": cut.turns, "tokens": cut.tokens}}
    if summary.chat is not None:
        side["chat"] = summary.chat
    return {**message, "metadata": side}


def _unchanged_result(total: int, turns: int, scale: TokenScale) -> CompactionResult:
    fits = total <= scale.target
    return CompactionResult(
        original_tokens=total,
        compressed_tokens=total,
        original_turns=turns,
        compressed_turns=turns,
        skipped_under_target=fits,
        still_over_limit=not fits,
        over_limit_reason=_over_limit_reason(total, scale),
        tokens_estimated=scale.counter.is_estimate,
    )


def _over_limit_reason(total: int, scale: TokenScale) -> str:
    if total <= scale.target:
        return ""
    return f"parts that may not be summarised or cut have {total:,} tokens, the target is {scale.target:,}"
