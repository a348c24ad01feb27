"""Plan a compaction: which tool results are trimmed, which messages are summarised, and how long the summaries may be.

A unit (a call with its results, or one other message) is summarised whole or not at all. Protected messages stay word for word. The other
units are the middle; a segment is a run of consecutive units of it. A cut is the part of a segment that one summary replaces.

The steps, from the gentlest to the harshest; the planner goes only as far as needed:

    1. giant tool results are trimmed (with `prune_results` all old ones, the oldest first)
    2. the middle is summarised from its start, up to the first end of a unit where the list fits
    3. the whole middle is summarised, and results whose call is protected are trimmed
    4. with `trim_protected`, tool results of protected turns are trimmed too
    5. summaries get shorter than the settings ask for, down to `N turns left out.`
    6. nothing helps: only 1 to 3 are carried out, and the result is flagged as over the limit

The plan is complete before a summariser is asked; `compaction` carries it out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from hermes.trajectories.compress.token_scale import REFUSED_TOKENS, TokenScale
from hermes.trajectories.compress.turns import Layout, MessageRange, Messages, is_summary


@dataclass(frozen=True, slots=True)
class SummaryCut:
    """Messages [start, stop) that a summary of at most `budget` tokens replaces."""

    start: int
    stop: int
    turns: int
    tokens: int
    """About how many tokens the messages have."""
    budget: int

    def __contains__(self, index: int) -> bool:
        return self.start <= index < self.stop


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A list of messages, with a stand-in for each cut, and with some tool results trimmed."""

    before: Messages
    cuts: Sequence[SummaryCut] = ()
    stand_ins: Sequence[Mapping[str, Any]] = ()
    trims: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Trimmed tool results, by their index in the list before."""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The list with stand-ins and trimmed results in place."""
        listed: list[Mapping[str, Any]] = []
        at = 0
        for cut, stand_in in zip(self.cuts, self.stand_ins, strict=True):
            listed += [self.trims.get(index, self.before[index]) for index in range(at, cut.start)]
            listed.append(stand_in)
            at = cut.stop
        return listed + [self.trims.get(index, self.before[index]) for index in range(at, len(self.before))]

    @property
    def changed_range(self) -> tuple[int, int]:
        """The range of the list before that is replaced; empty if nothing changes."""
        touched = sorted([*self.trims, *(index for cut in self.cuts for index in (cut.start, cut.stop - 1))])
        return (touched[0], touched[-1] + 1) if touched else (0, 0)

    def outside_cuts(self, indices: Sequence[int]) -> list[int]:
        """Return those of the indices that are in no cut."""
        return [index for index in indices if not any(index in cut for cut in self.cuts)]


def trim_to_fit(edit: Rewrite, order: Sequence[int], scale: TokenScale) -> tuple[Rewrite, int]:
    """Cut tool results in this order, each only as far as needed; return the new rewrite and its tokens."""
    total = scale.total(edit.messages)
    for index in edit.outside_cuts(order):
        whole = edit.before[index]
        size = keep = scale.result_tokens(edit.trims.get(index, whole))
        while total > scale.target and keep > scale.min_result_tokens:
            keep = max(scale.min_result_tokens, keep - (total - scale.target))
            short = scale.trim_result(whole, keep)
            if scale.result_tokens(short) >= size:
                break
            edit = replace(edit, trims={**edit.trims, index: short})
            total = scale.total(edit.messages)
        if total <= scale.target:
            break
    return edit, total


MIN_SUMMARY_TOKENS = 40
"""A shorter summary is not worth making."""


