"""What all fake platforms share, for tests that need no account. `hermes.channels.fakes` has the platforms themselves.

world         the platforms' time, chance, rates and changes
faults        what goes wrong: refusals, scheduled faults, disordered webhooks
exchanges     a call that a platform answers, a webhook that it posts
message_log   what each person really received, and what they sent
platform      one platform with its people: check a call, apply a fault, act, answer
control       everything over HTTP, below /_control
server        all platforms at one server, with the page at /
"""

from hermes.testing.platforms.exchanges import RecordedRequest, WebhookAttempt
from hermes.testing.platforms.faults import (
    Disorder,
    FailLaterFault,
    Fault,
    HangFault,
    HtmlFault,
    RawFault,
    RefuseFault,
    ResetFault,
    SlowFault,
    VerificationFailed,
)
from hermes.testing.platforms.message_log import PersonMessage, ReceivedMessage, sample_picture
from hermes.testing.platforms.platform import FakePerson, FakePlatform

__all__ = [
    "Disorder",
    "FailLaterFault",
    "FakePerson",
    "FakePlatform",
    "Fault",
    "HangFault",
    "HtmlFault",
    "PersonMessage",
    "RawFault",
    "ReceivedMessage",
    "RecordedRequest",
    "RefuseFault",
    "ResetFault",
    "SlowFault",
    "VerificationFailed",
    "WebhookAttempt",
    "sample_picture",
]
