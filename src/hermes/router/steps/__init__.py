"""The ten steps, a file each, in the order in which a message takes them."""

from hermes.router.steps.build_messages import Prompt, build_messages
from hermes.router.steps.call_model import call_model
from hermes.router.steps.gate_tools import gate_tools
from hermes.router.steps.load_history import LoadedHistory, load_history
from hermes.router.steps.load_soul import load_soul
from hermes.router.steps.record import TurnResult, record
from hermes.router.steps.resolve_user import NotActivated, ResolvedUser, TooManyMessages, UnknownSender, resolve_user
from hermes.router.steps.route_image import route_image
from hermes.router.steps.run_tools import TurnTranscript, run_tools
from hermes.router.steps.take_credit import take_credit

__all__ = [
    "LoadedHistory",
    "NotActivated",
    "Prompt",
    "ResolvedUser",
    "TooManyMessages",
    "TurnResult",
    "TurnTranscript",
    "UnknownSender",
    "build_messages",
    "call_model",
    "gate_tools",
    "load_history",
    "load_soul",
    "record",
    "resolve_user",
    "route_image",
    "run_tools",
    "take_credit",
]
