"""Read rows of text: ShareGPT, OpenAI fine-tuning and ATIF. A turn's digest is the SHA-256 of its JSON (sorted keys, no spaces, ASCII)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from hermes.trajectories.verify.exported_rows import ExportedConversation, UnreadableFile, json_lines, replace_surrogates
from hermes.trajectories.verify.ledger import refuse_constant

ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "agent"), "assistant"),
    **dict.fromkeys(("tool", "function"), ""),
}
"""The role of each speaker that a format names; empty for tools."""

_THINK = re.compile(r"<think>\n.*?\n</think>\n", re.DOTALL)
_ESCAPED = re.compile(r"<\\(\\*)(?:(/?(?:think|tool_call|tool_response))|(ud[89a-f][0-9a-f]{2}))>")
_CALLS = re.compile(r"(?:^|\n)<tool_call>\n.*", re.DOTALL)


def read_sharegpt(folder: Path) -> Iterator[ExportedConversation]:
    """Read `sharegpt.jsonl`: a turn is trained where `train` is true."""
    for row, line in json_lines(folder / "sharegpt.jsonl"):
        try:
            turns, about = line["conversations"], line["hermes"]
            faults = list(_policy_faults(line["on_policy"], about["off_policy"]))
            faults += [f"turn {at} does not say whether it is trained" for at, turn in enumerate(turns) if type(turn["train"]) is not bool]
            yield ExportedConversation(
                "sharegpt.jsonl",
                row,
                [_digest(turn) for turn in turns],
                [turn["train"] is True for turn in turns],
                [_turn_text(turn) for turn in turns],
                [ROLES[turn["from"]] for turn in turns],
                session=about["session"],
                rollout=about["rollout"],
                responses=_names(about["responses"]),
                faults=faults,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableFile("sharegpt.jsonl", f"line {row + 1} is not a conversation ({error!r})") from None


def read_openai(folder: Path) -> Iterator[ExportedConversation]:
    """Read `openai.jsonl`: a message is trained where `weight` is 1; the other facts of a row are in `openai.rows.jsonl`."""
    about_lines = json_lines(folder / "openai.rows.jsonl")
    for line, about in zip_longest(json_lines(folder / "openai.jsonl"), about_lines):
        if line is None or about is None:
            raise UnreadableFile("openai.rows.jsonl", "does not have as many lines as openai.jsonl")
        row = line[0]
        try:
            messages = line[1]["messages"]
            faults = [] if about[1]["row"] == row else [f"is row {about[1]['row']} in openai.rows.jsonl"]
            faults += _policy_faults(about[1]["on_policy"], about[1]["off_policy"])
            faults += [
                f"turn {at} has a weight that is neither 0 nor 1"
                for at, message in enumerate(messages)
                if (message["role"] == "assistant" or "weight" in message) and message.get("weight") not in (0, 1)
            ]
            yield ExportedConversation(
                "openai.jsonl",
                row,
                [_digest(message) for message in messages],
                [message.get("weight", 0) == 1 for message in messages],
                [_message_text(message) for message in messages],
                [ROLES[message["role"]] for message in messages],
                session=about[1]["session"],
                rollout=about[1]["rollout"],
                responses=_names(about[1]["responses"]),
                faults=faults,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableFile("openai.jsonl", f"line {row + 1} is not a conversation ({error!r})") from None


def read_atif(folder: Path) -> Iterator[ExportedConversation]:
    """Read `trajectory-<n>.json`: an agent's step is trained unless it is copied context; steps of subagents follow, depth first."""
    for row in count():
        path = folder / f"trajectory-{row:05d}.json"
        if not path.exists():
            return
        try:
            document = json.loads(path.read_bytes(), parse_constant=refuse_constant)
            placed = list(_steps(document, 0))
            steps = [step for _, step in placed]
            about = document["extra"]["hermes"]
            yield ExportedConversation(
                path.name,
                row,
                [_digest(step) for step in steps],
                [step["source"] == "agent" and not step.get("is_copied_context") for step in steps],
                [_message_text({"content": step["message"]}) for step in steps],
                ["" if step["source"] == "system" and "observation" in step else ROLES[step["source"]] for step in steps],
                [first for first, _ in placed],
                session=document["session_id"],
                faults=list(_policy_faults(about["on_policy"], about["off_policy"])),
            )
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableFile(path.name, f"is not a trajectory ({error!r})") from None


def _steps(document: Mapping[str, Any], first: int) -> Iterator[tuple[int, Any]]:
    """Yield the steps of a document and of its subagents, each with the place of the first step of its own document."""
    yield from ((first, step) for step in document["steps"])
    first += len(document["steps"])
    for inner in document.get("subagent_trajectories", ()):
        steps = list(_steps(inner, first))
        yield from steps
        first += len(steps)


def _names(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("expected a list of names")
    return values


def _digest(turn: Any) -> str:
    return hashlib.sha256(json.dumps(turn, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _policy_faults(on_policy: Any, off_policy: Any) -> Iterator[str]:
    """Yield a fault unless on_policy is stated, and off_policy has a reason exactly if on_policy is false."""
    if not isinstance(off_policy, str) or on_policy is not (not off_policy):
        yield "on_policy is not stated, or contradicts off_policy"


def _turn_text(turn: Mapping[str, Any]) -> str:
    """Return the text of a turn, without its reasoning and tool calls."""
    text, is_model = turn["value"], turn["from"] == "gpt"
    if not isinstance(text, str):
        raise TypeError("a turn without text")
    if is_model:
        text = _THINK.sub("", text, count=1) if text.startswith("<think>\n") else text
        text = _CALLS.sub("", text, count=1)
    return replace_surrogates(_ESCAPED.sub(lambda match: _unescape(match, is_model=is_model), text))


def _unescape(match: re.Match[str], *, is_model: bool) -> str:
    """Undo the escape of half a surrogate pair, or, in a model's turn only, of a structural tag."""
    slashes, tag, half = match[1], match[2], match[3]
    if half:
        return f"<{slashes}{half}>" if slashes else chr(int(half[1:], 16))
    return f"<{slashes}{tag}>" if is_model else match[0]


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return replace_surrogates(content if isinstance(content, str) else "" if content is None else json.dumps(content))
