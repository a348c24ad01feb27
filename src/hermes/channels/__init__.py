"""Channels: the wire format of each platform, as pure codecs of the port Channel. A codec sends, stores and logs nothing.

webhook_values         secrets, JSON from outside read without an error, references to files that users sent
text/                  a model's Markdown as text for a phone; knows no platform
telegram/              Telegram's Bot API
buttons                buttons in the bodies of messages, the same on every platform
meta                   what WhatsApp and Instagram have in common
whatsapp/  instagram/  Meta's two platforms
platform_client        sends the requests of all channels
media                  fetches files that users sent, when they are needed
alert_destinations     where alerts to the operator go: Slack, Discord, a Telegram chat, a signed webhook
fakes                  strict fakes of all platforms at one server, for tests; meta_fake and */fake hold the fakes
"""
