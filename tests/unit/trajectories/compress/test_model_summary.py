"""The summary by a model: what it is asked, what is made of its answer, and what happens when none comes."""

import asyncio
from typing import Any

import pytest

from hermes.trajectories.compress import (
    CompressionSettings,
    ExtractiveSummariser,
    ModelSummariser,
    Summary,
    SummaryRequest,
    load_counter,
    read_settings,
)
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest
from tests.unit.trajectories.compress.chats import SPENT, Fake, answer, result, system, user, words

ESTIMATE = load_counter("estimate")
MIDDLE = [
    user("Find the port of the staging server, please."),
    answer("Looking.", ("c1", "read_file", '{"path": "/etc/staging"}'), reasoning="It should be in the settings."),
    result("c1", f"port = 8443 {words(1_000, 'noise')} the end"),
    answer("It is 8443."),
]


class Waits:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def piece(target: int = 200, **fields: Any) -> SummaryRequest:
    return SummaryRequest(MIDDLE, target, "file:1", ESTIMATE, **fields)


async def ask(model: Fake, target: int = 200, waits: Waits | None = None, **values: Any) -> Summary:
    chosen = read_settings(None, {f"summarization.{name}": value for name, value in values.items()})
    return await ModelSummariser(model, chosen, sleep=waits or Waits()).summarise(piece(target))


def responses(summary: Summary) -> list[tuple[str, str]]:
    assert summary.chat is not None
    return [(response.sample_id, response.message["content"]) for response in summary.chat.responses()]


async def test_a_models_answer_is_the_summary_and_a_sample_in_its_own_chat() -> None:
    model = Fake("The staging server listens on 8443.")
    summary = await ask(model)
    assert (summary.text, summary.how, summary.micro_usd) == ("The staging server listens on 8443.", "model", 11)
    assert (summary.api_calls, summary.errors) == (1, 0)
    [request] = model.requests
    assert (request.sample_id, request.sampling, request.max_tokens, request.timeout_s) == ("file:1", {"temperature": 0.3}, 400, 120.0)
    assert summary.chat is not None
    [response] = summary.chat.responses()
    assert response.context == request.messages
    assert response.call is not None
    assert (response.sample_id, response.call.model, response.call.usage) == ("file:1", "fake", {"completion_tokens": 7})


async def test_the_prompt_shows_the_turns_shortened_and_how_it_began() -> None:
    model = Fake("ok")
    chosen = read_settings(None, {"summarization": {"turn_max_chars": 200, "turn_head_chars": 60, "turn_tail_chars": 10}})
    await ModelSummariser(model, chosen).summarise(piece(head=[system("Be brief."), user(words(300, "q"))]))
    text = model.requests[0].messages[0]["content"]
    assert "User: Find the port of the staging server, please." in text
    assert "(thinks: It should be in the settings.)" in text
    assert 'Looking.\nread_file({"path": "/etc/staging"})' in text
    assert "port = 8443" in text
    assert "characters left out …]\n99 the end" in text
    assert "noise500" not in text
    assert "Be brief." not in text, "what the system says is for somebody else"
    assert "q299" not in text
    assert "at most 133 words" in text
    bare = Fake("ok")
    await ask(bare)
    assert "How the conversation began" not in bare.requests[0].messages[0]["content"]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("[CONTEXT SUMMARY]: The port is 8443.", "The port is 8443."),
        ("<think>Hm.\n</think>\n\nSummary: The port is 8443.", "The port is 8443."),
        ({"role": "assistant", "content": [{"type": "text", "text": "The port is 8443."}]}, "The port is 8443."),
    ],
)
async def test_thoughts_and_labels_of_its_own_are_left_out(said: Any, text: str) -> None:
    assert (await ask(Fake(said))).text == text


