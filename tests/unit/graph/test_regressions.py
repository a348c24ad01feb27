"""Cases that once went wrong, or nearly: each is the smallest program that shows it."""

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hermes import CallError, CallRecord, CodecError, Message, MessageError, MessageGraph
from tests.unit.graph.sessions import rich_session


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def agent(text: str) -> MessageGraph:
    chat = MessageGraph([user("task")])
    chat.append(answer(text))
    return chat


def contents(chat: MessageGraph) -> list[str]:
    return [response.message["content"] for response in chat.responses()]


def test_a_held_response_keeps_its_context_when_its_twin_was_kept_before() -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("same"))
    chat.pop()
    response = chat.commit(chat.prepare(), answer("same"))
    twin = chat.copy()
    chat[0]["content"] = "OTHER"
    assert (response.context, response.message["content"]) == ([user("q")], "same")
    chat.clear()
    assert (response.context, chat.verify().status, twin.verify().status) == ([user("q")], "ok", "ok")


def test_a_second_sample_of_equal_text_brings_its_chat_along() -> None:
    chat = MessageGraph([user("q")])
    turn = chat.prepare()
    chat.commit(turn, answer("x"))
    chat.commit(turn, {**answer("x"), "metadata": {"chat": agent("inner")}})
    assert contents(chat) == ["x", "x", "inner"]


def test_a_claimed_redaction_does_not_blind_verify() -> None:
    chat = rich_session()
    (honest,) = (response for response in chat.responses() if response.sample_id == "2")
    document = json.loads(chat.to_json())
    call = document["graphs"][-1]["responses"][1]["call"]
    call["redacted"] = {"completion": honest.call.part_digest("completion")}  # type: ignore[union-attr]
    assert MessageGraph.from_json(json.dumps(document)).verify().status == "broken"
    call["token_ids"] = {"int32": "BQAAAAQAAAA="}
    assert MessageGraph.from_json(json.dumps(document)).verify().status == "broken"
    for name in ("token_ids", "logprobs", "raw_text"):
        del call[name]
    problems = MessageGraph.from_json(json.dumps(document)).verify().problems
    assert ["parts of its call are missing" in problem for problem in problems] == [True]


def test_a_turn_prepared_before_a_redaction_does_not_bring_the_text_back() -> None:
    chat = MessageGraph([user("q"), {"role": "tool", "content": "r", "metadata": {"chat": MessageGraph([user("SECRET")])}}])
    turn = chat.prepare()
    chat.redact(user("SECRET"))
    chat[0]["content"] = "z"
    chat.commit(turn, answer("x"))
    assert "SECRET" not in chat.to_json()
    chat = MessageGraph([user("SECRET")])
    turn = chat.prepare()
    chat.redact(0)
    response = chat.commit(turn, answer("x"), call=CallRecord(prompt_token_ids=[7, 7], token_ids=[8]))
    assert response.call is not None
    assert (response.call.prompt_token_ids, list(response.call.token_ids or ()), "SECRET" in chat.to_json()) == (None, [8], False)
    assert chat.verify().status == "redacted"


def test_redacting_what_is_redacted_changes_nothing() -> None:
    chat = MessageGraph([user("SECRET")])
    chat.redact(0)
    chat.append(answer("b"), call=CallRecord(prompt_token_ids=[1, 2], token_ids=[3]))
    before = chat.to_json()
    chat.redact(0)
    chat.redact(user("SECRET"))
    assert (chat.to_json(), chat.verify().status) == (before, "ok")
    with pytest.raises(ValueError, match="no such message"):
        chat.redact(user("never said"))
    chat.redact(chat[1])
    assert chat[1] == {"role": "assistant", "content": "[redacted]"}


def test_chats_nested_deeply_can_be_redacted_popped_drawn_and_printed() -> None:
    chat = MessageGraph([user("SECRET")])
    chat.append(answer("deep"))
    for _ in range(400):
        chat = MessageGraph([user("q"), {"role": "tool", "content": "r", "metadata": {"chat": chat}}])
    chat.redact(user("SECRET"))
    text = chat.to_json()
    assert "SECRET" not in text
    assert (MessageGraph.from_json(text).to_json(), chat.verify().status) == (text, "redacted")
    assert (len(repr(chat)) < 1000, len(chat.to_mermaid()) < 100_000) == (True, True)
    assert chat.pop()["metadata"]["chat"].graph.verify().status == "redacted"
    assert contents(chat) == ["deep"]


