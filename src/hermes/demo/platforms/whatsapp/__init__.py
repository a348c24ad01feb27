"""WhatsApp as 360dialog and Meta's Cloud API speak it, as a strict stand-in."""

from hermes.demo.platforms.whatsapp.people import WhatsAppPerson
from hermes.demo.platforms.whatsapp.platform import Door, WhatsApp, When

__all__ = ["Door", "WhatsApp", "WhatsAppPerson", "When"]
