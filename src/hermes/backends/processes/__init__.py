"""Models behind a program on this machine, which has its own login: Anthropic's `claude` and OpenAI's `codex`.

prompt     a conversation as one text, because that is all these programs take
process    a program in a group of its own: what it says, how it ends
backend    run it once, read its lines, or say which error it was
claude  codex    a program each: its options, its environment, its lines
"""
