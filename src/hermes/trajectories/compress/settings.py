"""The settings of compression: the sections and keys of hermes-agent's file, and our own; and how they are read from YAML.

`configs/trajectory_compression.yaml` shows all of them with these values. Files of hermes-agent are read too, with sections or with the
flat keys of its code. An unknown key is refused with the nearest known one; a value of the wrong type is refused with its path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

from hermes.trajectories.errors import TrajectorySettingsError

try:
    import yaml
except ModuleNotFoundError as error:
    _missing = error.name
else:
    _missing = None

ESTIMATE = "estimate"
"""The name that stands for counting without a tokenizer."""


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """How tokens are counted."""

    name: str = ESTIMATE
    """A folder with tokenizer.json and a chat template, a Hugging Face name in the local cache, or `estimate`."""
    trust_remote_code: bool = True
    """A tokenizer's own code is never run. `true` counts with the tokenizer.json beside such code, `false` refuses the tokenizer."""
    count_reasoning: bool = True
    """Count reasoning as a ShareGPT row has it, in <think>. `false` is for conversations whose reasoning is not sent again."""


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """How short a trajectory becomes, and what is cut for that."""

    target_max_tokens: int = 15_250
    """The longest trajectory, tools and chat template included."""
    summary_target_tokens: int = 750
    """The longest summary."""
    trim_results: bool = True
    """Cut a giant tool result inside its turn, and results that cannot be summarised because their call is protected."""
    trim_protected: bool = False
    """Cut tool results of protected turns too, when nothing else helps. `false` flags the trajectory instead."""
    trim_keep_tokens: int = 400
    """The least that is kept of a tool result that is cut: the head, the tail, and the mark between them."""
    trim_head_share: float = 0.7
    """The share of the head in the kept tokens."""
    giant_result_share: float = 0.5
    """A tool result that alone takes this share of the target is giant: it is cut before any turn is summarised."""
    prune_results: bool = False
    """Cut all old tool results first, and summarise only if that is not enough. Running conversations use `live.prune_results`."""


@dataclass(frozen=True, slots=True)
class ProtectedSettings:
    """The turns that stay byte for byte as they are."""

    first_system: bool = True
    first_human: bool = True
    first_gpt: bool = True
    first_tool: bool = True
    first_n_turns: int = 0
    """So many turns from the beginning, of any speaker, besides the first of each role; of those before the first summary."""
    last_n_turns: int = 4
    """So many turns at the end, of any speaker."""


@dataclass(frozen=True, slots=True)
class SummarizationSettings:
    """Which model writes the summary, and how it is asked."""

    model: str | None = None
    """A model of the catalogue, or with `base_url` any model of that server. null: extractive summaries, no model is asked."""
    base_url: str | None = None
    """An OpenAI-compatible server to ask instead of the catalogue."""
    api_key_env: str | None = None
    """The environment variable with the key for `base_url`."""
    temperature: float = 0.3
    max_retries: int = 3
    """How often a model is asked at most for one summary; after that the extractive summariser writes it."""
    retry_delay: float = 2.0
    """Seconds before the second try, jittered, doubled each time."""
    retry_delay_max: float = 30.0
    timeout: float = 120.0
    """Seconds for one answer."""
    max_answer_tokens: int | None = None
    """The longest answer that is asked for; null is twice the length of the summary."""
    max_prompt_tokens: int | None = None
    """The longest prompt. A longer middle is summarised in parts; null sends it whole."""
    turn_max_chars: int = 3_000
    """Of a longer turn the model sees only the head and the tail."""
    turn_head_chars: int = 1_500
    turn_tail_chars: int = 500
    user_words_share: float = 0.0
    """The share of a model's summary that is kept for the user's own words, quoted."""
    known_words_share: float = 0.0
    """The share of a summary's words that must occur in the messages that it replaces, or in protected ones before them. 0 takes any
    summary; 0.4 is good for small models."""


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """What is written."""

    add_summary_notice: bool = True
    """Add a notice that turns were summarised. It stands in the summary: a protected system turn stays as it is."""
    summary_notice_text: str = "Some of the conversation is summarised to preserve context."
    summary_header: str = "[CONTEXT SUMMARY]:"
    """How a summary begins. A later run recognises summaries by it."""
    output_suffix: str = "_compressed"
    """Added to the input's name if the user names no output."""


