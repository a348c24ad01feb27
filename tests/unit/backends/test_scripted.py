"""A script is followed to the letter, or refused with one line that says where it is wrong."""

import asyncio
import json
import math
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hermes.backends import BadScript, Script, ScriptedBackend
from hermes.backends.scripted.backend import split_tokens
from hermes.ports.backends import (
    Backend,
    BackendError,
    BadRequest,
    Capabilities,
    Completion,
    ContextTooLong,
    CutShort,
    Delta,
    FindingLevel,
    Garbled,
    ModelRequest,
    Overloaded,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Unauthorized,
    Unreachable,
    Unsupported,
    Usage,
)
from hermes.soul import prompt_layers
from hermes.soul.statements import language_book
from hermes.tools.images import image_note, unseen_attachment

NOON = datetime(2026, 3, 6, 4, 0, tzinfo=UTC)
"""A Friday; twelve o'clock in Bali."""
SEARCH = {"type": "function", "function": {"name": "venue_search", "parameters": {"type": "object"}}}
BOTH = """
[[rule]]
when = "cafe in (?P<town>\\\\w+)"
say = "Let me see, {town}…"
reasoning = "Two searches  are better."
call = [
    {name = "venue_search", arguments = {query = "{1}", filters = {words = ["{user}", "{{town}}"], limit = 3}}},
    {name = "weather"},
]
"""


def ask(*messages: Any, max_tokens: int = 100, **more: Any) -> ModelRequest:
    """A request; a plain text is something that the user said."""
    whole = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    return ModelRequest(messages=whole, max_tokens=max_tokens, **more)


def backend(script: str, **more: Any) -> ScriptedBackend:
    return ScriptedBackend(Script.parse(script), **more)


async def answer(to: ScriptedBackend, asked: ModelRequest, timeout_s: float = 5.0) -> Completion:
    return await to.complete(asked, "any", timeout_s=timeout_s)


async def said(script: str, *messages: Any, **more: Any) -> Any:
    return (await answer(backend(script), ask(*messages, **more))).message["content"]


async def streamed(to: ScriptedBackend, asked: ModelRequest, timeout_s: float = 5.0) -> tuple[list[Delta], Completion]:
    async with aclosing(to.stream(asked, "any", timeout_s=timeout_s)) as stream:
        *deltas, last = [delta async for delta in stream]
    assert isinstance(last, Completion)
    return [delta for delta in deltas if not isinstance(delta, Completion)], last


