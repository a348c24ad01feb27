"""Text-grade: give token ids to calls that were recorded without them, with a tokenizer and chat template that the user chooses.

The model may have sampled other tokens than these: rows made from them say `on_policy: false`, and their logprobs are 0.
Reads Hugging Face's files (`tokenizer.json`, and a template in `chat_template.jinja` or `tokenizer_config.json`). Needs the
extra `text`; without it, `load_tokenizer` raises an error that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol

from hermes.graph import Response
from hermes.trajectories.errors import SessionError, TrajectorySettingsError

try:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from tokenizers import Tokenizer as Vocabulary
except ModuleNotFoundError as error:
    _missing = error.name
else:
    _missing = None


class Tokenizer(Protocol):
    """Turns messages into token ids."""

    name: str

    def encode(self, response: Response) -> tuple[Sequence[int], Sequence[int]]:
        """Return prompt ids and completion ids of a response; raise SessionError if the template refuses the messages."""
        ...


def load_tokenizer(folder: Path) -> TemplateTokenizer:
    """Load a tokenizer and its chat template from a folder; raise TrajectorySettingsError if it has none."""
    if _missing is not None:
        raise TrajectorySettingsError(f"--tokenizer needs {_missing}; install it: pip install 'hermes-graph[text]'")
    try:
        vocabulary = Vocabulary.from_file(str(folder / "tokenizer.json"))
        config = _read_config(folder)
        return TemplateTokenizer(folder.resolve().name, vocabulary, config)
    except (OSError, ValueError) as error:
        raise TrajectorySettingsError(f"{folder}: no tokenizer with a chat template ({error})") from None
    except Exception as error:  # noqa: BLE001  # tokenizers raises bare Exception for a missing or broken file
        raise TrajectorySettingsError(f"{folder}: {error}") from None


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    template = folder / "chat_template.jinja"
    if template.exists():
        config["chat_template"] = template.read_text(encoding="utf-8")
    if isinstance(config.get("chat_template"), list):  # some models have several templates, by name
        named = {one.get("name"): one.get("template") for one in config["chat_template"] if isinstance(one, Mapping)}
        config["chat_template"] = named.get("default")
    if not config.get("chat_template"):
        raise ValueError("no chat_template.jinja, and no chat_template in tokenizer_config.json")
    return config


class TemplateTokenizer:
    """A vocabulary and a chat template."""

    def __init__(self, name: str, vocabulary: Any, config: Mapping[str, Any]) -> None:
        self.name = name
        self.vocabulary = vocabulary
        self.has_own_code = "auto_map" in config
        """Whether the model brings tokenizer code of its own; Hermes does not run it."""
        self._special = {key: _token(config.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
        # The settings of Hugging Face's own template engine.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda pattern: datetime.now().astimezone().strftime(pattern)
        self._template = environment.from_string(config["chat_template"])

    def encode(self, response: Response) -> tuple[Sequence[int], Sequence[int]]:
        context = [dict(message) for message in response.context]
        reply = {key: value for key, value in response.message.items() if key != "metadata"}
        try:
            tools = response.overlay.tools
            prompt = self.render(context, tools, is_open=True)
            whole = self.render([*context, reply], tools)
            ids, prompt_ids = self._ids(whole), self._ids(prompt)
        except Exception as error:  # noqa: BLE001  # a template is a program that comes with the model, and may raise anything
            raise SessionError(f"the chat template refuses a conversation: {type(error).__name__}: {error}") from None
        if not whole.startswith(prompt):
            raise SessionError("the chat template writes the prompt differently when a reply follows, so the two cannot be separated")
        if ids[: len(prompt_ids)] == prompt_ids:
            return prompt_ids, ids[len(prompt_ids) :]
        return prompt_ids, self._ids(whole[len(prompt) :])

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, *, is_open: bool = False) -> str:
        """Return a conversation as the template writes it; `is_open` adds the start of an answer. Raises what the template raises."""
        return self._template.render(messages=messages, tools=tools, add_generation_prompt=is_open, **self._special)

    def _ids(self, text: str) -> list[int]:
        return list(self.vocabulary.encode(text, add_special_tokens=False).ids)


def _token(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, Mapping) else str(value or "")


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
