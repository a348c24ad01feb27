"""The settings file: complete, the same as the code, every key honoured, every mistake named with the way out."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes import MessageGraph
from hermes.trajectories.compress import (
    CompactionResult,
    CompressionSettings,
    ExtractiveSummariser,
    ModelSummariser,
    Summary,
    SummaryRequest,
    compact_to_target,
    compact_when_full,
    load_counter,
    read_settings,
)
from hermes.trajectories.compress.settings import KEY_TYPES
from hermes.trajectories.errors import TrajectorySettingsError
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest
from tests.unit.trajectories.compress.chats import Fake, answer, chat_of, result, settings, system, user, words
from tests.unit.trajectories.compress.vocabularies import PLAIN, save_letters

ROOT = Path(__file__).parents[4]
SHIPPED = ROOT / "configs" / "trajectory_compression.yaml"
COUNTER = load_counter("estimate")

HERMES_AGENT = """\
tokenizer:
  name: "moonshotai/Kimi-K2-Thinking"
  trust_remote_code: true
compression:
  target_max_tokens: 29000
  summary_target_tokens: 750
protected_turns:
  first_system: true
  first_human: true
  first_gpt: true
  first_tool: true
  last_n_turns: 4
summarization:
  model: "google/gemini-3-flash-preview"
  base_url: "https://openrouter.ai/api/v1"
  api_key_env: "OPENROUTER_API_KEY"
  temperature: 0.3
  max_retries: 3
  retry_delay: 2
output:
  add_summary_notice: true
  summary_notice_text: "\\n\\nSome of the conversation may be summarized."
  output_suffix: "_compressed"
processing:
  num_workers: 4
  max_concurrent_requests: 50
  skip_under_target: true
  save_over_limit: true
metrics:
  enabled: true
  per_trajectory: false
  output_file: "compression_metrics.json"
"""
"""The sections and keys of hermes-agent's file."""

AS_ITS_CODE_NAMES_THEM: dict[str, Any] = {
    "tokenizer_name": "moonshotai/Kimi-K2-Thinking",
    "trust_remote_code": True,
    "target_max_tokens": 29000,
    "summary_target_tokens": 750,
    "protect_first_system": True,
    "protect_first_human": True,
    "protect_first_gpt": True,
    "protect_first_tool": True,
    "protect_last_n_turns": 4,
    "summarization_model": "google/gemini-3-flash-preview",
    "base_url": "https://openrouter.ai/api/v1",
    "api_key_env": "OPENROUTER_API_KEY",
    "temperature": 0.3,
    "max_retries": 3,
    "retry_delay": 2,
    "add_summary_notice": True,
    "summary_notice_text": "\n\nSome of the conversation may be summarized.",
    "output_suffix": "_compressed",
    "num_workers": 4,
    "max_concurrent_requests": 50,
    "skip_under_target": True,
    "save_over_limit": True,
    "per_trajectory_timeout": 300,
    "metrics_enabled": True,
    "metrics_per_trajectory": False,
    "metrics_output_file": "compression_metrics.json",
}


# --- the file


def test_the_shipped_file_shows_every_key_with_its_usual_value() -> None:
    assert yaml.safe_load(SHIPPED.read_text()) == asdict(CompressionSettings())
    assert read_settings(SHIPPED) == read_settings() == CompressionSettings()


def test_every_section_and_hard_key_of_the_shipped_file_is_explained() -> None:
    text = SHIPPED.read_text()
    plain = {"first_system", "first_human", "first_gpt", "first_tool", "last_n_turns", "temperature", "enabled"}
    for path in KEY_TYPES:
        name = path.partition(".")[2]
        above = text[: re.search(rf"^  {name}:", text, re.MULTILINE).start()].splitlines()[-6:]  # type: ignore[union-attr]
        assert name in plain or any(line.lstrip().startswith("#") for line in above), path


