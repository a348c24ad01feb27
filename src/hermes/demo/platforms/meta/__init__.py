"""What WhatsApp and Instagram have in common, because both are Meta's: signed webhooks in batches, and one shape of errors."""

from hermes.demo.platforms.meta.errors import FakeMetaError, error_body
from hermes.demo.platforms.meta.webhooks import VerificationFailed, WebhookEvent, WebhookQueue, WebhookReceiver, verify_receiver

__all__ = ["FakeMetaError", "VerificationFailed", "WebhookEvent", "WebhookQueue", "WebhookReceiver", "error_body", "verify_receiver"]
