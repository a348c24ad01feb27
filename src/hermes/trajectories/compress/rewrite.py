"""The list as it is to be: what is summarised, by what, and which tool results are cut. A value; nothing is edited by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hermes.trajectories.compress.token_scale import TokenScale
from hermes.trajectories.compress.turns import Messages


@dataclass(frozen=True, slots=True)
class SummaryCut:
    """Messages [start, stop) that a summary of at most `budget` tokens stands for."""

    start: int
    stop: int
    turns: int
    tokens: int
    """About how many tokens they have."""
    budget: int

    def __contains__(self, index: int) -> bool:
        return self.start <= index < self.stop


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A list of messages with stand-ins for its cuts, and some tool results as they are to be."""

    before: Messages
    cuts: Sequence[SummaryCut] = ()
    stand_ins: Sequence[Mapping[str, Any]] = ()
    trims: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Tool results, by their index in the list before."""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The list with everything in its place."""
        listed: list[Mapping[str, Any]] = []
        at = 0
        for cut, stand_in in zip(self.cuts, self.stand_ins, strict=True):
            listed += [self.trims.get(index, self.before[index]) for index in range(at, cut.start)]
            listed.append(stand_in)
            at = cut.stop
        return listed + [self.trims.get(index, self.before[index]) for index in range(at, len(self.before))]

    @property
    def changed(self) -> tuple[int, int]:
        """Which stretch of the list before is replaced; an empty one if nothing changes."""
        touched = sorted([*self.trims, *(index for cut in self.cuts for index in (cut.start, cut.stop - 1))])
        return (touched[0], touched[-1] + 1) if touched else (0, 0)

    def left(self, indices: Sequence[int]) -> list[int]:
        """Return those of the indices that no cut holds."""
        return [index for index in indices if not any(index in cut for cut in self.cuts)]


def trim_to_fit(edit: Rewrite, order: Sequence[int], scale: TokenScale) -> tuple[Rewrite, int]:
    """Cut tool results in this order, each only as far as needed; return the edit with them, and its tokens."""
    total = scale.total(edit.messages)
    for index in edit.left(order):
        whole = edit.before[index]
        size = keep = scale.result_tokens(edit.trims.get(index, whole))
        while total > scale.target and keep > scale.least:
            keep = max(scale.least, keep - (total - scale.target))
            short = scale.trimmed(whole, keep)
            if scale.result_tokens(short) >= size:
                break
            edit = replace(edit, trims={**edit.trims, index: short})
            total = scale.total(edit.messages)
        if total <= scale.target:
            break
    return edit, total
