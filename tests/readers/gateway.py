"""A running Hermes with strict vendors behind it, for the vendors' own clients."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.fakes.vendors import Vendors, vendors
from tests.readers.served import Served, served


def settings(v: Vendors) -> str:
    return f"""
[backends.own]
kind = "vllm"
base_url = "{v.vllm.url}"
api_key = "{v.vllm.key}"

[backends.claude]
kind = "anthropic"
base_url = "{v.anthropic.url}"
api_key = "{v.anthropic.key}"

[models.small]
backend = "own"
id = "{v.vllm.models[0]}"
prices = [{{ input = 1.0, output = 5.0 }}]

[models.claude]
backend = "claude"
id = "claude-haiku-4-5"
prices = [{{ input = 1.0, output = 5.0 }}]

[tiers.agents]
chain = ["small"]
day_tokens = 10_000_000

[tiers.claude]
chain = ["claude"]
day_tokens = 10_000_000

[tiers.poor]
chain = ["small"]
day_tokens = 1

[completions]
tier = "agents"
"""


def with_hermes(
    client_of: Callable[[Served, str], Any], talk: Callable[[Vendors, Served, Any], Coroutine[Any, Any, None]], *options: str
) -> None:
    """Run `talk` with the vendors, Hermes, and a client of it, whose API key is made with these options."""

    async def main() -> None:
        async with vendors() as v:
            with await asyncio.to_thread(lambda: entered(served(settings(v)))) as hermes:
                key = await asyncio.to_thread(hermes.key, *options)
                async with client_of(hermes, key) as client:
                    await talk(v, hermes, client)

    asyncio.run(main())


class entered:  # noqa: N801  # a word in a sentence
    """Enter a context in one thread and leave it in another: starting takes seconds, and the vendors must answer meanwhile."""

    def __init__(self, context: Any) -> None:
        self._context, self._value = context, context.__enter__()

    def __enter__(self) -> Any:
        return self._value

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(*error)
