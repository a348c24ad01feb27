"""Read the settings of compression from YAML: our files, and those of hermes-agent, with sections or with the flat keys of its code.

An unknown key is refused with the nearest known one; a value of the wrong type is refused with its path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

from hermes.trajectories.compress.settings import CompressionSettings
from hermes.trajectories.errors import TrajectorySettingsError

try:
    import yaml
except ModuleNotFoundError as error:
    _missing = error.name
else:
    _missing = None

FLAT_KEYS = {
    "tokenizer_name": "tokenizer.name",
    "protect_first_system": "protected_turns.first_system",
    "protect_first_human": "protected_turns.first_human",
    "protect_first_gpt": "protected_turns.first_gpt",
    "protect_first_tool": "protected_turns.first_tool",
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
SHARE_KEYS = frozenset(path for path in KEY_TYPES if path.endswith("_share"))
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
    {"tokenizer.name", "output.summary_header", "output.output_suffix", "live.summary_header", "metrics.output_file"}
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
        least, most = 1 if path in POSITIVE_KEYS else 0, 1 if path in SHARE_KEYS else math.inf
        if not least <= value <= most:
            wanted = f"between {least} and {most}" if path in SHARE_KEYS else f"at least {least}"
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
