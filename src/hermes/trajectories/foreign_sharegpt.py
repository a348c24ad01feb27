"""Read ShareGPT rows of other programs: the messages as exactly as the row allows, and a finding for every defect.

Knows the shapes of hermes-agent (save_trajectory, save_sample, batch_runner, mini_swe) and their defects; each defect has a name in
FINDINGS. Nothing is repaired silently, and no message claims to be more exact than the file. Knows nothing about graphs or files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.trajectories.sharegpt_turns import CALL_END, RESPONSE_END, blocks_of

FINDINGS = {
    "altered-row": "a row that Hermes exported was changed later, so it was read like a row of another program",
    "arguments-lost": "empty arguments for a tool that requires some: unparsable arguments were written as {}",
    "bare-tool-result": "a tool turn without <tool_response>",
    "broken-envelope": "tags inside the text break the turn's structure; read up to the first closing tag",
    "compressed-middle": "a summary replaces turns that were in the context of later answers",
    "compression-metrics": "the row went through trajectory_compressor.py",
    "empty-think": "an empty <think> that no model wrote; left out",
    "image-replaced": "an image was replaced by a text",
    "lost-first-question": "the last question replaced the first; the answers before the last question are kept as context, not as samples",
    "missing-tool-result": "a call without a result",
    "name-swapped": "results came in another order than their calls, and were named by position; matched by id",
    "names-by-position": "several results were named by position; whether they belong to these calls cannot be checked",
    "not-completed": "the run did not end by itself",
    "odd-weight": "a weight other than 0 and 1; read as 1",
    "orphan-tool-result": "a result without a call",
    "regenerated-system-prompt": "the system prompt was generated when the file was saved; it is not the one that was sent to the model",
    "repeats-earlier-line": "answers that the line before holds too; kept as context, not as samples",
    "results-reordered": "results in another order than their calls; matched by name",
    "rewritten-numbers": "numbers of arguments were parsed and written again",
    "rewritten-result": "a result was parsed as JSON and written again",
    "text-between-calls": "text between or after tool calls; joined to the content",
    "unparsable-arguments": "arguments that are not JSON",
    "unparsable-tool-call": "a <tool_call> that is not JSON; kept as text",
    "unparsable-tools": "`tools` is not a JSON list; left out",
}
HERMES_AGENT = ("save_trajectory", "save_sample", "batch_runner", "mini_swe")

SPEAKERS = {
    "system": "system",
    "human": "human",
    "user": "human",
    "gpt": "gpt",
    "assistant": "gpt",
    "model": "gpt",
    "chatgpt": "gpt",
    "function_call": "gpt",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}


@dataclass(frozen=True, slots=True)
class ImportFinding:
    """A defect of a row: its name in FINDINGS, and its place."""

    line: int
    turn: int | None
    name: str

    def __str__(self) -> str:
        at = f"line {self.line}" if self.turn is None else f"line {self.line}, turn {self.turn}"
        return f"{at}: {self.name}: {FINDINGS[self.name]}"


@dataclass(slots=True)
class ImportedMessage:
    """A message to import, the turn it comes from, and whether it becomes a sample."""

    message: dict[str, Any]
    turn: int
    sampled: bool = False


@dataclass(slots=True)
class RowReading:
    """What was read from one row so far."""

    line: int
    shape: str
    tools: Sequence[Any] = ()
    requiring: set[str] = field(default_factory=set)
    """Names of tools that require arguments, as `tools` or a system prompt says."""
    drafts: list[ImportedMessage] = field(default_factory=list)
    findings: list[ImportFinding] = field(default_factory=list)

    def add_finding(self, name: str, turn: int | None = None) -> None:
        finding = ImportFinding(self.line, turn, name)
        if finding not in self.findings:
            self.findings.append(finding)


class BadRow(ValueError):
    """A row cannot be read at all; the message says why."""


def shape_of(row: Mapping[str, Any]) -> str:
    """Return which program wrote a row, found by its keys."""
    metadata = row.get("metadata")
    if "messages" in row:
        return "openai"
    if "hermes" in row:
        return "hermes"
    if "prompt_index" in row:
        return "batch_runner"
    if isinstance(metadata, Mapping) and "env_type" in metadata:
        return "mini_swe"
    if "query" in row:
        return "save_sample"
    return "save_trajectory" if "timestamp" in row and "completed" in row else "founding"


def read_turns(row: Mapping[str, Any], line: int) -> RowReading:
    """Return the messages of a row of any ShareGPT shape; raise BadRow if it has none that can be read."""
    reading = RowReading(line, shape_of(row))
    turns = list(_turns(row))
    reading.tools = _tools(row, reading)
    reading.requiring = _requiring_tools([*reading.tools, *(tool for turn in turns if turn[0] == "system" for tool in _tools_in(turn[1]))])
    _find_row_faults(row, turns, reading)
    calls: list[dict[str, Any]] = []  # the calls of the turn before, for the results that may follow
    for index, (speaker, value, train) in enumerate(turns):
        if speaker == "tool":
            reading.drafts += [ImportedMessage(message, index) for message in _results(value, calls, index, reading)]
            calls = []
            continue
        if calls:
            reading.add_finding("missing-tool-result", index - 1)
        message: dict[str, Any] = {"role": "user" if speaker == "human" else speaker, "content": value}
        if speaker == "gpt":
            message = _answer(value, index, reading)
        calls = message.get("tool_calls", [])
        reading.drafts.append(ImportedMessage(message, index, train is not False if speaker == "gpt" else train is True))
    _forget_lost_question(turns, reading)
    return reading


def _turns(row: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    conversations = row.get("conversations")
    if not isinstance(conversations, list):
        raise BadRow("no list of conversations in it")
    if not conversations:
        raise BadRow(f"no turns in it ({row.get('error') or 'conversations is empty'})")
    for index, turn in enumerate(conversations):
        if not isinstance(turn, Mapping) or not isinstance(turn.get("value"), str):
            raise BadRow(f"turn {index} has no text")
        if not isinstance(turn.get("from"), str) or turn["from"] not in SPEAKERS:
            raise BadRow(f"turn {index} has an unknown speaker {turn.get('from')!r}")
        yield SPEAKERS[turn["from"]], turn["value"], turn.get("train")


def _tools(row: Mapping[str, Any], reading: RowReading) -> Sequence[Any]:
    tools = _tool_list(row["tools"] or "[]") if row.get("tools") is not None else []
    if tools is None:
        reading.add_finding("unparsable-tools")
    return tools or ()


def _tool_list(tools: Any) -> list[Any] | None:
    """Return tool schemas that stand there as a list or as the JSON of a list; None if they are neither."""
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError):
            return None
    return tools if isinstance(tools, list) and all(isinstance(tool, Mapping) for tool in tools) else None


def _find_row_faults(row: Mapping[str, Any], turns: Sequence[tuple[str, str, Any]], reading: RowReading) -> None:
    if "compression_metrics" in row:
        reading.add_finding("compression-metrics")
    if row.get("completed") is False or row.get("partial") is True:
        reading.add_finding("not-completed")
    for index, (speaker, value, _) in enumerate(turns):
        if speaker == "human" and value.startswith("[CONTEXT SUMMARY]"):
            reading.add_finding("compressed-middle", index)
        if speaker == "system" and _prompt_tools(value) is not None and "<tool_call>" in value and reading.shape in HERMES_AGENT:
            reading.add_finding("regenerated-system-prompt", index)
        if speaker == "tool" and reading.shape in HERMES_AGENT and "[screenshot]" in value:
            reading.add_finding("image-replaced", index)


def _forget_lost_question(turns: Sequence[tuple[str, str, Any]], reading: RowReading) -> None:
    """Mark answers before a repeated first question as no samples.

    hermes-agent saves `Q1 A1 Q2 A2` as `Q2 A1 Q2 A2`: the answers before the second Q2 were not sampled after Q2."""
    questions = [(index, value) for index, (speaker, value, _) in enumerate(turns) if speaker == "human"]
    if reading.shape not in HERMES_AGENT or not questions:
        return
    again = [index for index, value in questions[1:] if value == questions[0][1]]
    if again and any(speaker == "gpt" for speaker, _, _ in turns[: again[-1]]):
        reading.add_finding("lost-first-question", questions[0][0])
        for draft in reading.drafts:
            draft.sampled = draft.sampled and draft.turn > again[-1]


# Messages of a model ---------------------------------------------------------------------------------------------

_PROMPT_TOOLS = re.compile(r"<tools>(.*?)</tools>", re.DOTALL)
_THINK = re.compile(r"\s*<think>\n?(.*?)\n?</think>\n?", re.DOTALL)
_SCRATCHPAD = re.compile(r"(</?)REASONING_SCRATCHPAD>")
_CALL = re.compile(r"\n?<tool_call>(.*?)</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_ROUND_FLOAT = re.compile(r"[:\[,]\s*-?\d+\.0(?:e[+-]?\d+)?\s*[,}\]]")


def _answer(value: str, turn: int, reading: RowReading) -> dict[str, Any]:
    text = _SCRATCHPAD.sub(r"\1think>", value)
    if _is_broken(text):
        reading.add_finding("broken-envelope", turn)
    message: dict[str, Any] = {"role": "assistant"}
    thought = _THINK.match(text)
    if thought is not None:
        text = text[thought.end() :]
        if thought[1].strip():
            message["reasoning"] = thought[1]
        else:
            reading.add_finding("empty-think", turn)
    calls: list[dict[str, Any]] = []
    pieces, at = [], 0
    for block in blocks_of(_CALL, text, CALL_END):
        call = _call(block[1].strip(), turn, len(calls), reading)
        if call is not None:
            pieces.append(text[at : block.start()])
            calls.append(call)
            at = block.end()
    pieces.append(text[at:])
    if any(piece.strip() for piece in pieces[1:]) and calls:
        reading.add_finding("text-between-calls", turn)
    content = "\n".join(piece for place, piece in enumerate(pieces) if piece.strip() or (place == 0 and piece)) if calls else text
    message["content"] = content or None if calls else content
    if calls:
        message["tool_calls"] = calls
    return message


def _is_broken(text: str) -> bool:
    """Whether tags are unpaired or nested."""
    tags = re.findall(r"</?(?:think|tool_call)>", text)
    pairs = list(zip(tags[::2], tags[1::2], strict=False))
    return len(tags) % 2 == 1 or any(end != f"</{start[1:]}" for start, end in pairs) or tags.count("<think>") > 1


def _call(block: str, turn: int, place: int, reading: RowReading) -> dict[str, Any] | None:
    members = members_of(block)
    name = members.get("name", (None, ""))[0] if members is not None else None
    if members is None or not isinstance(name, str):
        reading.add_finding("unparsable-tool-call", turn)
        return None
    value, raw = members.get("arguments", ({}, "{}"))
    arguments = value if isinstance(value, str) else raw
    if value == {} and name in reading.requiring:
        reading.add_finding("arguments-lost", turn)
    if reading.shape in HERMES_AGENT and _ROUND_FLOAT.search(arguments):
        reading.add_finding("rewritten-numbers", turn)
    return {"id": f"call_{turn}_{place}", "type": "function", "function": {"name": name, "arguments": arguments}}


def members_of(text: str) -> dict[str, tuple[Any, str]] | None:
    """Return the members of a JSON object, each as its value and its exact text; None if it is not an object."""
    decoder = json.JSONDecoder()
    members: dict[str, tuple[Any, str]] = {}
    try:
        if not isinstance(json.loads(text), dict):
            return None
        at = _skip_space(text, _skip_space(text, 0) + 1)
        while text[at] != "}":
            key, at = decoder.raw_decode(text, at)
            start = _skip_space(text, _skip_space(text, at) + 1)
            value, at = decoder.raw_decode(text, start)
            members[key] = (value, text[start:at])
            at = _skip_space(text, at)
            at = _skip_space(text, at + 1) if text[at] == "," else at
    except (ValueError, RecursionError):
        return None
    return members


def _skip_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _tools_in(prompt: str) -> list[Any]:
    """Return the tools that a regenerated system prompt lists."""
    listed = _prompt_tools(prompt)
    return (_tool_list(listed) or []) if listed is not None else []


def _prompt_tools(prompt: str) -> str | None:
    """Return the text inside a system prompt's first `<tools>` block; None if it has none."""
    return next((block[1].strip() for block in blocks_of(_PROMPT_TOOLS, prompt, "</tools>")), None)