def test_a_chat_attached_in_many_places_is_redacted_once() -> None:
    chat = MessageGraph([user("SECRET")])
    for _ in range(30):
        tool = {"role": "tool", "content": "r", "metadata": {"chat": chat}}
        chat = MessageGraph([tool, tool])
    chat.redact(user("SECRET"))
    assert "SECRET" not in chat.to_json()


def test_two_graphs_written_into_each_other_do_not_deadlock() -> None:
    one, two = MessageGraph([user("1")]), MessageGraph([user("2")])

    def swap(target: MessageGraph, source: MessageGraph) -> None:
        for _ in range(300):
            target[0:1] = source
            target[0]["metadata"] = {"chat": source.fork(0)}
            target.insert(0, {"role": "tool", "content": "t", "metadata": {"chat": list(source)}})
            target[:] = [user("again")]

    threads = [threading.Thread(target=swap, args=pair, daemon=True) for pair in ((one, two), (two, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def run_all(*jobs: Callable[[], object], seconds: float = 1.0) -> list[BaseException]:
    """Repeat every job in a thread of its own with threads switching all the time; return what they raised."""
    errors: list[BaseException] = []
    end = time.monotonic() + seconds

    def loop(job: Callable[[], object]) -> None:
        try:
            while time.monotonic() < end:
                job()
        except BaseException as error:  # noqa: BLE001  # handed to the test's own thread
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=loop, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    return errors


def test_a_reader_never_finds_a_field_missing_while_it_is_written() -> None:
    chat = MessageGraph([user("0")])
    item = chat[0]
    texts = iter(range(10**9))
    assert run_all(lambda: item.update(content=str(next(texts))), lambda: item["content"], lambda: dict(item)["role"]) == []


def test_a_message_is_taken_into_another_graph_while_its_fields_come_and_go() -> None:
    item, other = MessageGraph([user("0")])[0], MessageGraph([user("1")])

    def come_and_go() -> None:
        item["name"], item["metadata"] = "n", {"a": 1}
        del item["name"]
        del item["metadata"]

    def take() -> None:
        other[:] = [item]

    assert run_all(come_and_go, take, take) == []


def test_readers_survive_others_deleting() -> None:
    chat = MessageGraph(user(str(number)) for number in range(20))

    def churn() -> None:
        chat.pop()
        chat.append(answer("x"))
        chat.pop(0)
        chat.insert(0, user("y"))

    def look() -> None:
        assert chat.count(user("nothing")) == 0
        assert len(chat.head) == 64
        assert user("nothing") not in chat
        assert chat.previous is None or len(chat.previous.head) == 64

    assert run_all(churn, look, look) == []


def test_a_chat_shared_by_two_graphs_can_be_read_from_both_at_once() -> None:
    inner = rich_session()
    chat = MessageGraph([{"role": "tool", "content": "r", "metadata": {"chat": inner}}])
    twin = chat.copy()
    count = len(list(chat.edges()))

    def look(graph: MessageGraph) -> Callable[[], None]:
        def job() -> None:
            assert graph.verify().status == "ok"
            assert len(list(graph.edges())) == count

        return job

    assert run_all(look(chat), look(twin), look(chat)) == []


def test_a_version_stays_what_it_was() -> None:
    chat = MessageGraph([user("a"), user("b")])
    version = chat.versions[-1]
    before = version.head
    turn = chat.prepare()
    chat[0]["content"] = "z"
    chat.pop()
    assert (version, version.head) == ([user("a"), user("b")], before)
    chat.commit(turn, answer("late"))
    assert (version.kind, version.successor, version.head) == (None, None, before)


def test_nesting_cannot_grow_past_its_limit_by_reusing_frozen_values() -> None:
    chat = MessageGraph([{**user("q"), "x": {}}])

    def deepen() -> None:
        for _ in range(80):
            chat[0]["x"] = {"a": chat[0]["x"]}

    with pytest.raises(MessageError, match="nested deeper"):
        deepen()
    assert MessageGraph.from_json(chat.to_json()).to_json() == chat.to_json()


def test_two_surrogates_that_make_a_character_are_that_character() -> None:
    chat = MessageGraph([{**user("\ud83d\ude00"), "\ud83d\ude00": "\ud800"}])
    assert chat == [{**user("😀"), "😀": "\ud800"}]
    assert list(MessageGraph.from_json(chat.to_json())) == list(chat)
    chat.append(user("\ud83d\ude00"))
    assert chat[1]["content"] == "😀"


def test_a_sample_that_was_taken_off_the_list_can_be_put_back() -> None:
    chat = MessageGraph([user("q")])
    call = CallRecord(sample_id="s1")
    chat.append(answer("a"), call=call)
    chat.pop()
    chat.append(answer("a"), call=call)
    assert (chat, contents(chat), chat[1].sampled) == ([user("q"), answer("a")], ["a"], True)


def test_key_order_survives_storage() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"z": 1, "a": 2}}}
    chat = MessageGraph([{"role": "user", "content": "q", "b": 1, "a": {"z": 1, "y": 2}}])
    chat.commit(chat.prepare(tools=[tool]), answer("x"), call=CallRecord(sampling={"z": 1, "a": 2}))
    again = MessageGraph.from_json(chat.to_json())
    assert json.dumps(list(again)) == json.dumps(list(chat))
    (response,) = again.responses()
    assert response.call is not None
    assert (json.dumps(response.overlay.tools), json.dumps(response.call.sampling)) == (json.dumps([tool]), '{"z": 1, "a": 2}')


