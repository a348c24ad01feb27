"""A rule-based machine drives random programs against a naive model: plain lists and full copies, the rule written out in full."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test

from hermes import CallRecord, MessageGraph, Response, Turn
from hermes.graph.message import thaw

# Few texts and roles, so that edits back to an old text, twins and equal neighbours happen all the time.
TEXTS = st.sampled_from(["a", "b", "c"])
ROLES = st.sampled_from(["user", "assistant", "tool"])
PLACES = st.integers(-6, 6)
STEPS = [0]


def message(role: str, text: str) -> dict[str, Any]:
    return {"content": text, "role": role}


def bare(messages: Any) -> list[dict[str, Any]]:
    """The content of messages: no side data, plain values."""
    return [{key: thaw(item[key]) for key in sorted(item) if key != "metadata"} for item in messages]


class Slot:
    """One message of the model's list, with the samples of the chat attached to it."""

    def __init__(self, content: dict[str, Any], chat: frozenset[str] = frozenset()) -> None:
        self.content, self.chat = content, chat


class Model:
    """What the graph must be, without any cleverness."""

    def __init__(self) -> None:
        self.current: list[Slot] = []
        self.versions: list[list[Slot]] = []
        self.samples: list[list[dict[str, Any]]] = []  # context and message of every sample
        self.chats: set[str] = set()  # every sample inside an attached chat

    @staticmethod
    def holds(head: list[Slot], sample: list[dict[str, Any]]) -> bool:
        return [slot.content for slot in head[: len(sample)]] == sample

    def is_lost(self, before: list[Slot], after: list[Slot]) -> bool:
        others = [after, *self.versions]
        for sample in self.samples:
            if self.holds(before, sample) and not any(self.holds(head, sample) for head in others):
                return True
        inside = {name for slot in before for name in slot.chat}
        return bool(inside - {name for head in others for slot in head for name in slot.chat})

    def edit(self, after: list[Slot]) -> None:
        if self.is_lost(self.current, after):
            self.versions.append(list(self.current))
        self.current = after

    def sample(self, content: dict[str, Any], chat: frozenset[str] = frozenset()) -> None:
        self.current = [*self.current, Slot(content, chat)]
        self.samples.append([slot.content for slot in self.current])

    def branch(self, context: list[Slot], content: dict[str, Any], chat: frozenset[str]) -> None:
        head = [*context, Slot(content, chat)]
        self.samples.append([slot.content for slot in head])
        heads = (self.current, *self.versions)
        is_held = any(self.holds(other, self.samples[-1]) for other in heads)
        inside = {name for slot in head for name in slot.chat}
        if not is_held or inside - {name for other in heads for slot in other for name in slot.chat}:
            self.versions.append(head)


