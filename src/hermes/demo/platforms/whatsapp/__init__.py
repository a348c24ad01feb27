"""A strict fake of WhatsApp, with the API of 360dialog and with Meta's Cloud API."""

from hermes.demo.platforms.whatsapp.delivery import RefusalTiming, WhatsAppRules
from hermes.demo.platforms.whatsapp.people import WhatsAppGroup, WhatsAppPerson
from hermes.demo.platforms.whatsapp.platform import FakeWhatsApp, WhatsAppApi

__all__ = ["FakeWhatsApp", "RefusalTiming", "WhatsAppApi", "WhatsAppGroup", "WhatsAppPerson", "WhatsAppRules"]