def test_hermes_agents_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "theirs.yaml").write_text(HERMES_AGENT)
    (tmp_path / "flat.yaml").write_text(yaml.safe_dump(AS_ITS_CODE_NAMES_THEM))
    theirs = read_settings(tmp_path / "theirs.yaml")
    assert theirs == read_settings(tmp_path / "flat.yaml")
    assert (theirs.tokenizer.name, theirs.compression.target_max_tokens) == ("moonshotai/Kimi-K2-Thinking", 29000)
    assert (theirs.summarization.model, theirs.summarization.retry_delay) == ("google/gemini-3-flash-preview", 2.0)
    assert (theirs.metrics.per_trajectory, theirs.processing.per_trajectory_timeout) == (False, 300.0)
    assert theirs.compression.trim_protected is False, "ours stay as usual"


def test_empty_sections_and_nulls_stand_for_the_usual_values(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "nulls.yaml").write_text("compression:\nsummarization:\n  base_url: null\n  temperature: null\n")
    assert read_settings(tmp_path / "empty.yaml") == read_settings(tmp_path / "nulls.yaml") == CompressionSettings()


def test_overrides_lie_over_the_file_by_path_or_by_section(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text("compression: {target_max_tokens: 1000, summary_target_tokens: 90}")
    found = read_settings(tmp_path / "some.yaml", {"compression.target_max_tokens": 2000, "processing": {"num_workers": 7}})
    assert (found.compression.target_max_tokens, found.compression.summary_target_tokens, found.processing.num_workers) == (2000, 90, 7)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("compression: {target_max_token: 5}", "unknown key compression.target_max_token; did you mean compression.target_max_tokens?"),
        ("protected_turns: {last_n: 5}", "unknown key protected_turns.last_n; did you mean protected_turns.last_n_turns?"),
        ("compression: {temperature: 1}", "unknown key compression.temperature; did you mean summarization.temperature?"),
        ("compresion: {target_max_tokens: 5}", "unknown key compresion; did you mean compression?"),
        ("tokenizer_nam: x", "unknown key tokenizer_nam; did you mean tokenizer.name?"),
        ("compression: {target_max_tokens: many}", "compression.target_max_tokens is 'many'; expected a whole number"),
        ("compression: {target_max_tokens: 1.5}", "compression.target_max_tokens is 1.5; expected a whole number"),
        ("compression: {target_max_tokens: true}", "compression.target_max_tokens is True; expected a whole number"),
        ("compression: {target_max_tokens: 0}", "compression.target_max_tokens is 0; expected at least 1"),
        ("compression: {trim_head_share: 1.5}", "compression.trim_head_share is 1.5; expected between 0 and 1"),
        ("processing: {sample_percent: 101}", "processing.sample_percent is 101.0; expected between 0 and 100"),
        ("summarization: {temperature: .nan}", "summarization.temperature is nan; expected a number"),
        ("summarization: {max_retries: -1}", "summarization.max_retries is -1; expected at least 0"),
        ("protected_turns: {first_tool: 1}", "protected_turns.first_tool is 1; expected true or false"),
        ("output: {summary_header: ' '}", "output.summary_header is empty"),
        ("tokenizer: {name: [a]}", "tokenizer.name is a list; expected text"),
        ("metrics: true", "metrics is True; expected its keys (enabled, per_trajectory, output_file)"),
        ("live: {target_share: 0.9}", "live.target_share is 0.9; expected at most live.trigger_share, which is 0.85"),
        ("- a", "expected sections (tokenizer, compression,"),
        ("a: [", "not YAML"),
    ],
)
def test_a_mistake_is_named_in_one_line_with_the_way_out(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(TrajectorySettingsError, match=re.escape(complaint)) as refused:
        read_settings(tmp_path / "bad.yaml")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrajectorySettingsError, match=r"nowhere\.yaml: No such file"):
        read_settings(tmp_path / "nowhere.yaml")


# --- every key changes something

