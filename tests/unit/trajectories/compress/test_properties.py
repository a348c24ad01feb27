"""What compression promises, for any conversation under any settings."""

import asyncio
import json
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hermes import MessageGraph
from hermes.trajectories.calls import read_calls
from hermes.trajectories.compress import (
    CompactionResult,
    CompressionSettings,
    ExtractiveSummariser,
    ModelSummariser,
    TokenCounter,
    compact_to_target,
    load_counter,
)
from hermes.trajectories.compress.token_scale import TokenScale
from hermes.trajectories.compress.turns import is_summary, lay_out, turns_of, units_of
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import ExportSession
from hermes.trajectories.verify import verify
from tests.unit.trajectories.compress.chats import (
    Fake,
    answer,
    chat_of,
    conversations,
    drawn_settings,
    result,
    settings,
    system,
    user,
    words,
)
from tests.unit.trajectories.compress.vocabularies import TOOLS, save_smollm2

Messages = Sequence[Mapping[str, Any]]


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> TokenCounter:
    return load_counter(save_smollm2(tmp_path_factory.mktemp("vocabulary") / "smollm2", TOOLS))


@pytest.fixture(scope="session", params=["estimate", "smollm2"])
def counter(request: pytest.FixtureRequest) -> TokenCounter:
    return load_counter("estimate") if request.param == "estimate" else request.getfixturevalue("smollm2")


def compressed(messages: Messages, chosen: CompressionSettings, counter: TokenCounter) -> tuple[MessageGraph, CompactionResult]:
    chat = chat_of(messages)
    return chat, run(chat, chosen, counter)


def run(chat: MessageGraph, chosen: CompressionSettings, counter: TokenCounter) -> CompactionResult:
    return asyncio.run(compact_to_target(chat, chosen, counter, ExtractiveSummariser(), sample_id="summary"))


GIANT = [
    system("Be brief."),
    user("Look."),
    answer(None, ("c1", "look", "{}")),
    result("c1", "short"),
    answer("Now the other."),
    answer(None, ("c1", "look", "{}")),
    result("c1", words(1500, "out")),
    *(message for number in range(4) for message in (user(f"And {number}?"), answer(f"It is {number}."))),
]
LONG = [
    *GIANT[:4],
    *(message for number in range(12) for message in (user(words(30, f"ask{number}-")), answer(words(30, f"say{number}-")))),
]
any_case = given(conversations(), drawn_settings())
slowly = hypothesis_settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@any_case
@example(GIANT, settings(900))
@example(LONG, settings(900, summary_target_tokens=100))
@slowly
def test_protected_turns_stay_as_they_are_to_the_byte(counter: TokenCounter, messages: Messages, chosen: CompressionSettings) -> None:
    before = chat_of(messages)
    layout = lay_out(before.versions[-1], chosen.protected_turns, ())
    protected = [message for index, message in enumerate(before.versions[-1]) if index in layout.protected]
    after, told = compressed(messages, chosen, counter)
    if chosen.compression.trim_protected:
        protected = [message for message in protected if message["role"] != "tool"]
    kept = iter(message.digest for message in after.versions[-1])
    assert all(message.digest in kept for message in protected), "each, and in this order"
    assert told.was_compressed == (after != before)


@any_case
@example(GIANT, settings(900))
@example(LONG, settings(900, summary_target_tokens=100))
@slowly
def test_fits_whenever_what_is_protected_allows_it_and_says_so_if_not(
    counter: TokenCounter, messages: Messages, chosen: CompressionSettings
) -> None:
    chat, told = compressed(messages, chosen, counter)
    target = chosen.compression.target_max_tokens
    scale = TokenScale(chosen, counter, ())
    assert told.compressed_tokens == scale.count(chat.versions[-1])
    assert told.still_over_limit == (told.compressed_tokens > target) == bool(told.over_limit_reason)
    if told.still_over_limit:
        # A few tokens at each seam is what the choice of where a summary is worth it may be off.
        seams = 12 * (1 + len(lay_out(messages, chosen.protected_turns, scale.headers).segments))
        assert scale.count(list(shortest(messages, scale))) > target - seams
    elif told.original_tokens > target:
        assert told.was_compressed


def shortest(messages: Messages, scale: TokenScale) -> Iterator[Mapping[str, Any]]:
    """The shortest list that protects what is protected: a mark for each stretch, results as short as they may be."""
    chosen = scale.settings
    layout = lay_out(messages, chosen.protected_turns, scale.headers)
    middle = {index: segment[0].start for segment in layout.segments for unit in segment for index in unit}
    for index, message in enumerate(messages):
        if index in middle:
            if index == middle[index]:
                yield user("[CONTEXT SUMMARY]: 9 turns left out.")
        elif (index in layout.protected and not chosen.compression.trim_protected) or not chosen.compression.trim_results:
            yield message
        else:
            yield scale.trim_result(message, scale.min_result_tokens)


@given(conversations(), drawn_settings(), st.integers(0, 50))
@slowly
def test_what_fits_is_not_touched(counter: TokenCounter, messages: Messages, chosen: CompressionSettings, room: int) -> None:
    total = TokenScale(chosen, counter, ()).count(messages)
    chosen = replace(chosen, compression=replace(chosen.compression, target_max_tokens=total + room))
    chat = chat_of(messages)
    before, head = chat.to_json(), chat.head
    told = run(chat, chosen, counter)
    assert (chat.to_json(), chat.head, len(chat.versions)) == (before, head, 1)
    assert (told.skipped_under_target, told.was_compressed, told.tokens_saved, told.off_policy_reason) == (True, False, 0, "")
    assert (told.original_tokens, told.compressed_tokens) == (total, total)


