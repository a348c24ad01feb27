"""A strict fake of WhatsApp, with the API of 360dialog and with Meta's Cloud API."""

from hermes.channels.whatsapp.fake.delivery import RefusalTiming, WhatsAppRules
from hermes.channels.whatsapp.fake.people import WhatsAppGroup, WhatsAppPerson
from hermes.channels.whatsapp.fake.platform import FakeWhatsApp, WhatsAppApi

__all__ = ["FakeWhatsApp", "RefusalTiming", "WhatsAppApi", "WhatsAppGroup", "WhatsAppPerson", "WhatsAppRules"]
