"""The summary without a model: short enough, the same every time, in the words that were said, and the ones that matter."""

import time

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hermes.trajectories.compress import ExtractiveSummariser, SummaryRequest, TokenCounter, load_counter
from hermes.trajectories.compress.summariser import call_texts, content_text, extract
from tests.unit.trajectories.compress.chats import answer, conversations, result, user, words
from tests.unit.trajectories.compress.vocabularies import save_smollm2

ESTIMATE = load_counter("estimate")
FILLER = "Well, you know how it is, I was just thinking about it the other day and it is what it is."


@pytest.fixture(scope="session", params=["estimate", "smollm2"])
def counter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenCounter:
    return ESTIMATE if request.param == "estimate" else load_counter(save_smollm2(tmp_path_factory.mktemp("vocabulary")))


@given(conversations(), st.integers(0, 200))
@hypothesis_settings(deadline=None, max_examples=60)
def test_is_never_longer_than_its_target_and_says_nothing_new(
    counter: TokenCounter, messages: list[dict[str, object]], target: int
) -> None:
    text = extract(messages, target, counter)
    assert counter.count_text(text) <= target
    assert text == extract(messages, target, counter)
    said = " ".join(" ".join([content_text(message), *call_texts(message)]) for message in messages)
    for line in text.split("\n"):
        for piece in line.partition(": ")[2].split(" … "):
            assert all(word.strip("…") in said for word in piece.split())


async def test_is_a_summariser_that_asks_nobody() -> None:
    summary = await ExtractiveSummariser().summarise(SummaryRequest([user("My name is Ada. " + FILLER)], 8, "s", ESTIMATE))
    assert (summary.text, summary.how) == ("User: My name is Ada.", "extractive")
    assert (summary.chat, summary.micro_usd, summary.api_calls, summary.errors) == (None, 0, 0, 0)


def test_numbers_and_names_are_kept_before_chatter() -> None:
    said = [user(f"{FILLER} We meet Carol at 17:45 in Lisbon, gate B42. {FILLER}"), answer(f"{FILLER} Noted."), user(FILLER)]
    text = extract(said, 30, ESTIMATE)
    assert all(word in text for word in ("Carol", "17:45", "Lisbon", "B42"))


def test_the_users_words_are_kept_before_the_same_words_of_others() -> None:
    said = [answer("The blue lamp costs ninety euros. The red chair costs seventy euros.")]
    mine = [user("The green table costs eighty euros. The white shelf costs sixty euros.")]
    assert extract(said + mine, 20, ESTIMATE).startswith("User:")
    assert extract(mine + said, 20, ESTIMATE).startswith("User:")


def test_what_is_repeated_is_kept_once() -> None:
    said = [user("The code is 7731. The code is 7731. The code is 7731. The door is green and the window is blue.")]
    text = extract(said, 40, ESTIMATE)
    assert text.count("7731") == 1
    assert "green" in text
    code = "Room 7731 floor 7731 is code 7731. Code 7731 is room 7731."
    in_other_words = [user(f"{code} The shed stands behind the oak. The oak fell on the shed. Floor 7731 code.")]
    assert extract(in_other_words, 20, ESTIMATE) == "User: The oak fell on the shed. Floor 7731 code."


def test_order_is_kept_and_gaps_are_shown() -> None:
    text = extract([user(f"First 11. {FILLER} Then 22."), user("At last 33.")], 17, ESTIMATE)
    assert text == "User: First 11. … Then 22.\nUser: At last 33."


def test_calls_are_kept_with_their_arguments_and_results_with_head_and_tail() -> None:
    lines = "\n".join(f"line {number} of the log" for number in range(500))
    said = [answer(None, ("c", "read_file", '{"path": "/etc/hosts"}')), result("c", f"opened 127.0.0.1\n{lines}\nexit status 3")]
    text = extract(said, 60, ESTIMATE)
    assert 'Assistant: read_file({"path": "/etc/hosts"})' in text
    assert "opened 127.0.0.1" in text
    assert "exit status 3" in text
    assert "line 250" not in extract(said, 2_000, ESTIMATE)
    in_one_line = extract([result("c", f"begin {words(900)} status 404")], 400, ESTIMATE)
    assert in_one_line.startswith("Tool: begin word0")
    assert in_one_line.endswith("status 404")


def test_scripts_without_spaces_are_weighed_too() -> None:
    said = [user("今日は天気がいいですね。はい、そうですね。私の電話番号は090-1234です。今日は天気がいいですね。")]
    assert "090-1234" in extract(said, 20, ESTIMATE)


def test_a_target_smaller_than_any_clause_still_says_something() -> None:
    assert extract([user(words(100))], 6, ESTIMATE) == "User: word0 word1"
    assert extract([user(words(100))], 0, ESTIMATE) == ""
    assert extract([], 50, ESTIMATE) == ""


def test_a_megabyte_takes_no_more_than_seconds() -> None:
    said = [user(f"Point {number}: the value of item {number * 7} is {number * 13}, said {words(20, 'w')}.") for number in range(6_000)]
    start = time.process_time()
    assert extract(said, 750, ESTIMATE)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("run", [" ", "-", "a-", '."', "\u3000", ",", "\n ", "<think>"])
def test_a_long_run_of_anything_takes_no_more_than_a_second(run: str) -> None:
    start = time.process_time()
    extract([user(f"Look here {run * 40_000}| at 17:45, and go.")], 50, ESTIMATE)
    assert time.process_time() - start < 1


def test_a_dash_between_spaces_ends_a_clause_however_many_spaces_there_are() -> None:
    said = [user(f"We meet at 17:45   --   {words(40, 'chatter')}")]
    assert extract(said, 12, ESTIMATE) == "User: We meet at 17:45"
