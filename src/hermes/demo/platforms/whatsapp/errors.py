"""WhatsApp's errors by code."""

from __future__ import annotations

from hermes.demo.platforms.meta import FakeMetaError
from hermes.demo.platforms.refusal import PlatformRefusal

ERROR_DOCS_URL = "https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/"
ERROR_BY_CODE = {
    1: FakeMetaError(400, "API Unknown", "Invalid request or possible server error."),
    2: FakeMetaError(503, "API Service", "Temporary due to downtime or due to being overloaded."),
    4: FakeMetaError(400, "Application request limit reached", "The app has reached its API call rate limit."),
    10: FakeMetaError(403, "Application does not have permission for this action", "Permission is either not granted or has been removed."),
    100: FakeMetaError(400, "Invalid parameter"),
    190: FakeMetaError(401, "Error validating access token", "The access token has expired."),
    80007: FakeMetaError(400, "Rate limit issues", "The WhatsApp Business Account has reached its rate limit."),
    130429: FakeMetaError(429, "Rate limit hit", "Cloud API message throughput has been reached."),
    130472: FakeMetaError(400, "User's number is part of an experiment", "Message was not sent as part of an experiment."),
    131000: FakeMetaError(500, "Something went wrong", "Message failed to send due to an unknown error."),
    131009: FakeMetaError(400, "Parameter value is not valid", "One or more parameter values are invalid."),
    131016: FakeMetaError(500, "Service unavailable", "A service is temporarily unavailable."),
    131026: FakeMetaError(400, "Message undeliverable", "Unable to deliver message."),
    131030: FakeMetaError(400, "Recipient phone number not in allowed list", "Add recipient phone number to recipient list and try again."),
    131042: FakeMetaError(400, "Business eligibility payment issue", "There was an error related to your payment method."),
    131047: FakeMetaError(
        400, "Re-engagement message", "More than 24 hours have passed since the recipient last replied to the sender number."
    ),
    131048: FakeMetaError(
        400, "Spam rate limit hit", "Message failed to send because there are restrictions on how many messages can be sent."
    ),
    131051: FakeMetaError(400, "Unsupported message type", "Message type is currently not supported."),
    131052: FakeMetaError(400, "Media download error", "Unable to download the media sent by the user."),
    131056: FakeMetaError(
        400, "(Business Account, Consumer Account) pair rate limit hit", "Too many messages to the same phone number in a short time."
    ),
    131057: FakeMetaError(500, "Account in maintenance mode", "Business Account is in maintenance mode."),
    132000: FakeMetaError(400, "Number of parameters does not match the expected number of params"),
    132001: FakeMetaError(404, "Template name does not exist in the translation"),
}


def refusal_for_code(code: int, details: str = "") -> PlatformRefusal:
    """The refusal with one of WhatsApp's codes."""
    known = ERROR_BY_CODE[code]
    data = {"error_data": {"messaging_product": "whatsapp", "details": details or known.details}}
    return PlatformRefusal(known.status, f"(#{code}) {known.title}", code=code, parameters=data)


def invalid_parameter(words: str) -> PlatformRefusal:
    """The refusal of an invalid parameter."""
    return PlatformRefusal(400, f"(#100) {words}", code=100)
