"""A strict fake of Instagram messaging through Meta's Graph API."""

from hermes.demo.platforms.instagram.people import InstagramPerson
from hermes.demo.platforms.instagram.platform import FakeInstagram, FakeInstagramLogin

__all__ = ["FakeInstagram", "FakeInstagramLogin", "InstagramPerson"]
