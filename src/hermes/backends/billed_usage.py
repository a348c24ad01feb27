"""The usage to bill, also where a vendor did not count everything."""

from __future__ import annotations

from hermes.backends.answer_parts import TokenCounts
from hermes.gateway.token_estimate import answer_tokens, prompt_tokens
from hermes.ports.backends import ChatMessage, ModelRequest, Usage


def billed_usage(counts: TokenCounts, ask: ModelRequest, answer: ChatMessage) -> Usage:
    """The vendor's counts, and our own upper bound for each count that is missing."""
    is_estimated = counts.tokens_in is None or counts.tokens_out is None
    return Usage(
        tokens_in=prompt_tokens(ask) if counts.tokens_in is None else counts.tokens_in,
        tokens_out=answer_tokens(answer, ask.max_tokens) if counts.tokens_out is None else counts.tokens_out,
        cache_read=counts.cache_read,
        cache_write=counts.cache_write,
        cache_write_1h=counts.cache_write_1h,
        is_estimated=is_estimated,
    )