async def test_what_a_model_says_again_is_left_out_and_going_round_in_circles_is_no_summary() -> None:
    again = await ask(Fake("The port is 8443. It was  found. The port is 8443.\nIt was found. Done."))
    assert again.text == "The port is 8443. It was  found. Done."
    round_and_round = await ask(Fake("The port:\n\n" * 30), max_retries=1)
    assert round_and_round.how == "extractive (model failed: an answer that says nothing)"
    assert responses(round_and_round) == [("file:1", "The port:\n\n" * 30)]


async def test_an_answer_about_something_else_is_no_summary() -> None:
    elsewhere = "They are planning a trip to Europe and looking for a reliable travel agency that can help them."
    summary = await ask(Fake(elsewhere, "The staging server listens on port 8443."), known_words_share=0.4)
    assert (summary.text, summary.errors) == ("The staging server listens on port 8443.", 1)
    assert (
        await ask(Fake(elsewhere), max_retries=1, known_words_share=0.4)
    ).how == "extractive (model failed: an answer about something else)"
    assert (await ask(Fake(elsewhere))).text == elsewhere


async def test_a_summary_that_is_too_long_is_cut_at_a_sentence() -> None:
    said = " ".join(f"It is on {number}." for number in range(1_000, 1_040))
    summary = await ask(Fake(said), target=30)
    assert summary.text == "It is on 1000. It is on 1001. It is on 1002. It is on 1003. It is on 1004. It is on 1005."
    assert ESTIMATE.count_text(summary.text) <= 30
    assert responses(summary) == [("file:1", said)], "the sample itself stays whole"
    assert ESTIMATE.count_text((await ask(Fake(words(200)), target=30)).text) <= 30


async def test_failures_and_empty_answers_are_asked_again_after_a_while() -> None:
    model, waits = Fake(ModelFailed("busy"), "  ", "The port is 8443."), Waits()
    summary = await ask(model, waits=waits)
    assert (summary.text, summary.how, summary.api_calls, summary.errors, summary.micro_usd) == ("The port is 8443.", "model", 3, 2, 22)
    assert [request.sample_id for request in model.requests] == ["file:1", "file:1:1", "file:1:2"]
    assert responses(summary) == [("file:1:1", "  "), ("file:1:2", "The port is 8443.")], "what was not taken was sampled too"
    assert [1 <= waits.seconds[0] <= 2, 2 <= waits.seconds[1] <= 4, len(waits.seconds)] == [True, True, 2]


async def test_waits_grow_to_their_limit_and_are_not_all_the_same() -> None:
    waits = Waits()
    await ask(Fake(ModelFailed("busy")), waits=waits, max_retries=9, retry_delay=2, retry_delay_max=30)
    assert len(waits.seconds) == 8
    assert all(15 <= seconds <= 30 for seconds in waits.seconds[4:])
    assert len(set(waits.seconds[4:])) > 1


async def test_after_the_last_try_the_extractive_summary_is_taken_and_says_why() -> None:
    summary = await ask(Fake(ModelFailed("busy\nvery")), max_retries=2)
    assert summary.how == "extractive (model failed: busy very)"
    assert (summary.text, summary.api_calls, summary.errors) == ((await ExtractiveSummariser().summarise(piece())).text, 2, 2)
    assert summary.chat is None, "nothing was sampled"
    empty = await ask(Fake(""), max_retries=2)
    assert (empty.how, responses(empty)) == ("extractive (model failed: an answer that says nothing)", [("file:1", ""), ("file:1:1", "")])


async def test_what_asking_again_would_not_help_is_not_asked_again() -> None:
    model = Fake(ModelFailed("too long for this model", is_final=True))
    summary = await ask(model)
    assert (len(model.requests), summary.how) == (1, "extractive (model failed: too long for this model)")


async def test_nobody_is_asked_where_no_try_is_allowed() -> None:
    model = Fake("x")
    assert "max_retries is 0" in (await ask(model, max_retries=0)).how
    assert model.requests == []


