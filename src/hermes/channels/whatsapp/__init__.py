"""WhatsApp, through 360dialog or at Meta's own Cloud API.

channel     the port Channel: one number
providers   what differs between 360dialog and Meta
parse       what a webhook holds
said        what a message says, as text and files
addresses   numbers, user ids and groups as channel ids
markup      WhatsApp's own marks in a text, and signs that must not become any
media       files: where one is, and how to get its bytes
subcodes    the errors that are told apart by a second number
template    what may be sent when the user has not written for a day
"""

from hermes.channels.whatsapp.channel import WhatsAppChannel
from hermes.channels.whatsapp.files import WhatsAppFile, file_in, look_up
from hermes.channels.whatsapp.providers import CloudApi, Dialog360, Provider
from hermes.channels.whatsapp.template import template_body

__all__ = ["CloudApi", "Dialog360", "Provider", "WhatsAppChannel", "WhatsAppFile", "file_in", "look_up", "template_body"]
