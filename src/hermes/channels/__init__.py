"""Channels: each platform's way to speak, as pure codecs."""
