"""A strict fake of Instagram messaging through Meta's Graph API."""

from hermes.channels.instagram.fake.people import InstagramPerson
from hermes.channels.instagram.fake.platform import FakeInstagram, FakeInstagramLogin

__all__ = ["FakeInstagram", "FakeInstagramLogin", "InstagramPerson"]
