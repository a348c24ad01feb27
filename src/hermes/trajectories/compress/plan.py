"""Decide what goes: which tool results are cut, which stretches are summarised, and how long the summaries may be.

From the gentlest to the harshest, and only as far as needed:

    1. giant tool results are cut (with `prune_results` all old ones, the oldest first)
    2. stretches of the middle are summarised, its start first, up to the first end of a unit where it fits
    3. the whole middle is summarised, and results whose call is protected are cut
    4. with `trim_protected`, tool results of protected turns are cut too
    5. summaries get shorter than the settings ask for, down to a mark
    6. nothing helps: as in 3, and flagged

A plan is made before anybody is asked for a summary; `engine` carries it out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from hermes.trajectories.compress.rewrite import Rewrite, SummaryCut, trim_to_fit
from hermes.trajectories.compress.token_scale import REFUSED_TOKENS, TokenScale
from hermes.trajectories.compress.turns import Layout, MessageRange, Messages, is_summary

MIN_SUMMARY_TOKENS = 40
"""Tokens of a summary that says something."""


class Planner:
    """Makes the plan for one list."""

    def __init__(self, messages: Messages, layout: Layout, scale: TokenScale) -> None:
        self._messages, self._layout, self._scale = messages, layout, scale

    def cuts(self, total: int) -> tuple[SummaryCut, ...]:
        """Return what is to be summarised of a list with so many tokens. Nothing, where cutting tool results is enough."""
        scale, last = self._scale, len(self._ends) - 1
        is_lazy = scale.settings.processing.skip_under_target
        if is_lazy and self.early_trims:
            _, trimmed = trim_to_fit(Rewrite(self._messages), self.early_trims, scale)
            if trimmed <= scale.target:
                return ()
        first = 0 if is_lazy else last
        found = _smallest_fit(first, last, lambda place: self._full(self._useful(place)) <= scale.target, self._guess(total))
        if found is not None:
            return self._useful(found)
        accepted = (cuts for place in range(last, -1, -1) if self._base(cuts := self._cuts(place), ()) < REFUSED_TOKENS)
        return self._budgeted(next(accepted, ()))

    @property
    def is_refused(self) -> bool:
        """Whether there is a middle to summarise, and the chat template takes no summary in its place."""
        return all(self._base(self._cuts(place), ()) >= REFUSED_TOKENS for place in range(len(self._ends))) and bool(self._ends)

    # Tool results ------------------------------------------------------------------------------------------------

    @cached_property
    def _sizes(self) -> dict[int, int]:
        """The tool results that can be shorter."""
        sizes = {index: self._scale.result_tokens(message) for index, message in enumerate(self._messages)}
        return {index: size for index, size in sizes.items() if size > self._scale.least}

    @cached_property
    def early_trims(self) -> tuple[int, ...]:
        """The results that are cut before anything is summarised."""
        settings = self._scale.settings.compression
        free = [index for index in self._sizes if index not in self._layout.protected]
        if settings.prune_results:
            return tuple(free)
        giant = settings.giant_result_share * self._scale.target
        return tuple(sorted((index for index in free if self._sizes[index] >= giant), key=self._largest)) if settings.trim_results else ()

    @cached_property
    def late_trims(self) -> tuple[int, ...]:
        """The results that are cut when the whole middle is summarised, and that is not enough."""
        if not self._scale.settings.compression.trim_results:
            return ()
        return tuple(sorted((index for index in self._sizes if index not in self._layout.protected), key=self._largest))

    @cached_property
    def last_resort(self) -> tuple[int, ...]:
        """The results of protected turns, if they may be cut at all."""
        if not self._scale.settings.compression.trim_protected:
            return ()
        return tuple(sorted((index for index in self._sizes if index in self._layout.protected), key=self._largest))

    def _largest(self, index: int) -> tuple[int, int]:
        return -self._sizes[index], index

    # Stretches of the middle -------------------------------------------------------------------------------------

    @cached_property
    def _ends(self) -> list[tuple[int, int]]:
        """Where summarising may stop: segment and unit, in order. A segment that is a summary already is left alone."""
        return [
            (place, unit)
            for place, segment in enumerate(self._layout.segments)
            if not self._is_done(segment)
            for unit in range(len(segment))
        ]

    def _is_done(self, segment: Sequence[MessageRange]) -> bool:
        return all(is_summary(self._messages[index], self._scale.headers) for unit in segment for index in unit)

    @cached_property
    def _weights(self) -> dict[int, list[int]]:
        """For each segment the tokens of its units, summed up."""
        tokens = self._scale.tokens
        return {
            place: list(accumulate(sum(tokens(self._messages[index]) for index in unit) for unit in self._layout.segments[place]))
            for place in {place for place, _ in self._ends}
        }

    def _cuts(self, end: int) -> tuple[SummaryCut, ...]:
        """Return what is summarised up to an end: the segments before it whole, and its own up to its unit."""
        if end < 0:
            return ()
        lasts = dict(self._ends[: end + 1])  # of each segment the last unit
        return tuple(cut for place, unit in lasts.items() if (cut := self._cut(place, unit)) is not None)

    def _useful(self, end: int) -> tuple[SummaryCut, ...]:
        """Return the same without stretches so short that hardly anything could be said about them."""
        return tuple(filter(self._is_useful, self._cuts(end)))

    def _is_useful(self, cut: SummaryCut) -> bool:
        return cut.budget >= min(MIN_SUMMARY_TOKENS, self._scale.settings.compression.summary_target_tokens)

    def _cut(self, place: int, unit: int) -> SummaryCut | None:
        """Return one stretch; None if the shortest summary would be no shorter."""
        segment, tokens = self._layout.segments[place], self._weights[place][unit]
        start, stop = segment[0].start, segment[unit].stop
        turns = sum(start <= turn.start < stop for turn in self._layout.turns)
        if tokens <= self._scale.tokens(self._scale.bare(turns)):
            return None
        # Half at most: a summary that is hardly shorter is not worth the words that it changes.
        half = max(0, tokens // 2 - self._scale.frame)
        return SummaryCut(start, stop, turns, tokens, min(self._scale.settings.compression.summary_target_tokens, half))

    def _base(self, cuts: Sequence[SummaryCut], results: Sequence[int]) -> int:
        """Return the tokens with the shortest summaries, and with these tool results as short as they get."""
        edit = Rewrite(self._messages, cuts, [self._scale.bare(cut.turns) for cut in cuts])
        short = {index: self._shortest[index] for index in edit.left(results)}
        return self._scale.total(replace(edit, trims=short).messages)

    @cached_property
    def _shortest(self) -> dict[int, Mapping[str, Any]]:
        """Tool results as short as they get."""
        wanted = {*self.early_trims, *self.late_trims, *self.last_resort}
        return {index: self._scale.trimmed(self._messages[index], self._scale.least) for index in wanted}

    def _full(self, cuts: Sequence[SummaryCut]) -> int:
        """Return the tokens with summaries as long as they may be."""
        return self._base(cuts, self.early_trims) + self._added(cuts)

    def _added(self, cuts: Sequence[SummaryCut]) -> int:
        return sum(cut.budget + self._scale.frame for cut in cuts if cut.budget)

    def _guess(self, total: int) -> int:
        """Return the end where it should fit by the weights alone."""

        def fits(place: int) -> int:
            cuts = self._useful(place)
            return total - sum(cut.tokens for cut in cuts) + self._added(cuts) <= self._scale.target

        return max(0, min(len(self._ends) - 1, bisect_left(range(len(self._ends)), 1, key=fits)))

    def _budgeted(self, cuts: tuple[SummaryCut, ...]) -> tuple[SummaryCut, ...]:
        """Return the cuts with shorter budgets if only that makes it fit; where nothing does, those that can be said something about."""
        room = self._scale.target - self._base(cuts, [*self.early_trims, *self.late_trims, *self.last_resort])
        wanted = self._added(cuts)
        if room < 0:
            return tuple(filter(self._is_useful, cuts))
        if wanted <= room:
            return cuts
        return tuple(replace(cut, budget=max(0, cut.budget * room // wanted - self._scale.frame)) for cut in cuts)


def _smallest_fit(first: int, last: int, fits: Callable[[int], bool], guess: int) -> int | None:
    """Return the smallest place from `first` to `last` that fits, None if none does; looks at few places if the guess is good.

    A later place fits wherever an earlier one does, but for templates that refuse some; then the place found still fits."""
    if last < 0:
        return None
    low, high, step = first - 1, max(first, guess), 1  # low does not fit; high will be made to
    while not fits(high):
        if high == last:
            return None
        low, high, step = high, min(last, high + step), step * 2
    step = 1
    while low < high - 1:
        middle = max(first, high - step) if low < first else (low + high) // 2
        low, high, step = (low, middle, step * 2) if fits(middle) else (middle, high, step)
    return high