def searched(result: str, name: str = "venue_search", call_id: str = "c1") -> list[dict[str, Any]]:
    """A call and its result, as the history holds them: the result does not name its tool."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": call_id, "content": result}]


# --- rules


async def test_the_first_rule_that_matches_answers() -> None:
    script = '[[rule]]\nwhen = "rain"\nsay = "Wet."\n[[rule]]\nwhen = "rain|sun"\nsay = "Weather."\n'
    assert [await said(script, text) for text in ("RAIN?", "sun?")] == ["Wet.", "Weather."]


async def test_without_a_match_it_is_polite_or_says_what_the_script_says() -> None:
    assert (await said("", "Hm?")).startswith("I am sorry")
    assert await said('otherwise = "What is {user}?"', "xyzzy") == "What is xyzzy?"


async def test_groups_and_the_users_words_are_filled_in_once() -> None:
    script = "[[rule]]\nwhen = '(\\w+) is (?P<what>\\w+)( too)?'\nsay = '{1}, {what}, [{3}], {user}, {{user}}, {\"a\": {2}}'"
    text = [{"type": "text", "text": "Sky "}, {"type": "text", "text": "is blue {1}"}]
    assert await said(script, {"role": "user", "content": text}) == 'Sky, blue, [], Sky is blue {1}, {user}, {"a": blue}'


async def test_only_the_last_user_message_is_looked_at() -> None:
    script = '[[rule]]\nwhen = "one"\nsay = "1"\n[[rule]]\nwhen = "two"\nsay = "2"'
    assert await said(script, "one", {"role": "assistant", "content": "one"}, "two") == "2"


async def test_a_rule_for_a_turn_waits_for_it() -> None:
    script = '[[rule]]\nturn = 2\nsay = "again"\n[[rule]]\nsay = "first or later"'
    between = {"role": "assistant", "content": "ok"}
    assert [await said(script, "a"), await said(script, "a", between, "b")] == ["first or later", "again"]


async def test_a_rule_with_tools_needs_all_of_them_offered() -> None:
    script = '[[rule]]\ntools = ["venue_search"]\nsay = "with"\n[[rule]]\nsay = "without"'
    assert await said(script, "a", tools=[SEARCH]) == "with"
    assert await said(script, "a") == "without"
    assert await said(script, "a", tools=[SEARCH], tool_choice="none") == "without"
    assert await said(script.replace('"]', '", "weather"]'), "a", tools=[SEARCH]) == "without"


async def test_a_rule_after_a_tool_sees_its_result() -> None:
    script = '[[rule]]\nafter_tool = "venue_search"\nsay = "Found: {tool}"\n[[rule]]\nafter_tool = "*"\nsay = "Other."'
    assert await said(script, "a", *searched("two bars")) == "Found: two bars"
    assert await said(script, "a", *searched("30 °C", "weather")) == "Other."
    assert (await said(script, "a", *searched("x"), "and now?")).startswith("I am sorry"), "the result is not the last message"


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("x" * 2_000, "x" * 2_000),
        ("a line\n" * 300, "a line\n" * 285 + "…"),
        ("a few words " * 200, "a few words " * 166 + "a few …"),
        ("x" * 3_000, "x" * 1_999 + "…"),
    ],
    ids=["fits", "lines", "words", "neither"],
)
async def test_a_long_result_ends_with_a_whole_line_or_a_whole_word(result: str, shown: str) -> None:
    assert await said('[[rule]]\nafter_tool = "*"\nsay = "{tool}"', "a", *searched(result), max_tokens=5_000) == shown


async def test_a_rule_can_look_at_the_system_message() -> None:
    script = """[[rule]]\nsystem = '^You are (?P<who>\\w+)'\nsay = "{who} speaking." """
    assert await said(script, {"role": "system", "content": "You are Ada."}, "a") == "Ada speaking."
    assert (await said(script, "You are Ada.")).startswith("I am sorry")


async def test_a_rule_that_calls_does_not_call_again_after_its_result() -> None:
    script = '[[rule]]\nwhen = "bar"\ncall = {name = "venue_search"}\n[[rule]]\nwhen = "bar"\nsay = "Got {tool}."'
    assert (await answer(backend(script), ask("a bar"))).finish_reason == "tool_calls"
    assert await said(script, "a bar", *searched("two")) == "Got two."


async def test_calls_are_filled_in_at_any_depth() -> None:
    completion = await answer(backend(BOTH), ask("A café? A cafe in Ubud"))
    first, second = completion.message["tool_calls"]
    assert completion.finish_reason == "tool_calls"
    assert completion.message["content"] == "Let me see, Ubud…"
    assert first["function"]["name"] == "venue_search"
    assert json.loads(first["function"]["arguments"]) == {
        "query": "Ubud",
        "filters": {"words": ["A café? A cafe in Ubud", "{town}"], "limit": 3},
    }
    assert second["function"] == {"name": "weather", "arguments": "{}"}
    assert first["id"] != second["id"]


async def test_only_a_call_has_no_text() -> None:
    message = (await answer(backend('[[rule]]\ncall = {name = "f"}'), ask("a"))).message
    assert (message["content"], [call["function"]["name"] for call in message["tool_calls"]]) == (None, ["f"])


# --- transcripts


async def test_a_transcript_is_given_in_order_and_then_the_rules_apply() -> None:
    script = '[[transcript]]\nsay = "One."\n[[transcript]]\nfail = "overloaded"\n[[transcript]]\nsay = "{user}!"\n[[rule]]\nsay = "Rule."'
    to = backend(script)
    assert (await answer(to, ask("a"))).message["content"] == "One."
    with pytest.raises(Overloaded):
        await streamed(to, ask("a"))
    assert [(await answer(to, ask("b"))).message["content"] for _ in range(3)] == ["b!", "Rule.", "Rule."]


async def test_many_at_once_get_every_answer_of_a_transcript_once() -> None:
    to = backend("".join(f'[[transcript]]\nsay = "{number}"\ndelay_s = 0.001\n' for number in range(20)))
    answers = await asyncio.gather(*(answer(to, ask("a")) for _ in range(20)))
    assert {int(each.message["content"]) for each in answers} == set(range(20))


async def test_a_request_that_is_refused_takes_nothing_from_the_transcript() -> None:
    to = backend('[[transcript]]\nsay = "One."')
    with pytest.raises(BadRequest):
        await answer(to, ask())
    assert (await answer(to, ask("a"))).message["content"] == "One."


# --- answers, whole and in pieces


async def test_the_same_request_gets_the_same_answer() -> None:
    first, again = [await answer(backend(BOTH), ask("cafe in Ubud", wants_tokens=True)) for _ in range(2)]
    assert first == again
    other = await answer(backend(BOTH), ask("hello", {"role": "assistant", "content": "hi"}, "cafe in Ubud"))
    assert other.message["tool_calls"][0]["id"] != first.message["tool_calls"][0]["id"], "another round, another id"


@pytest.mark.parametrize("max_tokens", [1, 4, 9, 14, 40, 60, 1000])
async def test_a_stream_is_its_whole_answer(max_tokens: int) -> None:
    asked = ask("cafe in Ubud", max_tokens=max_tokens, wants_tokens=True)
    whole = await answer(backend(BOTH), asked)
    deltas, last = await streamed(backend(BOTH), asked)
    assert last == whole
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == (whole.message["content"] or "")
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == whole.message.get("reasoning", "")
    for at, call in enumerate(whole.message.get("tool_calls", ())):
        pieces = [delta for delta in deltas if isinstance(delta, ToolCallDelta) and delta.index == at]
        assert (pieces[0].id, pieces[0].name) == (call["id"], call["function"]["name"])
        assert "".join(piece.arguments for piece in pieces) == call["function"]["arguments"]


async def test_a_stream_comes_word_by_word() -> None:
    deltas, _ = await streamed(backend('[[rule]]\nsay = " One two,  three.\\n"'), ask("a"))
    assert deltas == [TextDelta(" One"), TextDelta(" two,"), TextDelta("  three."), TextDelta("\n")]


@pytest.mark.parametrize("text", ["", "Hello, 世界!", " two  spaces \n", "don't 1.5 😀 e\u0301", "\ud800 x"])
def test_tokens_joined_are_the_text(text: str) -> None:
    assert "".join(split_tokens(text)) == text


async def test_tokens_are_words_and_marks_and_an_end() -> None:
    completion = await answer(backend('[[rule]]\nsay = "Well, hello there."'), ask({"role": "system", "content": "Be brief."}, "Hi!"))
    # <system> Be brief . <end> <user> Hi ! <end> <assistant>, and Well , hello there . <end>
    assert completion.usage == Usage(tokens_in=10, tokens_out=6)
    assert len(completion.request_digest) == 64


@pytest.mark.parametrize("wants_tokens", [True, False])
async def test_a_script_names_itself_and_has_no_token_ids_whatever_is_asked_for(wants_tokens: bool) -> None:
    to, asked = backend(BOTH, name="mine"), ask("cafe in Ubud", wants_tokens=wants_tokens, tools=[SEARCH], sampling={"logprobs": True})
    for completion in (await to.complete(asked, "claude-sonnet-4-6", timeout_s=5), (await streamed(to, asked))[1]):
        assert (completion.model, to.answers_as("claude-sonnet-4-6")) == ("scripted", "scripted")
        assert (completion.prompt_token_ids, completion.token_ids, completion.logprobs, completion.extra) == (None, None, None, {})
        assert completion.usage.tokens_in > 0


async def test_an_answer_ends_at_max_tokens() -> None:
    script = '[[rule]]\nsay = "One two three."'
    cut = await answer(backend(script), ask("a", max_tokens=2))
    assert (cut.message["content"], cut.finish_reason, cut.usage.tokens_out) == ("One two", "length", 2)
    whole = await answer(backend(script), ask("a", max_tokens=5))
    assert (whole.message["content"], whole.finish_reason, whole.usage.tokens_out) == ("One two three.", "stop", 5)


async def test_a_call_that_does_not_fit_is_none() -> None:
    script = '[[rule]]\nsay = "Look."\ncall = [{name = "f"}, {name = "g", arguments = {words = "many many words"}}]'
    cut = await answer(backend(script), ask("a", max_tokens=8))
    assert [call["function"]["name"] for call in cut.message["tool_calls"]] == ["f"]
    assert (cut.message["content"], cut.finish_reason, cut.usage.tokens_out) == ("Look.", "length", 8)


# --- how it fails


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("overloaded", Overloaded),
        ("rate_limited", RateLimited),
        ("unreachable", Unreachable),
        ("garbled", Garbled),
        ("unauthorized", Unauthorized),
        ("bad_request", BadRequest),
    ],
)
async def test_each_failure_is_its_error(fault: str, error: type[BackendError], is_stream: bool) -> None:
    to = backend(f'[[rule]]\nfail = "{fault}"\n' + ("retry_after_s = 7" if fault == "rate_limited" else ""), name="stage")
    with pytest.raises(BackendError) as caught:
        await (streamed if is_stream else answer)(to, ask("a"))
    assert type(caught.value) is error
    assert (caught.value.backend, caught.value.model) == ("stage", "any")
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after_s == 7


async def test_a_stream_breaks_after_its_words_and_keeps_them() -> None:
    to = backend('[[rule]]\nsay = "One two three four."\nreasoning = "Hm."\ncut_after = 2')
    stream: AsyncGenerator[Delta | Completion, None] = to.stream(ask("a"), "any", timeout_s=5)
    assert [await anext(stream) for _ in range(3)] == [ReasoningDelta("Hm."), TextDelta("One"), TextDelta(" two")]
    with pytest.raises(CutShort) as caught:
        await anext(stream)
    assert caught.value.partial == {"role": "assistant", "content": "One two", "reasoning": "Hm."}
    assert caught.value.usage == Usage(tokens_in=4, tokens_out=5)
    with pytest.raises(Unreachable):
        await answer(to, ask("a"))


async def test_a_delay_passes_and_one_that_is_too_long_is_no_answer() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    to = backend('[[rule]]\nsay = "Late."\ndelay_s = 2.5', sleep=sleep)
    assert (await answer(to, ask("a"), 3)).message["content"] == "Late."
    for ask_again in (answer, streamed):
        with pytest.raises(Unreachable):
            await ask_again(to, ask("a"), 2)
    with pytest.raises(Unreachable):
        await answer(to, ask("a"), -1)
    assert slept == [2.5, 2, 2, 0]


@pytest.mark.parametrize(
    "asked",
    [
        ask(),
        ask({"content": "nobody"}),
        ask({"role": "assistant", "tool_calls": [7]}),
        ask("a", max_tokens=0),
        ask("a", max_tokens=math.nan),  # type: ignore[arg-type]
        ask("a", max_tokens=1.5),  # type: ignore[arg-type]
        ask("a", tools=[{"type": "function"}]),
    ],
    ids=["nothing", "no_role", "no_call", "no_room", "nan", "half", "no_tool"],
)
async def test_what_is_no_request_is_a_bad_one(asked: ModelRequest) -> None:
    with pytest.raises(BadRequest):
        await answer(backend(""), asked)


async def test_a_model_does_what_the_table_says() -> None:
    plain = Capabilities(tools=False, vision=False, context=20)
    to = backend("", models={"plain": plain})
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    assert (to.capabilities("plain"), to.supports_tools("plain"), to.supports_tools("other")) == (plain, False, True)
    refused = [(ask("a", tools=[SEARCH]), Unsupported), (ask(picture), Unsupported), (ask("word " * 30), ContextTooLong)]
    for asked, error in refused:
        with pytest.raises(error):
            await to.complete(asked, "plain", timeout_s=5)
        assert (await to.complete(asked, "other", timeout_s=5)).finish_reason == "stop"


async def test_is_the_port_and_always_well() -> None:
    to: Backend = backend('[[rule]]\nsay = "a"')
    [check] = await to.health_check()
    assert (to.name, check.code, check.level) == ("scripted", "ok", FindingLevel.INFO)
    assert "1 rules" in check.message
    await to.aclose()


# --- scripts that are wrong


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ('[[rules]]\nsay = "a"', 'script: rules: unknown key; did you mean "rule"?'),
        ('[[rule]]\nsay = "a"\n[[rule]]\nsya = "a"', 'script: rule[2].sya: unknown key; did you mean "say"?'),
        ('[[rule]]\ncall = {nam = "a"}', 'script: rule[1].call[1].nam: unknown key; did you mean "name"?'),
        ('[[transcript]]\nwhen = "a"', 'script: transcript[1].when: unknown key; did you mean "'),
        (
            '[[rule]]\nwhen = "("\nsay = "a"',
            "script: rule[1].when: is no regular expression: missing ), unterminated subpattern at position 0",
        ),
        ('[[rule]]\nwhen = "(?P<town>a)"\nsay = "{twon}"', "script: rule[1].say: there is no place {twon} here; did you mean {town}?"),
        ('[[rule]]\ncall = {name = "f", arguments = {a = ["{1}"]}}', "script: rule[1].call[1].arguments: there is no place {1} here"),
        ('[[rule]]\ncall = {name = "f", arguments = {a = nan}}', "script: rule[1].call[1].arguments: has a number that JSON"),
        ("[[rule]]\ncall = {arguments = {}}", "script: rule[1].call[1].name: is missing"),
        ('[[rule]]\nfail = "overload"', 'script: rule[1].fail: no such failure; did you mean "overloaded"?'),
        ('[[rule]]\nfail = "garbled"\nsay = "a"', 'script: rule[1].say: cannot be used together with "fail"'),
        ('[[rule]]\nfail = "garbled"\nretry_after_s = 1', 'script: rule[1].retry_after_s: needs fail = "rate_limited"'),
        ('[[rule]]\nwhen = "a"', "script: rule[1].say: is missing"),
        ("[[rule]]\nsay = 7", "script: rule[1].say: must be a text"),
        ('[[rule]]\nsay = "a"\nturn = true', "script: rule[1].turn: must be a whole number"),
        ('[[rule]]\nsay = "a"\ndelay_s = -1', "script: rule[1].delay_s: must be a number of seconds"),
        ('[[rule]]\nsay = "a"\ntools = "f"', "script: rule[1].tools: must be a list of texts"),
        ('[[rule]]\nsay = ""\ncut_after = 1', "script: rule[1].cut_after: needs words to cut"),
        ('rule = "a"', "script: rule: must be tables, each under a line [[rule]]"),
        ('[[rule]]\nsay = "a"\nwhen = 7', "script: rule[1].when: must be a regular expression, or a list of them"),
        ('[[rule]]\nsay = "a"\nwhen = "{yes}"', "script: rule[1].when: there is no piece {yes}"),
        (
            '[pieces]\nyes = "y"\n[[rule]]\nsay = "a"\nwhen = "{yse}"',
            "script: rule[1].when: there is no piece {yse}; did you mean {yes}?",
        ),
        ('[pieces]\nyes = "("', "script: pieces.yes: is no regular expression"),
        ('[pieces]\nYes = "y"', "script: pieces.Yes: a piece is named with small letters"),
        ('[[rule]]\nwhen = {en = "a", de = "b"}\nsay = {en = "a"}', 'script: rule[1].say: has nothing in "de", which "when" has'),
        (
            '[[rule]]\nwhen = {en = "a", de = "b"}\nsay = {en = "a", de = "b", fr = "c"}',
            'script: rule[1].say.fr: "when" has no such language; did you mean "',
        ),
        (
            '[[rule]]\nwhen = {en = "(?P<x>a)", de = "b"}\nsay = "a"',
            "script: rule[1].when.de: must have the same named groups as the first language (x)",
        ),
        ("[[rule]]\nsay = {en = 7}", "script: rule[1].say: must be a text, or a table with one for each language"),
        ('[[rule]]\nwhen = "a"\nfind = {x = "("}\nsay = "a"', "script: rule[1].find.x: is no regular expression"),
        ('[[rule]]\nask = {tmie = "When?"}\nsay = "a"', 'script: rule[1].ask.tmie: there is no place {tmie} here; did you mean "time"?'),
        ('[[rule]]\nask = {time = "When, {user}?"}\nsay = "a"', "script: rule[1].ask.time: has a place, {user}; a question"),
        ('[[rule]]\nask = {time = ""}\nsay = "a"', "script: rule[1].ask.time: is empty"),
        ('[[rule]]\nthen = "a"\nsay = "a"', 'script: rule[1].then: needs "call"'),
        (
            '[[rule]]\nthen = "a"\ncall = {name = "f"}\nafter_tool = "g"',
            'script: rule[1].then: cannot be used together with "after_tool"',
        ),
        ('[[rule]]\nline = "a"\nsay = "a"', 'script: rule[1].line: needs "each"'),
        ('[[rule]]\neach = "a"\nsay = "a"', "script: rule[1].line: is missing"),
        ('[[rule]]\nsay = "a"\npicture = 1', "script: rule[1].picture: must be true or false"),
        ("spelled = {two = 2}", "script: spelled: must be a table of texts"),
        ("[[rule", "script: is not TOML: "),
    ],
)
def test_a_wrong_script_is_refused_in_one_line(script: str, line: str) -> None:
    with pytest.raises(BadScript) as caught:
        Script.parse(script)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_script_is_read_from_a_file_and_errors_name_it(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    with pytest.raises(BadScript, match=r"demo\.toml: cannot be read"):
        Script.load(path)
    path.write_text('[[rule]]\nsay = "é"', encoding="utf-8")
    assert Script.load(path) == Script.parse('[[rule]]\nsay = "é"')
    path.write_bytes(b'[[rule]]\nsay = "\xff"')
    with pytest.raises(BadScript, match=r"demo\.toml: is not UTF-8"):
        Script.load(path)


# --- the user's own words


async def test_rules_look_at_the_users_words_and_not_at_what_the_router_put_before_them() -> None:
    note = prompt_layers.message_note(NOON, prompt_layers.SoulBase("", "Asia/Makassar", (NOON,)), [], str)
    script = '[[rule]]\nwhen = "rain|context"\nsay = "Wet."\n[[rule]]\nwhen = "^sun"\nsay = "Warm: {user}"'
    assert await said(script, f"{note}\n\nsun?") == "Warm: sun?"
    assert await said(script, f"{note}\n\n{image_note('Call calorie_scan, in the rain.')}\n\nsun?") == "Warm: sun?"
    assert await said(script, f"{note}\n\n{unseen_attachment('sun', 'audio/ogg').question}\n\nsun?") == "Warm: sun?"
    assert await said(script, "<context>\nsun") == "Wet.", "a block that does not end is what somebody wrote"


async def test_a_note_tells_the_time_and_without_one_only_whole_dates_are_days() -> None:
    script = '[[rule]]\nsay = "{day|no day} {time|no time}"'
    note = prompt_layers.message_note(NOON, prompt_layers.SoulBase("", "Asia/Makassar", ()), [], str)
    assert await said(script, f"{note}\n\ntomorrow at 9") == "2026-03-07 09:00", "Friday noon in Bali"
    assert await said(script, "tomorrow at 9") == "no day 09:00"
    assert await said(script, "2026-03-08, 9:15") == "2026-03-08 09:15"


@pytest.mark.parametrize("text", ["I\u2019m here", "I'm here", "CAFÉ", "cafe\u0301"])
async def test_one_way_to_write_letters_and_apostrophes_is_enough(text: str) -> None:
    assert await said("""[[rule]]\nwhen = "I'm|café"\nsay = "Yes." """, text) == "Yes."


# --- what was said before, and what is missing


async def test_before_and_result_look_back_and_their_groups_are_filled_in() -> None:
    script = """
