"""Models behind a program on this machine, which has its own login: Anthropic's `claude` and OpenAI's `codex`.

process    run a program in a process group of its own, read its output, end it
backend    write the conversation as one text, run the program once, read its lines, or raise the right error
claude  codex    a program each: its options, its environment, its lines
"""
