"""MessageGraph: a chat history that is edited like a list and keeps what every model saw.

The public class of the graph. It turns list operations into the one operation of `edit.py`, returns the views of `view.py`, and
takes the lock. What an edit means is decided in `edit.py`, not here.

Threads: every method is atomic, as a list's are; a reader never sees half an edit. A loop over the graph sees messages that other
threads append meanwhile, as with a list. If other threads insert or delete meanwhile, `list(graph)` may miss or repeat a message, as a list
would."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from typing import Any, NoReturn, Self, overload

from hermes.graph.call import CallRecord
from hermes.graph.codec import decode, encode
from hermes.graph.commit import append_response, commit
from hermes.graph.context import KeepReasoning, Overlay, without_tool_blocks
from hermes.graph.edit import COMPACTION, EDIT, rewrite
from hermes.graph.edit import extend as extend_list
from hermes.graph.errors import CycleError, MessageError, UnknownResponse
from hermes.graph.history import GraphHistory
from hermes.graph.items import GraphItems
from hermes.graph.mermaid import draw_mermaid
from hermes.graph.message import ROLES, FrozenDict, check_message, freeze_items, thaw
from hermes.graph.node import REDACTED, AttachedChat, Node, new_origin
from hermes.graph.redact import redact
from hermes.graph.response import Response, Turn
from hermes.graph.root import root_of
from hermes.graph.traversal import Edge, Report, find_alteration
from hermes.graph.traversal import edges as all_edges
from hermes.graph.traversal import responses as all_responses
from hermes.graph.traversal import verify as verify_history
from hermes.graph.view import Message, Version, Versions, same_message


class MessageGraph(MutableSequence[Message]):
    """A list of chat messages that keeps the versions in which its responses were sampled.

    >>> chat = MessageGraph([{"role": "user", "content": "Capital of France?"}])
    >>> chat.append({"role": "assistant", "content": "Paris."})
    >>> chat[0]["content"] = "Capital of Italy?"
    >>> chat.previous[0]["content"], chat[0]["content"]
    ('Capital of France?', 'Capital of Italy?')

    `append` and `extend` record an assistant message as a response: a model sampled it with the current list as its context.
    The constructor, `insert` and assignment write authored messages. A message read from a graph is authored too, however it is
    written; `sampled=` overrides. `seed` makes the ids of this conversation differ from any other's; it is random unless given."""

    __slots__ = ("__weakref__", "_held_items", "_history", "_origin")

    def __init__(self, messages: Iterable[Any] = (), *, seed: str | None = None) -> None:
        if not isinstance(seed, str | None):
            raise MessageError("seed", f"expected text, got {type(seed).__name__}")
        self._origin = new_origin()
        self._history = GraphHistory(seed)
        self._held_items: GraphItems | None = None
        self._history.nodes = self._freeze_all(messages)

    @classmethod
    def _open(cls, history: GraphHistory) -> Self:
        graph = cls.__new__(cls)  # not cls(): a subclass may require arguments
        graph._origin = new_origin()
        graph._history = history
        graph._held_items = None
        return graph

    @property
    def _items(self) -> GraphItems:
        """The items of this graph, made when the first is read: they refer to the graph, so a graph that has none is freed at once."""
        if self._held_items is None:
            self._held_items = GraphItems(self._history, self._freeze_message)
        return self._held_items

    def _open_like(self, history: GraphHistory) -> Self:
        """Return a graph of this one's class, with the attributes that a subclass gave it."""
        graph = self._open(history)
        if hasattr(self, "__dict__"):
            graph.__dict__.update(self.__dict__)
        return graph

    # Reading as a list -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._history.nodes)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        with self._history.lock:
            if isinstance(index, slice):
                return [self._items.item(place) for place in range(len(self))[index]]
            return self._items.item(self._place(index, "graph index out of range"))

    def __iter__(self) -> Iterator[Message]:
        index = 0
        while True:
            with self._history.lock:
                if index >= len(self):
                    return
                item = self._items.item(index)
            yield item
            index += 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MessageGraph):
            other = other.versions[-1]
        return self.versions[-1] == other

    __hash__ = None  # type: ignore[assignment]  # a graph can change and equals lists, so it cannot be hashed, as a list cannot

    def __contains__(self, message: object) -> bool:
        return any(same_message(node, message) for node in tuple(self._history.nodes))

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the first index of an equal message (all fields but `metadata`); raise ValueError if there is none."""
        nodes = tuple(self._history.nodes)
        for place in range(len(nodes))[slice(start, stop)]:
            if same_message(nodes[place], value):
                return place
        raise ValueError("no such message in the graph")

    def count(self, value: Any) -> int:
        return sum(same_message(node, value) for node in tuple(self._history.nodes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({[dict(node) for node in self._history.nodes]!r})"

    # Writing as a list -------------------------------------------------------------------------------------------

    def append(self, message: Any, sampled: bool | None = None, call: CallRecord | None = None) -> None:  # noqa: FBT001  # append(reply, True) reads
        """Put a message at the end; an assistant's is recorded as a response sampled with the current list as its context.

        `sampled` overrides what the role suggests. `call` is the model call that made it."""
        if call is None and sampled is None and type(message) is dict and len(message) == 2:
            role, content = message.get("role"), message.get("content")
            if type(content) is str and type(role) is str and role in ROLES and content.isascii():
                # The fast path for the plain case: nothing more to check or compare; ids are computed when asked for.
                node = Node(message)
                history = self._history
                with history.lock:
                    index = len(history.nodes)
                    if history.version_tree.depth != index:
                        history.nodes.append(node)
                        if role == "assistant":
                            history.samples.append(index)
                            history.fresh.append(index)
                        return
        self._extend([message], call, sampled=sampled)

    def extend(self, values: Iterable[Any], sampled: bool | None = None) -> None:  # noqa: FBT001  # as in append
        """Append every message of `values`; if one is refused, none is appended."""
        self._extend(self._as_list(values), None, sampled=sampled)

    def __iadd__(self, values: Iterable[Any]) -> Self:
        self.extend(values)
        return self

    def insert(self, index: int, value: Any) -> None:
        """Put an authored message before `index`."""
        node = self._freeze_message(value, "message")
        with self._history.lock:
            at = slice(operator.index(index), None).indices(len(self))[0]
            rewrite(self._history, at, at, [node])

    @overload
    def __setitem__(self, index: int, value: Any) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[Any]) -> None: ...
    def __setitem__(self, index: int | slice, value: Any) -> None:
        self.replace(index, value)

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice) and index.step not in (None, 1):
            with self._history.lock:
                gone = set(range(len(self))[index])
                if gone:
                    nodes = self._history.nodes
                    left = [nodes[place] for place in range(min(gone), max(gone) + 1) if place not in gone]
                    rewrite(self._history, min(gone), max(gone) + 1, left)
        else:
            with self._history.lock:
                rewrite(self._history, *self._region(index), [])

    def pop(self, index: int = -1) -> Message:
        """Remove a message and return it. It no longer belongs to the graph: changing it later changes no graph."""
        with self._history.lock:
            place = self._place(index, "pop index out of range" if len(self) else "pop from empty graph")
            node = self._history.nodes[place]
            rewrite(self._history, place, place + 1, [])
            return Message(thaw(node))

    def remove(self, value: Any) -> None:
        """Remove the first equal message; raise ValueError if there is none."""
        with self._history.lock:
            place = self.index(value)
            rewrite(self._history, place, place + 1, [])

    def clear(self) -> None:
        """Remove all messages, as one edit."""
        with self._history.lock:
            rewrite(self._history, 0, len(self), [])

    def reverse(self) -> None:
        """Reverse the order, as one edit."""
        with self._history.lock:
            rewrite(self._history, 0, len(self), self._history.nodes[::-1])

    def sort(self, *_: object, **__: object) -> NoReturn:
        """Refused: the order of messages is the conversation."""
        raise TypeError("a conversation cannot be sorted: its order is what the model saw; sort list(graph) instead")

    def __add__(self, values: Iterable[Any]) -> Self:
        """Return a copy, versions and responses included, extended by `values`."""
        if not isinstance(values, list | MessageGraph | Version):
            return NotImplemented
        copied = self.copy()
        copied.extend(values)
        return copied

    def __radd__(self, values: Iterable[Any]) -> Self:
        """Return a copy, versions and responses included, with `values` before its messages."""
        if not isinstance(values, list | Version):
            return NotImplemented
        copied = self.copy()
        copied[0:0] = values
        return copied

    def __mul__(self, _: object) -> NoReturn:
        """Refused: a sample exists once."""
        raise TypeError("a conversation cannot be repeated: each response was sampled once; use list(graph) * n for plain messages")

    __rmul__ = __imul__ = __mul__

    def replace(self, where: int | slice, value: Any, *, kind: str = EDIT) -> None:
        """Write authored messages over an index or a slice, as `graph[where] = value` does, and name the kind of edit.

        If the previous version is kept, `kind` is the kind of the edge that joins it to its successor."""
        if not isinstance(where, slice):
            node = self._freeze_message(value, "message")
            with self._history.lock:
                place = self._place(where, "assignment index out of range")
                rewrite(self._history, place, place + 1, [node], kind)
            return
        nodes = self._freeze_all(value)  # before the lock: reading `value` may take another graph's lock
        with self._history.lock:
            start, stop, step = where.indices(len(self))
            if step != 1:
                places = range(start, stop, step)
                if len(places) != len(nodes):
                    raise ValueError(f"{len(nodes)} messages for a stepped slice of {len(places)}")
                if not places:
                    return
                start, stop = min(places), max(places) + 1
                region = self._history.nodes[start:stop]
                for place, node in zip(places, nodes, strict=True):
                    region[place - start] = node
                nodes = region
            rewrite(self._history, start, max(start, stop), nodes, kind)

    # Copies ------------------------------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return an independent graph with the same messages, versions, responses and annotations."""
        with self._history.lock:
            return self._open_like(self._history.copy())

    __copy__ = copy

    def __deepcopy__(self, _: object) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_json, (self.to_json(),)

    def fork(self, length: int | None = None) -> Self:
        """Return a graph that continues from here, or from the first `length` messages, without the older versions.

        The responses on the shared messages are the same samples with the same ids: exporting both counts them once."""
        with self._history.lock:
            return self._open_like(self._history.fork(len(range(len(self))[:length])))

    # Versions ----------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> Versions:
        """The kept versions, oldest first, and the current list last. Read-only."""
        return Versions(self._history)

    @property
    def previous(self) -> Version | None:
        """The version kept last, or None. Read-only."""
        with self._history.lock:
            return self.versions[-1].previous

    @property
    def prev_graph(self) -> Version | None:
        """The founding sketch's name for `previous`."""
        return self.previous

    @property
    def messages(self) -> Self:
        """The founding sketch's name for the list, which is the graph itself: `graph.messages.append(message)` is recorded."""
        return self

    @messages.setter
    def messages(self, messages: Iterable[Any]) -> None:
        """Write authored messages over the whole list, as `graph[:] = messages` does."""
        self[:] = messages

    @property
    def head(self) -> str:
        """The context id of the current list."""
        with self._history.lock:
            return self._history.id_of(len(self._history.kept), len(self)).hex()

    @property
    def root(self) -> str:
        """The hash of the whole graph: lists, versions, edges, responses, calls, annotations and attached chats."""
        with self._history.lock:
            return root_of(self._history)

    @property
    def root_read(self) -> str | None:
        """The root of the document that `from_json` read, if it held; not the root of what changed since."""
        return self._history.root_read

    @property
    def seed(self) -> str:
        """The text that makes this conversation's ids differ from any other's."""
        return self._history.seed

    def compact(self, where: slice, summary: Any, *, kind: str = COMPACTION) -> None:
        """Replace a part of the conversation by one message, in one edit of kind `compaction`.

        `summary` is a message, or a text for a user message. If a model wrote it, attach its chat as
        `metadata={"chat": graph}`: the summary's own sampled tokens are then training data too."""
        if not isinstance(where, slice):
            raise TypeError(f"expected a slice of messages to compact, for instance slice(1, 5), got {type(where).__name__}")
        message = {"role": "user", "content": summary} if isinstance(summary, str) else summary
        with self._history.lock:
            if not range(len(self))[where]:
                raise ValueError("there is no message in that slice to compact")
            self.replace(where, [message], kind=kind)

    # Model calls -------------------------------------------------------------------------------------------------

    def context(
        self, tools: Sequence[Any] | None = None, ephemeral: str | None = None, keep_reasoning: KeepReasoning = "none"
    ) -> list[dict[str, Any]]:
        """Return the messages that a call with these settings would send."""
        return self.prepare(tools, ephemeral, keep_reasoning).messages

    def prepare(
        self,
        tools: Sequence[Any] | None = None,
        ephemeral: str | None = None,
        keep_reasoning: KeepReasoning = "none",
        template_id: str | None = None,
        *,
        system: str | None = None,
        leave_out_tools: bool = False,
    ) -> Turn:
        """Pin what will be sent: `turn.messages` and `turn.context_id` stay the same even if the list changes meanwhile.

        `system` is a base system prompt that is not in the list, and `ephemeral` is text for this call alone. Both are sent in the system
        message; a saved trajectory has `system`, never `ephemeral`. `leave_out_tools`: the model is shown no tool calls and no results."""
        overlay = Overlay(tools, ephemeral, keep_reasoning, template_id, system)
        with self._history.lock:
            nodes = self._history.nodes
            if leave_out_tools:
                kept = without_tool_blocks(nodes)
                nodes = [message if isinstance(message, Node) else self._freeze_message(message, "message") for message in kept]
            return Turn(tuple(nodes), overlay, self._history.seed)

    def commit(self, turn: Turn, message: Any, call: CallRecord | None = None, *, adopt: bool = False) -> Response:
        """Record the response to a prepared turn.

        Extends the list if the list is still what was sent. Otherwise the response is kept on a branch of its own and
        the list does not change; with `adopt` an authored copy is appended to the list. Committing the same sample id with the
        same content again changes nothing; with other content it raises SampleConflict."""
        if not isinstance(turn, Turn):
            raise TypeError(f"expected a turn that prepare() made, got {type(turn).__name__}")
        node = self._freeze_message(message, "message")
        with self._history.lock:
            return commit(self._history, turn, node, call, adopt=adopt)

    def responses(self) -> Iterator[Response]:
        """Yield every sampled response of every version and every attached chat, each once, with its context."""
        with self._history.lock:
            found = list(all_responses(self._history))
        return iter(found)

    def annotate(self, response: Response | str, **fields: Any) -> None:
        """Add something learned later about a response (a reward, a reaction, a time): `annotate(id, reward=1.0)`."""
        if not isinstance(response, Response | str):
            raise TypeError(f"expected a Response from responses() or commit(), or its id, got {type(response).__name__}")
        note = FrozenDict(freeze_items(fields, "annotation"))
        response_id = response.id if isinstance(response, Response) else response
        with self._history.lock:
            is_ours = response_id in self._history.annotations or (isinstance(response, Response) and response.belongs_to(self._history))
            if not is_ours and all(response_id != known.id for known in self.responses()):
                raise UnknownResponse(f"no response of this graph has the id {response_id!r}")
            self._history.annotations.setdefault(response_id, []).append(note)

    # The record --------------------------------------------------------------------------------------------------

    def edges(self) -> Iterator[Edge]:
        """Yield every edge: `sequential` from message to message, and the parallel ones by kind."""
        with self._history.lock:
            return iter(list(all_edges(self._history)))

    def redact(self, target: int | Mapping[str, Any]) -> None:
        """Erase a message for good: here, in every version, in attached chats, and the tokens of calls that carried it.

        `target` is an index of the list, or a message (of the list, a version or a response). Equal messages are erased
        too. The list gets a message that says that it was redacted. Ids stay valid, `verify()` reports `redacted`, and exports leave
        such samples out. Annotations, usage and sampling parameters stay as they are."""
        with self._history.lock:
            if isinstance(target, Mapping):
                node = target if isinstance(target, Node) else self._freeze_message(target, "message")
            else:
                node = self._history.nodes[self._place(target, "redact index out of range")]
            if node.redacted or node.digest in self._history.erased or node.get("content") == REDACTED:
                return  # done before
            before = list(self._history.nodes)
            if not redact(self._history, node.digest):
                raise ValueError("no such message in the graph")
            if self._held_items is not None:
                self._held_items.follow(before)

    def verify(self) -> Report:
        """Compute every id again; the report is truthy when all agree, and lists what was redacted."""
        with self._history.lock:
            return verify_history(self._history)

    def find_alteration(self) -> str | None:
        """Return the first problem that `verify` reports, or None. Call it on a graph as `from_json` returned it: reading computed all ids,
        so it costs little. For a graph that was used since, call `verify`."""
        with self._history.lock:
            return find_alteration(self._history)

    def to_json(self) -> str:
        """Write the whole graph as JSON; the same graph always gives the same bytes."""
        with self._history.lock:
            return encode(self._history)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote; raise CodecError with the path to the fault."""
        return cls._open(decode(text, cls._open))

    def to_mermaid(self, width: int | None = 60) -> str:
        """Draw the graph as Mermaid text; messages are cut at `width` characters, and shown whole with None."""
        with self._history.lock:
            return draw_mermaid(self._history, width)

    # Helpers -----------------------------------------------------------------------------------------------------

    def _extend(self, messages: Sequence[Any], call: CallRecord | None, *, sampled: bool | None) -> None:
        if call is not None and sampled is False:
            raise ValueError("a message with a call record was sampled; leave sampled out")
        many = len(messages) > 1
        nodes = [self._freeze_message(message, f"messages[{at}]" if many else "message") for at, message in enumerate(messages)]
        with self._history.lock:
            for message, node in zip(messages, nodes, strict=True):
                is_copy = isinstance(message, Message | FrozenDict)
                if call is not None or (node["role"] == "assistant" and not is_copy if sampled is None else sampled):
                    append_response(self._history, node, call)
                else:
                    extend_list(self._history, [node])

    def _freeze_message(self, message: Any, path: str) -> Node:
        return Node(check_message(message, path, self._freeze_metadata))

    def _freeze_all(self, messages: Iterable[Any]) -> list[Node]:
        return [self._freeze_message(message, f"messages[{index}]") for index, message in enumerate(self._as_list(messages))]

    def _as_list(self, messages: Iterable[Any]) -> list[Any]:
        if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
            raise MessageError("messages", f"expected an iterable of messages, got {type(messages).__name__}")
        return list(messages)

    def _freeze_metadata(self, metadata: Any, path: str) -> FrozenDict:
        """Freeze a message's metadata; a chat in it is attached as it is now."""
        if not isinstance(metadata, Mapping):
            raise MessageError(path, f"expected an object, got {type(metadata).__name__}")
        chat = metadata.get("chat")
        if chat is None:
            return FrozenDict(freeze_items(metadata, path))
        rest = {key: value for key, value in metadata.items() if key != "chat"}
        attached = self._attach(chat, f"{path}.chat")
        if self._origin in attached.origins:
            raise CycleError(f"{path}.chat", "a chat cannot be attached to a message of itself; attach chat.fork()")
        return FrozenDict({**dict(freeze_items(rest, path)), "length": len(attached), "chat": attached})

    def _attach(self, chat: Any, path: str) -> AttachedChat:
        if isinstance(chat, AttachedChat):
            return chat
        if not isinstance(chat, MessageGraph):
            if isinstance(chat, str | Mapping) or not isinstance(chat, Iterable):
                raise MessageError(path, f"expected a MessageGraph or a list of messages (`chat` is reserved), got {type(chat).__name__}")
            chat = MessageGraph(chat)
        with chat._history.lock:
            return AttachedChat(chat._history.copy(), type(chat)._open, chat._origin)

    def _place(self, index: int, error: str) -> int:
        try:
            return range(len(self))[index]
        except IndexError:
            raise IndexError(error) from None

    def _region(self, index: int | slice) -> tuple[int, int]:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return start, max(start, stop)
        place = self._place(index, "deletion index out of range")
        return place, place + 1
