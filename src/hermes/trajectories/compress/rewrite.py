"""The message list after compaction: which messages a summary replaces, and which tool results are cut. A value; it edits nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hermes.trajectories.compress.token_scale import TokenScale
from hermes.trajectories.compress.turns import Messages


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
