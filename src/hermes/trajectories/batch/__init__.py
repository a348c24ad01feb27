"""Batch runs: many prompts through an agent loop with tools, and every rollout a message graph.

items      prompts out of a file, each with a name that stays
seeds      one number for a run; whatever is drawn by chance follows from it
recipe     what a rollout is made with, and how fast a run goes
threads    somebody's blocking code, beside the event loop
tools      what an agent may do: a small protocol, and errors as texts
functions  tools that are plain Python functions
named      what somebody calls `module:name`
draw       which tools an item gets, by percentages
rollout    one attempt at one prompt, and what is noted of it
loop       ask, run tools, ask again; keep what came of it, however it ended
delegate   a tool that is an agent itself
verify     somebody's function that says how good a rollout is
disk       names, locks, and files that are written whole or not at all
folder     a run on disk: what is finished stays finished, whatever happens
writer     the way of rollouts to it
changes    what became of the prompts since the last time
budget     when a run has spent enough
runner     many rollouts at once, stopped in good order
replay     a rollout's graph written into another one; all rollouts of a prompt as one graph
statistics what a whole run came to"""