class GraphMachine(RuleBasedStateMachine):
    turns: Bundle[tuple[Turn, list[Slot]]] = Bundle("turns")

    def __init__(self) -> None:
        super().__init__()
        self.graph = MessageGraph(seed="machine")
        self.model = Model()
        self.known: dict[str, list[dict[str, Any]]] = {}  # response id: what it must show for ever
        self.names = 0
        self.attached: list[tuple[frozenset[str], MessageGraph]] = []
        self.held: list[tuple[MessageGraph, Response, list[dict[str, Any]]]] = []

    # Rules -------------------------------------------------------------------------------------------------------

    @rule(text=TEXTS)
    def append_response(self, text: str) -> None:
        self.graph.append(message("assistant", text))
        self.model.sample(message("assistant", text))

    @rule(role=ROLES, text=TEXTS)
    def append_authored(self, role: str, text: str) -> None:
        self.graph.append(message(role, text), sampled=False)
        self.model.current = [*self.model.current, Slot(message(role, text))]

    @rule(texts=st.lists(TEXTS, max_size=3))
    def extend(self, texts: list[str]) -> None:
        self.graph.extend([message("assistant", text) for text in texts])
        for text in texts:
            self.model.sample(message("assistant", text))

    @rule(place=PLACES, text=TEXTS)
    def edit_through_item(self, place: int, text: str) -> None:
        if -len(self.graph) <= place < len(self.graph):
            after = list(self.model.current)
            after[place] = Slot({**after[place].content, "content": text}, after[place].chat)
            self.graph[place]["content"] = text
            self.model.edit(after)

    @rule(place=PLACES, role=ROLES, text=TEXTS)
    def assign(self, place: int, role: str, text: str) -> None:
        if -len(self.graph) <= place < len(self.graph):
            after = list(self.model.current)
            # An equal message keeps its slot; its side data goes, as it does when a dict is replaced in a list.
            after[place] = Slot(message(role, text))
            self.graph[place] = message(role, text)
            self.model.edit(after)

    @rule(place=PLACES, role=ROLES, text=TEXTS)
    def insert(self, place: int, role: str, text: str) -> None:
        after = list(self.model.current)
        after.insert(place, Slot(message(role, text)))
        self.graph.insert(place, message(role, text))
        self.model.edit(after)

    @rule(place=PLACES)
    def pop(self, place: int) -> None:
        if -len(self.graph) <= place < len(self.graph):
            after = list(self.model.current)
            gone = after.pop(place)
            assert bare([self.graph.pop(place)]) == [gone.content]
            self.model.edit(after)

    @rule(start=PLACES, stop=PLACES, step=st.sampled_from([None, 1, 2, -1, -2, 3]))
    def delete_slice(self, start: int, stop: int, step: int | None) -> None:
        after = list(self.model.current)
        del after[start:stop:step]
        del self.graph[start:stop:step]
        self.model.edit(after)

    @rule(start=PLACES, stop=PLACES, texts=st.lists(TEXTS, max_size=3))
    def assign_slice(self, start: int, stop: int, texts: list[str]) -> None:
        after = list(self.model.current)
        after[start:stop] = [Slot(message("user", text)) for text in texts]
        self.graph[start:stop] = [message("user", text) for text in texts]
        self.model.edit(after)

    @rule(step=st.sampled_from([2, -1, -2]), text=TEXTS)
    def assign_stepped(self, step: int, text: str) -> None:
        after = list(self.model.current)
        size = len(after[::step])
        after[::step] = [Slot(message("user", text)) for _ in range(size)]
        self.graph[::step] = [message("user", text)] * size
        self.model.edit(after)

    @rule(start=st.integers(0, 3), length=st.integers(0, 4), text=TEXTS)
    def compact(self, start: int, length: int, text: str) -> None:
        after = list(self.model.current)
        if not after[start : start + length]:
            return
        after[start : start + length] = [Slot(message("user", text))]
        self.graph.compact(slice(start, start + length), text)
        self.model.edit(after)

    @rule(text=TEXTS, depth=st.integers(1, 3), shared=st.booleans())
    def attach_subagent(self, text: str, depth: int, shared: bool) -> None:
        """A tool message that brings the chat which made it; sometimes one whose samples are known already."""
        names, chat = self.subagent(depth, shared)
        self.graph.append({**message("tool", text), "metadata": {"chat": chat, "note": "side"}})
        self.model.current = [*self.model.current, Slot(message("tool", text), names)]

    def subagent(self, depth: int, shared: bool) -> tuple[frozenset[str], MessageGraph]:
        if shared and self.attached:
            return self.attached[depth % len(self.attached)]
        names, chat = [f"sub-{self.names + at}" for at in range(depth)], MessageGraph(seed="sub")
        self.names += depth
        for name in names:
            chat.append(message("assistant", f"inner {name}"), call=CallRecord(sample_id=name))
            inner, chat = chat, MessageGraph([message("user", "go")], seed="sub")
            chat.append({**message("tool", "out"), "metadata": {"chat": inner}})
        self.model.chats |= set(names)
        self.attached.append((frozenset(names), chat))
        return self.attached[-1]

    @rule(place=PLACES)
    def drop_side_data(self, place: int) -> None:
        if -len(self.graph) <= place < len(self.graph):
            after = list(self.model.current)
            after[place] = Slot(after[place].content)
            self.graph[place].pop("metadata", None)
            self.model.edit(after)

    @rule(place=PLACES, text=TEXTS)
    def note_side_data(self, place: int, text: str) -> None:
        """Side data is not content: writing it never keeps a version, unless a chat goes."""
        if -len(self.graph) <= place < len(self.graph):
            item = self.graph[place]
            item["metadata"] = {**item.get("metadata", {}), "note": text}

    @rule()
    def reverse(self) -> None:
        self.graph.reverse()
        self.model.edit(self.model.current[::-1])

    @rule()
    def clear(self) -> None:
        self.graph.clear()
        self.model.edit([])

    @rule(target=turns, tools=st.booleans(), ephemeral=st.booleans())
    def prepare(self, tools: bool, ephemeral: bool) -> Any:
        turn = self.graph.prepare(tools=[{"name": "t"}] if tools else None, ephemeral="eph" if ephemeral else None)
        assert bare(turn.messages if not ephemeral else turn.messages[1:]) == [slot.content for slot in self.model.current]
        return multiple((turn, list(self.model.current)))

    @rule(turn=turns, text=TEXTS, adopt=st.booleans(), brings_chat=st.integers(0, 3), shared=st.booleans())
    def commit(self, turn: tuple[Turn, list[Slot]], text: str, adopt: bool, brings_chat: int, shared: bool) -> None:
        pinned, context = turn
        names, chat = self.subagent(1, shared) if brings_chat == 0 else (frozenset[str](), None)
        reply = {**message("assistant", text), "metadata": {"chat": chat}} if chat is not None else message("assistant", text)
        response = self.graph.commit(pinned, reply, adopt=adopt)
        assert response.context == pinned.messages
        self.held.append((self.graph, response, bare([*pinned.messages, reply])))
        if [slot.content for slot in context] == [slot.content for slot in self.model.current]:
            self.model.sample(message("assistant", text), names)
        else:
            self.model.branch(context, message("assistant", text), names)
            if adopt:
                self.model.current = [*self.model.current, Slot(message("assistant", text), names)]

    @rule(length=st.integers(0, 6))
    def fork(self, length: int) -> None:
        """A fork holds the shared messages and exactly the samples on them; the original does not notice."""
        before = self.graph.to_json()
        fork = self.graph.fork(length)
        assert self.graph.to_json() == before
        assert len(fork.versions) == 1
        head = self.model.current[:length]
        expected = [sample for sample in self.model.samples if len(sample) <= length and self.model.holds(head, sample)]
        own = [response for response in fork.responses() if response.sample_id not in self.model.chats]
        assert sorted(json.dumps(bare([*response.prefix, response.message])) for response in own) == sorted(map(json.dumps, expected))
        assert {response.id for response in fork.responses()} <= {response.id for response in self.graph.responses()}
        fork.append(message("assistant", "elsewhere"))
        fork.clear()
        assert self.graph.to_json() == before

    @rule(how=st.sampled_from(["copy", "deepcopy", "json"]))
    def go_on_with_a_copy(self, how: str) -> None:
        original, before = self.graph, self.graph.to_json()
        if how == "json":
            self.graph = MessageGraph.from_json(before)
        else:
            self.graph = getattr(copy, how)(self.graph)
        assert self.graph.to_json() == before
        original.append(message("assistant", "elsewhere"))
        original.clear()
        assert self.graph.to_json() == before

    # What must always hold ---------------------------------------------------------------------------------------

    @invariant()
    def step_is_counted(self) -> None:
        STEPS[0] += 1

    @invariant()
    def list_view_is_the_models_list(self) -> None:
        assert bare(self.graph) == [slot.content for slot in self.model.current]
        assert self.graph == [slot.content for slot in self.model.current]

    @invariant()
    def versions_exist_exactly_when_the_rule_says_so(self) -> None:
        expected = [[slot.content for slot in head] for head in (*self.model.versions, self.model.current)]
        assert [bare(version) for version in self.graph.versions] == expected

    @invariant()
    def every_sample_is_reachable_with_its_context(self) -> None:
        responses = list(self.graph.responses())
        own = [response for response in responses if response.sample_id not in self.model.chats]
        assert [bare([*response.prefix, response.message]) for response in own] == self.model.samples
        assert {response.sample_id for response in responses} - {response.sample_id for response in own} == self.model.chats
        ids = [response.id for response in responses]
        assert len(set(ids)) == len(ids)
        shown = {response.id: bare([*response.context, response.message]) for response in responses}
        for name, before in self.known.items():
            assert shown[name] == before
        self.known = shown

    @invariant()
    def responses_that_somebody_holds_stay_what_they_were(self) -> None:
        for graph, response, before in self.held:
            if graph is self.graph:
                assert bare([*response.context, response.message]) == before

    @invariant()
    def head_is_that_of_a_graph_made_from_nothing(self) -> None:
        """Named to run before `verify`, which forgets the ids that earlier steps left behind."""
        assert self.graph.head == MessageGraph(bare(self.graph), seed="machine").head

    @invariant()
    def warm_ids_are_left_for_the_next_step(self) -> None:
        """Named to run after `verify`: an edit must find ids to forget."""
        assert len(self.graph.head) == 64

    @invariant()
    def sampled_slots_follow_from_the_samples(self) -> None:
        for version, head in zip(self.graph.versions, (*self.model.versions, self.model.current), strict=True):
            assert version.sampled == {len(sample) - 1 for sample in self.model.samples if self.model.holds(head, sample)}

    @invariant()
    def ids_and_codec_hold(self) -> None:
        assert self.graph.verify().status == "ok"
        text = self.graph.to_json()
        assert MessageGraph.from_json(text).to_json() == text


@pytest.mark.parametrize("runs", [150, pytest.param(1_000, marks=pytest.mark.slow)])
def test_any_edits_in_any_order_keep_every_context_of_every_sample(runs: int) -> None:
    before = STEPS[0]
    health = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        GraphMachine, settings=settings(max_examples=runs, stateful_step_count=60, deadline=None, suppress_health_check=health)
    )
    assert STEPS[0] - before >= 25 * runs
