"""When a run has spent enough. It counts the whole run, also what lies aside, and looks ahead: what is under way will cost about what
rollouts cost so far, and nothing is begun that would go beyond the limit. The first one of a run goes alone, to see what one costs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hermes.trajectories.batch.rollout import RolloutEntry

MICRO_PER_USD = 1_000_000


class BudgetDecision(StrEnum):
    """Whether another rollout may begin."""

    GO = "go"
    WAIT = "wait"
    """Until one of those under way has ended: then one knows more."""
    STOP = "stop"


@dataclass(slots=True)
class Budget:
    """What a run may cost; None for no limit."""

    micro_usd: int | None = None
    tokens: int | None = None
    spent_micro_usd: int = 0
    spent_tokens: int = 0
    finished: int = 0
    made: int = 0
    """All that anything was spent on: also what lies aside."""
    under_way: int = 0
    reason: str = ""
    """Why the run should stop."""

    def begin(self) -> BudgetDecision:
        """Say whether a rollout may begin; if so it is under way."""
        verdicts = {self._verdict(*side) for side in self._sides()}
        if BudgetDecision.STOP in verdicts:
            return BudgetDecision.STOP
        if BudgetDecision.WAIT in verdicts:
            return BudgetDecision.WAIT
        self.under_way += 1
        return BudgetDecision.GO

    def end(self) -> None:
        """Note that a rollout is not under way any more."""
        self.under_way -= 1

    def add(self, entry: RolloutEntry, *, is_finished: bool = True) -> None:
        """Count what a rollout cost."""
        self.finished += is_finished
        self.made += 1
        self.spent_micro_usd += entry.micro_usd
        self.spent_tokens += entry.tokens

    def _verdict(self, limit: int | None, spent: int, reason: str) -> BudgetDecision:
        if limit is None:
            return BudgetDecision.GO
        each = spent / self.made if self.made else 0.0
        if spent < limit and (self.finished or not self.under_way) and spent + (self.under_way + 1) * each <= limit:
            return BudgetDecision.GO
        if spent < limit and self.under_way:
            return BudgetDecision.WAIT
        self.reason = reason
        return BudgetDecision.STOP

    def _sides(self) -> tuple[tuple[int | None, int, str], ...]:
        usd = f"{self.spent_micro_usd / MICRO_PER_USD:,.4f} of {(self.micro_usd or 0) / MICRO_PER_USD:,.4f} USD are spent"
        tokens = f"{self.spent_tokens:,} of {self.tokens or 0:,} tokens are used"
        return (
            (self.micro_usd, self.spent_micro_usd, f"{usd}, and the next rollout would go beyond; go on with a higher --budget-usd"),
            (self.tokens, self.spent_tokens, f"{tokens}, and the next rollout would go beyond; go on with a higher --budget-tokens"),
        )
