"""WhatsApp as 360dialog and Meta's Cloud API speak it, as a strict stand-in."""

from hermes.demo.platforms.whatsapp.delivery import RefusalTiming, WhatsAppRules
from hermes.demo.platforms.whatsapp.people import WhatsAppGroup, WhatsAppPerson
from hermes.demo.platforms.whatsapp.platform import FakeWhatsApp, WhatsAppApi

__all__ = ["FakeWhatsApp", "RefusalTiming", "WhatsAppApi", "WhatsAppGroup", "WhatsAppPerson", "WhatsAppRules"]
