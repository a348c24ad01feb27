"""Count tokens: of a whole conversation as its chat template writes it, or, without a tokenizer, by a rule that rather counts too many.

A rendered conversation is cut before each special token and the parts are counted one by one, so that after an edit only the
changed parts are tokenised again. No token reaches across a special token, so the sum equals the count of the whole."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hermes.trajectories.compress.settings import ESTIMATE
from hermes.trajectories.errors import SessionError, TrajectorySettingsError
from hermes.trajectories.sharegpt_turns import part_text
from hermes.trajectories.text_rows import replace_surrogates
from hermes.trajectories.tokenizer import TemplateTokenizer, load_tokenizer

BYTES_PER_TOKEN = 3
TOKENS_PER_MESSAGE = 8
MAX_CACHED_CHARS = 8_000_000
"""A counter caches the counts of texts with at most so many characters together."""


class TokenCounter(Protocol):
    """Counts tokens."""

    name: str
    is_estimate: bool
    """Whether it counts without a tokenizer."""

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
        """Return the tokens of a whole conversation, template and tools included; raise SessionError if the template refuses it."""
        ...

    def count_text(self, text: str) -> int:
        """Return the tokens of a text alone."""
        ...

    def head(self, text: str, tokens: int) -> str:
        """Return the longest beginning of a text that has at most so many tokens."""
        ...

    def tail(self, text: str, tokens: int) -> str:
        """Return the longest end of a text that has at most so many tokens."""
        ...


def load_counter(name: str | Path, *, trust_remote_code: bool = True) -> TokenCounter:
    """Return the counter for a folder, a Hugging Face name in the local cache, or `estimate`. Downloads nothing.

    Raises TrajectorySettingsError if there is no such tokenizer, or if it has code of its own and `trust_remote_code` is false."""
    if name == ESTIMATE:
        return EstimateCounter()
    tokenizer = load_tokenizer(_tokenizer_folder(str(name)))
    if tokenizer.has_own_code and not trust_remote_code:
        raise TrajectorySettingsError(
            f"{name}: this tokenizer has code of its own, which Hermes does not run; "
            "set tokenizer.trust_remote_code: true to count with its tokenizer.json anyway"
        )
    return TemplateCounter(tokenizer)


class TemplateCounter:
    """Counts with a vocabulary and a chat template."""

    is_estimate = False

    def __init__(self, tokenizer: TemplateTokenizer) -> None:
        self.name = tokenizer.name
        self._tokenizer = tokenizer
        self._vocabulary = tokenizer.vocabulary
        special = [token.content for token in self._vocabulary.get_added_tokens_decoder().values() if token.special]
        longest_first = sorted(special, key=len, reverse=True)
        self._before_special = re.compile("(?=" + "|".join(map(re.escape, longest_first)) + ")") if special else None
        self._known: dict[str, int] = {}
        self._remembered = 0

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
        text = replace_surrogates(self._rendered(messages, tools))
        return self._sum(self._before_special.split(text) if self._before_special is not None else [text])

    def count_text(self, text: str) -> int:
        return self._sum([replace_surrogates(text)])

    def head(self, text: str, tokens: int) -> str:
        size = 8 * tokens + 64
        while True:
            ends = [end for _, end in self._offsets(replace_surrogates(text[:size]))]
            if len(ends) > tokens or size >= len(text):
                break
            size *= 4
        if len(ends) <= tokens:
            return text
        for last in range(tokens, 0, -1):  # a text that is cut between two tokens may tokenise differently, rarely with one token more
            cut = text[: ends[last - 1]]
            if self.count_text(cut) <= tokens:
                return cut
        return ""

    def tail(self, text: str, tokens: int) -> str:
        size = 8 * tokens + 64
        while True:
            window = text[-size:]
            starts = [start for start, _ in self._offsets(replace_surrogates(window))]
            if len(starts) > tokens or size >= len(text):
                break
            size *= 4
        if len(starts) <= tokens:
            return text
        for kept in range(tokens, 0, -1):
            cut = window[starts[-kept] :]
            if self.count_text(cut) <= tokens:
                return cut
        return ""

    def _rendered(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> str:
        """Render a conversation in the form that most templates take; if the template refuses it, in the plainest form."""
        failure: Exception | None = None
        for form in (_template_form, _plain_form):
            try:
                return self._tokenizer.render([form(message) for message in messages], tools or None)
            except Exception as error:  # noqa: BLE001  # a template is a program of the model's makers: an error is about this conversation
                failure = error
        raise SessionError(f"the chat template refuses a conversation: {type(failure).__name__}: {failure}")

    def _sum(self, texts: Sequence[str]) -> int:
        unknown = [text for text in dict.fromkeys(texts) if text not in self._known]
        if unknown:
            self._remembered += sum(map(len, unknown))
            if self._remembered > MAX_CACHED_CHARS:
                self._known = {text: self._known[text] for text in texts if text in self._known}
                self._remembered = sum(map(len, self._known)) + sum(map(len, unknown))
            found = self._vocabulary.encode_batch_fast(unknown, add_special_tokens=False)
            self._known |= {text: len(encoding) for text, encoding in zip(unknown, found, strict=True)}
        return sum(self._known[text] for text in texts)

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        offsets: list[tuple[int, int]] = self._vocabulary.encode(text, add_special_tokens=False).offsets
        return offsets


class EstimateCounter:
    """Counts without a tokenizer: three bytes to a token, eight tokens around a message, tools as their JSON."""

    name = ESTIMATE
    is_estimate = True

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
        schemas = _bytes_to_tokens(sum(_byte_length(json.dumps(tool, ensure_ascii=False, default=str)) for tool in tools))
        return schemas + sum(_bytes_to_tokens(sum(map(_byte_length, message_texts(message)))) + TOKENS_PER_MESSAGE for message in messages)

    def count_text(self, text: str) -> int:
        return _bytes_to_tokens(_byte_length(text))

    def head(self, text: str, tokens: int) -> str:
        return text.encode("utf-8", "replace")[: tokens * BYTES_PER_TOKEN].decode("utf-8", "ignore")

    def tail(self, text: str, tokens: int) -> str:
        data = text.encode("utf-8", "replace")
        return data[max(0, len(data) - tokens * BYTES_PER_TOKEN) :].decode("utf-8", "ignore")


def message_texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a message that a model reads."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from map(part_text, content)
    for call in message.get("tool_calls") or ():
        yield json.dumps(call, ensure_ascii=False)
    for name in ("name", "tool_call_id"):
        if message.get(name):
            yield message[name]


def _bytes_to_tokens(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


# The forms that templates take -----------------------------------------------------------------------------------


def _template_form(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as most templates expect it: no null, and the arguments of calls as objects."""
    shown = {key: value for key, value in message.items() if value is not None and key != "metadata"}
    shown.setdefault("content", "")
    if message.get("tool_calls"):
        shown["tool_calls"] = [_with_parsed_arguments(call) for call in message["tool_calls"]]
    return shown


