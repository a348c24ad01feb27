"""Step 7: choose the tools of the request. It keeps the last set while the vendor's prompt cache may hold it, and sends all tools when in
doubt. In a room that several people share, it sends only tools that neither read nor do anything for one person.

An image has tools of its own. "Cached" is the set that was sent last, if the vendor's cache may still hold its prompt (sticky_tools):

    the caption decided, and the cached set has its tool   the cached set
    the caption decided                                    its tool alone
    the model decides, and the words need no tool          the image's tools alone
    the model decides                                      the set for the words, if it has the image's tools; else all"""

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
QUESTION_MARKS = frozenset("?？؟")  # noqa: RUF001  # of all scripts that Hermes writes


def gate_tools(claim: Claim, prompt: Prompt, person: ResolvedUser, past: LoadedHistory, services: Services) -> Prompt:
    """Return the prompt with its tools."""
    cached = services.sticky_tools.set_of(past.session.id)
    choose = partial(tools_for(claim, services).gate, claim.envelope.event.text, language=person.language)
    gated = choose(warm=cached, has_tool_history=past.has_tools or ends_with_question(past))
    if prompt.picture_tools:
        gated = add_image_tools(gated, prompt, cached, choose(warm=FULL_GATE, has_tool_history=True))
    if gated.name != IMAGE_GATE:  # the image's tools serve one message; the set before may still be in the vendor's cache
        services.sticky_tools.note(past.session.id, gated.name, prompt_chars=prompt.characters, tools=len(gated.schemas))
    is_there = prompt.tool_choice is not None and set(prompt.picture_tools) <= tool_names(gated)
    choice = prompt.tool_choice if is_there else None
    is_needed = gated.is_needed or bool(prompt.picture_tools)
    return replace(prompt, tools=gated.schemas, gate=gated.name, tool_choice=choice, may_leave_out_tools=not is_needed)


def tools_for(claim: Claim, services: Services) -> Tools:
    """The tools for the conversation of this message: in a shared room, only those for rooms."""
    return services.tools.for_room() if claim.envelope.is_shared else services.tools


def add_image_tools(gated: GatedTools, prompt: Prompt, cached: str | None, everything: GatedTools) -> GatedTools:
    """The tools for an image and its words. Tools of the image that this installation does not have are left out."""
    needed, is_decided = set(prompt.picture_tools) & tool_names(everything), prompt.tool_choice is not None
    if not needed or (needed <= tool_names(gated) and (gated.name == cached or not is_decided)):
        return gated
    if gated.schemas and not is_decided:
        return everything
    return GatedTools(IMAGE_GATE, [schema for schema in everything.schemas if schema["function"]["name"] in needed])


def tool_names(gated: GatedTools) -> set[str]:
    return {str(schema["function"]["name"]) for schema in gated.schemas}


def ends_with_question(past: LoadedHistory) -> bool:
    """Whether our last message ends with a question: then "yes" is an answer. An emoji after the question mark does not count."""
    answers: Sequence[object] = [message.get("content") for message in past.history.messages if message.get("role") == "assistant"]
    text = answers[-1] if answers and isinstance(answers[-1], str) else ""
    last = next((character for character in reversed(text) if character.isalnum() or character in QUESTION_MARKS), "")
    return last in QUESTION_MARKS
