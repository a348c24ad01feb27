"""An account that does not exist, and somebody who writes to it."""

from hermes.channels.instagram import Instagram, Login

OURS, NOOR, TOKEN = "17841400000000777", "900100200300", "IGQ-hush"
INSTAGRAM = Instagram(account="shop", instagram_id=OURS, login=Login.INSTAGRAM, access_token=TOKEN, app_secrets=("a", "b"))
