"""Every model call in one place: who may call, what it costs, which backend answers, what was said.

prices  estimate    what tokens cost, by model and date, in whole micro-dollars; how many there may be where nobody counted
catalogue           tiers, their chains of models, and what each model can do: dated data
slots               how many calls at once, and who is next; for all backends, and for one
partial  chain      what was said so far; one deadline down a chain of backends
cache               answers that may be given again
fleet               backends by name, and which of them each agent speaks through
gateway             the one way to a model
matching  door/     for programs that send the whole chat each time
"""
