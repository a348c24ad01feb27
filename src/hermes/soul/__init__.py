"""The soul: what Hermes knows about a person, and how it comes to know it. Its pure text organs need neither a store nor a model.

sanitize   what may be stored or shown to a model, and what is an attack
trivial    messages that say nothing to remember or look up
language   which of the sixteen languages a person writes in"""
