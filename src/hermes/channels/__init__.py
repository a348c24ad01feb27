"""Channels: the wire format of each platform, as pure codecs of the port Channel. A codec sends, stores and logs nothing.

text/                  a model's Markdown as text for a phone; knows no platform
telegram/              Telegram's Bot API
meta                   what WhatsApp and Instagram have in common, and how JSON from outside is read without an error
whatsapp/  instagram/  Meta's two platforms
platform_client        sends the requests of all channels
file_references        files that users sent, named by platform, account and file id
media                  fetches those files when they are needed
"""
