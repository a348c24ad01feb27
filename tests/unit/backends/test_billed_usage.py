"""What is counted where nobody counted."""

from hermes.backends.vendor_answers import ReturnedTokens, TokenCounts, billed_usage, consistent_tokens
from hermes.gateway.prices import TOKENS_PER_IMAGE, prompt_tokens
from hermes.ports.backends import ModelRequest, Usage

ASK = ModelRequest(messages=[{"role": "user", "content": "x" * 300}], max_tokens=50)
ANSWER = {"role": "assistant", "content": "y" * 30, "reasoning": "z" * 30}


def test_the_vendors_counts_are_taken_as_they_are() -> None:
    counts = TokenCounts(tokens_in=9, tokens_out=3, cache_read=4, cache_write=1, cache_write_1h=2)
    assert billed_usage(counts, ASK, ANSWER) == Usage(tokens_in=9, tokens_out=3, cache_read=4, cache_write=1, cache_write_1h=2)


def test_what_is_missing_is_estimated_and_marked() -> None:
    assert billed_usage(TokenCounts(tokens_in=9), ASK, ANSWER) == Usage(tokens_in=9, tokens_out=20, is_estimated=True)
    assert billed_usage(TokenCounts(tokens_out=3), ASK, ANSWER) == Usage(tokens_in=108, tokens_out=3, is_estimated=True)


def test_an_answer_is_never_longer_than_it_was_allowed_to_be() -> None:
    assert billed_usage(TokenCounts(), ASK, {"content": "y" * 3000}).tokens_out == 50


def test_images_count_by_number_and_tools_by_length() -> None:
    data = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    ask = ModelRequest(messages=[{"role": "user", "content": [data, {"type": "text", "text": "xyz"}]}], max_tokens=1)
    assert prompt_tokens(ask) == TOKENS_PER_IMAGE + 1 + 8
    assert prompt_tokens(ModelRequest(messages=[], tools=[{"name": "x" * 300}], max_tokens=1)) > 100


def test_tokens_are_kept_when_every_length_agrees() -> None:
    tokens = ReturnedTokens(prompt=[1, 2, 3], completion=[4, 5], logprobs=[-0.1, -0.2])
    assert consistent_tokens(tokens, TokenCounts(tokens_in=3, tokens_out=2)) == (tokens, {})
    assert consistent_tokens(tokens, TokenCounts()) == (tokens, {})


def test_tokens_are_dropped_when_a_length_does_not_agree() -> None:
    whole = ReturnedTokens(prompt=[1, 2, 3], completion=[4, 5], logprobs=[-0.1, -0.2])
    for tokens, counts in [
        (whole, TokenCounts(tokens_in=3, tokens_out=3)),
        (whole, TokenCounts(tokens_in=4, tokens_out=2)),
        (ReturnedTokens(prompt=[1], completion=[4, 5], logprobs=[-0.1]), TokenCounts()),
        (ReturnedTokens(prompt=[1], completion=None, logprobs=[-0.1]), TokenCounts()),
        (ReturnedTokens(prompt=[-1], completion=[4], logprobs=[-0.1]), TokenCounts()),
        (ReturnedTokens(prompt=[1], completion=[True], logprobs=[-0.1]), TokenCounts()),
        (ReturnedTokens(prompt=[1], completion=[4], logprobs=[float("nan")]), TokenCounts()),
    ]:
        kept, note = consistent_tokens(tokens, counts)
        assert kept == ReturnedTokens()
        assert note["token_mismatch"]["tokens_out"] == counts.tokens_out


def test_logprobs_alone_are_kept() -> None:
    assert consistent_tokens(ReturnedTokens(logprobs=[-0.1]), TokenCounts(tokens_out=7)) == (ReturnedTokens(logprobs=[-0.1]), {})
