"""For tests of code that uses Hermes: the router with its stores in memory."""
