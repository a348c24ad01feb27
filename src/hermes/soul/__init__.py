"""The soul: what Hermes knows about a user, and how it learns it. These are pure text rules, without a store or a model:

sanitize       finds attacks, and cleans text before it is stored or shown to a model
trivial        finds messages that have nothing to remember or look up
language       tells which of the sixteen languages a user writes in
terms          the words that a text is found by, and whether two texts say the same
extract_rules  reads what a message says about its writer; statements holds its parts and its words"""
