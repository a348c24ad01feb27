"""When a run has spent enough: what rollouts cost is known from all that were made."""

from hermes.trajectories.batch.rollout import RolloutEntry, RolloutOutcome
from hermes.trajectories.batch.run import Budget, BudgetDecision


def cost(tokens: int) -> RolloutEntry:
    return RolloutEntry(item="a", rollout=0, digest="", outcome=RolloutOutcome.COMPLETED, prompt_tokens=tokens)


def test_what_lies_aside_is_spent_and_does_not_make_the_next_one_dearer() -> None:
    budget = Budget(tokens=120)
    budget.add(cost(10))
    for _ in range(9):
        budget.add(cost(10), is_finished=False)
    assert [budget.begin() for _ in range(3)] == [BudgetDecision.GO, BudgetDecision.GO, BudgetDecision.WAIT]


def test_the_first_to_finish_goes_alone_also_when_others_lie_aside() -> None:
    budget = Budget(tokens=120)
    budget.add(cost(10), is_finished=False)
    assert [budget.begin() for _ in range(2)] == [BudgetDecision.GO, BudgetDecision.WAIT]
