"""ShareGPT turns: messages to `{"from", "value"}` and back, exactly.

    gpt     <think>\\n reasoning \\n</think>\\n content \\n<tool_call>\\n{"name": …, "arguments": …}\\n</tool_call> …
    tool    <tool_response>\\n content \\n</tool_response> …, all results of one call turn in one turn, in the order of the calls

Arguments stand in the envelope byte for byte if they are JSON; if not, as a JSON string. What a turn has no place for (ids of calls,
other fields, null or absent content) is kept beside it as `rest`, one entry for each turn, so that `to_messages` restores all of it.

The escape. A structural tag inside a gpt or tool text gets one more backslash after its `<`: `</think>` becomes
`<\\/think>`, `<\\/think>` becomes `<\\\\/think>`. Inside arguments, which are JSON, its `<` becomes `\\u003c`, which every JSON reader
undoes. Half a surrogate pair, which most readers refuse, becomes `<\\ud83d>` in any turn. Knows nothing about files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hermes.graph.message import METADATA, REASONING, thaw

TAGS = "think|tool_call|tool_response"
SPEAKERS = {"system": "system", "developer": "system", "user": "human", "assistant": "gpt", "tool": "tool", "function": "tool"}
ROLES = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}
_PLAIN_ROLES = {speaker: role for speaker, role in ROLES.items() if role != "tool"}
_PLAIN_SPEAKERS = {role: speaker for speaker, role in _PLAIN_ROLES.items()}

ESCAPED = "structural tags in a text escaped"
JOINED = "parts of a content joined to one text"
REORDERED = "tool results put in the order of their calls"

_SURROGATE = "[\ud800-\udfff]"
_TO_ESCAPE = re.compile(rf"<(\\*)(/?(?:{TAGS}))>|<(\\+)(ud[89a-f][0-9a-f]{{2}})>|({_SURROGATE})")
_TO_UNESCAPE = re.compile(rf"<\\(\\*)(/?(?:{TAGS}))>|<\\(\\*)(ud[89a-f][0-9a-f]{{2}})>")
_TAG_IN_JSON = re.compile(rf"<(?=/?(?:{TAGS})>)")
_GUARDED = re.compile(rf"\\u003c(?=/?(?:{TAGS})>)", re.IGNORECASE)
_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)
CALL_END, RESPONSE_END = "</tool_call>", "</tool_response>"
_ENVELOPE = re.compile(r'\{"name": ("(?:[^"\\]|\\.)*"), "arguments": (.*)\}', re.DOTALL)
_THINK = ("<think>\n", "\n</think>\n")

Rest = dict[str, Any]
"""What a turn has no place for: of a message `role`, `content` (null, "absent", or its parts), `fields`, `think` and `calls`;
of a turn of tool results `results`, one entry each, and `order` if it is not the order of the calls."""


class TurnError(ValueError):
    """A turn was not written by `to_turns`."""


@dataclass(slots=True, eq=False)  # never changed; `frozen` would make its constructor three times as slow
class ShareGptConversation:
    """A list of messages as turns."""

    turns: list[dict[str, str]]
    rest: list[Rest]
    places: list[int]
    """For each message the index of the turn that holds it."""
    differences: list[str]
    """How the text of the turns differs from the text of the messages."""


def to_turns(messages: Sequence[Mapping[str, Any]]) -> ShareGptConversation:
    """Return messages as turns; `to_messages` returns exactly these messages again, without their metadata."""
    turns: list[dict[str, str]] = list(_plain_turns(messages))
    if len(turns) == len(messages):
        return ShareGptConversation(turns, [{}] * len(turns), list(range(len(turns))), [])
    turns = []
    rest: list[Rest] = []
    places: list[int] = []
    found: dict[str, None] = {}
    calls: Sequence[Any] = ()
    for group in _groups(messages):
        speaker = SPEAKERS[group[0]["role"]]
        if speaker == "tool":
            order = call_order(group, calls)
            value, entry = _tool_turn(group, order)
            found |= {REORDERED: None} if order != sorted(order) else {}
        else:
            value, entry = _turn(group[0], speaker)
            calls = group[0].get("tool_calls") or () if speaker == "gpt" else ()
        places += [len(turns)] * len(group)
        turns.append({"from": speaker, "value": value})
        rest.append(entry)
        if entry or "\\" in value:
            found |= dict.fromkeys(_text_differences(group, value, speaker))
    return ShareGptConversation(turns, rest, places, list(found))


def to_messages(turns: Sequence[Mapping[str, Any]], rest: Sequence[Rest]) -> list[dict[str, Any]]:
    """Return the messages from which `to_turns` made these turns; raise TurnError for a turn that it did not write."""
    messages: list[dict[str, Any]] = []
    for index, turn in enumerate(turns):
        entry = rest[index] if index < len(rest) else {}
        speaker, value = turn["from"], turn["value"]
        if not entry and speaker in _PLAIN_ROLES and "<" not in value:
            messages.append({"role": _PLAIN_ROLES[speaker], "content": value})  # the usual case: no tag, and nothing to unescape
        elif speaker == "tool":
            messages += _tool_messages(value, entry)
        elif speaker == "gpt":
            messages.append(_gpt_message(value, entry))
        elif speaker in ROLES:
            messages.append(_message(ROLES[speaker], _unescape(value, is_guarded=False), entry))
        else:
            raise TurnError(f"unknown speaker {speaker!r}")
    return messages


def are_plain_turns(turns: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether `to_messages` gives exactly these messages for turns without a rest, because each is a role and a text without tags.

    If False, it may still give them."""
    if len(turns) != len(messages):
        return False
    for turn, message in zip(turns, messages, strict=True):
        value = turn["value"]
        if len(message) != 2 or type(value) is not str or "<" in value or value != message.get("content"):
            return False
        if _PLAIN_ROLES.get(turn["from"]) != message["role"]:
            return False
    return True


