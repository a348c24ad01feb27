"""What follows from how a try ended. One table and one function; no clock, no store, no network.

    outcome               tried again             counts for the breaker  remark
    sent                  -                       resets it
    rate_limited          when the platform says  no
    service_unavailable   yes                     yes
    network_timeout       yes                     yes                     no connection, or nothing was written to it
    ambiguous             once                    yes                     it may have arrived: a second doubt waits for a receipt
    unauthorized          no                      no                      the breaker opens at once
    invalid_recipient     no                      no                      the user is unreachable until they write again
    window_closed         once, as a template     no                      if a template is set
    rejected              once, as plain text     no

A message that was in doubt twice is not sent again: if the platform sends receipts, a receipt has a minute to come; otherwise the message
is given up. After `rate_limited`, `service_unavailable` and `network_timeout` the message is certainly not sent: it is tried again within
the call after 1, 3 and 9 s, then from the queue after 1, 5 and 25 min, or later if the platform says so; then it is given up. No single
wait within a call is longer than ten seconds: longer waits are left to the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hermes.ports.channels import SendOutcome, SendResult

RETRY_WAITS_S = (0.0, 1.0, 3.0, 9.0)
"""Before the first, second, … try of one call."""
QUEUE_WAITS_S = (60.0, 300.0, 1_500.0)
"""Before the message is taken again, after its first, second and third failure."""
MAX_WAIT_S = 10.0
"""A longer wait is left to the queue."""
MAX_CALL_S = 100.0
"""No try begins that could end later than this: after two minutes the outbox gives the message to another worker."""
RECEIPT_WAIT_S = 60.0
"""How long a receipt may take, after the last try that may have arrived."""
MAX_DOUBTS = 1
"""How many tries in doubt a message may have and still be sent again: after the first yes, after the second no."""


class RetryAction(StrEnum):
    """What to do next with a message."""

    DONE = "done"
    AGAIN = "again"
    """Once more, in this call."""
    AS_PLAIN_TEXT = "as_plain_text"
    AS_TEMPLATE = "as_template"
    ELSEWHERE = "elsewhere"
    """At once, to the channel's new id."""
    LATER = "later"
    """Put back into the queue: for another try, or to wait for a receipt. Counts as a doubt if it may have arrived, else as a failure."""
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True)
class RetryRule:
    """One row of the table."""

    is_retried: bool = False
    """Whether it is tried again while there are waits left. `plan_retry` and `other_way` decide about the single tries ("once")."""
    counts: bool = False
    """Whether the breaker counts it."""


RETRY_RULES: Mapping[SendOutcome, RetryRule] = {
    SendOutcome.SENT: RetryRule(),
    SendOutcome.RATE_LIMITED: RetryRule(is_retried=True),
    SendOutcome.SERVICE_UNAVAILABLE: RetryRule(is_retried=True, counts=True),
    SendOutcome.NETWORK_TIMEOUT: RetryRule(is_retried=True, counts=True),
    SendOutcome.AMBIGUOUS: RetryRule(counts=True),
    SendOutcome.UNAUTHORIZED: RetryRule(),
    SendOutcome.INVALID_RECIPIENT: RetryRule(),
    SendOutcome.WINDOW_CLOSED: RetryRule(),
    SendOutcome.REJECTED: RetryRule(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TriesSoFar:
    """What was tried with a message so far, the try that has just ended included."""

    in_call: int
    """Tries of this call."""
    spent_s: float = 0.0
    """How long the call has taken."""
    failures: int = 0
    """How often it was put back before this call."""
    doubts: int = 0
    """Earlier tries that may have arrived."""
    is_plain: bool = False
    has_template: bool = False
    """There is a template to send instead, and it was not tried yet."""
    has_moved: bool = False


@dataclass(frozen=True, slots=True)
class RetryPlan:
    then: RetryAction
    wait_s: float = 0.0


def plan_retry(
    send_result: SendResult,
    tries: TriesSoFar,
    *,
    timeout_s: float = 10.0,
    max_s: float = MAX_CALL_S,
    queue_s: Sequence[float] = QUEUE_WAITS_S,
    receipt_s: float = 0.0,
) -> RetryPlan:
    """Return what to do next. `timeout_s` is how long the next try may take, `max_s` all of them; `queue_s`, after which waits the queue
    tries again; `receipt_s`, how long a receipt may take, and 0 if the platform sends none."""
    rule, has_time = RETRY_RULES[send_result.outcome], tries.spent_s + timeout_s <= max_s
    if send_result.outcome is SendOutcome.SENT:
        return RetryPlan(RetryAction.DONE)
    if has_time and (then := other_way(send_result, tries)) is not None:
        return RetryPlan(then)
    if send_result.outcome is SendOutcome.AMBIGUOUS:
        if tries.doubts < MAX_DOUBTS:
            return RetryPlan(RetryAction.LATER, queue_s[0])
        return RetryPlan(RetryAction.LATER, receipt_s) if receipt_s else RetryPlan(RetryAction.GIVE_UP)
    if rule.is_retried:
        return retry_or_queue(send_result, tries, max_s - timeout_s, queue_s)
    return RetryPlan(RetryAction.GIVE_UP)


def other_way(send_result: SendResult, tries: TriesSoFar) -> RetryAction | None:
    """Return another way to send the message at once, if there is one. Each way is tried once."""
    if send_result.moved_to is not None and not tries.has_moved:
        return RetryAction.ELSEWHERE
    if send_result.outcome is SendOutcome.REJECTED and send_result.plain_might_help and not tries.is_plain:
        return RetryAction.AS_PLAIN_TEXT
    if send_result.outcome is SendOutcome.WINDOW_CLOSED and tries.has_template:
        return RetryAction.AS_TEMPLATE
    return None


def retry_or_queue(send_result: SendResult, tries: TriesSoFar, latest_s: float, queue_s: Sequence[float]) -> RetryPlan:
    """For a message that is certainly not sent: retry in this call if the wait is short enough; else from the queue, while it has tries."""
    stated_s = send_result.retry_after_s or 0.0
    if tries.in_call < len(RETRY_WAITS_S):
        wait_s = max(RETRY_WAITS_S[tries.in_call], stated_s)
        if wait_s <= MAX_WAIT_S and tries.spent_s + wait_s <= latest_s:
            return RetryPlan(RetryAction.AGAIN, wait_s)
    if tries.failures < len(queue_s):
        return RetryPlan(RetryAction.LATER, max(queue_s[tries.failures], stated_s))
    return RetryPlan(RetryAction.GIVE_UP)