[[rule]]
when = "^yes"
before = 'book (?P<what>\\w+)\\?$'
result = '^code (?P<code>\\w+)$'
call = {name = "book", arguments = {what = "{what}", code = "{code}"}}
then = "Booked: {what}, {code}, {tool}"
"""
    offered = ["a table", *searched("offer\ncode K7"), {"role": "assistant", "content": "Shall I book it?"}]
    completion = await answer(backend(script), ask(*offered, "yes"))
    [call] = completion.message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"what": "it", "code": "K7"}
    done = {"role": "tool", "tool_call_id": call["id"], "content": "code NEW"}
    assert await said(script, *offered, "yes", completion.message, done) == "Booked: it, K7, code NEW"
    assert (await said(script, *offered, "no")).startswith("I am sorry")
    assert (await said(script, "yes")).startswith("I am sorry"), "nothing was offered"


ORDER = """
[spelled]
two = "2"

[[rule]]
when = "pizza"
find.count = '\\b(\\d|two)\\b'
find.size = '\\b(?:small|large)\\b'
ask.count = "How many?"
ask.size = "How large?"
call = {name = "order", arguments = {count = "{count}", size = "{size}", note = "{user}"}}

[[rule]]
when = "weather"
say = "Sunny."

[[rule]]
weak = true
when = "large"
say = "What is large?"
"""


async def test_what_is_missing_is_asked_for_and_the_answers_are_read_together() -> None:
    told: list[Any] = ["a pizza"]
    for expected, reply in (("How many?", "two"), ("How large?", "large, please")):
        assert await said(ORDER, *told) == expected
        told += [{"role": "assistant", "content": f"Well. {expected} "}, reply]
    completion = await answer(backend(ORDER), ask(*told))
    [call] = completion.message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"count": "2", "size": "large", "note": "large, please"}


async def test_of_two_things_that_fill_a_place_the_last_one_counts() -> None:
    completion = await answer(backend(ORDER), ask("2 pizzas, no, 3 large ones"))
    assert json.loads(completion.message["tool_calls"][0]["function"]["arguments"])["count"] == "3"


async def test_a_message_that_says_something_by_itself_is_no_answer() -> None:
    asked = ["a pizza", {"role": "assistant", "content": "How many?"}]
    assert await said(ORDER, *asked, "how is the weather?") == "Sunny."
    assert await said(ORDER, *asked, "large") == "How many?", "a weak rule gives way to the question"
    assert await said(ORDER, "a pizza", {"role": "assistant", "content": "Fine."}, "large") == "What is large?"


async def test_arguments_of_which_nothing_is_left_are_left_out() -> None:
    script = """