@dataclass(frozen=True, slots=True)
class ProcessingSettings:
    """How a run works."""

    engine: str = "local"
    """Where the work is done: `local`, in processes of this machine; `daft`; or `ray://HOST:PORT` for Daft on a Ray cluster."""
    num_workers: int = 4
    """How many processes compress trajectories at once; at most one for each core."""
    max_concurrent_requests: int = 50
    """How many summaries are asked for at once."""
    skip_under_target: bool = True
    """Leave a trajectory alone if it fits. `false` summarises the whole middle of every trajectory."""
    save_over_limit: bool = True
    """Write a trajectory that is still too long with the others, flagged. `false` writes it to a separate file."""
    per_trajectory_timeout: float = 300.0
    """Seconds to wait for the summaries of one trajectory; after that the extractive summariser writes them. 0: no limit."""
    sample_percent: float = 100.0
    """Take only this percentage of the trajectories, chosen by `seed`, file name and row number; the others are left out."""
    seed: int = 42
    """The same seed takes the same trajectories."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Which metrics are written."""

    enabled: bool = True
    per_trajectory: bool = True
    output_file: str = "compression_metrics.json"


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What is different for a running conversation; see `compact_when_full`."""

    trigger_share: float = 0.85
    """Compaction begins when a conversation takes more than this share of the context limit …"""
    target_share: float = 0.5
    """… and brings it down to this share."""
    last_n_turns: int = 6
    prune_results: bool = True
    user_words_share: float = 0.3
    summary_header: str = (
        "[CONTEXT SUMMARY, for reference only: it stands for earlier turns of this conversation; "
        "what it asks for was dealt with then. Answer the messages that follow it.]"
    )


@dataclass(frozen=True, slots=True)
class CompressionSettings:
    """All settings. Frozen; `dataclasses.replace` makes changed copies."""

    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    compression: TargetSettings = field(default_factory=TargetSettings)
    protected_turns: ProtectedSettings = field(default_factory=ProtectedSettings)
    summarization: SummarizationSettings = field(default_factory=SummarizationSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    processing: ProcessingSettings = field(default_factory=ProcessingSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    live: LiveSettings = field(default_factory=LiveSettings)


FLAT_KEYS = {
    "tokenizer_name": "tokenizer.name",
    "protect_first_system": "protected_turns.first_system",
    "protect_first_human": "protected_turns.first_human",
    "protect_first_gpt": "protected_turns.first_gpt",
    "protect_first_tool": "protected_turns.first_tool",
    "protect_first_n_turns": "protected_turns.first_n_turns",
    "protect_last_n_turns": "protected_turns.last_n_turns",
    "summarization_model": "summarization.model",
    "metrics_enabled": "metrics.enabled",
    "metrics_per_trajectory": "metrics.per_trajectory",
    "metrics_output_file": "metrics.output_file",
    "trust_remote_code": "tokenizer.trust_remote_code",
    "target_max_tokens": "compression.target_max_tokens",
    "summary_target_tokens": "compression.summary_target_tokens",
    "base_url": "summarization.base_url",
    "api_key_env": "summarization.api_key_env",
    "temperature": "summarization.temperature",
    "max_retries": "summarization.max_retries",
    "retry_delay": "summarization.retry_delay",
    "add_summary_notice": "output.add_summary_notice",
    "summary_notice_text": "output.summary_notice_text",
    "output_suffix": "output.output_suffix",
    "num_workers": "processing.num_workers",
    "max_concurrent_requests": "processing.max_concurrent_requests",
    "skip_under_target": "processing.skip_under_target",
    "save_over_limit": "processing.save_over_limit",
    "per_trajectory_timeout": "processing.per_trajectory_timeout",
}
"""The flat names that hermes-agent's code has for the keys of its file."""

