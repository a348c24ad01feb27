"""The OpenAI door: an agent that knows nothing of Hermes sends its chats here, and they become message graphs.

request    a client's body, checked, as what the gateway is asked
recording  which chat it belongs to, and how the answer is written into its graph
door       who is at the door, which models they get, one answer or several"""

from hermes.gateway.client_chats.completions import ChatCompletions, ChoicePiece, EndUser, UnknownModel
from hermes.gateway.client_chats.request import ChatRequest, InvalidChatRequest, read_request

__all__ = ["ChatCompletions", "ChatRequest", "ChoicePiece", "EndUser", "InvalidChatRequest", "UnknownModel", "read_request"]
