"""Every model call in one place: who may call, what it costs, which backend answers, what was said.

prices      what tokens cost, by model and date, in whole micro-dollars
catalogue   tiers, their chains of models, and what each model can do: dated data
slots       how many calls at once, and who is next
chain       one deadline down a chain of backends
"""