async def test_a_spent_budget_stops_asking_for_the_rest_of_the_run() -> None:
    model = Fake("The port is 8443.", SPENT)
    summariser = ModelSummariser(model, CompressionSettings(), sleep=Waits())
    hows = [(await summariser.summarise(piece())).how for _ in range(4)]
    spent = "extractive (model failed: the budget of this run is spent)"
    assert hows == ["model", spent, spent, spent]
    assert len(model.requests) == 2
    last = await summariser.summarise(piece())
    assert (last.api_calls, last.errors) == (0, 0)


async def test_an_answer_that_does_not_come_is_a_failure() -> None:
    class Hanging(Fake):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            await asyncio.sleep(60)
            return await super().sample(request)

    summary = await ask(Hanging("late"), timeout=0.01, max_retries=2)
    assert (summary.how, summary.errors) == ("extractive (model failed: no answer within 0.01 s)", 2)


async def test_another_fallback_can_be_plugged_in() -> None:
    class Mark:
        async def summarise(self, piece: SummaryRequest) -> Summary:
            return Summary("(mark)")

    summary = await ModelSummariser(Fake(SPENT), CompressionSettings(), Mark()).summarise(piece())
    assert summary.text == "(mark)"


async def test_a_middle_too_long_for_one_prompt_is_summarised_in_parts() -> None:
    said = [message for number in range(6) for message in (answer(None, ("c", "look", "{}")), result("c", words(100, f"out{number}-")))]
    model = Fake(*(f"Part {number} is done." for number in range(6)))
    chosen = read_settings(None, {"summarization.max_prompt_tokens": 900})
    summary = await ModelSummariser(model, chosen).summarise(SummaryRequest(said, 120, "file:1", ESTIMATE))
    assert len(model.requests) == 3
    assert all(ESTIMATE.count_text(request.messages[0]["content"]) <= 900 for request in model.requests)
    assert [request.messages[0]["content"].count("Assistant: ") for request in model.requests] == [2, 2, 2], "no call without its result"
    assert summary.text == "Part 0 is done.\nPart 1 is done.\nPart 2 is done."
    assert [name for name, _ in responses(summary)] == ["file:1", "file:1#1", "file:1#2"]
    assert summary.chat is not None
    assert [version.kind for version in summary.chat.versions] == ["continuation", "continuation", None]
    assert [response.context for response in summary.chat.responses()] == [request.messages for request in model.requests]


async def test_a_part_that_fails_is_summarised_by_the_fallback_and_the_others_stay() -> None:
    said = [user(words(150, f"{number}-")) for number in range(4)]
    chosen = read_settings(None, {"summarization.max_prompt_tokens": 600})
    model = Fake("Part 0 is done.", ModelFailed("gone", is_final=True), "Part 2 is done.")
    summary = await ModelSummariser(model, chosen).summarise(SummaryRequest(said, 120, "file:1", ESTIMATE))
    assert summary.how == "model and extractive (model failed: gone)"
    first, *middle, third, last = summary.text.split("\n")
    assert (first, third, last) == ("Part 0 is done.", "Part 2 is done.", "Part 2 is done.")
    assert middle[0].startswith("User: 1-0 ")
    assert [name for name, _ in responses(summary)] == ["file:1", "file:1#2", "file:1#3"]
    spent = Fake("Part 0 is done.", SPENT)
    summary = await ModelSummariser(spent, chosen).summarise(SummaryRequest(said, 120, "file:1", ESTIMATE))
    assert (len(spent.requests), summary.how) == (2, "model and extractive (model failed: the budget of this run is spent)")


async def test_the_users_own_words_get_their_share() -> None:
    summary = await ModelSummariser(
        Fake(" ".join(f"It was looked up {number} times." for number in range(30))), CompressionSettings()
    ).summarise(piece(100, user_words_share=0.5))
    model_part, _, quoted = summary.text.partition("\n\nIn the user's own words:\n")
    assert quoted == "User: Find the port of the staging server, please."
    assert 30 <= ESTIMATE.count_text(model_part) <= 50
    assert ESTIMATE.count_text(summary.text) <= 100
