"""Batch runs: an agent loop with tools answers many prompts, and every rollout is a message graph.

prompt_file    read the prompts of a file; each has a name that stays
seeds          one number for a run; every random choice follows from it
recipe         what a rollout is made with, and how fast a run goes
threads        run a user's blocking function beside the event loop
tools          what an agent may do: a small protocol, and errors as texts
python_tools   tools that are plain Python functions
object_import  import `module:name` from the command line
distribution   draw the toolsets of an item, by percentages
rollout        one attempt at one prompt, and its index entry
agent_loop     ask the model, run tools, ask again; keep the chat, however it ended
delegate       a tool that is an agent itself
verifier       a user's function that scores rollouts
run_files      file names, the recipe, the lock, and replacing two files together
run_folder     a run on disk: finished rollouts stay finished, even after `kill -9`
writer         write rollouts to the run folder, several at once
item_changes   how the prompt file changed since the last time
budget         when a run has spent enough
runner         run many rollouts at once; stop in good order
replay         copy a rollout's graph into another graph; all rollouts of a prompt as one graph
statistics     the statistics of a whole run"""
