"""Delivery: what was promised is brought to its platform, once if that can be known, and never silently given up.

schedule   what follows from how a try ended: one table
dispatch   sends one parcel, as far as that goes without a long wait
window     whether a platform takes free text now
pacing     how fast a chat and an account may be written to
breaker    when a line that keeps failing is left alone
books      what is written down about it: the journal, the credit that is given back
receipts   what platforms tell afterwards"""
