"""Instagram messages, by either of Meta's two products: a Facebook page's login, or Instagram's own.

channel   the port Channel: one account
parse     what a webhook holds
said      what a message says, as text and files
"""

from hermes.channels.instagram.channel import InstagramChannel, InstagramLogin

__all__ = ["InstagramChannel", "InstagramLogin"]