[[rule]]
when = '(?P<a>\\w+)(?: (?P<b>\\w+))?'
[rule.call]
name = "f"
arguments = {all = "{a}{b}", b = "{b}", c = "{b|none}", empty = "", items = [{x = "{a}", y = "{b}"}, {x = "{b}"}], on = false}
"""
    completion = await answer(backend(script), ask("one"))
    arguments = json.loads(completion.message["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"all": "one", "c": "none", "empty": "", "items": [{"x": "one"}], "on": False}


# --- results in words, and languages


LANGUAGES = """
[otherwise]
en = "Pardon?"
de = "Wie bitte?"

[languages]
de = '\\b(?:ich|nicht)\\b'

[pieces]
what = '(?:bars?|kneipen?)'
one = '^- (?P<name>\\w+): (?P<stars>\\d)$'

[[rule]]
call = {name = "venue_search", arguments = {query = "{what}"}}
find.what = '{what}'
each = '{one}'
line = "{number}) {name} ({stars})"
when.de = '\\bsuche\\b'
when.en = ['\\bfind\\b', '\\blook for\\b']
then.de = "Gefunden:\\n{lines}"
then.en = "Found:\\n{lines}"

[[rule]]
after_tool = "*"
result = 'oops'
say.en = "Sorry."
say.de = "Schade."
"""


async def test_the_language_of_the_pattern_that_is_found_is_the_language_of_the_answer() -> None:
    result = searched("- Alpha: 4\nnoise\n- Beta: 5")
    assert await said(LANGUAGES, "suche eine Kneipe", *result) == "Gefunden:\n1) Alpha (4)\n2) Beta (5)"
    assert await said(LANGUAGES, "look for a bar", *result) == "Found:\n1) Alpha (4)\n2) Beta (5)"
    completion = await answer(backend(LANGUAGES), ask("find a bar"))
    assert json.loads(completion.message["tool_calls"][0]["function"]["arguments"]) == {"query": "bar"}


async def test_a_result_in_which_nothing_is_found_is_said_as_it_is() -> None:
    assert await said(LANGUAGES, "find a bar", *searched("none")) == "Found:\nnone"


async def test_without_a_pattern_the_language_is_told_by_its_words_and_else_the_first_one() -> None:
    assert [await said(LANGUAGES, text) for text in ("Ich weiß nicht", "hm")] == ["Wie bitte?", "Pardon?"]
    assert [await said(LANGUAGES, text, *searched("oops", "x")) for text in ("ich?", "me?")] == ["Schade.", "Sorry."]


# --- tools that must be called, and pictures


MUST = """
[[rule]]
must = "scan"
when = "rice"
call = {name = "scan", arguments = {food = "rice"}}

