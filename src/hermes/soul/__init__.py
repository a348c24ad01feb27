"""The soul: what Hermes knows about a user, and how it learns and forgets it.

Rules on text, without a store or a model:

sanitize       finds attacks, and cleans text before it is stored or shown to a model
trivial        finds messages that have nothing to remember or look up
language       tells which of the sixteen languages a user writes in
terms          the words that a text is found by, and whether two texts say the same
fact_keys      the structural keys, and the values that each of them takes
extract_rules  reads what a message says about its writer; statements holds its parts and its words
supersede      how a learned fact changes the known ones
prompt_layers  the soul as text

What a turn uses:

recall         finds the facts that a message is about
loader         loads the soul of a turn
notebook       how a model saves, looks up and forgets facts with tools
sharing        which single facts a user shares with a group

After a turn, by the clock, and on request:

extract        learns from a message
extract_answer what a model reads in a message, as far as it can be checked
memory_model   asks a model for the memory, within the user's budget
dream          lines about what several facts say together
forgetting     forgets what a user asks to forget
json_values    what is known about a user, in values that JSON has
my_data        shows a user everything that is kept about them, and erases it"""
