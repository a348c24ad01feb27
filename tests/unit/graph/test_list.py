"""A graph is a list: every operation of a list gives what a list gives."""

import copy
import json
import operator
import pickle
from collections.abc import MutableSequence
from typing import Any

import pytest

from hermes import Message, MessageGraph


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def make(*texts: str) -> tuple[MessageGraph, list[dict[str, Any]]]:
    return MessageGraph(map(user, texts)), list(map(user, texts))


OPERATIONS = {
    "append": lambda chat: chat.append(user("x")),
    "extend": lambda chat: chat.extend([user("x"), user("y")]),
    "extend by itself": lambda chat: chat.extend(chat),
    "iadd": lambda chat: chat.__iadd__([user("x")]),
    "insert": lambda chat: chat.insert(1, user("x")),
    "insert far left": lambda chat: chat.insert(-99, user("x")),
    "insert far right": lambda chat: chat.insert(99, user("x")),
    "insert negative": lambda chat: chat.insert(-1, user("x")),
    "set": lambda chat: chat.__setitem__(1, user("x")),
    "set negative": lambda chat: chat.__setitem__(-1, user("x")),
    "set slice": lambda chat: chat.__setitem__(slice(1, 3), [user("x")]),
    "set slice longer": lambda chat: chat.__setitem__(slice(1, 2), map(user, "xyz")),
    "set empty slice": lambda chat: chat.__setitem__(slice(2, 2), [user("x")]),
    "set backward slice": lambda chat: chat.__setitem__(slice(3, 1), [user("x")]),
    "set stepped": lambda chat: chat.__setitem__(slice(None, None, 2), [user("x"), user("y")]),
    "set stepped backward": lambda chat: chat.__setitem__(slice(None, None, -1), [user("w"), user("x"), user("y"), user("z")]),
    "set all": lambda chat: chat.__setitem__(slice(None), []),
    "delete": lambda chat: chat.__delitem__(0),
    "delete negative": lambda chat: chat.__delitem__(-1),
    "delete slice": lambda chat: chat.__delitem__(slice(1, 3)),
    "delete stepped": lambda chat: chat.__delitem__(slice(None, None, 2)),
    "delete stepped backward": lambda chat: chat.__delitem__(slice(3, 0, -2)),
    "pop": lambda chat: chat.pop(),
    "pop first": lambda chat: chat.pop(0),
    "remove": lambda chat: chat.remove(user("b")),
    "reverse": lambda chat: chat.reverse(),
    "clear": lambda chat: chat.clear(),
    "edit": lambda chat: chat[2].__setitem__("content", "x"),
    "update": lambda chat: chat[2].update(content="x", name="me"),
    "delete a field": lambda chat: chat[2].__delitem__("content"),
    "pop a field": lambda chat: chat[2].pop("content"),
    "set a default": lambda chat: chat[2].setdefault("name", "me"),
    "merge": lambda chat: chat[2].__ior__({"name": "me"}),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_does_to_the_messages_what_it_does_to_a_list(operation: Any) -> None:
    chat, plain = make("a", "b", "c", "d")
    operation(chat)
    operation(plain)
    assert list(chat) == plain
    assert chat == plain
    assert plain == chat
    assert json.loads(json.dumps(list(chat))) == plain


REFUSED = {
    "read beyond": (lambda chat: chat[4], IndexError),
    "set beyond": (lambda chat: chat.__setitem__(4, user("x")), IndexError),
    "delete beyond": (lambda chat: chat.__delitem__(-5), IndexError),
    "pop beyond": (lambda chat: chat.pop(9), IndexError),
    "remove what is not there": (lambda chat: chat.remove(user("z")), ValueError),
    "index of what is not there": (lambda chat: chat.index(user("z")), ValueError),
    "stepped slice of another size": (lambda chat: chat.__setitem__(slice(None, None, 2), [user("x")]), ValueError),
    "add a tuple": (lambda chat: operator.add(chat, (user("x"),)), TypeError),
    "delete a field that is not there": (lambda chat: chat[0].__delitem__("name"), KeyError),
    "a key that is no index": (lambda chat: chat["content"], TypeError),
}


@pytest.mark.parametrize(("operation", "error"), REFUSED.values(), ids=REFUSED)
def test_refuses_what_a_list_refuses_and_stays_as_it_was(operation: Any, error: type[Exception]) -> None:
    chat, plain = make("a", "b", "c", "d")
    with pytest.raises(error):
        operation(plain)
    with pytest.raises(error):
        operation(chat)
    assert chat == plain


def test_reads_like_a_list() -> None:
    chat, plain = make("a", "b", "c", "a")
    assert isinstance(chat, MutableSequence)
    assert (len(chat), bool(chat), bool(MessageGraph())) == (4, True, False)
    assert (chat[0], chat[-1], chat[1:3], chat[::-2]) == (plain[0], plain[-1], plain[1:3], plain[::-2])
    assert (user("b") in chat, user("z") in chat, "b" in chat, None in chat) == (True, False, False, False)
    assert (chat.index(user("a")), chat.index(user("a"), 1), chat.count(user("a"))) == (0, 3, 2)
    assert list(reversed(chat)) == plain[::-1]
    assert repr(chat) == f"MessageGraph({plain!r})"
    assert [message["content"] for message in chat] == ["a", "b", "c", "a"]


def test_iterating_while_appending_sees_the_new_messages_as_with_a_list() -> None:
    chat, _ = make("a", "b")
    seen = []
    for message in chat:
        seen.append(message["content"])
        if len(chat) < 4:
            chat.append(user("x"))
    assert seen == ["a", "b", "x", "x"]


def test_sorting_and_repeating_are_refused_with_a_reason() -> None:
    chat, plain = make("a", "b")
    with pytest.raises(TypeError, match="order is what the model saw"):
        chat.sort(key=str)
    for operation in (lambda: chat * 2, lambda: 2 * chat, lambda: chat.__imul__(2)):
        with pytest.raises(TypeError, match="sampled once"):
            operation()
    assert chat == plain


def test_adding_makes_a_new_graph_that_keeps_every_sample() -> None:
    chat, plain = make("a")
    chat.append({"role": "assistant", "content": "b"})
    plain.append({"role": "assistant", "content": "b"})
    longer = operator.add(chat, [user("c")])
    assert (type(longer), longer, chat) == (MessageGraph, [*plain, user("c")], plain)
    assert [response.id for response in longer.responses()] == [response.id for response in chat.responses()]
    in_front = operator.add([user("z")], chat)
    assert in_front == [user("z"), *plain]
    assert [list(version) for version in in_front.versions] == [plain, [user("z"), *plain]]


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda chat: pickle.loads(pickle.dumps(chat)), MessageGraph.copy])  # noqa: S301  # our own pickle
def test_a_copy_is_equal_in_everything_and_independent(how: Any) -> None:
    chat, _ = make("a")
    chat.append({"role": "assistant", "content": "b"})
    chat[0]["content"] = "c"
    chat.annotate(next(chat.responses()), reward=1.0)
    before = chat.to_json()
    twin = how(chat)
    assert (twin == chat, twin.to_json() == before) == (True, True)
    twin[0]["content"] = "d"
    twin.append({"role": "assistant", "content": "e"})
    twin.clear()
    assert chat.to_json() == before
    assert (len(chat.versions), len(twin.versions)) == (2, 3)


