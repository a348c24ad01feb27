"""Items: a dict whose writes are edits, that follows its slot and never edits another message."""

import copy
import json
import pickle
from typing import Any

import pytest

from hermes import FrozenError, Message, MessageGraph, StaleItemError


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def chat_of(*texts: str) -> MessageGraph:
    return MessageGraph(map(user, texts))


def test_an_item_is_a_dict_with_real_storage() -> None:
    item = chat_of("a")[0]
    assert isinstance(item, dict)
    assert (item, json.dumps(item), {**item}, item | {"x": 1}) == (user("a"), json.dumps(user("a")), user("a"), {**user("a"), "x": 1})


def test_every_way_to_write_a_dict_edits_the_graph() -> None:
    chat = chat_of("a")
    item = chat[0]
    item["content"] = "b"
    item.update({"name": "n"}, x=1)
    item |= {"y": 2}
    assert (item.pop("x"), item.pop("x", "none"), item.setdefault("z", 3), item.setdefault("z", 4)) == (1, "none", 3, 3)
    assert item.popitem() == ("z", 3)
    del item["y"]
    assert chat == [{"role": "user", "content": "b", "name": "n"}]
    with pytest.raises(ValueError, match="role: missing"):
        item.clear()
    assert (item, chat[0] is item) == ({"role": "user", "content": "b", "name": "n"}, True)


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (lambda chat: chat.insert(0, user("x")), ["x", "a", "B", "c"]),
        (lambda chat: chat.__delitem__(0), ["B", "c"]),
        (lambda chat: chat.reverse(), ["c", "B", "a"]),
        (lambda chat: chat.__setitem__(slice(0, 1), map(user, "xyz")), ["x", "y", "z", "B", "c"]),
        (lambda chat: chat.__setitem__(slice(None, None, 2), map(user, "xz")), ["x", "B", "z"]),
        (lambda chat: chat.append(user("x")), ["a", "B", "c", "x"]),
        (lambda chat: chat[0].update(content="x"), ["x", "B", "c"]),
        (lambda chat: chat.__setitem__(1, user("b")), ["a", "B", "c"]),
    ],
)
def test_an_item_follows_its_slot(shift: Any, expected: list[str]) -> None:
    chat = chat_of("a", "b", "c")
    item = chat[1]
    shift(chat)
    item["content"] = "B"
    assert [message["content"] for message in chat] == expected


@pytest.mark.parametrize(
    "replace",
    [
        lambda chat: chat.__delitem__(1),
        lambda chat: chat.__setitem__(1, user("x")),
        lambda chat: chat.__setitem__(slice(None), map(user, "xyz")),
        lambda chat: chat.pop(1),
        lambda chat: chat.clear(),
        lambda chat: chat.remove(user("b")),
    ],
)
def test_an_item_dies_with_its_slot_instead_of_editing_another_message(replace: Any) -> None:
    chat = chat_of("a", "b", "c")
    item = chat[1]
    replace(chat)
    before = chat.to_json()
    for write in (lambda: item.update(content="B"), lambda: item.__delitem__("content"), lambda: item.pop("content")):
        with pytest.raises(StaleItemError, match="read it again"):
            write()
    assert (chat.to_json(), item) == (before, user("b"))


def test_all_who_hold_an_item_see_each_others_writes() -> None:
    chat = chat_of("a", "b")
    one, two, (three, _) = chat[0], chat[-2], list(chat)
    one["content"] = "A"
    assert json.dumps([two, three]) == json.dumps([user("A")] * 2)


def test_items_of_a_copy_are_the_copys() -> None:
    chat = chat_of("a")
    item = chat[0]
    twin = chat.copy()
    other = twin[0]
    other["content"] = "other"
    item["content"] = "mine"
    assert (chat[0] is item, twin[0] is other, chat == [user("mine")], twin == [user("other")]) == (True, True, True, True)


def test_equal_messages_have_items_of_their_own() -> None:
    chat = chat_of("a", "a", "a")
    chat[1]["content"] = "b"
    assert chat == [user("a"), user("b"), user("a")]


NESTED: dict[str, Any] = {
    "part text": lambda m: m["content"][0].__setitem__("text", "x"),
    "part update": lambda m: m["content"][0].update(text="x"),
    "part delete": lambda m: m["content"][0].__delitem__("text"),
    "part pop": lambda m: m["content"][0].pop("text"),
    "part popitem": lambda m: m["content"][0].popitem(),
    "part clear": lambda m: m["content"][0].clear(),
    "part default": lambda m: m["content"][0].setdefault("x", 1),
    "part merge": lambda m: m["content"][0].__ior__({"x": 1}),
    "parts append": lambda m: m["content"].append({}),
    "parts extend": lambda m: m["content"].extend([{}]),
    "parts insert": lambda m: m["content"].insert(0, {}),
    "parts set": lambda m: m["content"].__setitem__(0, {}),
    "parts delete": lambda m: m["content"].__delitem__(0),
    "parts pop": lambda m: m["content"].pop(),
    "parts remove": lambda m: m["content"].remove(m["content"][0]),
    "parts clear": lambda m: m["content"].clear(),
    "parts reverse": lambda m: m["content"].reverse(),
    "parts sort": lambda m: m["content"].sort(key=str),
    "parts add": lambda m: m["content"].__iadd__([{}]),
    "parts repeat": lambda m: m["content"].__imul__(2),
    "metadata": lambda m: m["metadata"].__setitem__("x", 1),
}


@pytest.mark.parametrize("change", NESTED.values(), ids=NESTED)
def test_changing_a_nested_value_in_place_raises_and_says_how(change: Any) -> None:
    chat = MessageGraph([{"role": "user", "content": [{"type": "text", "text": "a"}], "metadata": {"n": 1}}])
    before = chat.to_json()
    for message in (chat[0], chat.versions[0][0], chat.prepare().nodes[0]):
        with pytest.raises(FrozenError, match="Assign the whole field"):
            change(message)
    assert chat.to_json() == before


def test_a_deep_copy_of_a_nested_value_is_plain_and_can_be_assigned() -> None:
    chat = MessageGraph([{"role": "user", "content": [{"type": "text", "text": "a"}]}])
    parts = copy.deepcopy(chat[0]["content"])
    parts[0]["text"] = "b"
    parts.append({"type": "text", "text": "c"})
    chat[0]["content"] = parts
    assert chat == [{"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}]
    assert (type(parts), type(parts[0]), type(copy.copy(chat[0]["content"]))) == (list, dict, list)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, Message.copy, lambda item: pickle.loads(pickle.dumps(item))])  # noqa: S301  # our own pickle
def test_a_copied_item_is_detached(how: Any) -> None:
    chat = chat_of("a")
    twin = how(chat[0])
    twin["content"] = "b"
    assert (type(twin), twin, chat[0]) == (Message, user("b"), user("a"))


def test_an_item_knows_whether_it_is_a_sample() -> None:
    chat = chat_of("a")
    chat.append({"role": "assistant", "content": "b"})
    question, answer = chat
    assert (question.sampled, answer.sampled, Message(answer).sampled) == (False, True, False)
    question["content"] = "c"
    assert answer.sampled is False


def test_items_die_with_their_last_holder() -> None:
    chat = chat_of(*"abc")
    list(chat)
    held = chat[1]
    assert list(chat._items._held.values()) == [held]
