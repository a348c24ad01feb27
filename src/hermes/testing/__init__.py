"""For tests of code that uses Hermes, its own and yours: no server, no account, no key.

models       a scripted model
memory/      the router's stores in memory, and the router on all of them
platforms/   what all fake platforms share; the platforms themselves are in hermes.channels.fakes
"""

from hermes.testing.memory import RouterHarness
from hermes.testing.models import ModelReply, ScriptedModel, call_tool

__all__ = ["ModelReply", "RouterHarness", "ScriptedModel", "call_tool"]
