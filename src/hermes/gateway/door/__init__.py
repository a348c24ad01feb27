"""The OpenAI door: an agent that knows nothing of Hermes sends its chats here, and they become message graphs.

request    a client's body, checked, as what the gateway is asked
recording  which chat it belongs to, and how the answer is written into its graph
door       who is at the door, which models they get, one answer or several"""

from hermes.gateway.door.door import Door, Guest, Said, UnknownModel
from hermes.gateway.door.request import DoorRequest, Refused, read_request

__all__ = ["Door", "DoorRequest", "Guest", "Refused", "Said", "UnknownModel", "read_request"]
