"""A script is followed to the letter, or refused with one line that says where it is wrong."""

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from hermes.backends import BadScript, Script, ScriptedBackend
from hermes.backends.scripted.backend import split
from hermes.ports.backends import (
    Ask,
    Backend,
    BackendError,
    BadRequest,
    Capabilities,
    CheckLevel,
    Completion,
    ContextTooLong,
    CutShort,
    Delta,
    Garbled,
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


def ask(*messages: Any, max_tokens: int = 100, **more: Any) -> Ask:
    """A request; a plain text is something that the user said."""
    whole = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    return Ask(messages=whole, max_tokens=max_tokens, **more)


def backend(script: str, **more: Any) -> ScriptedBackend:
    return ScriptedBackend(Script.parse(script), **more)


async def answer(to: ScriptedBackend, asked: Ask, timeout_s: float = 5.0) -> Completion:
    return await to.complete(asked, "any", timeout_s=timeout_s)


async def said(script: str, *messages: Any, **more: Any) -> Any:
    return (await answer(backend(script), ask(*messages, **more))).message["content"]


async def streamed(to: ScriptedBackend, asked: Ask, timeout_s: float = 5.0) -> tuple[list[Delta], Completion]:
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


async def test_a_rule_after_a_tool_sees_the_beginning_of_its_result() -> None:
    script = '[[rule]]\nafter_tool = "venue_search"\nsay = "Found: {tool}"\n[[rule]]\nafter_tool = "*"\nsay = "Other."'
    assert await said(script, "a", *searched("x" * 600)) == "Found: " + "x" * 500
    assert await said(script, "a", *searched("30 °C", "weather")) == "Other."
    assert (await said(script, "a", *searched("x"), "and now?")).startswith("I am sorry"), "the result is not the last message"


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
    assert "".join(split(text)) == text


async def test_tokens_are_words_and_marks_and_an_end() -> None:
    completion = await answer(backend('[[rule]]\nsay = "Well, hello there."'), ask({"role": "system", "content": "Be brief."}, "Hi!"))
    # <system> Be brief . <end> <user> Hi ! <end> <assistant>, and Well , hello there . <end>
    assert completion.usage == Usage(tokens_in=10, tokens_out=6)
    assert (completion.prompt_token_ids, completion.token_ids, completion.logprobs) == (None, None, None), "nobody asked"
    assert len(completion.request_digest) == 64


async def test_token_ids_and_logprobs_agree_with_the_counts() -> None:
    completion = await answer(backend(BOTH), ask("cafe in Ubud", wants_tokens=True, tools=[SEARCH]))
    prompt, ids, logprobs = completion.prompt_token_ids, completion.token_ids, completion.logprobs
    assert prompt is not None
    assert ids is not None
    assert logprobs is not None
    assert (len(prompt), len(ids), len(logprobs)) == (completion.usage.tokens_in, completion.usage.tokens_out, len(ids))
    assert all(0 <= token < 100_000 for token in [*prompt, *ids])
    assert all(-1 < logprob < 0 for logprob in logprobs)


async def test_the_next_prompt_begins_with_this_prompt_and_its_answer() -> None:
    first = await answer(backend(BOTH), ask("cafe in Ubud", wants_tokens=True))
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in first.message["tool_calls"]]
    second = await answer(backend(BOTH), ask("cafe in Ubud", first.message, *results, wants_tokens=True))
    so_far = [*(first.prompt_token_ids or ()), *(first.token_ids or ())]
    assert list(second.prompt_token_ids or ())[: len(so_far)] == so_far


async def test_an_answer_ends_at_max_tokens() -> None:
    script = '[[rule]]\nsay = "One two three."'
    cut = await answer(backend(script), ask("a", max_tokens=2, wants_tokens=True))
    assert (cut.message["content"], cut.finish_reason, cut.usage.tokens_out, len(cut.token_ids or ())) == ("One two", "length", 2, 2)
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
async def test_what_is_no_request_is_a_bad_one(asked: Ask) -> None:
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
        assert (await to.complete(asked, "other", timeout_s=5)).model == "other"


