"""Batch runs: an agent loop with tools answers many prompts, and every rollout is a message graph.

prompt_file    read the prompts of a file; each has a name that stays
recipe         what a rollout is made with, and how fast a run goes
tools          what an agent may do: a small protocol, and errors as texts
python_tools   tools that are plain Python functions
object_import  import `module:name` from the command line
rollout        one attempt at one prompt, its index entry, and its score
agent_loop     ask the model, run tools, ask again; subagents do the same; keep the chat, however it ended
run_files      file names, the recipe, the lock, and replacing two files together
run_folder     a run on disk: finished rollouts stay finished, even after `kill -9`; how the prompt file changed since
run            run many rollouts at once, within a budget; stop in good order
replay         copy a rollout's graph into another graph; all rollouts of a prompt as one graph
statistics     the statistics of a whole run"""
