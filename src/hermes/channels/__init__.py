"""Channels: each platform's way to speak, as pure codecs of the port. Nothing here sends, stores or logs.

text/                  what models write, for people to read on a phone; knows no platform
telegram/              Telegram's Bot API
meta                   what WhatsApp and Instagram have in common, and how JSON is read that somebody else wrote
whatsapp/  instagram/  Meta's two
"""
