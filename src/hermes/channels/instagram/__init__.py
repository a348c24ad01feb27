"""Instagram messages, through either of Meta's two products: the login of a Facebook page, or Instagram's own.

channel   the port Channel: one account
parse     the events of a webhook
content   text and files of a message
"""

from hermes.channels.instagram.channel import InstagramChannel, InstagramLogin

__all__ = ["InstagramChannel", "InstagramLogin"]