def call_order(results: Sequence[Mapping[str, Any]], calls: Sequence[Any]) -> list[int]:
    """Return for each result its place in the turn: the order of the calls, matched by id; unchanged if ids do not match uniquely."""
    ids = [call.get("id") for call in calls]
    answered = [result.get("tool_call_id") for result in results]
    unchanged = list(range(len(results)))
    if len(set(ids)) != len(ids) or len(set(answered)) != len(answered) or not set(answered) <= set(ids):
        return unchanged
    return [sorted(map(ids.index, answered)).index(ids.index(name)) for name in answered]


def _plain_turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield the turns of messages that are a role and a text without tags, up to the first other message."""
    for message in messages:
        speaker, content = _PLAIN_SPEAKERS.get(message["role"]), message.get("content")
        if speaker is None or len(message) != 2 or type(content) is not str or not content.isascii() or "<" in content or "\\" in content:
            return
        yield {"from": speaker, "value": content}


def _groups(messages: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the messages of each turn: one, or tool results that follow each other."""
    results: list[Mapping[str, Any]] = []
    for message in messages:
        if SPEAKERS[message["role"]] == "tool":
            results.append(message)
            continue
        if results:
            yield results
            results = []
        yield [message]
    if results:
        yield results


def _text_differences(group: Sequence[Mapping[str, Any]], value: str, speaker: str) -> Iterator[str]:
    if "\\" in value and speaker in ("gpt", "tool") and (_TO_UNESCAPE.search(value) or _GUARDED.search(value)):
        yield ESCAPED
    if any(isinstance(message.get("content"), list) for message in group):
        yield JOINED


def _turn(message: Mapping[str, Any], speaker: str) -> tuple[str, Rest]:
    content = message.get("content")
    if isinstance(content, str) and len(message) == 2 + (METADATA in message) and message["role"] == ROLES[speaker]:
        return _escape(content, is_guarded=speaker == "gpt"), {}  # the usual case: a role and a text
    return _gpt_turn(message) if speaker == "gpt" else _plain_turn(message)


# Plain messages --------------------------------------------------------------------------------------------------


def _plain_turn(message: Mapping[str, Any]) -> tuple[str, Rest]:
    text, entry = _text_and_rest(message)
    return _escape(text, is_guarded=False), entry