def test_side_data_is_kept_as_given() -> None:
    chat = MessageGraph([{**user("q"), "metadata": None}, {**user("r"), "metadata": {"chat": None, "x": 1}}])
    assert [message["metadata"] for message in chat] == [None, {"chat": None, "x": 1}]
    assert chat[0].setdefault("metadata") is None
    chat[1]["metadata"] = {"x": True}
    assert chat[1]["metadata"]["x"] is True
    assert MessageGraph.from_json(chat.to_json()).to_json() == chat.to_json()


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (lambda chat: MessageGraph(seed=5), MessageError),  # type: ignore[arg-type]
        (lambda chat: CallRecord(token_ids=b"abcd"), CallError),
        (lambda chat: chat.append(answer("a"), call={"model": "m"}), CallError),
        (lambda chat: chat.commit("turn", answer("a")), TypeError),
        (lambda chat: chat.insert(None, user("a")), TypeError),
        (lambda chat: chat.compact(0, "s"), TypeError),
        (lambda chat: chat.compact(slice(5, 9), "s"), ValueError),
        (lambda chat: chat.annotate(chat[0], reward=1), TypeError),
        (lambda chat: MessageGraph.from_json(chat.to_json().replace('"version":2', '"version":2.0')), CodecError),
    ],
)
def test_bad_arguments_are_refused_and_change_nothing(operation: Any, error: type[Exception]) -> None:
    chat = MessageGraph([user("q")], seed="s")
    before = chat.to_json()
    with pytest.raises(error):
        operation(chat)
    assert chat.to_json() == before


def test_numbers_as_keys_are_not_strings() -> None:
    assert MessageGraph([{**user("q"), "x": {"1": 2}}]) != [{**user("q"), "x": {1: 2}}]


def test_a_fork_keeps_the_annotations_of_attached_chats() -> None:
    chat = MessageGraph([{"role": "tool", "content": "r", "metadata": {"chat": agent("inner")}}])
    chat.annotate(next(chat.responses()), reward=1.0)
    assert next(chat.fork().responses()).annotations == [{"reward": 1.0}]


def test_a_subclass_may_want_arguments_and_have_attributes() -> None:
    class Session(MessageGraph):
        def __init__(self, name: str) -> None:
            super().__init__([user(name)])
            self.name = name

    session = Session("ann")
    assert [twin.name for twin in (session.copy(), session.fork())] == ["ann", "ann"]
    assert Session.from_json(session.to_json()) == session


def test_a_popped_message_brings_its_chat_back() -> None:
    chat = MessageGraph([user("q"), {"role": "tool", "content": "r", "metadata": {"chat": agent("inner")}}])
    gone = chat.pop()
    chat.append(gone)
    assert (type(gone), contents(chat), chat[1]["metadata"]["chat"].graph.verify().responses) == (Message, ["inner"], 1)


def test_objects_of_client_libraries_are_read_at_any_depth() -> None:
    class Call:
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    chat = MessageGraph()
    chat.append({"role": "assistant", "content": None, "tool_calls": [Call()]})
    assert chat[0]["tool_calls"][0]["function"]["name"] == "f"


def test_no_ephemeral_text_and_an_empty_one_are_the_same() -> None:
    chat = MessageGraph([{"role": "system", "content": "S"}])
    assert chat.prepare(ephemeral="").context_id == chat.prepare().context_id
