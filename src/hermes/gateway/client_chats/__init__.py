"""Chats behind the OpenAI endpoint: a client that knows nothing of Hermes sends its chats, and they become message graphs.

request      checks a client's body and turns it into a request to the gateway
matching     compares the client's messages with the recorded ones: the same, longer, edited or compacted
recording    finds the chat of a request and writes the answer into its graph
completions  the end user, the models they may use, one answer or several"""

from hermes.gateway.client_chats.completions import ChatCompletions, ChoicePiece, EndUser, UnknownModel
from hermes.gateway.client_chats.request import ChatRequest, InvalidChatRequest, read_request

__all__ = ["ChatCompletions", "ChatRequest", "ChoicePiece", "EndUser", "InvalidChatRequest", "UnknownModel", "read_request"]