def _text_and_rest(message: Mapping[str, Any], *covered: str) -> tuple[str, Rest]:
    """Return the text of a message's content, and the rest; `covered` are fields that the turn holds elsewhere."""
    entry: Rest = {}
    text = ""
    content = message.get("content", "absent")
    if "content" in message and isinstance(content, str):
        text = content
    elif isinstance(content, list):
        texts = [part_text(part) for part in content]
        text = "\n".join(texts)
        entry["content"] = [{**thaw(part), "text": len(part["text"])} if is_text_part(part) else thaw(part) for part in content]
    else:
        entry["content"] = content
    if message["role"] != ROLES[SPEAKERS[message["role"]]]:
        entry["role"] = message["role"]
    fields = {key: thaw(value) for key, value in message.items() if key not in ("role", "content", METADATA, *covered)}
    if fields:
        entry["fields"] = fields
    return text, entry


def _message(role: str, text: str, entry: Rest) -> dict[str, Any]:
    if not entry:
        return {"role": role, "content": text}
    message: dict[str, Any] = {"role": entry.get("role", role)}
    content = entry.get("content", text)
    if isinstance(content, list):
        message["content"] = list(_parts(content, text))
    elif "content" not in entry or content is None:
        message["content"] = content
    elif content != "absent":
        raise TurnError(f"unknown content {content!r}")
    message |= entry.get("fields", {})
    return message