async def test_is_the_port_and_always_well() -> None:
    to: Backend = backend('[[rule]]\nsay = "a"')
    [check] = await to.health_check()
    assert (to.name, check.code, check.level) == ("scripted", "ok", CheckLevel.INFO)
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
        ('[[rule]]\nwhen = "(?P<town>a)"\nsay = "{twon}"', "script: rule[1].say: nothing is called {twon} here; did you mean {town}?"),
        ('[[rule]]\ncall = {name = "f", arguments = {a = ["{1}"]}}', "script: rule[1].call[1].arguments: nothing is called {1} here"),
        ('[[rule]]\ncall = {name = "f", arguments = {a = nan}}', "script: rule[1].call[1].arguments: has a number that JSON"),
        ("[[rule]]\ncall = {arguments = {}}", "script: rule[1].call[1].name: is missing"),
        ('[[rule]]\nfail = "overload"', 'script: rule[1].fail: no such failure; did you mean "overloaded"?'),
        ('[[rule]]\nfail = "garbled"\nsay = "a"', 'script: rule[1].say: cannot stand beside "fail"'),
        ('[[rule]]\nfail = "garbled"\nretry_after_s = 1', 'script: rule[1].retry_after_s: needs fail = "rate_limited"'),
        ('[[rule]]\nwhen = "a"', "script: rule[1].say: is missing"),
        ("[[rule]]\nsay = 7", "script: rule[1].say: must be a text"),
        ('[[rule]]\nsay = "a"\nturn = true', "script: rule[1].turn: must be a whole number"),
        ('[[rule]]\nsay = "a"\ndelay_s = -1', "script: rule[1].delay_s: must be a number of seconds"),
        ('[[rule]]\nsay = "a"\ntools = "f"', "script: rule[1].tools: must be a list of texts"),
        ('[[rule]]\nsay = ""\ncut_after = 1', "script: rule[1].cut_after: needs words to cut"),
        ('rule = "a"', "script: rule: must be tables, each under a line [[rule]]"),
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


# --- the script that ships


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("Hello!", "Hello! What can I find"),
        ("good evening", "Hello! What can I find"),
        ("Thank you so much", "You are very welcome"),
        ("ok, bye", "Goodbye"),
        ("What can you do?", "I am your concierge"),
        ("Find me a bar in Ubud please!", "I would gladly look for a bar in Ubud, but"),
        ("suggest us some bars near the beach", "I would gladly look for some bars near the beach, but"),
        ("Can you find me a dentist?", "Happily. Where should I look for a dentist?"),
        ("colourless green ideas", "I am not sure I understood that"),
    ],
)
async def test_the_usual_script_is_a_friendly_concierge(text: str, begins: str) -> None:
    assert (await answer(ScriptedBackend(Script.usual()), ask(text))).message["content"].startswith(begins)


async def test_the_usual_script_searches_and_tells_what_it_found() -> None:
    concierge = ScriptedBackend(Script.usual())
    first = await answer(concierge, ask("Hi! Find me a quiet café in Ubud, please.", tools=[SEARCH]))
    [call] = first.message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"query": "quiet café in Ubud"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Kafe, 4.6 stars"}
    second = await answer(concierge, ask("Hi! Find me a quiet café in Ubud, please.", first.message, result, tools=[SEARCH]))
    assert second.message["content"] == "Here is what I found:\n\nKafe, 4.6 stars\n\nDoes one of these sound right to you?"


@pytest.mark.parametrize("text", ["find me a " * 2_000, "find x" + " \t" * 10_000, "find x in " + "y " * 10_000, "thank " * 4_000])
async def test_the_usual_script_answers_a_very_long_message_at_once(text: str) -> None:
    began = time.process_time()  # what else the machine does is not counted
    assert (await answer(ScriptedBackend(Script.usual()), ask(text))).message["content"]
    assert time.process_time() - began < 1, "patterns without bounds took seconds"
