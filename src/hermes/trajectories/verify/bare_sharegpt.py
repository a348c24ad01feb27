"""Read ShareGPT's file. If its rows are bare, a second file holds the rest of each row, and both together are the usual row."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hermes.trajectories.verify.exported_rows import UnreadableFile, json_lines

FILE, ROWS_FILE = "sharegpt.jsonl", "sharegpt.rows.jsonl"


def sharegpt_lines(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and content of each row, with marks at its turns."""
    if not (folder / ROWS_FILE).exists():
        yield from json_lines(folder / FILE)
        return
    for bare, rest in zip_longest(json_lines(folder / FILE), json_lines(folder / ROWS_FILE)):
        if bare is None or rest is None:
            raise UnreadableFile(ROWS_FILE, f"does not have as many lines as {FILE}")
        try:
            yield bare[0], _whole_row(bare[1], rest[1])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableFile(FILE, f"line {bare[0] + 1} and the same line of {ROWS_FILE} are not one row ({error!r})") from None


def _whole_row(bare: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    turns, marks = bare["conversations"], rest.pop("train")
    if bare.keys() != {"conversations", "tools", "source"} or rest.keys() & bare.keys():
        raise ValueError("a bare row holds conversations, tools and source, and nothing else")
    if any(turn.keys() != {"from", "value"} for turn in turns) or len(marks) != len(turns):
        raise ValueError("a bare turn holds from and value, and nothing else, and has one mark")
    return {**bare, **rest, "conversations": [{**turn, "train": mark} for turn, mark in zip(turns, marks, strict=True)]}
