"""The edit rule, example by example; the machine in test_machine.py proves it for random programs."""

from typing import Any

import pytest

from hermes import MessageGraph, Version
from hermes.graph.message import thaw


def chat_of(text: str) -> MessageGraph:
    """Build a chat from letters: "S U A*" is three messages, the last one sampled. Letters are texts; A, B, C are assistants."""
    chat = MessageGraph()
    for word in text.split():
        chat.append(message(word), sampled=word.endswith("*"))
    return chat


def message(word: str) -> dict[str, Any]:
    name = word.rstrip("*")
    role = {"S": "system", "U": "user"}.get(name[0], "assistant")
    return {"role": role, "content": name}


def show(version: Version | MessageGraph) -> str:
    sampled = version.sampled if isinstance(version, Version) else version.versions[-1].sampled
    return " ".join(str(item["content"]) + "*" * (index in sampled) for index, item in enumerate(version))


def shown(chat: MessageGraph) -> list[str]:
    return [show(version) for version in chat.versions]


def test_the_designs_worked_example() -> None:
    chat = chat_of("S U A* U B*")
    chat[1]["content"] = "U1"
    assert shown(chat) == ["S U A* U B*", "S U1 A U B"]
    chat[1]["content"] = "U2"
    assert shown(chat) == ["S U A* U B*", "S U2 A U B"]
    chat.append(message("C"))
    assert shown(chat) == ["S U A* U B*", "S U2 A U B C*"]
    chat[3]["content"] = "V"
    assert shown(chat) == ["S U A* U B*", "S U2 A U B C*", "S U2 A V B C"]
    contexts = [" ".join(str(item["content"]) for item in [*response.context, response.message]) for response in chat.responses()]
    assert contexts == ["S U A", "S U A U B", "S U2 A U B C"]


def test_editing_back_to_an_old_text_makes_it_a_sample_again() -> None:
    chat = chat_of("S U A*")
    chat[1]["content"] = "X"
    assert shown(chat) == ["S U A*", "S X A"]
    chat[1]["content"] = "U"
    assert shown(chat) == ["S U A*", "S U A*"]
    chat[1]["content"] = "Y"
    assert shown(chat) == ["S U A*", "S Y A"]


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        ("S U A* U", lambda chat: chat[3].update(content="V"), ["S U A* V"]),
        ("S U A* U", lambda chat: chat.__delitem__(3), ["S U A*"]),
        ("S U A* U", lambda chat: chat.insert(3, message("V")), ["S U A* V U"]),
        ("S U A*", lambda chat: chat.pop(), ["S U A*", "S U"]),
        ("S U A*", lambda chat: chat[2].update(content="A1"), ["S U A*", "S U A1"]),
        ("S U A*", lambda chat: chat.insert(0, message("S2")), ["S U A*", "S2 S U A"]),
        ("S U A*", lambda chat: chat.insert(3, message("U")), ["S U A* U"]),
        ("S U A", lambda chat: chat[0].update(content="S2"), ["S2 U A"]),
        ("S U A* U B*", lambda chat: chat.__setitem__(slice(1, 4), [message("U9")]), ["S U A* U B*", "S U9 B"]),
        ("S U A* U B*", lambda chat: chat.clear(), ["S U A* U B*", ""]),
        ("S U A* U B*", lambda chat: chat.reverse(), ["S U A* U B*", "B U A U S"]),
        ("U A* U A*", lambda chat: chat.__delitem__(slice(None, None, 2)), ["U A* U A*", "A A"]),
        ("A* A* A*", lambda chat: chat.__delitem__(0), ["A* A* A*", "A* A*"]),
        ("A A* A", lambda chat: chat.__delitem__(0), ["A A*"]),
        ("U U A*", lambda chat: chat.insert(0, message("U")), ["U U A*", "U U U A"]),
    ],
)
def test_keeps_a_version_exactly_when_a_sample_would_be_lost(before: str, edit: Any, after: list[str]) -> None:
    chat = chat_of(before)
    edit(chat)
    assert shown(chat) == after


def test_an_equal_value_is_a_no_op() -> None:
    chat = chat_of("S U A*")
    item = chat[1]
    chat[1] = message("U")
    chat[1]["content"] = "U"
    chat[1].update(role="user")
    chat[0:3] = [message(word) for word in ["S", "U", "A"]]
    chat[::2] = [message("S"), message("A")]
    chat.redact  # noqa: B018  # reading a method is no edit either
    assert shown(chat) == ["S U A*"]
    item["content"] = "V"  # the item is still alive: its slot was never replaced
    assert shown(chat) == ["S U A*", "S V A"]


