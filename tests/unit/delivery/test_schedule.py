"""What follows from each outcome, row by row."""

import pytest

from hermes.delivery.schedule import RULES, Next, Rule, Then, Tried, what_next
from hermes.ports.channels import Outcome, Verdict

RETRIED = [Outcome.RATE_LIMITED, Outcome.SERVICE_UNAVAILABLE, Outcome.NETWORK_TIMEOUT]
GIVEN_UP = [Outcome.UNAUTHORIZED, Outcome.INVALID_RECIPIENT, Outcome.WINDOW_CLOSED, Outcome.REJECTED]


def test_every_outcome_has_a_rule_and_the_breaker_counts_only_what_says_something_about_the_line() -> None:
    assert set(RULES) == set(Outcome)
    counted = {outcome for outcome, rule in RULES.items() if rule.counts}
    assert counted == {Outcome.SERVICE_UNAVAILABLE, Outcome.NETWORK_TIMEOUT, Outcome.AMBIGUOUS}
    assert {outcome for outcome, rule in RULES.items() if rule.is_retried} == set(RETRIED)
    assert RULES[Outcome.INVALID_RECIPIENT] == Rule(), "ten users who left open no breaker"


def test_what_is_sent_is_done() -> None:
    assert what_next(Verdict(outcome=Outcome.SENT, message_id="1"), Tried(in_call=1)) == Next(Then.DONE)


@pytest.mark.parametrize("outcome", RETRIED)
def test_what_is_proven_not_sent_is_tried_after_1_3_and_9_s_then_after_1_5_and_25_min_and_then_given_up(outcome: Outcome) -> None:
    verdict = Verdict(outcome=outcome)
    in_call = [what_next(verdict, Tried(in_call=tries)) for tries in (1, 2, 3)]
    assert in_call == [Next(Then.AGAIN, 1.0), Next(Then.AGAIN, 3.0), Next(Then.AGAIN, 9.0)]
    queued = [what_next(verdict, Tried(in_call=4, failures=failures)) for failures in (0, 1, 2, 3)]
    assert queued == [Next(Then.LATER, 60.0), Next(Then.LATER, 300.0), Next(Then.LATER, 1_500.0), Next(Then.GIVE_UP)]


@pytest.mark.parametrize(
    ("stated_s", "tried", "expected"),
    [
        (2.0, Tried(in_call=1), Next(Then.AGAIN, 2.0)),
        (2.0, Tried(in_call=2), Next(Then.AGAIN, 3.0)),
        (10.0, Tried(in_call=1), Next(Then.AGAIN, 10.0)),
        (10.1, Tried(in_call=1), Next(Then.LATER, 60.0)),
        (90.0, Tried(in_call=1), Next(Then.LATER, 90.0)),
        (3_600.0, Tried(in_call=1, failures=2), Next(Then.LATER, 3_600.0)),
        (3_600.0, Tried(in_call=1, failures=3), Next(Then.GIVE_UP)),
    ],
)
def test_a_stated_time_is_waited_for_and_a_long_one_in_the_queue(stated_s: float, tried: Tried, expected: Next) -> None:
    assert what_next(Verdict(outcome=Outcome.RATE_LIMITED, retry_after_s=stated_s), tried) == expected


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        (Tried(in_call=1), Next(Then.LATER, 60.0)),
        (Tried(in_call=3, failures=3), Next(Then.LATER, 60.0)),
        (Tried(in_call=1, doubts=1), Next(Then.GIVE_UP)),
        (Tried(in_call=1, doubts=2), Next(Then.GIVE_UP)),
    ],
)
def test_what_may_have_arrived_is_tried_once_more_and_never_at_once(tried: Tried, expected: Next) -> None:
    assert what_next(Verdict(outcome=Outcome.AMBIGUOUS), tried) == expected


def test_where_there_are_receipts_one_is_waited_for_after_the_second_doubt() -> None:
    assert what_next(Verdict(outcome=Outcome.AMBIGUOUS), Tried(in_call=1), receipt_s=45.0) == Next(Then.LATER, 60.0)
    assert what_next(Verdict(outcome=Outcome.AMBIGUOUS), Tried(in_call=1, doubts=1), receipt_s=45.0) == Next(Then.LATER, 45.0)


@pytest.mark.parametrize("outcome", GIVEN_UP)
def test_what_no_retry_can_mend_is_given_up_at_once(outcome: Outcome) -> None:
    assert what_next(Verdict(outcome=outcome, retry_after_s=5.0), Tried(in_call=1)) == Next(Then.GIVE_UP)


def test_markup_that_was_not_understood_is_left_out_once() -> None:
    verdict = Verdict(outcome=Outcome.REJECTED, plain_might_help=True)
    assert what_next(verdict, Tried(in_call=1)) == Next(Then.AS_PLAIN_TEXT)
    assert what_next(verdict, Tried(in_call=2, is_plain=True)) == Next(Then.GIVE_UP)


def test_what_comes_after_the_window_goes_as_a_template_once() -> None:
    verdict = Verdict(outcome=Outcome.WINDOW_CLOSED)
    assert what_next(verdict, Tried(in_call=1, has_template=True)) == Next(Then.AS_TEMPLATE)
    assert what_next(verdict, Tried(in_call=2)) == Next(Then.GIVE_UP)


def test_a_channel_that_moved_is_followed_once() -> None:
    verdict = Verdict(outcome=Outcome.REJECTED, moved_to="-100")
    assert what_next(verdict, Tried(in_call=1)) == Next(Then.ELSEWHERE)
    assert what_next(verdict, Tried(in_call=2, has_moved=True)) == Next(Then.GIVE_UP)


def test_no_try_begins_that_could_end_after_the_parcel_was_given_to_somebody_else() -> None:
    verdict = Verdict(outcome=Outcome.SERVICE_UNAVAILABLE)
    assert what_next(verdict, Tried(in_call=3, spent_s=81.0), timeout_s=10.0) == Next(Then.AGAIN, 9.0)
    assert what_next(verdict, Tried(in_call=3, spent_s=81.1), timeout_s=10.0) == Next(Then.LATER, 60.0)
    moved = Verdict(outcome=Outcome.REJECTED, moved_to="-100")
    assert what_next(moved, Tried(in_call=1, spent_s=95.0), timeout_s=10.0) == Next(Then.GIVE_UP)