SECTIONS: Mapping[str, Any] = get_type_hints(CompressionSettings)
KEY_TYPES: Mapping[str, Any] = {
    f"{section}.{name}": kind for section, known in SECTIONS.items() for name, kind in get_type_hints(known).items()
}
"""The type of every key, by its path."""
POSITIVE_KEYS = frozenset(
    {
        "compression.target_max_tokens",
        "compression.summary_target_tokens",
        "compression.trim_keep_tokens",
        "processing.num_workers",
        "processing.max_concurrent_requests",
        "summarization.max_answer_tokens",
        "summarization.max_prompt_tokens",
        "summarization.turn_max_chars",
    }
)
NON_EMPTY_KEYS = frozenset(
    {"tokenizer.name", "processing.engine", "output.summary_header", "output.output_suffix", "live.summary_header", "metrics.output_file"}
)
TYPE_NAMES: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def read_settings(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> CompressionSettings:
    """Return the defaults, changed by a YAML file and then by `overrides`, whose keys are paths or sections.

    Raises TrajectorySettingsError with one line that names the wrong key and what it could be."""
    found: dict[str, Any] = {}
    if path is not None:
        found |= _flatten(_read_yaml(path), str(path))
    found |= _flatten(overrides or {}, "settings")
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for key, value in found.items():
        section, _, name = key.partition(".")
        sections[section][name] = value
    settings = CompressionSettings(**{section: SECTIONS[section](**values) for section, values in sections.items()})
    return _check_live_shares(settings)


def _read_yaml(path: Path) -> Mapping[Any, Any]:
    if _missing is not None:
        raise TrajectorySettingsError(f"{path}: reading YAML needs {_missing}; install it: pip install 'hermes-graph[export]'")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrajectorySettingsError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TrajectorySettingsError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise TrajectorySettingsError(f"{path}: expected sections ({', '.join(SECTIONS)}), got {_describe_value(document)}")
    return document


def _flatten(document: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Return the values by path; a null stands for the default, as in hermes-agent's files."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        if key in SECTIONS and not isinstance(value, Mapping | None):
            raise TrajectorySettingsError(f"{where}: {key} is {_describe_value(value)}; expected its keys ({', '.join(_keys(str(key)))})")
        if key in SECTIONS:
            found |= {path: item for name, item in (value or {}).items() for path in [_check_key(f"{key}.{name}", where)]}
        else:
            found[_check_key(FLAT_KEYS.get(str(key), str(key)), where)] = value
    checked = {path: _check_value(path, value, where) for path, value in found.items()}
    return {path: value for path, value in checked.items() if value is not None or _is_optional(path)}


def _check_key(path: str, where: str) -> str:
    if path in KEY_TYPES:
        return path
    section = path.partition(".")[0]
    among = [other for other in KEY_TYPES if other.startswith(f"{section}.")] if section in SECTIONS else [*SECTIONS, *KEY_TYPES]
    # A key of another section with this very name is a better guess than one that only looks similar.
    name = path.rpartition(".")[2]
    same = [other for other in KEY_TYPES if other.endswith(f".{name}")]
    nearest = same[0] if same else get_close_matches(path, among, n=1, cutoff=0.0)[0]
    raise TrajectorySettingsError(f"{where}: unknown key {path}; did you mean {nearest}?")


def _check_value(path: str, value: Any, where: str) -> Any:
    """Return the value if it has the key's type and range; else raise TrajectorySettingsError."""
    plain: Any = next(one for one in (bool, int, float, str) if KEY_TYPES[path] in (one, one | None))
    if value is None:
        return None
    if plain is float and type(value) is int:
        value = float(value)
    if type(value) is not plain or (plain is float and not math.isfinite(value)):
        raise TrajectorySettingsError(f"{where}: {path} is {_describe_value(value)}; expected {TYPE_NAMES[plain]}")
    if path in NON_EMPTY_KEYS and not value.strip():
        raise TrajectorySettingsError(f"{where}: {path} is empty")
    if plain in (int, float):
        least = 1 if path in POSITIVE_KEYS else -math.inf if path == "processing.seed" else 0
        most = 1 if path.endswith("_share") else 100 if path.endswith("_percent") else math.inf
        if not least <= value <= most:
            wanted = f"between {least} and {most}" if most < math.inf else f"at least {least}"
            raise TrajectorySettingsError(f"{where}: {path} is {value}; expected {wanted}")
    return value


def _check_live_shares(settings: CompressionSettings) -> CompressionSettings:
    live = settings.live
    if live.target_share > live.trigger_share:
        raise TrajectorySettingsError(
            f"live.target_share is {live.target_share}; expected at most live.trigger_share, which is {live.trigger_share}"
        )
    return settings


def _is_optional(path: str) -> bool:
    return type(None) in getattr(KEY_TYPES[path], "__args__", ())


def _keys(section: str) -> list[str]:
    return [field.name for field in fields(SECTIONS[section])]


def _describe_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a section"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
