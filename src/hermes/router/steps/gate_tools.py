"""Step 7: which tools go along. Sticky while the vendor's cache is warm, all of them when in doubt."""

from __future__ import annotations

from dataclasses import replace

from hermes.ports.inbox import Claim
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.load_history import Past
from hermes.router.steps.resolve_user import Person


def gate_tools(claim: Claim, prompt: Prompt, person: Person, past: Past, services: Services) -> Prompt:
    """Return the prompt with its tools."""
    warm = services.warmth.of(past.session.id)
    gated = services.tools.gate(claim.envelope.event.text, language=person.language, warm=warm, has_tool_history=past.has_tools)
    services.warmth.note(past.session.id, gated.name)
    return replace(prompt, tools=[dict(schema) for schema in gated.schemas], gate=gated.name)
