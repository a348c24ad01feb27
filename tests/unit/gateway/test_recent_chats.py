"""The chats that a process continued last are found by the list that a client shows, until they move on or were not used for a minute."""

from dataclasses import replace
from uuid import uuid4

from hermes.gateway.chat_fingerprints import ChatFingerprinter
from hermes.gateway.recent_chats import KEEP_S, MAX_CHATS, RecentChats
from hermes.ports.sessions import ChatFingerprint, ChatMatch

ALICE, BOB = uuid4(), uuid4()
LIST = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "it is the first number of all"}]
LONGER = [*LIST, {"role": "user", "content": "two"}, {"role": "assistant", "content": "it comes after the first one"}]
SHORT, LONG = ChatFingerprinter(LONGER).fingerprints


def chat(end: ChatFingerprint | None, head: str = "a") -> ChatMatch:
    return ChatMatch(SESSION, head, end)


SESSION = uuid4()
PLANNED = ChatMatch(SESSION, "0", is_new=True)


def test_a_chat_is_found_by_its_list_and_by_its_user() -> None:
    recent = RecentChats()
    recent.note(ALICE, chat(SHORT), PLANNED)
    assert recent.find(ALICE, SHORT) == chat(SHORT)
    assert recent.find(BOB, SHORT) is None
    assert recent.find(ALICE, LONG) is None


def test_a_chat_that_moved_on_is_found_by_its_new_list_alone() -> None:
    recent = RecentChats()
    recent.note(ALICE, chat(SHORT), PLANNED)
    recent.note(ALICE, chat(LONG, "b"), chat(SHORT))
    assert recent.find(ALICE, SHORT) is None
    assert recent.find(ALICE, LONG) == chat(LONG, "b")
    recent.forget(ALICE, uuid4())
    assert recent.find(ALICE, LONG) == chat(LONG, "b")
    recent.forget(ALICE, SESSION)
    assert recent.find(ALICE, LONG) is None


def test_a_list_with_reasoning_or_with_an_empty_end_is_left_to_the_store() -> None:
    recent = RecentChats()
    recent.note(ALICE, chat(replace(SHORT, whole=b"with reasoning")), PLANNED)
    recent.note(ALICE, chat(None), PLANNED)
    assert recent.find(ALICE, SHORT) is None
    recent.note(ALICE, chat(SHORT), PLANNED)
    assert recent.find(ALICE, replace(SHORT, whole=b"with reasoning")) is None


def test_what_is_remembered_ends_and_has_a_bound() -> None:
    now = 0.0
    recent = RecentChats(lambda: now)
    recent.note(ALICE, chat(SHORT), PLANNED)
    now = KEEP_S
    assert recent.find(ALICE, SHORT) is None
    for number in range(MAX_CHATS + 1):
        recent.note(ALICE, chat(replace(SHORT, shown=b"%d" % number, whole=b"%d" % number)), PLANNED)
    assert recent.find(ALICE, replace(SHORT, shown=b"0", whole=b"0")) is None
    assert recent.find(ALICE, replace(SHORT, shown=b"1", whole=b"1")) is not None
