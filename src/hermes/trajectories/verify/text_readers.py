"""Read rows of text: ShareGPT, OpenAI fine-tuning and ATIF. A turn's digest is the SHA-256 of its JSON (sorted keys, no spaces, ASCII)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from hermes.trajectories.verify.bare_sharegpt import sharegpt_lines
from hermes.trajectories.verify.exported_rows import ExportedConversation, UnreadableFile, json_lines
from hermes.trajectories.verify.ledger import strict_json


def read_sharegpt(folder: Path) -> Iterator[ExportedConversation]:
    """Read `sharegpt.jsonl`: a turn is trained where `train` is true."""
    for row, line in sharegpt_lines(folder):
        try:
            turns, about = line["conversations"], line["hermes"]
            faults = list(_policy_faults(line["on_policy"], about["off_policy"]))
            faults += [f"turn {at} does not say whether it is trained" for at, turn in enumerate(turns) if type(turn["train"]) is not bool]
            yield ExportedConversation(
                "sharegpt.jsonl",
                row,
                [_digest(turn) for turn in turns],
                [turn["train"] is True for turn in turns],
                on_policy=line["on_policy"] is True,
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
                on_policy=about[1]["on_policy"] is True,
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
            document = strict_json(path.read_bytes())
            placed = list(_steps(document, 0))
            steps = [step for _, step in placed]
            about = document["extra"]["hermes"]
            yield ExportedConversation(
                path.name,
                row,
                [_digest(step) for step in steps],
                [step["source"] == "agent" and not step.get("is_copied_context") for step in steps],
                on_policy=all(extra["on_policy"] is True for extra in _extras(document)),
                starts=[first for first, _ in placed],
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


def _extras(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what a document and each of its subagents say about themselves."""
    yield document["extra"]["hermes"]
    for inner in document.get("subagent_trajectories", ()):
        yield from _extras(inner)


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
