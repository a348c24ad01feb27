"""The soul: what Hermes knows about a user, and how it learns it. Three packages are pure text rules, without a store or a model:

sanitize   finds attacks, and cleans text before it is stored or shown to a model
trivial    finds messages that have nothing to remember or look up
language   tells which of the sixteen languages a user writes in"""
