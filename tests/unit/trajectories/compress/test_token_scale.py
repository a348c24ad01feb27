"""A tool result is cut inside its turn: head and tail stay, and the number between them is right."""

import re

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hermes.trajectories.compress import TokenCounter, load_counter
from hermes.trajectories.compress.settings import TargetSettings
from hermes.trajectories.compress.token_scale import min_result_tokens, result_text, trim, with_text
from tests.unit.trajectories.compress.chats import answer, result, words
from tests.unit.trajectories.compress.vocabularies import save_smollm2

KEEP = TargetSettings(trim_keep_tokens=60)


@pytest.fixture(scope="session", params=["estimate", "smollm2"])
def counter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenCounter:
    return load_counter("estimate" if request.param == "estimate" else save_smollm2(tmp_path_factory.mktemp("vocabulary")))


@given(st.integers(0, 400).map(words) | st.text(max_size=400), st.integers(0, 300))
@hypothesis_settings(deadline=None)
def test_is_no_longer_than_asked_for_and_cutting_again_changes_nothing(counter: TokenCounter, text: str, keep: int) -> None:
    short = trim(text, keep, KEEP, counter)
    longest = max(keep, min_result_tokens(KEEP, counter))
    if counter.count_text(text) <= longest:
        assert short == text
        return
    assert counter.count_text(short) <= longest
    assert trim(short, keep, KEEP, counter) == short
    head, number, tail = re.split(r"\n\[… ([\d,]+) tokens left out …\]\n", short)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert counter.count_text(text[len(head) : len(text) - len(tail)]) == int(number.replace(",", ""))


def test_the_head_gets_its_share(counter: TokenCounter) -> None:
    text = words(2_000)
    for share in (0.0, 0.25, 0.7, 1.0):
        head, tail = re.split(r"\n\[….*…\]\n", trim(text, 300, TargetSettings(trim_head_share=share, trim_keep_tokens=100), counter))
        kept = counter.count_text(head) + counter.count_text(tail)
        assert counter.count_text(head) == pytest.approx(share * kept, abs=3)
        assert 270 < kept < 300


def test_a_second_cut_counts_what_the_first_one_left_out() -> None:
    estimate = load_counter("estimate")
    once = trim(words(3_000), 400, KEEP, estimate)
    twice = trim(once, 100, KEEP, estimate)
    [first], [second] = (re.findall(r"([\d,]+) tokens left out", text) for text in (once, twice))
    assert int(second.replace(",", "")) > int(first.replace(",", "")) + 200


def test_only_text_of_results_can_be_cut() -> None:
    parts = result("c", "")  # replaced by parts
    parts["content"] = [{"type": "text", "text": "ab"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "abcd"}]
    assert [result_text(message) for message in (answer("x"), result("c", "y"), parts, {**parts, "content": None})] == [
        None,
        "y",
        "abcd",
        None,
    ]
    assert with_text(result("c", "y", name="n", metadata={"a": 1}), "y", "z") == result("c", "z", name="n", metadata={"a": 1})
    assert [part.get("text") for part in with_text(parts, "abcd", "z")["content"]] == ["ab", None, "z"]