def test_equality_is_canonical_all_fields_but_metadata() -> None:
    chat = MessageGraph([{"role": "user", "content": "a", "n": 1, "metadata": {"seen": True}}])
    assert chat == [{"n": 1, "content": "a", "role": "user"}]
    assert chat != [{"role": "user", "content": "a", "n": 1.0}]
    assert chat != [{"role": "user", "content": "a", "n": True}]
    assert chat != [{"role": "user", "content": "a"}]
    assert chat != [object()]
    assert chat != "a"
    assert MessageGraph() == []
    with pytest.raises(TypeError):
        hash(chat)


def test_loads_anything_that_iterates_over_messages() -> None:
    messages = [user("a"), user("b")]
    for source in (
        messages,
        tuple(messages),
        iter(messages),
        (dict(m) for m in messages),
        MessageGraph(messages),
        {1: messages[0], 2: messages[1]}.values(),
    ):
        assert MessageGraph(source) == messages


def test_a_popped_message_is_detached() -> None:
    chat, _ = make("a", "b")
    gone = chat.pop(0)
    gone["content"] = "changed"
    assert (type(gone), chat) == (Message, [user("b")])


def test_a_subclass_stays_itself_through_copies() -> None:
    class Chat(MessageGraph):
        pass

    chat = Chat([user("a")])
    twins = (chat.copy(), chat.fork(), operator.add(chat, []), Chat.from_json(chat.to_json()), copy.deepcopy(chat))
    assert {type(twin) for twin in twins} == {Chat}
