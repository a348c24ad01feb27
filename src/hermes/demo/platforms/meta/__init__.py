"""What WhatsApp and Instagram have in common, because both are Meta's: signed webhooks in batches, and one shape of errors."""

from hermes.demo.platforms.meta.errors import Trouble, error_body
from hermes.demo.platforms.meta.webhooks import Event, Posts, Receiver, VerificationFailed, verify_receiver

__all__ = ["Event", "Posts", "Receiver", "Trouble", "VerificationFailed", "error_body", "verify_receiver"]
