"""Every model call in one place: who may call, what it costs, which backend answers, what the model answered.

prices            what tokens cost, by model and date, in whole micro-dollars; how many a text has at most
catalogue         tiers, their chains of models, and what each model can do: dated data
slots             how many calls run at once, and which caller is next; for all backends together, and for each one
chain             one call down a chain of backends, under one deadline
answer_cache      which answers may be given again, and under which key
fleet             backends by name, and which of them each agent uses
agent_caps        how much each agent may spend in a day, and all of them together
refused_calls     the rows of refused calls, few of them however many calls are refused
fleet_views       a swap, a health check and the fleet's history as JSON
gateway           the one way to a model
model_health      whether any model can be asked

For clients that send the whole chat with each request, as OpenAI's do:

chat_request      checks a client's body and turns it into a request to the gateway
client_chats      finds the chat of a request and writes the answer into its message graph
completions       the end user, the models they may use, one answer or several

By the clock:

spend_sums        what calls cost and what tools did, summed by the hour
"""
