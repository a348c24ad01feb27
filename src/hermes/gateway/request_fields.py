"""Which fields of a client's chat request go where: to the model's server, nowhere, or back as an error. And how an error shows a value.

A field is sent to a server only if that kind of server is known to take it; the lists are here, by the kind. What no list has is dropped,
and the record of the call names it under `not_sent`. What would change who answers, at which address or with which key, is refused: an
operator decides that, and a client that believes it did would be wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

REFUSED_FIELDS: Mapping[str, str] = {
    "functions": "use tools instead",
    "function_call": "use tool_choice instead",
    "audio": "audio is not supported",
    "modalities": "only text is supported",
    "prediction": "predicted outputs are not supported",
    "web_search_options": "web search is not supported",
    **dict.fromkeys(
        ("api_base", "base_url", "api_version", "api_type", "custom_llm_provider", "deployment_id", "engine", "organization", "model_list"),
        "the operator of this server decides where models are asked",
    ),
    **dict.fromkeys(("api_key", "azure_ad_token", "aws_access_key_id", "aws_secret_access_key"), "the server uses keys of its own"),
    **dict.fromkeys(("extra_headers", "headers", "extra_query", "extra_body"), "send a server's parameters as fields of the request"),
    **dict.fromkeys(("mock_response", "mock_tool_calls", "mock_timeout"), "this server gives no invented answers"),
    **dict.fromkeys(("fallbacks", "context_window_fallbacks", "num_retries"), "the tier of your key decides which models are tried"),
}
"""Each with advice. A null is always accepted."""
DROPPED_FIELDS = frozenset({"metadata", "store", "safety_identifier", "prompt_cache_retention"})
"""Fields about the client's account at OpenAI, not about the answer. They are not sent on."""

OPENAI_FIELDS = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "stop", "reasoning_effort"}
    | {"parallel_tool_calls", "verbosity", "service_tier", "prompt_cache_key", "logprobs", "top_logprobs"}
)
"""What OpenAI takes beside the fields that Hermes sets itself. Every compatible server gets these."""
COMMON_FIELDS = frozenset({"top_k", "min_p", "repetition_penalty", "chat_template_kwargs"})
VLLM_FIELDS = frozenset(
    {"length_penalty", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens", "best_of"}
    | {"spaces_between_special_tokens", "truncate_prompt_tokens", "prompt_logprobs", "allowed_token_ids", "bad_words", "use_beam_search"}
    | {"add_generation_prompt", "continue_final_message", "add_special_tokens", "documents", "mm_processor_kwargs", "echo", "priority"}
    | {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend", "guided_whitespace_pattern"}
    | {"structured_outputs", "cache_salt", "vllm_xargs", "return_token_ids", "return_tokens_as_token_ids", "include_reasoning"}
    | {"thinking_token_budget"}
)
SGLANG_FIELDS = frozenset(
    {"min_tokens", "regex", "ebnf", "stop_token_ids", "stop_regex", "ignore_eos", "skip_special_tokens", "no_stop_trim"}
    | {"continue_final_message", "separate_reasoning", "stream_reasoning", "return_token_ids", "return_prompt_token_ids"}
)
LLAMA_CPP_FIELDS = frozenset(
    {"typical_p", "repeat_penalty", "repeat_last_n", "mirostat", "mirostat_tau", "mirostat_eta", "dynatemp_range", "dynatemp_exponent"}
    | {"dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "xtc_probability"}
    | {"xtc_threshold", "top_n_sigma", "grammar", "json_schema", "min_keep", "n_probs", "ignore_eos", "cache_prompt", "samplers"}
    | {"t_max_predict_ms", "reasoning_format", "reasoning_budget", "timings_per_token"}
)
PLAIN_FIELDS = frozenset({"reasoning", "include_reasoning", "provider", "transforms", "enable_thinking", "thinking_budget", "thinking"})
"""For servers of which only the address is known; hosts of open models take these."""

MAX_SHOWN_CHARS = 80
SECRET = re.compile(r"(?i)\b(?:sk|hk|pk|rk|gsk|xai|ghp|hf|key|bearer|token)[-_ ][\w.+/=-]{8,}|[\w+/=-]{40,}")


def but_got(value: Any) -> str:
    """The wrong value, for the end of an error's text; empty for a missing one."""
    return "" if value is None else f", and got {show_value(value)}"


def show_value(value: Any) -> str:
    """The start of a value as JSON, without anything that looks like a key."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = type(value).__name__
    text = SECRET.sub("…", text)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
