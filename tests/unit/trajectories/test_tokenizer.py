"""Text-grade: calls without token ids, tokenised by a real vocabulary and template, and marked as what they are."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Vocabulary

from hermes import CallRecord, MessageGraph
from hermes.trajectories.calls import SamplePolicies, read_calls
from hermes.trajectories.errors import TrajectoryError, TrajectorySettingsError
from hermes.trajectories.source import ExportSession
from hermes.trajectories.tokenizer import load_tokenizer

TEMPLATE = """\
{%- if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}
{%- for message in messages %}<{{ message.role }}>{{ message.content }}<end>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""


def save_tokenizer(folder: Path, template: str = TEMPLATE) -> Path:
    """A vocabulary of single characters, with tags as tokens of their own."""
    tags = ["<user>", "<assistant>", "<system>", "<end>", "<tools>", "</tools>"]
    letters = [chr(code) for code in range(32, 127)]
    vocabulary = Vocabulary(models.WordLevel({token: number for number, token in enumerate(["[UNK]", *tags, *letters])}))
    vocabulary.add_special_tokens(tags)
    vocabulary.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    folder.mkdir(exist_ok=True)
    vocabulary.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": {"content": "<end>"}}))
    return folder


def decode(folder: Path, data: bytes) -> str:
    names = {number: token for token, number in Vocabulary.from_file(str(folder / "tokenizer.json")).get_vocab().items()}
    return "".join(names[int.from_bytes(data[at : at + 4], "little")] for at in range(0, len(data), 4))


def test_calls_without_ids_are_tokenised_and_off_policy(tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path / "toy")
    chat = MessageGraph([{"role": "user", "content": "hi"}])
    chat.commit(chat.prepare(tools=[{"name": "f"}], ephemeral="Be kind."), {"role": "assistant", "content": "yo"})
    chat.append({"role": "user", "content": "bye"})
    chat.append({"role": "assistant", "content": "so"}, call=CallRecord(prompt_token_ids=[1], token_ids=[2], logprobs=[-1]))
    derived, recorded = read_calls(ExportSession("s", chat), SamplePolicies(), load_tokenizer(folder))
    assert decode(folder, derived.prompt) == '<tools>[{"name": "f"}]</tools><system>Be kind.<end><user>hi<end><assistant>'
    assert decode(folder, derived.completion) == "yo<end>"
    assert (derived.on_policy, derived.trained, derived.tokenizer, set(derived.logprobs)) == (False, 3, "toy", {0})
    assert (recorded.on_policy, recorded.trained, recorded.tokenizer) == (True, 1, "")


def test_reasons_come_before_tokenising(tmp_path: Path) -> None:
    chat = MessageGraph([{"role": "user", "content": "hi"}])
    chat.append({"role": "assistant", "content": "yo"})
    chat.annotate(next(chat.responses()), consent=False)
    (call,) = read_calls(ExportSession("s", chat), SamplePolicies(), load_tokenizer(save_tokenizer(tmp_path / "toy")))
    assert (call.trained, call.excluded[0].reason) == (0, "no consent")


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}", "differently"),
        ("", "no chat_template"),
    ],
)
def test_a_template_that_cannot_serve_is_refused_in_one_line(tmp_path: Path, template: str, complaint: str) -> None:
    chat = MessageGraph([{"role": "user", "content": "hi"}])
    chat.append({"role": "assistant", "content": "yo"})

    def encode() -> Any:
        return load_tokenizer(save_tokenizer(tmp_path / "toy", template)).encode(next(chat.responses()))

    with pytest.raises(TrajectoryError, match=complaint):
        encode()


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrajectorySettingsError, match="nowhere"):
        load_tokenizer(tmp_path / "nowhere")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TrajectorySettingsError, match=str(tmp_path)):
        load_tokenizer(tmp_path)
