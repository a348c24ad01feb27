"""Delivery: an outbox message is sent to its platform, once if that can be known, and never silently given up.

retry_policy      what follows from how a try ended: one table
channel_sender    sends one outbox message, as far as that goes without a long wait
service_window    whether a platform takes free text now
pacing            how fast Hermes may write to a chat and from an account
breaker           when Hermes stops sending through an account that keeps failing
settlement        what is recorded about a delivery: the journal, the credit that is given back
receipts          applies what platforms report afterwards
typing_indicator  shows `typing…` while an answer is made"""
