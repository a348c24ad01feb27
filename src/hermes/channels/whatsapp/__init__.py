"""WhatsApp, through 360dialog or Meta's own Cloud API.

channel      the port Channel: one number
providers    what differs between 360dialog and Meta
parse        the events of a webhook
content      text and file of a message
channel_ids  numbers, user ids and groups as channel ids
markup       WhatsApp's markup, and characters that must not become markup
files        look up a file and download it
subcodes     errors that only their subcode tells apart
template     what Hermes may send after the user has not written for a day
"""

from hermes.channels.whatsapp.channel import WhatsAppChannel
from hermes.channels.whatsapp.files import WhatsAppFile, file_in, look_up
from hermes.channels.whatsapp.providers import CloudApi, Dialog360, Provider
from hermes.channels.whatsapp.template import template_body

__all__ = ["CloudApi", "Dialog360", "Provider", "WhatsAppChannel", "WhatsAppFile", "file_in", "look_up", "template_body"]
