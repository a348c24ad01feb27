"""The cache's key: another question is another key, and what must not be copied has none."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hermes.gateway.answer_cache import cache_key, decode, encode, may_cache, may_keep
from hermes.gateway.chain import ChainLink
from hermes.ports.backends import Completion, ModelRequest, Usage
from tests.unit.gateway.test_chain import Scripted

ASK = ModelRequest(
    messages=({"role": "system", "content": "S"}, {"role": "user", "content": "hello"}), max_tokens=100, sampling={"temperature": 1}
)
LINK = ChainLink("haiku", Scripted("anthropic"), "haiku-1", 1_000)
DONE = Completion(
    message={"role": "assistant", "content": "hi"},
    finish_reason="stop",
    usage=Usage(tokens_in=3, tokens_out=1),
    model="h",
    request_digest="d",
)


@pytest.mark.parametrize(
    "change",
    [
        {"messages": (*ASK.messages, {"role": "user", "content": "more"})},
        {"messages": ({"role": "system", "content": "T"}, ASK.messages[1])},
        {"messages": (ASK.messages[0], {"role": "user", "content": "hello", "name": "bob"})},
        {"max_tokens": 99},
        {"sampling": {"temperature": 0.5}},
        {"sampling": {}},
        {"tool_choice": "none"},
        {"response_format": {"type": "json_object"}},
        {"user": "u"},
        {"cwd": Path("/srv/a")},
    ],
)
def test_whatever_is_sent_is_in_the_key(change: dict[str, Any]) -> None:
    assert cache_key(replace(ASK, **change), LINK) != cache_key(ASK, LINK)


def test_the_backend_and_the_model_are_in_the_key_and_side_data_is_not() -> None:
    assert cache_key(ASK, replace(LINK, model="haiku-2")) != cache_key(ASK, LINK)
    assert cache_key(ASK, replace(LINK, backend=Scripted("other"))) != cache_key(ASK, LINK)
    noted = replace(ASK, messages=tuple({**message, "metadata": {"x": 1}} for message in ASK.messages))
    assert cache_key(noted, LINK) == cache_key(ASK, LINK)


@pytest.mark.parametrize(
    "ask",
    [
        replace(ASK, tools=({"type": "function", "function": {"name": "f"}},)),
        replace(ASK, messages=(*ASK.messages, {"role": "assistant", "tool_calls": [{"id": "1"}]})),
        replace(ASK, messages=({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},)),
        replace(ASK, messages=({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},)),
    ],
)
def test_with_tools_images_or_audio_nothing_is_copied(ask: ModelRequest) -> None:
    assert (may_cache(ASK), may_cache(ask)) == (True, False)


def test_a_turn_may_use_the_cache_although_it_asks_for_token_ids() -> None:
    assert may_cache(replace(ASK, wants_tokens=True))


def test_only_a_whole_answer_is_kept() -> None:
    assert may_keep(DONE)
    assert not may_keep(replace(DONE, finish_reason="length"))
    assert not may_keep(replace(DONE, finish_reason="refusal"))
    assert not may_keep(replace(DONE, message={"role": "assistant", "content": ""}))
    assert not may_keep(replace(DONE, message={"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}))


def test_an_answer_comes_back_as_it_was() -> None:
    call_id = uuid4()
    assert decode(encode(DONE, call_id)) == (DONE, call_id)
