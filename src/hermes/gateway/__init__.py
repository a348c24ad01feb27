"""Every model call in one place: who may call, what it costs, which backend answers, what the model answered.

prices            what tokens cost, by model and date, in whole micro-dollars
token_estimate    how many tokens a text has at most, where the vendor gave no count
catalogue         tiers, their chains of models, and what each model can do: dated data
slots             how many calls run at once, and which caller is next; for all backends together, and for each one
partial_answer    an answer put together from the deltas so far
chain             one call down a chain of backends, under one deadline
answer_cache      which answers may be given again, and under which key
fleet             backends by name, and which of them each agent uses
gateway           the one way to a model
client_chats/     for clients that send the whole chat with each request
"""
