"""A client's chat request as it is checked, sent on and recorded."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.chat_request import (
    REQUEST_FIELDS,
    ROLES,
    InvalidChatRequest,
    clean_message,
    ignore_metadata,
    read_message,
    read_request,
    role_fields,
)
from hermes.gateway.request_fields import REFUSED_FIELDS
from hermes.graph.message import check_message

HELLO = [{"role": "user", "content": "hello"}]
TEXTS = st.text(st.characters(exclude_categories=())) | st.sampled_from(["", "\ud83d\ude00", "\ud83d", "\0"])  # halves of pairs too


def read(body: Mapping[str, Any]) -> Any:
    return read_request({"model": "m", "messages": HELLO, **body}, max_choices=4)


@given(st.sampled_from(ROLES), TEXTS, st.booleans())
def test_a_message_of_a_role_and_a_text_is_read_as_any_other(role: str, text: str, is_content_first: bool) -> None:
    message = {"content": text, "role": role} if is_content_first else {"role": role, "content": text}
    with_a_null = {**message, "name": None}  # not of the usual kind
    found = read_message(message, 0)
    assert found == read_message(with_a_null, 0) == check_message(role_fields(message), "messages[0]", ignore_metadata)
    assert list(found) == ["role", "content"]
    assert clean_message(message) == clean_message(with_a_null) == role_fields(message)
    assert found is not message


@pytest.mark.parametrize("field", sorted(REQUEST_FIELDS - {"model", "messages"} | {"metadata", *REFUSED_FIELDS}))
def test_a_null_is_as_good_as_no_field(field: str) -> None:
    assert read({field: None}) == read({})


def test_of_several_wrong_fields_the_first_in_the_order_of_the_checks_is_named() -> None:
    wrong = {
        "audio": {},
        "stream_options": 1,
        "n": 0,
        "top_logprobs": 99,
        "logprobs": 1,
        "response_format": 1,
        "tools": {},
        "temperature": float("inf"),
        "model": "",
        "messages": [],
        "max_completion_tokens": 0,
        "max_tokens": 0,
        "tool_choice": 1,
        "stream": 1,
        "user": "\n",
        "metadata": 1,
    }
    named = []
    while wrong:
        with pytest.raises(InvalidChatRequest) as refused:
            read(wrong)
        named.append(refused.value.param)
        del wrong[refused.value.param.removeprefix("body.")]
    assert named == [
        "audio",
        "stream_options",
        "n",
        "top_logprobs",
        "logprobs",
        "response_format",
        "tools",
        "body.temperature",
        *("model", "messages", "max_completion_tokens", "max_tokens", "tool_choice", "stream", "user", "metadata"),
    ]


def test_what_no_message_graph_can_hold_is_refused_wherever_it_stands() -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    for body, param in (
        ({"seed": 2**9000}, "body.seed"),
        ({"response_format": {"type": float("nan")}}, "body.response_format.type"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": deep}}]}, None),
        ({"messages": [*HELLO, {"role": "user", "content": [{"text": "no type"}]}]}, "messages[1].content[0]"),
    ):
        with pytest.raises(InvalidChatRequest) as refused:
            read(body)
        assert param in (None, refused.value.param)
