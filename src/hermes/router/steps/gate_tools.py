"""Step 7: which tools go along. Sticky while the vendor's cache is warm, all of them when in doubt. In a room that several people share
only those that neither read nor do anything for one of them.

With a picture there are its own tools to think of:

    its caption decided, and what is warm has its tool     what is warm
    its caption decided                                    its tool alone
    the model decides, and the words need no tool          the picture's tools alone
    the model decides                                      what the words need, if that has the picture's tools; else all"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hermes.ports.inbox import Claim
from hermes.ports.tools import GatedTools, Tools
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.load_history import LoadedHistory
from hermes.router.steps.resolve_user import ResolvedUser

FULL_GATE, IMAGE_GATE = "full", "picture"
SCHEMA_CHARACTERS = 480
"""Of a tool's schema, on average: eighteen are about 2,000 tokens."""
QUESTION_MARKS = frozenset("?？؟")  # noqa: RUF001  # of all scripts that we speak


def gate_tools(claim: Claim, prompt: Prompt, person: ResolvedUser, past: LoadedHistory, services: Services) -> Prompt:
    """Return the prompt with its tools."""
    warm = services.cached_tool_sets.of(past.session.id)
    choose = partial(tools_for(claim, services).gate, claim.envelope.event.text, language=person.language)
    gated = choose(warm=warm, has_tool_history=past.has_tools or ends_with_question(past))
    if prompt.picture_tools:
        gated = add_image_tools(gated, prompt, warm, choose(warm=FULL_GATE, has_tool_history=True))
    if gated.name != IMAGE_GATE:  # a picture's own tools are nothing to stay with: what was warm before may still be
        services.cached_tool_sets.note(past.session.id, gated.name, characters=prompt.characters + len(gated.schemas) * SCHEMA_CHARACTERS)
    is_there = prompt.tool_choice is not None and set(prompt.picture_tools) <= tool_names(gated)
    choice = prompt.tool_choice if is_there else None
    return replace(prompt, tools=gated.schemas, gate=gated.name, tool_choice=choice)


def tools_for(claim: Claim, services: Services) -> Tools:
    """The tools that there are where a message was written."""
    return services.tools.for_room() if claim.envelope.is_shared else services.tools


def add_image_tools(gated: GatedTools, prompt: Prompt, warm: str | None, everything: GatedTools) -> GatedTools:
    """The tools for a picture and its words. Those that nobody has here are not missed."""
    wanted, is_decided = set(prompt.picture_tools) & tool_names(everything), prompt.tool_choice is not None
    if not wanted or (wanted <= tool_names(gated) and (gated.name == warm or not is_decided)):
        return gated
    if gated.schemas and not is_decided:
        return everything
    return GatedTools(IMAGE_GATE, [schema for schema in everything.schemas if schema["function"]["name"] in wanted])


def tool_names(gated: GatedTools) -> set[str]:
    return {str(schema["function"]["name"]) for schema in gated.schemas}


def ends_with_question(past: LoadedHistory) -> bool:
    """Whether our last message asked something: then a "yes" is an answer. What stands behind the question mark, such as an emoji, says
    nothing."""
    said: Sequence[object] = [message.get("content") for message in past.history.messages if message.get("role") == "assistant"]
    text = said[-1] if said and isinstance(said[-1], str) else ""
    last = next((character for character in reversed(text) if character.isalnum() or character in QUESTION_MARKS), "")
    return last in QUESTION_MARKS
