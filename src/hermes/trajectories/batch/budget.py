"""When a run has spent enough. The budget counts the whole run, also rollouts that are aside, and looks ahead: it expects each rollout
under way to cost the average so far, and begins none that would exceed the limit. The first one runs alone, to learn its cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hermes.trajectories.batch.rollout import RolloutEntry

MICRO_PER_USD = 1_000_000


class BudgetDecision(StrEnum):
    """Whether another rollout may begin."""

    GO = "go"
    WAIT = "wait"
    """Ask again when a rollout under way has ended: then the average is better known."""
    STOP = "stop"


@dataclass(slots=True)
class Budget:
    """The limits of a run, None for no limit, and what it has spent."""

    micro_usd: int | None = None
    tokens: int | None = None
    spent_micro_usd: int = 0
    spent_tokens: int = 0
    finished: int = 0
    made: int = 0
    """All rollouts that were made, also those that are aside."""
    under_way: int = 0
    reason: str = ""
    """Why the run has to stop."""

    def begin(self) -> BudgetDecision:
        """Decide whether a rollout may begin; on GO it counts as under way."""
        decisions = {self._decide(*limit) for limit in self._limits()}
        if BudgetDecision.STOP in decisions:
            return BudgetDecision.STOP
        if BudgetDecision.WAIT in decisions:
            return BudgetDecision.WAIT
        self.under_way += 1
        return BudgetDecision.GO

    def end(self) -> None:
        """Count a rollout as no longer under way."""
        self.under_way -= 1

    def add(self, entry: RolloutEntry, *, is_finished: bool = True) -> None:
        """Count what a rollout cost."""
        self.finished += is_finished
        self.made += 1
        self.spent_micro_usd += entry.micro_usd
        self.spent_tokens += entry.tokens

    def _decide(self, limit: int | None, spent: int, reason: str) -> BudgetDecision:
        if limit is None:
            return BudgetDecision.GO
        each = spent / self.made if self.made else 0.0
        if spent < limit and (self.finished or not self.under_way) and spent + (self.under_way + 1) * each <= limit:
            return BudgetDecision.GO
        if spent < limit and self.under_way:
            return BudgetDecision.WAIT
        self.reason = reason
        return BudgetDecision.STOP

    def _limits(self) -> tuple[tuple[int | None, int, str], ...]:
        usd = f"{self.spent_micro_usd / MICRO_PER_USD:,.4f} of {(self.micro_usd or 0) / MICRO_PER_USD:,.4f} USD are spent"
        tokens = f"{self.spent_tokens:,} of {self.tokens or 0:,} tokens are used"
        return (
            (
                self.micro_usd,
                self.spent_micro_usd,
                f"{usd}, and the next rollout would exceed the budget; resume with a higher --budget-usd",
            ),
            (
                self.tokens,
                self.spent_tokens,
                f"{tokens}, and the next rollout would exceed the budget; resume with a higher --budget-tokens",
            ),
        )
