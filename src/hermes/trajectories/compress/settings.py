"""The settings of compression: the sections and keys of hermes-agent's file, and our own. Each key says what it decides.

`configs/trajectory_compression.yaml` shows all of them with these values. Knows nothing about files: `settings_file` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    last_n_turns: int = 4


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

    num_workers: int = 4
    """How many workers compress trajectories at once."""
    max_concurrent_requests: int = 50
    """How many summaries are asked for at once."""
    skip_under_target: bool = True
    """Leave a trajectory alone if it fits. `false` summarises the whole middle of every trajectory."""
    save_over_limit: bool = True
    """Write a trajectory that is still too long with the others, flagged. `false` writes it to a separate file."""
    per_trajectory_timeout: float = 300.0
    """Seconds to wait for the summaries of one trajectory; after that the extractive summariser writes them. 0: no limit."""


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
