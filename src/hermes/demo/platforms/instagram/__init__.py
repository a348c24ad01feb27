"""Instagram messaging over Meta's Graph API, as a strict stand-in."""

from hermes.demo.platforms.instagram.people import InstagramPerson
from hermes.demo.platforms.instagram.platform import FakeInstagram, FakeInstagramLogin

__all__ = ["FakeInstagram", "FakeInstagramLogin", "InstagramPerson"]