@any_case
@example(GIANT, settings(900))
@example(GIANT, settings(100))
@example(LONG, settings(900, summary_target_tokens=100))
@slowly
def test_compressing_twice_changes_nothing_more(counter: TokenCounter, messages: Messages, chosen: CompressionSettings) -> None:
    chat, first = compressed(messages, chosen, counter)
    before = chat.to_json()
    second = run(chat, chosen, counter)
    assert chat.to_json() == before
    assert (second.was_compressed, second.original_tokens) == (False, first.compressed_tokens)
    # Nor does it when the list went through a file that keeps no metadata.
    plain = chat_of([{key: value for key, value in message.items() if key != "metadata"} for message in chat.versions[-1]])
    assert not run(plain, chosen, counter).was_compressed


@any_case
@slowly
def test_no_call_loses_its_result_and_no_result_its_call(counter: TokenCounter, messages: Messages, chosen: CompressionSettings) -> None:
    chat, _ = compressed(messages, chosen, counter)
    for unit in units_of(messages):
        together = [messages[index].get("tool_call_id") or messages[index].get("tool_calls") for index in unit]
        assert present(messages, unit, chat) in (0, len(list(unit))), together
    assert orphans(chat.versions[-1]) <= orphans(messages)


def present(messages: Messages, unit: Any, chat: MessageGraph) -> int:
    """How many messages of a unit are still there, where that can be told."""
    left = Tally(marked(message) for message in chat.versions[-1])
    there = Tally(marked(message) for message in messages)
    known = [index for index in unit if there[marked(messages[index])] == 1]
    found = sum(left[marked(messages[index])] for index in known)
    return len(list(unit)) if found == len(known) and found else found


def marked(message: Mapping[str, Any]) -> str:
    """A message but for the text of a result, which may be cut."""
    fields = {key: value for key, value in message.items() if key != "metadata" and not (message["role"] == "tool" and key == "content")}
    return json.dumps([fields, str(message.get("content"))[:8]], sort_keys=True)


def orphans(messages: Messages) -> Tally[str]:
    """Calls without result and results without call, by id."""
    open_calls: Tally[str] = Tally()
    lost: Tally[str] = Tally()
    for message in messages:
        for call in message.get("tool_calls") or ():
            open_calls[call["id"]] += 1
        if message["role"] == "tool":
            of = message["tool_call_id"]
            if open_calls[of]:
                open_calls[of] -= 1
            else:
                lost[f"result {of}"] += 1
    return lost + Tally({f"call {of}": count for of, count in open_calls.items() if count})


@any_case
@example(GIANT, settings(900))
@example(LONG, settings(900, summary_target_tokens=100))
@slowly
def test_the_version_before_and_every_sample_stay_reachable(counter: TokenCounter, messages: Messages, chosen: CompressionSettings) -> None:
    before = chat_of(messages)
    samples = [(response.id, response.context, response.message) for response in before.responses()]
    chat, told = compressed(messages, chosen, counter)
    assert [(response.id, response.context, response.message) for response in chat.responses()] == samples
    assert chat.verify()
    if told.was_compressed and any(index >= (told.first_off_policy or 0) for index in before.versions[-1].sampled):
        assert chat.previous == list(before)
        assert chat.previous is not None
        assert (chat.previous.kind, len(chat.versions)) == ("compaction", 2)


@given(conversations(), drawn_settings())
@example(LONG, settings(900, summary_target_tokens=100))
@hypothesis_settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_the_ledger_of_an_export_is_complete(
    tmp_path_factory: pytest.TempPathFactory, messages: Messages, chosen: CompressionSettings
) -> None:
    """With a summary that a model wrote: its samples are in the ledger too, also those that were not taken."""
    counter = load_counter("estimate")
    chat = chat_of(messages)
    model = Fake("", "In short: it was looked into.")
    told = asyncio.run(compact_to_target(chat, chosen, counter, ModelSummariser(model, chosen, sleep=no_wait), sample_id="summary"))
    sampled = {f"chat:{index}" for index, message in enumerate(messages) if message["role"] == "assistant"}
    asked = {request.sample_id for request in model.requests}
    assert told.summarization_api_calls == len(model.requests)
    source = tmp_path_factory.mktemp("graphs") / "s.json"
    source.write_text(chat.to_json())
    for name in ("sharegpt", "parquet"):
        folder = tmp_path_factory.mktemp("out") / name
        export([ExportSession("s.json", chat)], folder, ExportSettings(format=name), FORMATS)
        manifest, *lines = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
        assert {line["sample"] for line in lines} == sampled | asked
        assert manifest["samples"] == len(lines)
        assert verify(folder, [source]).problems == ()


async def no_wait(_: float) -> None:
    pass


@given(conversations())
def test_turns_and_units_cover_a_list_once(messages: Messages) -> None:
    for parts in (turns_of(messages), units_of(messages)):
        assert [index for part in parts for index in part] == list(range(len(messages)))


@given(conversations(), drawn_settings())
@slowly
def test_nothing_is_dropped(messages: Messages, chosen: CompressionSettings) -> None:
    """Every message is still there, cut or whole, or a summary stands for it and says for how many turns."""
    counter = load_counter("estimate")
    chat, told = compressed(messages, chosen, counter)
    scale = TokenScale(chosen, counter, ())
    stands_for = sum(
        message["metadata"]["compression"]["turns"] for message in chat if is_summary(message, scale.headers) and message.get("metadata")
    )
    summaries = sum(1 for message in chat if message.get("metadata"))
    assert stands_for == told.compression_region.turns_count == told.turns_removed + summaries
    assert told.original_turns - told.turns_removed == told.compressed_turns == len(turns_of(chat.versions[-1]))
    assert len(read_calls(ExportSession("s", chat), ExportSettings().policies)) == sum(
        message["role"] == "assistant" for message in messages
    )
