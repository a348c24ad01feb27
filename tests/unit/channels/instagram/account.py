"""An account that does not exist, and a user who writes to it."""

from hermes.channels.instagram import InstagramChannel, InstagramLogin

OURS, NOOR, TOKEN = "17841400000000777", "900100200300", "IGQ-hush"
INSTAGRAM = InstagramChannel(account="shop", instagram_id=OURS, login=InstagramLogin.INSTAGRAM, access_token=TOKEN, app_secrets=("a", "b"))