[[rule]]
when = "rice"
call = {name = "search"}

[[rule]]
must = "*"
say = "I cannot do that."

[[rule]]
picture = true
say = "Nice picture."

[[rule]]
say = "Hello."
"""


@pytest.mark.parametrize(
    ("text", "choice", "does"),
    [
        ("rice", "scan", ["scan"]),
        ("rice", "search", ["search"]),
        ("rice", "required", ["search"]),
        ("rice", "auto", ["search"]),
        ("soup", "scan", "I cannot do that."),
        ("soup", "required", "I cannot do that."),
        ("soup", "auto", "Hello."),
    ],
)
async def test_where_a_tool_must_be_called_only_rules_for_it_answer(text: str, choice: str, does: Any) -> None:
    chosen = choice if choice in ("required", "auto") else {"type": "function", "function": {"name": choice}}
    message = (await answer(backend(MUST), ask(text, tool_choice=chosen))).message
    assert (message["content"] or [call["function"]["name"] for call in message["tool_calls"]]) == does


async def test_a_rule_for_pictures_needs_one_in_the_last_message() -> None:
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    assert await said(MUST, picture) == "Nice picture."
    assert await said(MUST, picture, {"role": "assistant", "content": "ok"}, "and now?") == "Hello."


async def test_the_first_statement_that_a_process_reads_does_not_hold_up_its_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in = set[int]()

    def read_book(language: str) -> language_book.LanguageBook:
        read_in.add(threading.get_ident())
        return read(language)

    read = language_book.read_book
    monkeypatch.setattr(language_book, "read_book", read_book)
    monkeypatch.setattr(language_book, "BOOKS", {})
    language_book.languages_by_word.cache_clear()
    scripted = backend('[[rule]]\nstatements = true\n\n[[rule]]\nsay = "hm"')
    texts = [(await answer(scripted, ask(text))).message["content"] for text in ("the weather is nice over there", "it rains today")]
    assert texts == ["hm", "hm"]
    assert language_book.has_latin_books()
    assert read_in
    assert threading.get_ident() not in read_in
