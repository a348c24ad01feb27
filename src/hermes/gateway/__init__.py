"""Every model call in one place: who may call, what it costs, which backend answers, what the model answered.

prices            what tokens cost, by backend, model and date, in whole micro-dollars; how many a text has at most
catalogue         tiers, their chains of models, and what each model can do: dated data
slots             how many calls run at once, and which caller is next; for all backends together, and for each one
model_breaker     when a failing model is left out, and when it is asked again
unwell_models     what one call knows of the breakers of its chain
chain             one call down a chain of backends, under one deadline
model_probe       the small call that finds out whether a model answers again
answer_cache      which answers may be given again, and under which key
model_plans       chains that an operator set in place of those of the settings
shared_answer     one answer for equal requests of one user that are made at once
fleet             backends by name, and which of them each agent uses
agent_caps        how much each agent may spend in a day, and all of them together
running_calls     the calls under way, which the kill switch ends
key_guard         the limits of API keys, and which models may answer them
refused_calls     the rows of refused calls, few of them however many calls are refused
call_records      what a call leaves behind: its row, its answer in a graph, its money in the counters
fleet_views       a swap, a health check and the fleet's history as JSON
gateway           the one way to a model
model_health      whether any model can be asked

For clients that send the whole chat with each request, as OpenAI's do:

request_fields    which fields of a body go to which servers, and how an error shows a wrong value
chat_request      checks a client's body and turns it into a request to the gateway
chat_fingerprints   the digests by which a chat is recognised
chat_changes      what a client changed in a chat since its last request
quoted_answers    recognises our answers in chats that a client has rewritten or summed up
unwritten_answers   the answers that clients have before their records are written, and the requests that wait for one
recent_chats      the chats that this process continued last, so that the next request of one need not be looked up
client_chats      finds the chat of a request and writes the answer into its message graph
completions       the end user, the models they may use, one answer or several

For clients of other APIs, whose requests become chat requests:

responses_request   reads a request of OpenAI's Responses API
response_items      reads its items into messages
messages_request    reads a request of Anthropic's Messages API
answer_parts        an answer as a row of parts: thinking, text, calls; the same row as a stream
thinking_seal       a vendor's own thinking on its way through a client
quoted_calls        gives quoted tool calls back the arguments that the model wrote
stored_responses    finds an answer again by its id
embeddings_request  checks a request for vectors, and writes them

By the clock:

spend_sums        what calls cost and what tools did, summed by the hour
"""