def _requiring_tools(tools: Sequence[Any]) -> set[str]:
    """Return the names of tools that require arguments."""
    found = set()
    for tool in tools:
        function = tool.get("function", tool)
        parameters = function.get("parameters") if isinstance(function, Mapping) else None
        if isinstance(parameters, Mapping) and parameters.get("required"):
            found.add(function.get("name"))
    return found


# Results of tools ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _ToolResult:
    content: str
    id: str | None = None
    name: str | None = None


def responses_in(value: str) -> list[str]:
    """Return the texts of the `<tool_response>` blocks of a turn."""
    return [block[1] for block in blocks_of(_RESPONSE, value, RESPONSE_END)]


def _results(value: str, calls: Sequence[dict[str, Any]], turn: int, reading: RowReading) -> Iterator[dict[str, Any]]:
    blocks = responses_in(value)
    if not blocks:
        reading.add_finding("bare-tool-result", turn)
    results = [_result(block, turn, reading) for block in blocks or [value]]
    matched = _match_calls(results, calls, turn, reading)
    if len([place for place in matched if place is not None]) < len(calls):
        reading.add_finding("missing-tool-result", turn)
    for place, (result, at) in enumerate(zip(results, matched, strict=True)):
        message: dict[str, Any] = {"role": "tool"}
        if at is None:
            reading.add_finding("orphan-tool-result", turn)
            message["tool_call_id"] = result.id or f"orphan_{turn}_{place}"
            name = result.name
        else:
            calls[at]["id"] = message["tool_call_id"] = result.id or calls[at]["id"]
            name = calls[at]["function"]["name"] if result.name is not None else None
        yield message | ({"name": name} if name is not None else {}) | {"content": result.content}