CHAT = [
    system(f"Be brief. {words(60, 'rule')}"),
    user(f"Look at everything. {words(90, 'first')}"),
    answer(words(40, "plan"), ("c1", "look", '{"at": "a"}'), reasoning=words(30, "thought")),
    result("c1", words(700, "seen")),
    answer(None, ("c2", "look", '{"at": "b"}')),
    result("c2", words(300, "more")),
    *(message for number in range(9) for message in (user(words(40, f"ask{number}-")), answer(words(40, f"say{number}-")))),
    answer(None, ("c4", "look", '{"at": "d"}')),
    result("c4", words(500, "late")),
    *(message for number in range(2) for message in (user(words(20, f"then{number}-")), answer(words(20, f"so{number}-")))),
    answer(None, ("c3", "look", '{"at": "c"}')),
    result("c3", words(200, "last")),
    answer("Done."),
]
ANSWER = ". ".join(f"The user said {number}" for number in range(200)) + "."


class Watched:
    """A summariser that shows what it was given."""

    def __init__(self) -> None:
        self.pieces: list[SummaryRequest] = []

    async def summarise(self, piece: SummaryRequest) -> Summary:
        self.pieces.append(piece)
        return await ExtractiveSummariser().summarise(piece)


def outcome(chosen: CompressionSettings) -> Any:
    chat = chat_of(CHAT)
    told = asyncio.run(compact_to_target(chat, chosen, COUNTER, ExtractiveSummariser(), sample_id="s"))
    return told, list(chat)


def asked(chosen: CompressionSettings) -> Any:
    """What a model is asked, and what comes of it."""
    model, waits = Fake(ModelFailed("busy"), "", ModelFailed("busy"), ANSWER), []

    async def wait(seconds: float) -> None:
        waits.append(seconds >= 5)

    chat = chat_of(CHAT)
    asyncio.run(compact_to_target(chat, chosen, COUNTER, ModelSummariser(model, chosen, sleep=wait), sample_id="s"))
    return model.requests, waits, list(chat)


def asked_slowly(chosen: CompressionSettings) -> Any:
    class Slow(Fake):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            await asyncio.sleep(0.05)
            return await super().sample(request)

    chat = chat_of(CHAT)
    return asyncio.run(compact_to_target(chat, chosen, COUNTER, ModelSummariser(Slow("Well."), chosen), sample_id="s")).summary


def lived(chosen: CompressionSettings) -> Any:
    chat, watched = chat_of(CHAT), Watched()
    told = asyncio.run(compact_when_full(chat, chosen, COUNTER, watched, limit_tokens=7_500, sample_id="s"))
    return told, list(chat), [piece.user_words_share for piece in watched.pieces]


BASE = {"compression.target_max_tokens": 5_000, "compression.summary_target_tokens": 200}
KEYS: dict[str, tuple[Callable[[CompressionSettings], Any], Any, dict[str, Any]]] = {
    "tokenizer.count_reasoning": (outcome, False, {}),
    "compression.target_max_tokens": (outcome, 4_500, {}),
    "compression.summary_target_tokens": (outcome, 60, {}),
    "compression.trim_results": (outcome, False, {"compression.giant_result_share": 0.2}),
    "compression.trim_protected": (outcome, True, {"compression.target_max_tokens": 2_500}),
    "compression.trim_keep_tokens": (outcome, 90, {"compression.target_max_tokens": 1_000, "compression.trim_protected": True}),
    "compression.trim_head_share": (outcome, 0.1, {"compression.giant_result_share": 0.2}),
    "compression.giant_result_share": (outcome, 0.2, {}),
    "compression.prune_results": (outcome, True, {}),
    "protected_turns.first_system": (outcome, False, {"compression.target_max_tokens": 1_200}),
    "protected_turns.first_human": (outcome, False, {}),
    "protected_turns.first_gpt": (outcome, False, {"protected_turns.first_tool": False}),
    "protected_turns.first_tool": (outcome, False, {"compression.target_max_tokens": 1_500}),
    "protected_turns.first_n_turns": (outcome, 8, {"compression.target_max_tokens": 2_000}),
    "protected_turns.last_n_turns": (outcome, 12, {"compression.target_max_tokens": 2_000}),
    "summarization.temperature": (asked, 0.9, {}),
    "summarization.max_retries": (asked, 1, {}),
    "summarization.retry_delay": (asked, 20.0, {}),
    "summarization.retry_delay_max": (asked, 1.0, {"summarization.retry_delay": 20.0}),
    "summarization.timeout": (asked_slowly, 0.01, {"summarization.max_retries": 1}),
    "summarization.max_answer_tokens": (asked, 33, {}),
    "summarization.max_prompt_tokens": (asked, 900, {}),
    "summarization.turn_max_chars": (asked, 100, {"summarization.turn_head_chars": 50, "summarization.turn_tail_chars": 20}),
    "summarization.turn_head_chars": (asked, 20, {"summarization.turn_max_chars": 100, "summarization.turn_tail_chars": 20}),
    "summarization.turn_tail_chars": (asked, 10, {"summarization.turn_max_chars": 100, "summarization.turn_head_chars": 50}),
    "summarization.user_words_share": (asked, 0.5, {"summarization.max_retries": 9, "summarization.retry_delay": 0.0}),
    "summarization.known_words_share": (asked, 1.0, {"summarization.max_retries": 9, "summarization.retry_delay": 0.0}),
    "output.add_summary_notice": (outcome, False, {}),
    "output.summary_notice_text": (outcome, "Shortened.", {}),
    "output.summary_header": (outcome, "(what came before)", {}),
    "processing.skip_under_target": (outcome, False, {"compression.target_max_tokens": 90_000}),
    "processing.per_trajectory_timeout": (asked_slowly, 0.01, {}),
    "live.trigger_share": (lived, 1.0, {}),
    "live.target_share": (lived, 0.8, {}),
    "live.last_n_turns": (lived, 2, {"live.target_share": 0.3}),
    "live.prune_results": (lived, False, {"live.target_share": 0.75}),
    "live.user_words_share": (lived, 0.9, {"live.target_share": 0.4}),
    "live.summary_header": (lived, "(what came before)", {"live.target_share": 0.4}),
}
"""For each key of the engine: what to look at, another value, and what else must be so that it matters."""

