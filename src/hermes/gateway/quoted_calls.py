"""Give quoted tool calls back the arguments that the model wrote: a client to which an API shows them as objects cannot quote the text.

    the model wrote  {"a":1}     the client was shown  the object {"a": 1}     and quotes  {"a": 1}

Without this, the model would read other words than it wrote, and its chat would look edited at every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from hermes.gateway.chat_fingerprints import ChatFingerprinter
from hermes.gateway.chat_request import echo_key
from hermes.gateway.client_chats import ChatStores
from hermes.ports.backends import ChatMessage


async def restore_quoted_calls(messages: Sequence[ChatMessage], user_id: UUID, stores: ChatStores) -> Sequence[ChatMessage]:
    """Return the messages with the calls of our own answers as they were recorded. Raises UserErased, StoreUnavailable and DataDamaged.

    Reads the graph only if the text that the client's arguments were written as is not the recorded one."""
    last_call = max((at for at, message in enumerate(messages) if message.get("tool_calls")), default=None)
    if last_call is None:
        return messages
    found = await stores.chats.look(user_id, ChatFingerprinter(messages).fingerprints)
    if found is None or (found.known is not None and found.known.length > last_call):
        return messages
    async with stores.transactions.begin() as tx:
        graph = await stores.graphs.load(tx, found.session_id)
    ours = {echo_key(response.message): response.message for response in graph.responses() if response.message.get("tool_calls")}
    return [with_own_calls(message, ours) if message.get("tool_calls") else message for message in messages]


def with_own_calls(message: ChatMessage, ours: Mapping[bytes, ChatMessage]) -> ChatMessage:
    own = ours.get(echo_key(message))
    return message if own is None else {**message, "tool_calls": own["tool_calls"]}
