"""Instagram messages, through either of Meta's two products: the login of a Facebook page, or Instagram's own.

channel   the port Channel: one account
parse     the events of a webhook, text and files of a message
fake/     a strict fake of Instagram, for tests
"""

from hermes.channels.instagram.channel import InstagramChannel, InstagramLogin

__all__ = ["InstagramChannel", "InstagramLogin"]
