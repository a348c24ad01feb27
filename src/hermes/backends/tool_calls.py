"""Tool calls between vendors: ids that pair calls and results, ids that a vendor takes, arguments as text and as an object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NoReturn

from hermes.ports.backends import ChatMessage

RAW_ARGUMENTS = "_raw_arguments"
"""The key that holds arguments that are no JSON object where a vendor takes only an object."""
_SAFE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_HEX_PREFIX = "hx_"


def pair_tool_results(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The same messages, with an id on every tool call, no id twice, and every result under the id and name of its call.

    Some servers give no ids, and some count from 0 in every round. A result without an id belongs to the first call without a result."""
    taken: set[str] = set()
    waiting: list[tuple[str, str, str]] = []  # id in the message, id as sent, name
    out: list[ChatMessage] = []
    for index, message in enumerate(messages):
        calls = message.get("tool_calls")
        if calls:
            waiting = []
            renamed = []
            for number, call in enumerate(calls):
                given = call.get("id") or ""
                sent = _unique_id(given or f"call_{index}_{number}", taken)
                waiting.append((given, sent, (call.get("function") or {}).get("name") or ""))
                renamed.append(call if sent == given else {**call, "id": sent})
            out.append({**message, "tool_calls": renamed})
        elif message.get("role") in ("tool", "function"):
            given = message.get("tool_call_id") or ""
            at = next((at for at, (known, _, _) in enumerate(waiting) if not given or known == given), None)
            if at is None:
                out.append(message)
            else:
                _, sent, name = waiting.pop(at)
                out.append({**message, "role": "tool", "tool_call_id": sent, "name": name})
        else:
            out.append(message)
    return out


def _unique_id(preferred: str, taken: set[str]) -> str:
    name, number = preferred, 2
    while name in taken:
        name, number = f"{preferred}_{number}", number + 1
    taken.add(name)
    return name


def safe_id(name: str) -> str:
    """A tool id of letters, digits, `_` and `-`: unchanged if it is one, else its bytes in hexadecimal. No two names have the same id."""
    return (
        name if _SAFE_ID.fullmatch(name) and not name.startswith(_HEX_PREFIX) else _HEX_PREFIX + name.encode("utf-8", "surrogatepass").hex()
    )


def arguments_object(arguments: Any) -> dict[str, Any]:
    """Arguments as an object: empty text is `{}`, and text that is no JSON object is kept whole under RAW_ARGUMENTS."""
    if isinstance(arguments, Mapping):
        return dict(arguments)
    text = arguments if isinstance(arguments, str) else ""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite_float)
    except (ValueError, RecursionError):
        return {RAW_ARGUMENTS: text}
    return value if isinstance(value, dict) else {RAW_ARGUMENTS: text}


def arguments_text(arguments: Any) -> str:
    """Arguments as the text of a JSON object; text that `arguments_object` kept whole comes back unchanged."""
    if isinstance(arguments, dict) and arguments.keys() == {RAW_ARGUMENTS} and isinstance(raw := arguments[RAW_ARGUMENTS], str):
        return raw
    return json.dumps(arguments or {}, ensure_ascii=False)


def make_tool_call(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    """A tool call in the form of the message graph."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments or "{}"}}


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)  # NaN and Infinity: Python reads them, JSON does not have them


def _finite_float(number: str) -> float:
    value = float(number)
    return value if isfinite(value) else _refuse_constant(number)  # 1e999
