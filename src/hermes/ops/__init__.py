"""Watching: logs, metrics, the event loop's heartbeat, and the calls for a person. Knows ports and no adapter of another room."""