def test_one_public_call_makes_at_most_one_version() -> None:
    for edit in (
        lambda chat: chat.clear(),
        lambda chat: chat.reverse(),
        lambda chat: chat.__setitem__(slice(None, None, 2), [message("X"), message("Y"), message("Z")]),
        lambda chat: chat[0].update(content="S2", name="x"),
        lambda chat: chat.__iadd__([message("A"), message("B")]),
    ):
        chat = chat_of("S U A* U B*")
        edit(chat)
        assert len(chat.versions) <= 2


def test_regenerating_keeps_every_answer_once() -> None:
    chat = chat_of("S U")
    for text in ("A1", "A2", "A1", "A3"):
        chat.append(message(text))
        chat.pop()
    # The second A1 is another sample of a text that a kept version holds already.
    assert shown(chat) == ["S U A1*", "S U A2*", "S U A3*", "S U"]
    assert [response.message["content"] for response in chat.responses()] == ["A1", "A2", "A1", "A3"]


def test_twins_are_two_samples() -> None:
    chat = chat_of("U")
    turn = chat.prepare()
    one, two = (chat.commit(turn, message("A")) for _ in range(2))
    assert one.id != two.id
    assert shown(chat) == ["U A*"]
    assert len(list(chat.responses())) == 2


def test_authored_assistant_messages_are_context() -> None:
    chat = MessageGraph([message("A"), message("U")])
    chat.insert(0, message("B"))
    chat[1] = message("C")
    chat.append(message("A"), sampled=False)
    assert list(chat.responses()) == []
    chat[0]["content"] = "edited"
    assert len(chat.versions) == 1


def test_sampled_is_not_a_role() -> None:
    chat = MessageGraph()
    chat.append({"role": "user", "content": "a simulated user"}, sampled=True)
    assert [response.message["role"] for response in chat.responses()] == ["user"]


def test_messages_that_come_out_of_a_graph_are_copies() -> None:
    source = chat_of("U A*")
    chat = MessageGraph()
    chat.extend(source)
    chat.append(source[1])
    chat.append(source.versions[0][1])
    assert list(chat.responses()) == []
    chat.append(source[1], sampled=True)
    assert len(list(chat.responses())) == 1


def test_popping_and_appending_again_is_no_second_sample() -> None:
    chat = chat_of("U A*")
    chat.append(chat.pop())
    assert (shown(chat), len(list(chat.responses()))) == (["U A*", "U A*"], 1)


def test_compact_makes_one_compaction_edge() -> None:
    chat = chat_of("S U A* U B*")
    chat.compact(slice(1, 4), "they talked")
    assert show(chat) == "S they talked B"
    assert (chat.previous.kind, chat.previous.successor, chat.versions[-1].kind) == ("compaction", 1, None)  # type: ignore[union-attr]
    chat.append(message("C"))
    chat.replace(0, message("S2"), kind="house rules")
    assert [edge.kind for edge in chat.edges() if edge.kind != "sequential"] == ["compaction", "house rules"]


def test_previous_and_versions_read_only() -> None:
    chat = chat_of("S U A*")
    assert chat.previous is None
    chat[1]["content"] = "V"
    assert chat.previous is not None
    assert (chat.previous[1]["content"], chat.prev_graph[1]["content"], chat.messages[1]["content"]) == ("U", "U", "V")  # type: ignore[index]
    assert chat.previous == [message(word) for word in ["S", "U", "A"]]
    assert (chat.previous.previous, len(chat.versions), len(chat.versions[0:9])) == (None, 2, 2)
    with pytest.raises(TypeError, match="changed in place"):
        chat.previous[1]["content"] = "W"
    with pytest.raises(IndexError):
        chat.versions[2]


def test_a_long_history_of_versions_is_read_exactly() -> None:
    """More versions than one snapshot covers, with edits of every kind in between."""
    chat = MessageGraph({"role": "user", "content": f"{index}"} for index in range(50))
    expected = []
    for round_ in range(300):
        chat.append({"role": "assistant", "content": f"answer {round_}"})
        expected.append([thaw(node) for node in chat.versions[-1]])
        place = round_ * 7 % len(chat)
        if round_ % 3 == 0:
            chat[place]["content"] = f"edit {round_}"
        elif round_ % 3 == 1:
            chat.insert(place, {"role": "user", "content": f"insert {round_}"})
        else:
            del chat[place : place + 2]
        chat.append({"role": "user", "content": "on"})
    assert [list(version) for version in chat.versions[:-1]] == expected
    assert [list(chat.versions[place]) for place in (299, 0, 64, 63, 128)] == [expected[place] for place in (299, 0, 64, 63, 128)]
    assert chat.verify()


def test_an_edit_that_leaves_no_trace_leaves_none() -> None:
    chat = chat_of("S U A* U")
    for text in ("secret 1", "secret 2"):
        chat[3]["content"] = text
    chat[3]["content"] = "fine"
    chat[1]["content"] = "V"
    chat[3]["content"] = "secret 3"
    chat[3]["content"] = "fine"
    assert "secret" not in chat.to_json()
