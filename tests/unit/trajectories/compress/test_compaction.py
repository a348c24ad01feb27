"""One conversation, compressed: what goes first, what is cut, what a summary carries, what is said about it."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes import CallRecord, MessageGraph
from hermes.trajectories.compress import (
    CompactionResult,
    CompressionSettings,
    ExtractiveSummariser,
    ModelSummariser,
    Region,
    Summary,
    SummaryRequest,
    compact_to_target,
    compact_when_full,
    load_counter,
)
from hermes.trajectories.errors import SessionError
from hermes.trajectories.sampling_model import ModelFailed
from tests.unit.trajectories.compress.chats import Fake, answer, chat_of, result, settings, system, user, words
from tests.unit.trajectories.compress.vocabularies import MISTRAL, save_smollm2

ESTIMATE = load_counter("estimate")
HEAD = [system("Be brief."), user("Start."), answer(None, ("c0", "look", "{}")), result("c0", "here")]


def rounds(count: int, size: int = 40) -> list[dict[str, Any]]:
    return [message for number in range(count) for message in (user(words(size, f"ask{number}-")), answer(words(size, f"say{number}-")))]


async def shortened(
    messages: list[dict[str, Any]], chosen: CompressionSettings, summariser: Any = None
) -> tuple[MessageGraph, CompactionResult]:
    chat = chat_of(messages)
    return chat, await compact_to_target(chat, chosen, ESTIMATE, summariser or ExtractiveSummariser(), sample_id="s")


# --- summaries


async def test_only_as_much_as_needed_is_summarised_from_the_start_of_the_middle() -> None:
    messages = [*HEAD, *rounds(12)]
    chosen = settings(2_000, summary_target_tokens=200)
    chat, told = await shortened(messages, chosen)
    assert told.compression_region == Region(4, 14, 10)
    assert list(chat[:4]) == messages[:4]
    assert list(chat[5:]) == messages[14:]
    assert chat[4]["content"].startswith("[CONTEXT SUMMARY]: User: ask0-")
    assert chat[4]["content"].endswith("\n\nSome of the conversation is summarised to preserve context.")
    assert told.compressed_tokens <= 2_000
    # One unit fewer would not do: the summary may be as long as it is allowed to be.
    shorter = sum(ESTIMATE.count([message]) for message in messages[4:13])
    assert told.original_tokens - shorter + 200 + 8 + ESTIMATE.count_text("[CONTEXT SUMMARY]: ") > 2_000


async def test_the_numbers_are_those_of_the_lists() -> None:
    messages = [*HEAD, *rounds(12)]
    chat, told = await shortened(messages, settings(2_000, summary_target_tokens=200))
    before, after = ESTIMATE.count(messages), ESTIMATE.count(list(chat))
    assert told == CompactionResult(
        original_tokens=before,
        compressed_tokens=after,
        tokens_saved=before - after,
        compression_ratio=after / before,
        original_turns=28,
        compressed_turns=19,
        turns_removed=9,
        compression_region=Region(4, 14, 10),
        was_compressed=True,
        summary="extractive",
        tokens_estimated=True,
        first_off_policy=4,
    )
    shown = told.to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["compression_region"], shown["compression_ratio"]) == (
        {"start_idx": 4, "end_idx": 14, "turns_count": 10},
        round(after / before, 4),
    )
    assert shown["off_policy_reason"] == "a summary stands for turns that the later answers were sampled with"


async def test_a_summary_never_stands_for_a_stretch_about_which_nothing_could_be_said() -> None:
    messages = [*HEAD, *rounds(20, size=4)]
    chat, told = await shortened(messages, settings(ESTIMATE.count(messages) - 3))
    assert told.turns_removed > 3, "one turn would have been enough for a mark"
    assert "left out." not in chat[4]["content"]
    assert ESTIMATE.count_text(chat[4]["content"]) > 60


async def test_a_models_summary_carries_its_chat_and_is_a_sample_of_the_graph() -> None:
    model = Fake("Everything was asked and said.")
    chosen = settings(2_000)
    chat, told = await shortened([*HEAD, *rounds(12)], chosen, ModelSummariser(model, chosen))
    side = chat[4]["metadata"]
    assert (side["length"], [message["role"] for message in side["chat"]]) == (2, ["user", "assistant"])
    assert side["compression"]["how"] == told.summary == "model"
    [summary] = [response for response in chat.responses() if response.sample_id == "s"]
    assert (summary.message["content"], summary.is_own) == ("Everything was asked and said.", False)
    assert summary.context == model.requests[0].messages
    assert (told.micro_usd, told.summarization_api_calls, told.summarization_errors) == (11, 1, 0)
    assert MessageGraph.from_json(chat.to_json()) == chat


async def test_the_model_is_given_the_whole_stretch_and_the_protected_head() -> None:
    pieces: list[SummaryRequest] = []

    class Watched:
        async def summarise(self, piece: SummaryRequest) -> Summary:
            pieces.append(piece)
            return Summary("short", "model")

    messages = [*HEAD, *rounds(12)]
    await shortened(messages, settings(2_000, summary_target_tokens=200), Watched())
    [piece] = pieces
    assert list(piece.messages) == messages[4:14]
    assert (list(piece.head), piece.target_tokens, piece.sample_id) == (messages[:4], 200, "s")


async def test_a_summariser_that_keeps_to_nothing_is_cut_to_its_target() -> None:
    class Talkative:
        async def summarise(self, piece: SummaryRequest) -> Summary:
            return Summary("And so on. " * 500, "model")

    giant = [user(words(1_500, "much"))]  # summarising it leaves more room than the summary may take
    chat, told = await shortened([*HEAD, *giant, *rounds(8)], settings(3_000, summary_target_tokens=100), Talkative())
    assert (told.still_over_limit, told.compressed_tokens < 2_500) == (False, True)
    text = (
        chat[4]["content"]
        .removeprefix("[CONTEXT SUMMARY]: ")
        .removesuffix("\n\nSome of the conversation is summarised to preserve context.")
    )
    assert text == ("And so on. " * 27).strip()


async def test_a_summary_is_asked_to_be_half_of_what_it_stands_for_at_most_and_shorter_where_the_target_is_tight() -> None:
    asked: list[tuple[int, int]] = []

    class Watched:
        async def summarise(self, piece: SummaryRequest) -> Summary:
            asked.append((piece.target_tokens, ESTIMATE.count(piece.messages)))
            return Summary("short", "model")

    messages = [*HEAD, *rounds(6)]
    total = ESTIMATE.count(messages)
    await shortened(messages, settings(total - 60), Watched())
    await shortened(messages, settings(total - 300), Watched())
    tight = ESTIMATE.count([*HEAD, *messages[-4:]]) + 60
    await shortened(messages, settings(tight), Watched())
    assert [40 <= budget < tokens / 2 for budget, tokens in asked] == [True, True, False]
    assert asked[0][1] < asked[1][1] < asked[2][1]
    assert 0 < asked[2][0] < 40


async def test_what_is_shorter_than_a_mark_stays_as_it_is() -> None:
    messages = [user("Start."), answer("Yes."), user("ok"), *HEAD[2:], *rounds(8)]
    least = ESTIMATE.count([*messages[:5], user("[CONTEXT SUMMARY]: 12 turns left out."), *messages[-4:]])
    chat, told = await shortened(messages, settings(least))
    assert (told.still_over_limit, list(chat[:5])) == (False, messages[:5])


async def test_a_failed_model_never_drops_a_trajectory() -> None:
    chosen = settings(2_000)
    chat, told = await shortened([*HEAD, *rounds(12)], chosen, ModelSummariser(Fake(ModelFailed("down", is_final=True)), chosen))
    assert (told.summary, told.summarization_errors) == ("extractive (model failed: down)", 1)
    assert "ask0-" in chat[4]["content"]
    assert chat[4]["metadata"]["compression"]["how"] == told.summary


async def test_a_summary_that_takes_too_long_is_not_waited_for() -> None:
    class Hanging:
        async def summarise(self, piece: SummaryRequest) -> Summary:
            await asyncio.sleep(60)
            return Summary("late")

    _, told = await shortened([*HEAD, *rounds(12)], settings(2_000, processing={"per_trajectory_timeout": 0.01}), Hanging())
    assert told.summary == "extractive (model failed: no summary within 0.01 s)"
    assert (told.summarization_api_calls, told.summarization_errors) == (1, 1)


async def test_a_protected_turn_in_the_middle_stays_where_it_is() -> None:
    messages = [user("Start."), answer("Yes."), *rounds(8), *HEAD[2:], *rounds(8)]
    chat, told = await shortened(messages, settings(900, summary_target_tokens=100))
    assert [message["role"] for message in chat] == ["user", "assistant", "user", "assistant", "tool", "user", *["user", "assistant"] * 2]
    assert list(chat[3:5]) == HEAD[2:]
    assert [bool(message.get("metadata")) for message in chat].count(True) == 2
    assert told.compression_region == Region(2, 32, 28)
    assert len(chat.versions) == 2


async def test_a_summary_is_summarised_again_when_the_conversation_went_on() -> None:
    chosen = settings(2_000, summary_target_tokens=200)
    chat, _ = await shortened([*HEAD, *rounds(12)], chosen)
    chat.extend(rounds(9, size=50))
    pieces: list[SummaryRequest] = []

    class Watched:
        async def summarise(self, piece: SummaryRequest) -> Summary:
            pieces.append(piece)
            return await ExtractiveSummariser().summarise(piece)

    said = chat[4]["content"]
    told = await compact_to_target(chat, chosen, ESTIMATE, Watched(), sample_id="s2")
    assert pieces[0].messages[0]["role"] == "system", "nobody's own words"
    assert f"[CONTEXT SUMMARY]: {pieces[0].messages[0]['content']}\n\nSome of the conversation is summarised to preserve context." == said
    assert (told.was_compressed, told.still_over_limit, told.compression_region.start_idx) == (True, False, 4)
    assert sum(message.get("content", "").startswith("[CONTEXT SUMMARY]") for message in chat if message["content"]) == 1
    assert [version.kind for version in chat.versions] == ["compaction", "compaction", None]


async def test_tools_count_too() -> None:
    messages = [*HEAD, *rounds(4)]
    total = ESTIMATE.count(messages)
    tools = [{"type": "function", "function": {"name": "look", "description": words(100)}}]
    chat = chat_of(messages)
    told = await compact_to_target(
        chat, settings(total, summary_target_tokens=60), ESTIMATE, ExtractiveSummariser(), sample_id="s", tools=tools
    )
    assert told.original_tokens == ESTIMATE.count(messages, tools) > total
    assert told.was_compressed


async def test_reasoning_counts_as_a_row_has_it() -> None:
    messages = [user("Why?"), answer("So.", reasoning="Because of this.")]
    with_think = [user("Why?"), answer("<think>\nBecause of this.\n</think>\nSo.")]
    chosen = settings(9_000)
    assert (await shortened(messages, chosen))[1].original_tokens == ESTIMATE.count(with_think)
    plain = replace(chosen, tokenizer=replace(chosen.tokenizer, count_reasoning=False))
    assert (await shortened(messages, plain))[1].original_tokens == ESTIMATE.count([user("Why?"), answer("So.")])


# --- tool results


async def test_one_giant_result_is_cut_inside_its_turn_and_nothing_else_is_touched() -> None:
    giant = [answer(None, ("c1", "look", "{}")), result("c1", words(3_000, "out"), metadata={"chat": MessageGraph([user("inner")])})]
    messages = [*HEAD, *rounds(3), *giant, *rounds(4)]
    chat, told = await shortened(messages, settings(4_000))
    assert (told.trimmed_results, told.summary, told.turns_removed, told.compression_region) == (1, "", 0, Region(11, 12, 0))
    assert 3_950 < told.compressed_tokens <= 4_000, "no more than needed"
    assert [message for index, message in enumerate(chat) if index != 11] == [
        message for index, message in enumerate(chat.previous or ()) if index != 11
    ]
    text = chat[11]["content"]
    assert text.startswith("out0 out1 ")
    assert text.endswith(" out2998 out2999")
    assert " tokens left out …]" in text
    assert len(chat[11]["metadata"]["chat"]) == 1
    assert told.off_policy_reason == "tool results are shorter than the later answers were sampled with"


async def test_a_giant_result_is_summarised_with_its_turn_where_cutting_is_not_wanted() -> None:
    giant = [answer(None, ("c1", "look", "{}")), result("c1", words(3_000, "out"))]
    _, told = await shortened([*HEAD, *giant, *rounds(4)], settings(4_000, trim_results=False))
    assert (told.trimmed_results, told.summary, told.still_over_limit) == (0, "extractive", False)


async def test_a_giant_result_in_a_protected_turn_is_flagged_or_cut_as_the_settings_say() -> None:
    messages = [*HEAD[:3], result("c0", words(3_000, "out")), *rounds(6)]
    chat, told = await shortened(messages, settings(3_000))
    assert (told.still_over_limit, chat[3]["content"]) == (True, messages[3]["content"])
    assert told.over_limit_reason == f"parts that may not be summarised or cut have {told.compressed_tokens:,} tokens, the target is 3,000"
    chat, told = await shortened(messages, settings(3_000, trim_protected=True))
    assert (told.still_over_limit, told.trimmed_results, told.compressed_tokens <= 3_000) == (False, 1, True)
    assert told.summary == "extractive", "a last resort: the middle goes first"


async def test_a_result_whose_call_is_protected_can_be_cut_but_not_summarised() -> None:
    messages = [*HEAD[:3], result("c0", words(2_000, "out")), *rounds(6)]
    chat, told = await shortened(messages, settings(2_000, giant_result_share=1.0, protected_turns={"first_tool": False}))
    assert (told.still_over_limit, told.trimmed_results) == (False, 1)
    assert (chat[2], chat[3]["tool_call_id"]) == (messages[2], "c0")


async def test_old_results_are_pruned_first_the_oldest_first() -> None:
    old = [
        message for number in range(6) for message in (answer(None, (f"c{number}", "look", "{}")), result(f"c{number}", words(400, "out")))
    ]
    chat, told = await shortened(
        [user("Start."), *old, *rounds(3)], settings(5_600, prune_results=True, protected_turns={"first_tool": False})
    )
    cut = ["left out" in message["content"] for message in chat if message["role"] == "tool"]
    assert cut == [True, True, False, False, False, False]
    assert (told.summary, told.trimmed_results) == ("", 2)


# --- what cannot be done


async def test_what_may_not_be_touched_is_flagged_and_still_there() -> None:
    messages = [system(words(500)), user(words(500))]
    chat, told = await shortened(messages, settings(100))
    assert (told.still_over_limit, told.was_compressed, told.skipped_under_target) == (True, False, False)
    assert (list(chat), len(chat.versions)) == (messages, 1)
    assert told.off_policy_reason == ""


async def test_the_middle_is_summarised_even_where_that_is_not_enough() -> None:
    messages = [system(words(500)), user("Start."), answer("Yes."), *rounds(8)]
    chat, told = await shortened(messages, settings(1_000))
    assert (told.still_over_limit, told.was_compressed) == (True, True)
    assert told.turns_removed > 0
    assert len(chat[3]["content"]) > 500, "a whole summary: leaving it shorter would not help either"


async def test_a_tight_target_shortens_the_summary_down_to_a_mark() -> None:
    messages = [*HEAD, *rounds(6)]
    least = ESTIMATE.count([*HEAD, user("[CONTEXT SUMMARY]: 8 turns left out."), *messages[-4:]])
    chat, told = await shortened(messages, settings(least))
    assert (told.still_over_limit, told.compressed_tokens, chat[4]["content"]) == (False, least, "[CONTEXT SUMMARY]: 8 turns left out.")
    assert (await shortened(messages, settings(least - 1)))[1].still_over_limit


async def test_a_template_that_takes_no_summary_there_gets_one_where_it_does(tmp_path: Path) -> None:
    """User and assistant by turns: a summary, which is a user's, must stand before an assistant's message."""
    counter = load_counter(save_smollm2(tmp_path / "mistral", MISTRAL))
    chat = chat_of([*rounds(12)])
    total = counter.count(list(chat))
    told = await compact_to_target(
        chat, settings(total * 3 // 4, summary_target_tokens=100), counter, ExtractiveSummariser(), sample_id="s"
    )
    assert (told.was_compressed, told.still_over_limit) == (True, False)
    assert [message["role"] for message in chat] == ["user", "assistant"] * (len(chat) // 2)
    ends_with_user = settings(total // 2, summary_target_tokens=100, protected_turns={"first_gpt": False})
    refused = chat_of([*rounds(12)])
    told = await compact_to_target(refused, ends_with_user, counter, ExtractiveSummariser(), sample_id="s")
    assert (told.was_compressed, told.over_limit_reason) == (False, "the chat template takes no summary in this conversation")
    with pytest.raises(SessionError, match="roles must alternate"):
        await compact_to_target(chat_of([user("a"), user("b")]), settings(1), counter, ExtractiveSummariser(), sample_id="s")


async def test_a_conversation_edited_meanwhile_is_left_alone_but_may_go_on() -> None:
    class Meddling:
        def __init__(self, chat: MessageGraph, *, edits: bool) -> None:
            self.chat, self.edits = chat, edits

        async def summarise(self, piece: SummaryRequest) -> Summary:
            if self.edits:
                self.chat[5]["content"] = "changed"
            self.chat.append(user("One more thing."))
            return Summary("short")

    chosen = settings(2_000)
    chat = chat_of([*HEAD, *rounds(12)])
    with pytest.raises(SessionError, match="edited while it was summarised"):
        await compact_to_target(chat, chosen, ESTIMATE, Meddling(chat, edits=True), sample_id="s")
    assert chat[5]["content"] == "changed"
    chat = chat_of([*HEAD, *rounds(12)])
    assert (await compact_to_target(chat, chosen, ESTIMATE, Meddling(chat, edits=False), sample_id="s")).was_compressed
    assert chat[-1]["content"] == "One more thing."


async def test_what_fits_is_summarised_too_where_the_settings_say_so() -> None:
    chosen = settings(90_000, processing={"skip_under_target": False})
    chat, told = await shortened([*HEAD, *rounds(6)], chosen)
    assert (told.was_compressed, told.compression_region) == (True, Region(4, 12, 8))
    before = chat.to_json()
    assert not (await compact_to_target(chat, chosen, ESTIMATE, ExtractiveSummariser(), sample_id="s")).was_compressed
    assert chat.to_json() == before
    assert (await shortened([*HEAD, user("Hm?"), answer("Yes.")], chosen))[1].skipped_under_target, "nothing to be gained"


# --- running conversations


def live_chat() -> MessageGraph:
    old = [answer("Let me see.", ("c1", "look", "{}")), result("c1", words(1_000, "out"))]
    return chat_of([*HEAD, *rounds(3), *old, *rounds(8)])


async def test_a_running_conversation_is_left_alone_until_it_nears_its_limit() -> None:
    chat = live_chat()
    total = ESTIMATE.count(list(chat))
    told = await compact_when_full(
        chat, CompressionSettings(), ESTIMATE, ExtractiveSummariser(), limit_tokens=int(total / 0.84), sample_id="s"
    )
    assert (told.skipped_under_target, told.still_over_limit, told.over_limit_reason, len(chat.versions)) == (True, False, "", 1)
    told = await compact_when_full(
        chat, CompressionSettings(), ESTIMATE, ExtractiveSummariser(), limit_tokens=int(total / 0.86), sample_id="s"
    )
    assert told.was_compressed
    assert told.compressed_tokens <= total / 0.86 / 2


async def test_old_tool_output_goes_before_any_words() -> None:
    chat, chosen = live_chat(), CompressionSettings()
    limit = int(ESTIMATE.count(list(chat)) / 0.9)
    roomy = replace(chosen, live=replace(chosen.live, target_share=0.7))
    told = await compact_when_full(chat, roomy, ESTIMATE, ExtractiveSummariser(), limit_tokens=limit, sample_id="s")
    assert (told.summary, told.trimmed_results, told.turns_removed) == ("", 1, 0)
    assert chat.previous is not None
    assert chat.previous.kind == "compaction"
    tight = replace(chosen, live=replace(chosen.live, target_share=0.3))
    told = await compact_when_full(live_chat(), tight, ESTIMATE, ExtractiveSummariser(), limit_tokens=limit, sample_id="s")
    assert told.summary == "extractive"


async def test_a_live_summary_is_for_reference_only_and_quotes_the_user() -> None:
    model = Fake("They talked about many things.")
    chat = live_chat()
    chosen = CompressionSettings()
    await compact_when_full(chat, chosen, ESTIMATE, ModelSummariser(model, chosen), limit_tokens=4_000, sample_id="s")
    text = chat[4]["content"]
    assert text.startswith("[CONTEXT SUMMARY, for reference only: it stands for earlier turns")
    assert "They talked about many things.\n\nIn the user's own words:\nUser: ask0-" in text
    assert [response.sample_id for response in chat.responses()].count("s") == 1


async def test_a_live_conversation_is_never_shortened_more_than_needed() -> None:
    chosen = CompressionSettings()
    eager = replace(chosen, processing=replace(chosen.processing, skip_under_target=False))
    lists = []
    for settings_of in (chosen, eager):
        chat = live_chat()
        await compact_when_full(chat, settings_of, ESTIMATE, ExtractiveSummariser(), limit_tokens=5_000, sample_id="s")
        lists.append(list(chat))
    assert lists[0] == lists[1]


async def test_a_live_conversation_goes_on_and_is_compacted_again() -> None:
    chat = live_chat()
    for number in range(12):
        chat.append(user(words(60, f"more{number}-")))
        told = await compact_when_full(
            chat, CompressionSettings(), ESTIMATE, ExtractiveSummariser(), limit_tokens=4_000, sample_id=f"s{number}"
        )
        assert not told.still_over_limit
        chat.append(answer(words(60, f"reply{number}-")), call=CallRecord(sample_id=f"live:{number}"))
    kinds = [version.kind for version in chat.versions]
    assert kinds[:-1] == ["compaction"] * (len(kinds) - 1)
    assert len(kinds) > 2
    assert sum(1 for message in chat if (message["content"] or "").startswith("[CONTEXT SUMMARY")) == 1
    assert chat.verify()
    assert len({response.sample_id for response in chat.responses()} & {f"live:{number}" for number in range(12)}) == 12
