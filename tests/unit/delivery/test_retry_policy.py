"""What follows from each outcome, row by row."""

import pytest

from hermes.delivery.retry_policy import RETRY_RULES, RetryAction, RetryPlan, RetryRule, TriesSoFar, plan_retry
from hermes.ports.channels import SendOutcome, SendResult

RETRIED = [SendOutcome.RATE_LIMITED, SendOutcome.SERVICE_UNAVAILABLE, SendOutcome.NETWORK_TIMEOUT]
GIVEN_UP = [SendOutcome.UNAUTHORIZED, SendOutcome.INVALID_RECIPIENT, SendOutcome.WINDOW_CLOSED, SendOutcome.REJECTED]


def test_every_outcome_has_a_rule_and_the_breaker_counts_only_what_says_something_about_the_line() -> None:
    assert set(RETRY_RULES) == set(SendOutcome)
    counted = {outcome for outcome, rule in RETRY_RULES.items() if rule.counts}
    assert counted == {SendOutcome.SERVICE_UNAVAILABLE, SendOutcome.NETWORK_TIMEOUT, SendOutcome.AMBIGUOUS}
    assert {outcome for outcome, rule in RETRY_RULES.items() if rule.is_retried} == set(RETRIED)
    assert RETRY_RULES[SendOutcome.INVALID_RECIPIENT] == RetryRule(), "ten users who left open no breaker"


def test_what_is_sent_is_done() -> None:
    assert plan_retry(SendResult(outcome=SendOutcome.SENT, message_id="1"), TriesSoFar(in_call=1)) == RetryPlan(RetryAction.DONE)


@pytest.mark.parametrize("outcome", RETRIED)
def test_what_is_proven_not_sent_is_tried_after_1_3_and_9_s_then_after_1_5_and_25_min_and_then_given_up(outcome: SendOutcome) -> None:
    verdict = SendResult(outcome=outcome)
    in_call = [plan_retry(verdict, TriesSoFar(in_call=tries)) for tries in (1, 2, 3)]
    assert in_call == [RetryPlan(RetryAction.AGAIN, 1.0), RetryPlan(RetryAction.AGAIN, 3.0), RetryPlan(RetryAction.AGAIN, 9.0)]
    queued = [plan_retry(verdict, TriesSoFar(in_call=4, failures=failures)) for failures in (0, 1, 2, 3)]
    assert queued == [
        RetryPlan(RetryAction.LATER, 60.0),
        RetryPlan(RetryAction.LATER, 300.0),
        RetryPlan(RetryAction.LATER, 1_500.0),
        RetryPlan(RetryAction.GIVE_UP),
    ]


@pytest.mark.parametrize(
    ("stated_s", "tried", "expected"),
    [
        (2.0, TriesSoFar(in_call=1), RetryPlan(RetryAction.AGAIN, 2.0)),
        (2.0, TriesSoFar(in_call=2), RetryPlan(RetryAction.AGAIN, 3.0)),
        (10.0, TriesSoFar(in_call=1), RetryPlan(RetryAction.AGAIN, 10.0)),
        (10.1, TriesSoFar(in_call=1), RetryPlan(RetryAction.LATER, 60.0)),
        (90.0, TriesSoFar(in_call=1), RetryPlan(RetryAction.LATER, 90.0)),
        (3_600.0, TriesSoFar(in_call=1, failures=2), RetryPlan(RetryAction.LATER, 3_600.0)),
        (3_600.0, TriesSoFar(in_call=1, failures=3), RetryPlan(RetryAction.GIVE_UP)),
    ],
)
def test_a_stated_time_is_waited_for_and_a_long_one_in_the_queue(stated_s: float, tried: TriesSoFar, expected: RetryPlan) -> None:
    assert plan_retry(SendResult(outcome=SendOutcome.RATE_LIMITED, retry_after_s=stated_s), tried) == expected


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        (TriesSoFar(in_call=1), RetryPlan(RetryAction.LATER, 60.0)),
        (TriesSoFar(in_call=3, failures=3), RetryPlan(RetryAction.LATER, 60.0)),
        (TriesSoFar(in_call=1, doubts=1), RetryPlan(RetryAction.GIVE_UP)),
        (TriesSoFar(in_call=1, doubts=2), RetryPlan(RetryAction.GIVE_UP)),
    ],
)
def test_what_may_have_arrived_is_tried_once_more_and_never_at_once(tried: TriesSoFar, expected: RetryPlan) -> None:
    assert plan_retry(SendResult(outcome=SendOutcome.AMBIGUOUS), tried) == expected


def test_where_there_are_receipts_one_is_waited_for_after_the_second_doubt() -> None:
    assert plan_retry(SendResult(outcome=SendOutcome.AMBIGUOUS), TriesSoFar(in_call=1), receipt_s=45.0) == RetryPlan(
        RetryAction.LATER, 60.0
    )
    assert plan_retry(SendResult(outcome=SendOutcome.AMBIGUOUS), TriesSoFar(in_call=1, doubts=1), receipt_s=45.0) == RetryPlan(
        RetryAction.LATER, 45.0
    )


@pytest.mark.parametrize("outcome", GIVEN_UP)
def test_what_no_retry_can_mend_is_given_up_at_once(outcome: SendOutcome) -> None:
    assert plan_retry(SendResult(outcome=outcome, retry_after_s=5.0), TriesSoFar(in_call=1)) == RetryPlan(RetryAction.GIVE_UP)


def test_markup_that_was_not_understood_is_left_out_once() -> None:
    verdict = SendResult(outcome=SendOutcome.REJECTED, plain_might_help=True)
    assert plan_retry(verdict, TriesSoFar(in_call=1)) == RetryPlan(RetryAction.AS_PLAIN_TEXT)
    assert plan_retry(verdict, TriesSoFar(in_call=2, is_plain=True)) == RetryPlan(RetryAction.GIVE_UP)


def test_what_comes_after_the_window_goes_as_a_template_once() -> None:
    verdict = SendResult(outcome=SendOutcome.WINDOW_CLOSED)
    assert plan_retry(verdict, TriesSoFar(in_call=1, has_template=True)) == RetryPlan(RetryAction.AS_TEMPLATE)
    assert plan_retry(verdict, TriesSoFar(in_call=2)) == RetryPlan(RetryAction.GIVE_UP)


def test_a_channel_that_moved_is_followed_once() -> None:
    verdict = SendResult(outcome=SendOutcome.REJECTED, moved_to="-100")
    assert plan_retry(verdict, TriesSoFar(in_call=1)) == RetryPlan(RetryAction.ELSEWHERE)
    assert plan_retry(verdict, TriesSoFar(in_call=2, has_moved=True)) == RetryPlan(RetryAction.GIVE_UP)


def test_no_try_begins_that_could_end_after_the_parcel_was_given_to_somebody_else() -> None:
    verdict = SendResult(outcome=SendOutcome.SERVICE_UNAVAILABLE)
    assert plan_retry(verdict, TriesSoFar(in_call=3, spent_s=81.0), timeout_s=10.0) == RetryPlan(RetryAction.AGAIN, 9.0)
    assert plan_retry(verdict, TriesSoFar(in_call=3, spent_s=81.1), timeout_s=10.0) == RetryPlan(RetryAction.LATER, 60.0)
    moved = SendResult(outcome=SendOutcome.REJECTED, moved_to="-100")
    assert plan_retry(moved, TriesSoFar(in_call=1, spent_s=95.0), timeout_s=10.0) == RetryPlan(RetryAction.GIVE_UP)