OF_THE_COUNTER = {"tokenizer.name", "tokenizer.trust_remote_code"}
OF_A_RUN = {
    *("summarization.model", "summarization.base_url", "summarization.api_key_env", "output.output_suffix"),
    *("processing.num_workers", "processing.max_concurrent_requests", "processing.save_over_limit"),
    *("processing.engine", "processing.sample_percent", "processing.seed"),
    *("metrics.enabled", "metrics.per_trajectory", "metrics.output_file"),
}
"""Keys that say how files are read and written; their tests are those of the command."""


def test_every_key_is_accounted_for() -> None:
    assert {*KEYS} | OF_THE_COUNTER | OF_A_RUN == {*KEY_TYPES}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_changes_what_is_done(key: str) -> None:
    look, value, rest = KEYS[key]
    usual, changed = read_settings(None, BASE | rest), read_settings(None, BASE | rest | {key: value})
    assert usual != changed
    assert look(usual) != look(changed)
    assert look(usual) == look(usual), "and nothing else does"


def test_the_tokenizers_keys_change_the_count(tmp_path: Path) -> None:
    folder = save_letters(tmp_path / "letters", PLAIN)
    assert load_counter(folder).count(CHAT) != COUNTER.count(CHAT)
    (folder / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["theirs.Tokenizer", null]}}')
    assert load_counter(folder, trust_remote_code=True).count(CHAT) == load_counter(folder).count(CHAT)
    with pytest.raises(TrajectorySettingsError, match=r"code of its own.*trust_remote_code: true"):
        load_counter(folder, trust_remote_code=False)


@pytest.mark.parametrize("key", sorted(OF_A_RUN))
def test_a_key_of_a_run_is_read_by_somebody(key: str) -> None:
    own = {"settings.py", "reading.py"}
    room = ROOT / "src" / "hermes"
    files = [*(room / "trajectories" / "compress").rglob("*.py"), *(room / "cli").glob("compress*.py")]
    assert any(key in file.read_text() for file in files if file.name not in own), f"nobody reads {key}"


def test_settings_of_other_kinds_of_chats_are_independent() -> None:
    assert settings(5).compression.target_max_tokens == 5
    assert isinstance(outcome(settings(100))[0], CompactionResult)
    assert isinstance(chat_of(CHAT), MessageGraph)
