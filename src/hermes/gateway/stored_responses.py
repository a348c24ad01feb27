"""Answers that a client may ask for again by their ids, and continue from. They are read from the graph in which they were recorded.

There is no second copy: what erases the graph erases these. To delete one is to mark its sample; the record itself stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hermes.gateway.client_chats import ChatStores
from hermes.graph import MessageGraph, Response
from hermes.ports.backends import ChatMessage
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.models import CallPlace
from hermes.ports.runtime import Transaction

DELETED = "response_deleted"
"""The annotation of a sample that a client has deleted."""
RESPONSE_ID = re.compile(r"resp_([0-9a-f]{32})")


class UnknownStoredResponse(LookupError):
    """The key has no stored response of this id."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A recorded answer, with what its request kept to be shown again."""

    call_id: UUID
    user_id: UUID
    sample: Response
    kept: Mapping[str, Any]

    @property
    def thinking(self) -> dict[int, Mapping[str, Any]]:
        """The thinking that the vendor wants back with this answer, by the answer's place in `messages`."""
        return {len(self.messages) - 1: self.kept["thinking"]} if "thinking" in self.kept else {}

    @property
    def messages(self) -> list[ChatMessage]:
        """The messages that the answer was given to, without the instructions of its own request, then the answer."""
        return [*self.sample.prefix[1 if self.kept.get("has_instructions") else 0 :], self.sample.message]


def response_id_of(call_id: UUID) -> str:
    return f"resp_{call_id.hex}"


async def find_response(stores: ChatStores, name: str, api_key_id: UUID, user_id: UUID | None = None) -> StoredResponse:
    """Return a stored response of this key, and if `user_id` is given, of this user. Raises UnknownStoredResponse, StoreUnavailable and
    DataDamaged."""
    async with stores.transactions.begin() as tx:
        place = await place_of(stores, tx, name, api_key_id)
        if user_id not in (None, place.user_id):
            raise UnknownStoredResponse(name)
        stored, _ = await load_response(stores, tx, name, place)
        return stored


async def delete_response(stores: ChatStores, name: str, api_key_id: UUID) -> None:
    """Mark a stored response: from then on there is none of this id. Raises as `find_response`."""
    async with stores.transactions.begin() as tx:
        place = await place_of(stores, tx, name, api_key_id)
        chat = await stores.chats.get(tx, place.user_id, place.session_id)  # locks it against answers that are recorded meanwhile
        stored, graph = await load_response(stores, tx, name, place)
        if chat is None:
            raise UnknownStoredResponse(name)
        graph.annotate(stored.sample, **{DELETED: True})
        await stores.graphs.save(tx, place.session_id, chat.head, graph)


async def place_of(stores: ChatStores, tx: Transaction, name: str, api_key_id: UUID) -> CallPlace:
    match = RESPONSE_ID.fullmatch(name)
    place = await stores.calls.place(tx, UUID(match[1]), api_key_id) if match else None
    if place is None:
        raise UnknownStoredResponse(name)
    return place


async def load_response(stores: ChatStores, tx: Transaction, name: str, place: CallPlace) -> tuple[StoredResponse, MessageGraph]:
    call_id = UUID(name.removeprefix("resp_"))
    try:
        graph = await stores.graphs.load(tx, place.session_id)
    except (NotFound, UserErased):
        raise UnknownStoredResponse(name) from None
    for sample in graph.responses():
        if sample.is_own and sample.sample_id == str(call_id):
            kept = (sample.call.extra or {}).get("response") if sample.call is not None else None
            if kept is not None and not any(note.get(DELETED) for note in sample.annotations):
                return StoredResponse(call_id, place.user_id, sample, kept), graph
    raise UnknownStoredResponse(name)
