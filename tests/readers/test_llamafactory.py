"""LLaMA-Factory's own loader takes every row whole, and trains each sample once and nothing else."""

import importlib.machinery
import json
import os
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hermes import MessageGraph
from hermes.trajectories.formats.llamafactory import LlamaFactoryWriter
from tests.readers.pages import HOW_TO
from tests.unit.trajectories.programs import OPS, World
from tests.unit.trajectories.text_sessions import (
    answer,
    call,
    forked_session,
    hard_session,
    nested_session,
    sampled,
    tool_session,
    user,
    write,
)

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs
SAMPLES = 13
SPEAKER = {"human": "user", "observation": "user", "gpt": "assistant", "function_call": "assistant"}
TOOLS_BEFORE = """

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>"""
TOOLS_BEHIND = """
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
SKIPPED = ("Skipping this abnormal example.", "Dropped invalid example")


@pytest.fixture(scope="module")
def loader() -> Any:
    pytest.importorskip("llamafactory", reason="needs LLaMA-Factory: pip install llamafactory")
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    # It opens sound files with torchaudio, which has no build for every torch. Our rows have no sound.
    absent = types.ModuleType("torchaudio")
    absent.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
    sys.modules.setdefault("torchaudio", absent)
    return pytest.importorskip("llamafactory.data")


def tokenizer() -> Any:
    """A token for each byte, and the marks of Qwen's template."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bytewise = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    bytewise.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = tokenizers.decoders.ByteLevel()
    marks = {"eos_token": "<|im_end|>", "pad_token": "<|pad|>", "extra_special_tokens": ["<|im_start|>"]}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bytewise, chat_template="x", **marks)


class Loaded:
    """What LLaMA-Factory makes of a dataset: for each row the whole text and the part that is trained."""

    def __init__(
        self, loader: Any, folder: Path, cache: Path, template: str, dataset: str = "hermes", *, mask_history: bool = True
    ) -> None:
        hparams, transformers = pytest.importorskip("llamafactory.hparams"), pytest.importorskip("transformers")
        arguments = hparams.DataArguments(
            template=template,
            dataset=dataset,
            dataset_dir=str(folder),
            mask_history=mask_history,
            cutoff_len=1_000_000,
            overwrite_cache=True,
        )
        model = hparams.ModelArguments(model_name_or_path="none", cache_dir=str(cache))
        training = transformers.Seq2SeqTrainingArguments(output_dir=str(cache / "out"), report_to=[], use_cpu=True)
        words = tokenizer()
        shape = loader.get_template_and_fix_tokenizer(words, arguments)
        rows = list(loader.get_dataset(shape, model, arguments, training, "sft", words)["train_dataset"])
        self.texts = [words.decode(row["input_ids"]) for row in rows]
        self.trained = [words.decode([label for label in row["labels"] if label != -100]) for row in rows]


def rendered(line: Any) -> str:
    """Qwen's text of a row, by hand."""
    turns = line["conversations"]
    has_system = turns[0]["from"] == "system"
    system = turns[0]["value"] if has_system else "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    tools = "".join(f"\n{json.dumps(tool, ensure_ascii=False)}" for tool in json.loads(line["tools"]))
    text = f"<|im_start|>system\n{system}{TOOLS_BEFORE + tools + TOOLS_BEHIND if tools else ''}<|im_end|>\n"
    return text + "".join(f"<|im_start|>{SPEAKER[turn['from']]}\n{spoken(turn)}<|im_end|>\n" for turn in turns[has_system:])


def spoken(turn: Any) -> str:
    """Qwen's text of a turn."""
    if turn["from"] == "observation":
        return f"<tool_response>\n{turn['value']}\n</tool_response>"
    if turn["from"] == "function_call":
        return "\n".join(f"<tool_call>\n{json.dumps(one, ensure_ascii=False)}\n</tool_call>" for one in json.loads(turn["value"]))
    return str(turn["value"])


def rows(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "llamafactory.jsonl").read_text("ascii").splitlines()]


def test_it_takes_every_row_and_trains_what_was_sampled(loader: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "out", LlamaFactoryWriter, tool_session(), forked_session(), nested_session(), hard_session())
    written = rows(tmp_path / "out")
    loaded = Loaded(loader, tmp_path / "out", tmp_path / "cache", "qwen")
    assert not [line for line in capfd.readouterr().err.splitlines() if any(mark in line for mark in SKIPPED)]
    assert len(written) == SAMPLES + 5
    assert loaded.texts == [rendered(line) for line in written]
    last = [spoken(line["conversations"][-1]) for line in written]
    assert loaded.trained == [f"{text}<|im_end|>\n" for text in last], "the last turn, the mark of its end, and nothing else"


@pytest.mark.parametrize("template", ["qwen3", "llama3", "deepseekr1", "mistral", "gemma", "glm4", "alpaca", "empty"])
def test_every_template_takes_every_row(loader: Any, tmp_path: Path, template: str) -> None:
    single = MessageGraph([user("?")], seed="single")
    sampled(single, "call", answer("words", reasoning="thought", tool_calls=[call("add", '{"a": 1}', "c1")]))
    write(tmp_path / "out", LlamaFactoryWriter, forked_session(), nested_session(), single)
    loaded = Loaded(loader, tmp_path / "out", tmp_path / "cache", template)
    assert len(loaded.texts) == len(rows(tmp_path / "out"))
    assert all(loaded.trained)


def test_random_sessions_are_taken_whole_and_each_sample_is_trained_once(loader: Any, tmp_path: Path) -> None:
    graphs = [
        graph for seed in range(30) for graph in World(seed, name=f"n{seed}").run([(op, seed + place) for place, op in enumerate(OPS)])
    ]
    write(tmp_path / "out", LlamaFactoryWriter, *graphs)
    ledger = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text("ascii").splitlines()[1:]]
    trained = [line["trained"][0]["row"] for line in ledger if line["trained"]]
    loaded = Loaded(loader, tmp_path / "out", tmp_path / "cache", "qwen")
    assert Counter(trained) == Counter(range(len(loaded.texts))), "a row for each sample that is trained, and none without"
    assert loaded.texts == [rendered(line) for line in rows(tmp_path / "out")]


def test_with_the_settings_of_the_how_to(loader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's YAML is read as LLaMA-Factory reads it, and its check of rows and samples holds."""
    yaml = pytest.importorskip("yaml")
    write(tmp_path / "out", LlamaFactoryWriter, tool_session(), forked_session(), nested_session())
    page = (HOW_TO / "llamafactory.md").read_text()
    settings = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    assert (settings["mask_history"], settings["stage"]) == (True, "sft")
    monkeypatch.chdir(tmp_path)
    loaded = Loaded(loader, Path(settings["dataset_dir"]), tmp_path / "cache", "qwen", settings["dataset"])
    assert len(loaded.texts) == SAMPLES
