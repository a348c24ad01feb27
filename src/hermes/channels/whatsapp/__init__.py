"""WhatsApp, through 360dialog or Meta's own Cloud API.

channel    the port Channel: one number; and templates
providers  what differs between 360dialog and Meta; look up a file and download it
parse      the events of a webhook; numbers, user ids and groups as channel ids
content    text and file of a message
markup     WhatsApp's markup, and characters that must not become markup
fake/      a strict fake of WhatsApp, for tests
"""

from hermes.channels.whatsapp.channel import WhatsAppChannel, template_body
from hermes.channels.whatsapp.providers import CloudApi, Dialog360, Provider, WhatsAppFile, file_in, look_up

__all__ = ["CloudApi", "Dialog360", "Provider", "WhatsAppChannel", "WhatsAppFile", "file_in", "look_up", "template_body"]
