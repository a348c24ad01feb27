"""Real vocabularies and templates for tests: that of SmolLM2, out of the weights that the local model has, and a toy of single letters."""

import json
import struct
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Vocabulary

from hermes.backends.local_weights import find_model

MISTRAL = """\
{{- bos_token }}
{%- for message in messages if message.role != 'system' %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- if message.role == 'user' %}[INST] {{ message.content }}[/INST]{% else %} {{ message.content }}{{ eos_token }}{% endif %}
{%- endfor %}"""
"""Strict: user and assistant by turns, as Mistral's is."""

TOOLS = """\
{%- if tools %}<|im_start|>system
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}"""
"""With tools and their calls, as those of Qwen and Hermes have them."""

PLAIN = """{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"""
"""Without any special token."""


def save_smollm2(folder: Path, template: str | None = None) -> Path:
    """SmolLM2's vocabulary as Hugging Face has it, with its own template or another."""
    known = read_gguf(find_model(None))
    tokens: list[str] = known["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in known["tokenizer.ggml.merges"]]
    vocabulary = Vocabulary(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    vocabulary.pre_tokenizer = pre_tokenizers.Sequence(split)
    vocabulary.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, known["tokenizer.ggml.token_type"], strict=True) if kind == 3]
    vocabulary.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary.save(str(folder / "tokenizer.json"))
    config = {"chat_template": template or known["tokenizer.chat_template"], "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def save_letters(folder: Path, template: str) -> Path:
    """A vocabulary of single characters, without special tokens."""
    vocabulary = Vocabulary(models.WordLevel({token: number for number, token in enumerate(["[UNK]", *map(chr, range(32, 127))])}, "[UNK]"))
    vocabulary.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(template)
    return folder


@cache
def read_gguf(path: Path) -> dict[str, Any]:
    """What the head of a weights file says about its model."""
    with path.open("rb") as file:
        assert file.read(4) == b"GGUF"
        _, _, entries = struct.unpack("<IQQ", file.read(20))
        return {_text(file): _value(file, _number(file, "<I")) for _ in range(entries)}


NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return _text(file)
    if kind == 9:
        inner, length = _number(file, "<I"), _number(file, "<Q")
        return [_value(file, inner) for _ in range(length)]
    return _number(file, NUMBERS[kind])


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "<Q")).decode()


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