def _result(block: str, turn: int, reading: RowReading) -> _ToolResult:
    """Read a result as hermes-agent writes it, or take the text as it is."""
    members = members_of(block) if reading.shape in HERMES_AGENT else None
    if members is None or "content" not in members or members.keys() - {"tool_call_id", "name", "content"}:
        return _ToolResult(block)
    content, raw = members["content"]
    if not isinstance(content, str):
        reading.add_finding("rewritten-result", turn)
    named = [members.get(key, (None, ""))[0] for key in ("tool_call_id", "name")]
    texts = [text if isinstance(text, str) and text else None for text in named]
    return _ToolResult(content if isinstance(content, str) else raw, *texts)


def _match_calls(results: Sequence[_ToolResult], calls: Sequence[dict[str, Any]], turn: int, reading: RowReading) -> list[int | None]:
    """Return for each result the place of its call: by the tool that its id names, else by numbers in ids, by name, by position."""
    names = [call["function"]["name"] for call in calls]
    by_position: list[int | None] = [place if place < len(calls) else None for place in range(len(results))]
    if len(results) != len(calls) or len(set(names)) < 2:
        return by_position
    by_id = _assign_by_name([_tool_named_in(result.id, names) for result in results], names)
    if by_id is not None:
        if by_id != by_position and any(result.name != names[place] for result, place in zip(results, by_id, strict=True)):
            reading.add_finding("name-swapped", turn)
        elif by_id != by_position:
            reading.add_finding("results-reordered", turn)
        return list(by_id)
    by_number = _assign_by_number([result.id for result in results])
    if by_number is not None and by_number != by_position:
        reading.add_finding("name-swapped", turn)
        return list(by_number)
    by_name = _assign_by_name([result.name for result in results], names)
    if by_name is not None and by_name != by_position:
        reading.add_finding("results-reordered", turn)
        return list(by_name)
    if by_number is None and any(result.name is not None for result in results):
        reading.add_finding("names-by-position", turn)
    return by_position


def _tool_named_in(text: str | None, names: Sequence[str]) -> str | None:
    """Return the tool that an id such as `functions.search:0` names; None unless it names exactly one."""
    found = {name for name in names if text is not None and re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9])", text)}
    return found.pop() if len(found) == 1 else None


def _assign_by_name(results: Sequence[str | None], names: Sequence[str]) -> list[int] | None:
    """Return for each result's name the place of a call with that name, each call once; None if the two do not match exactly."""
    if sorted(str(name) for name in results) != sorted(names):
        return None
    free: dict[str | None, list[int]] = {}
    for place, name in enumerate(names):
        free.setdefault(name, []).append(place)
    return [free[name].pop(0) for name in results]


def _assign_by_number(ids: Sequence[str | None]) -> list[int] | None:
    """Return the places that the numbers in ids such as `call_1` give; None unless the ids are numbered without a gap."""
    numbers = [re.search(r"(?:^|[:_-])(\d{1,4})$", text or "") for text in ids]
    counted = [int(number[1]) for number in numbers if number is not None]
    if len(counted) != len(ids) or sorted(counted) != list(range(min(counted), min(counted) + len(counted))):
        return None
    return [number - min(counted) for number in counted]