def _with_parsed_arguments(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call


def _plain_form(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with a role that every template knows, one text as content, and unchanged calls."""
    shown = {key: value for key, value in message.items() if value is not None and key != "metadata"}
    shown["role"] = {"developer": "system", "function": "tool"}.get(message["role"], message["role"])
    content = message.get("content")
    shown["content"] = "\n".join(map(part_text, content)) if isinstance(content, list) else content or ""
    return shown


# Finding a tokenizer ---------------------------------------------------------------------------------------------


def _tokenizer_folder(name: str) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        return folder.parent
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise TrajectorySettingsError(f"{name}: no such folder; give a folder with tokenizer.json, a Hugging Face name, or {ESTIMATE}")
    hub = _hugging_face_cache()
    snapshots = hub / f"models--{name.replace('/', '--')}" / "snapshots"
    main = snapshots.parent / "refs" / "main"
    known = [snapshots / main.read_text(encoding="utf-8").strip()] if main.is_file() else []
    known += sorted(snapshots.iterdir()) if snapshots.is_dir() else []
    for snapshot in known:
        if (snapshot / "tokenizer.json").is_file():
            return snapshot
    if known:
        raise TrajectorySettingsError(f"tokenizer {name} has no tokenizer.json in {known[0]}; give another with --tokenizer, or {ESTIMATE}")
    raise TrajectorySettingsError(
        f"tokenizer {name} is not in {hub}, and nothing is downloaded; fetch it with `hf download {name} --include 'tokenizer*' "
        f"'*.jinja'`, give a folder with --tokenizer, or {ESTIMATE}"
    )


def _hugging_face_cache() -> Path:
    """Return the local cache folder that the tools of Hugging Face use."""
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(home).expanduser() / "hub"