def is_text_part(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def part_text(part: Mapping[str, Any]) -> str:
    """Return a part as text: its own text, else its type in brackets."""
    return str(part["text"]) if is_text_part(part) else f"[{part['type']}]"


def _parts(skeletons: Sequence[Mapping[str, Any]], text: str) -> Iterator[dict[str, Any]]:
    at = 0
    for skeleton in skeletons:
        length = skeleton.get("text")
        if skeleton.get("type") == "text" and isinstance(length, int):
            yield {**skeleton, "text": text[at : at + length]}
            at += length + 1
        else:
            yield dict(skeleton)
            at += len(part_text(skeleton)) + 1


# Messages of a model ---------------------------------------------------------------------------------------------


def _gpt_turn(message: Mapping[str, Any]) -> tuple[str, Rest]:
    names = [name for name in REASONING if message.get(name)]
    thought = message[names[0]] if names else ""
    think_fields = [name for name in names if message[name] == thought]
    calls = message.get("tool_calls") or []
    text, entry = _text_and_rest(message, *think_fields, *(["tool_calls"] if calls else []))
    if think_fields and think_fields != [REASONING[0]]:
        entry["think"] = think_fields
    blocks = []
    if calls:
        entry["calls"] = [_call_rest(call) for call in calls]
        blocks = [f"<tool_call>\n{_envelope(call)}\n</tool_call>" for call in calls]
    think = f"{_THINK[0]}{_escape(thought)}{_THINK[1]}" if thought else ""
    return think + "\n".join([*([_escape(text)] if text else []), *blocks]), entry


def _gpt_message(value: str, entry: Rest) -> dict[str, Any]:
    thought = ""
    if value.startswith(_THINK[0]):
        thought, end, value = value.removeprefix(_THINK[0]).partition(_THINK[1])
        if not end:
            raise TurnError("<think> without </think>")
    blocks = list(blocks_of(_CALL, value, CALL_END)) if CALL_END in value else []
    text = value[: blocks[0].start()].removesuffix("\n") if blocks else value
    if blocks and "\n".join([*([text] if text else []), *(block[0] for block in blocks)]) != value:
        raise TurnError("text between or after tool calls")
    message = _message("assistant", _unescape(text), entry)
    if thought:
        message |= dict.fromkeys(entry.get("think", [REASONING[0]]), _unescape(thought))
    if blocks:
        rests = entry.get("calls", [])
        if len(rests) != len(blocks):
            raise TurnError(f"{len(blocks)} tool calls, {len(rests)} known")
        message["tool_calls"] = [_call(block[1], rest) for block, rest in zip(blocks, rests, strict=True)]
    return message


def _is_usual(call: Mapping[str, Any]) -> bool:
    function = call.get("function")
    return isinstance(function, Mapping) and isinstance(function.get("name"), str) and isinstance(function.get("arguments"), str)


def _call_rest(call: Mapping[str, Any]) -> Rest:
    """Return what the envelope has no place for in a call; the whole call if it is not of the usual shape."""
    if not _is_usual(call):
        return {"whole": thaw(call)}
    rest: Rest = dict(thaw(call))
    rest["function"] = {key: value for key, value in rest["function"].items() if key not in ("name", "arguments")}
    return rest


def _envelope(call: Mapping[str, Any]) -> str:
    function = call.get("function") if isinstance(call.get("function"), Mapping) else call.get("custom", call)
    name = function.get("name") if isinstance(function, Mapping) else None
    arguments = function.get("arguments", function.get("input", "")) if isinstance(function, Mapping) else ""
    name_text = _escape_tags(json.dumps(name if isinstance(name, str) else ""))
    return f'{{"name": {name_text}, "arguments": {arguments_text(arguments if isinstance(arguments, str) else json.dumps(arguments))}}}'


def _call(block: str, rest: Rest) -> dict[str, Any]:
    if "whole" in rest:
        return dict(rest["whole"])
    match = _ENVELOPE.fullmatch(block)
    if match is None:
        raise TurnError("a tool call is not {name, arguments}")
    function = {"name": json.loads(match[1]), "arguments": arguments_of(match[2]), **rest["function"]}
    return {**rest, "function": function}


def arguments_text(arguments: str) -> str:
    """Return the arguments as the envelope holds them: unchanged if they are JSON, else as a JSON string.

    Arguments that are themselves a JSON string, or that hold `\\u003cthink>`, are always written the second way, so that
    `arguments_of` can tell the two apart."""
    if _is_json(arguments) and not arguments.lstrip().startswith('"') and not _GUARDED.search(arguments):
        return _escape_tags(arguments)
    return _escape_tags(json.dumps(arguments))


def arguments_of(text: str) -> str:
    """Return the arguments from which `arguments_text` made this text."""
    if text.startswith('"'):
        decoded = json.loads(text)
        if not isinstance(decoded, str):
            raise TurnError("arguments are not JSON")
        return decoded
    return _GUARDED.sub("<", text)


def _escape_tags(text: str) -> str:
    return _TAG_IN_JSON.sub(r"\\u003c", text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return not re.search(_SURROGATE, text)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Results of tools ------------------------------------------------------------------------------------------------


def _tool_turn(results: Sequence[Mapping[str, Any]], order: Sequence[int]) -> tuple[str, Rest]:
    parts = [_text_and_rest(result) for result in results]
    blocks = [""] * len(results)
    for place, (text, _) in zip(order, parts, strict=True):
        blocks[place] = f"<tool_response>\n{_escape(text)}\n</tool_response>"
    entry: Rest = {"results": [rest for _, rest in parts]}
    if list(order) != sorted(order):
        entry["order"] = list(order)
    return "\n".join(blocks), entry


def blocks_of(pattern: re.Pattern[str], text: str, closing: str) -> Iterator[re.Match[str]]:
    """Find blocks up to the last closing tag: for each tag opened after it, the pattern would search to the end of the text."""
    return pattern.finditer(text, 0, text.rfind(closing) + len(closing))


def _tool_messages(value: str, entry: Rest) -> list[dict[str, Any]]:
    blocks = list(blocks_of(_RESPONSE, value, RESPONSE_END))
    if "\n".join(block[0] for block in blocks) != value:
        raise TurnError("text between tool responses")
    rests = entry.get("results", [])
    if len(rests) != len(blocks):
        raise TurnError(f"{len(blocks)} tool responses, {len(rests)} known")
    order = entry.get("order", range(len(blocks)))
    return [_message("tool", _unescape(blocks[place][1]), rest) for place, rest in zip(order, rests, strict=True)]


# The escape ------------------------------------------------------------------------------------------------------


def _escape(text: str, *, is_guarded: bool = True) -> str:
    """Escape half surrogates and, where tags have a meaning (`is_guarded`), tags."""
    if "<" not in text and text.isascii():
        return text  # the usual case: neither a tag nor a surrogate

    def escaped(match: re.Match[str]) -> str:
        if match[5]:
            return f"<\\u{ord(match[5]):04x}>"
        if match[4]:
            return f"<{match[3]}\\{match[4]}>"
        return f"<{match[1]}\\{match[2]}>" if is_guarded else match[0]

    return _TO_ESCAPE.sub(escaped, text)


def _unescape(text: str, *, is_guarded: bool = True) -> str:
    if "<\\" not in text:
        return text

    def unescaped(match: re.Match[str]) -> str:
        if match[4]:
            return f"<{match[3]}{match[4]}>" if match[3] else chr(int(match[4][1:], 16))
        return f"<{match[1]}{match[2]}>" if is_guarded else match[0]

    return _TO_UNESCAPE.sub(unescaped, text)
