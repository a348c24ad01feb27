"""Delivery: an outbox message is sent to its platform, once if that can be known, and never silently given up.

outbox_delivery   claims, sends and settles the outbox messages of a conversation, one after the other
channel_sender    sends one outbox message, as far as that goes without a long wait
platform_limits   how fast Hermes may write, and whether a platform takes free text now
breaker           when Hermes stops sending through an account that keeps failing
retry_policy      what follows from how a try ended: one table
receipts          applies what platforms report afterwards
typing_indicator  shows `typing…` while an answer is made"""