class Planner:
    """Plans the compaction of one list of messages."""

    def __init__(self, messages: Messages, layout: Layout, scale: TokenScale) -> None:
        self._messages, self._layout, self._scale = messages, layout, scale

    def cuts(self, total: int) -> tuple[SummaryCut, ...]:
        """Return which messages of a list with `total` tokens are to be summarised; () if trimming tool results is enough."""
        scale, last = self._scale, len(self._ends) - 1
        stops_early = scale.settings.processing.skip_under_target
        if stops_early and self.early_trims:
            _, trimmed = trim_to_fit(Rewrite(self._messages), self.early_trims, scale)
            if trimmed <= scale.target:
                return ()
        first = 0 if stops_early else last
        found = _smallest_fit(first, last, lambda end: self._max_tokens(self._useful_cuts(end)) <= scale.target, self._guess_end(total))
        if found is not None:
            return self._useful_cuts(found)
        accepted = (cuts for end in range(last, -1, -1) if self._min_tokens(cuts := self._cuts(end), ()) < REFUSED_TOKENS)
        return self._fit_budgets(next(accepted, ()))

    @property
    def is_refused(self) -> bool:
        """Whether there is a middle to summarise, but the chat template refuses the list with any summary of it."""
        return all(self._min_tokens(self._cuts(end), ()) >= REFUSED_TOKENS for end in range(len(self._ends))) and bool(self._ends)

    # Tool results ------------------------------------------------------------------------------------------------

    @cached_property
    def _sizes(self) -> dict[int, int]:
        """The tokens of the tool results that can be trimmed, by index."""
        sizes = {index: self._scale.result_tokens(message) for index, message in enumerate(self._messages)}
        return {index: size for index, size in sizes.items() if size > self._scale.min_result_tokens}

    @cached_property
    def early_trims(self) -> tuple[int, ...]:
        """The results that are trimmed before any message is summarised."""
        settings = self._scale.settings.compression
        free = [index for index in self._sizes if index not in self._layout.protected]
        if settings.prune_results:
            return tuple(free)
        giant = settings.giant_result_share * self._scale.target
        return tuple(sorted((index for index in free if self._sizes[index] >= giant), key=self._largest)) if settings.trim_results else ()

    @cached_property
    def late_trims(self) -> tuple[int, ...]:
        """The results that are trimmed if summarising the whole middle is not enough."""
        if not self._scale.settings.compression.trim_results:
            return ()
        return tuple(sorted((index for index in self._sizes if index not in self._layout.protected), key=self._largest))

    @cached_property
    def last_resort(self) -> tuple[int, ...]:
        """The results of protected turns, if they may be trimmed at all."""
        if not self._scale.settings.compression.trim_protected:
            return ()
        return tuple(sorted((index for index in self._sizes if index in self._layout.protected), key=self._largest))

    def _largest(self, index: int) -> tuple[int, int]:
        return -self._sizes[index], index

    # Messages of the middle --------------------------------------------------------------------------------------

    @cached_property
    def _ends(self) -> list[tuple[int, int]]:
        """Where a summary may end: segment and unit, as numbers, in order. A segment that is a summary already is left alone."""
        return [
            (number, unit)
            for number, segment in enumerate(self._layout.segments)
            if not self._is_summarised(segment)
            for unit in range(len(segment))
        ]

    def _is_summarised(self, segment: Sequence[MessageRange]) -> bool:
        return all(is_summary(self._messages[index], self._scale.headers) for unit in segment for index in unit)

    @cached_property
    def _weights(self) -> dict[int, list[int]]:
        """For each segment the cumulative tokens of its units."""
        tokens = self._scale.tokens
        return {
            number: list(accumulate(sum(tokens(self._messages[index]) for index in unit) for unit in self._layout.segments[number]))
            for number in {number for number, _ in self._ends}
        }

    def _cuts(self, end: int) -> tuple[SummaryCut, ...]:
        """Return the cuts up to an end, an index of `_ends`: whole segments before it, and its own segment up to its unit."""
        if end < 0:
            return ()
        lasts = dict(self._ends[: end + 1])  # the last unit of each segment
        return tuple(cut for number, unit in lasts.items() if (cut := self._cut(number, unit)) is not None)

    def _useful_cuts(self, end: int) -> tuple[SummaryCut, ...]:
        """Return the cuts up to an end, without those whose summary would be too short to be useful."""
        return tuple(filter(self._is_useful, self._cuts(end)))

    def _is_useful(self, cut: SummaryCut) -> bool:
        return cut.budget >= min(MIN_SUMMARY_TOKENS, self._scale.settings.compression.summary_target_tokens)

    def _cut(self, number: int, unit: int) -> SummaryCut | None:
        """Return one cut; None if even the shortest summary would not be shorter than its messages."""
        segment, tokens = self._layout.segments[number], self._weights[number][unit]
        start, stop = segment[0].start, segment[unit].stop
        turns = sum(start <= turn.start < stop for turn in self._layout.turns)
        if tokens <= self._scale.tokens(self._scale.shortest_stand_in(turns)):
            return None
        # At most half: a summary that is hardly shorter is not worth the exact words that it replaces.
        half = max(0, tokens // 2 - self._scale.summary_overhead)
        return SummaryCut(start, stop, turns, tokens, min(self._scale.settings.compression.summary_target_tokens, half))

    def _min_tokens(self, cuts: Sequence[SummaryCut], results: Sequence[int]) -> int:
        """Return the tokens of the list with the shortest summaries, and with these tool results trimmed as far as possible."""
        edit = Rewrite(self._messages, cuts, [self._scale.shortest_stand_in(cut.turns) for cut in cuts])
        short = {index: self._shortest[index] for index in edit.outside_cuts(results)}
        return self._scale.total(replace(edit, trims=short).messages)

    @cached_property
    def _shortest(self) -> dict[int, Mapping[str, Any]]:
        """Tool results, trimmed as far as possible, by index."""
        wanted = {*self.early_trims, *self.late_trims, *self.last_resort}
        return {index: self._scale.trim_result(self._messages[index], self._scale.min_result_tokens) for index in wanted}

    def _max_tokens(self, cuts: Sequence[SummaryCut]) -> int:
        """Return the tokens of the list with summaries of their full budget."""
        return self._min_tokens(cuts, self.early_trims) + self._added_tokens(cuts)

    def _added_tokens(self, cuts: Sequence[SummaryCut]) -> int:
        return sum(cut.budget + self._scale.summary_overhead for cut in cuts if cut.budget)

    def _guess_end(self, total: int) -> int:
        """Return the first end where the list should fit, by the tokens of single messages alone."""

        def fits(end: int) -> int:
            cuts = self._useful_cuts(end)
            return total - sum(cut.tokens for cut in cuts) + self._added_tokens(cuts) <= self._scale.target

        return max(0, min(len(self._ends) - 1, bisect_left(range(len(self._ends)), 1, key=fits)))

    def _fit_budgets(self, cuts: tuple[SummaryCut, ...]) -> tuple[SummaryCut, ...]:
        """Return the cuts with smaller budgets if only that makes the list fit; if nothing does, only the useful cuts."""
        room = self._scale.target - self._min_tokens(cuts, [*self.early_trims, *self.late_trims, *self.last_resort])
        wanted = self._added_tokens(cuts)
        if room < 0:
            return tuple(filter(self._is_useful, cuts))
        if wanted <= room:
            return cuts
        return tuple(replace(cut, budget=max(0, cut.budget * room // wanted - self._scale.summary_overhead)) for cut in cuts)


def _smallest_fit(first: int, last: int, fits: Callable[[int], bool], guess: int) -> int | None:
    """Return the smallest index from `first` to `last` that fits, None if none does; tries few of them if the guess is good.

    If one index fits, every later one fits too, except where the template refuses some; the returned index always fits."""
    if last < 0:
        return None
    low, high, step = first - 1, max(first, guess), 1  # low does not fit; the loop moves high until it fits
    while not fits(high):
        if high == last:
            return None
        low, high, step = high, min(last, high + step), step * 2
    step = 1
    while low < high - 1:
        middle = max(first, high - step) if low < first else (low + high) // 2
        low, high, step = (low, middle, step * 2) if fits(middle) else (middle, high, step)
    return high
