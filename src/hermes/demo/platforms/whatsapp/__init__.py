"""WhatsApp as 360dialog and Meta's Cloud API speak it, as a strict stand-in."""

from hermes.demo.platforms.whatsapp.people import WhatsAppGroup, WhatsAppPerson
from hermes.demo.platforms.whatsapp.platform import Door, WhatsApp
from hermes.demo.platforms.whatsapp.sending import Rules, When

__all__ = ["Door", "Rules", "WhatsApp", "WhatsAppGroup", "WhatsAppPerson", "When"]
