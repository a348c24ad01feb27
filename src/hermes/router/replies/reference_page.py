"""The reference page: every reply in every language, for reviewers. All of it is read from the catalogues."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone

from hermes.router.replies.catalogue import LANGUAGES, load_catalogue
from hermes.router.replies.formatting import format_credits
from hermes.router.replies.kinds import ReplyKind
from hermes.router.replies.render import ReplyValue, reply

NOW = datetime(2026, 11, 15, 15, 20, tzinfo=UTC)
ZONE = timezone(timedelta(hours=8))
SAMPLES: Mapping[str, ReplyValue] = {
    "link": "https://hermes.example/join",
    "referral_code": "7f3a9c01be",
    "reward": 5,
    "resets_at": datetime(2026, 11, 16, tzinfo=UTC),
    "max_bytes": 5 * 1024 * 1024,
    "retry_in": timedelta(seconds=30),
    "code": "7KQ2MP",
}
NEXT_MONTH = datetime(2026, 12, 1, tzinfo=UTC)
SAMPLE_COUNTS = (0, 1, 2, 3, 5, 11, 21, 100, 1_000_000)

OPENING = """\
# Reference: replies

What Hermes itself says, without a model, in all of its languages. This page is made from the catalogues in
`src/hermes/router/replies/languages`; if you speak one of these languages better than we do, please correct its file. The values here are
examples: a link, a code, a time in Bali. A part whose value is missing is left out; the first part never needs one.
"""


def replies_page() -> str:
    """The reference page, in Markdown: a table for each kind, a row for each language."""
    return "\n".join([OPENING, *reply_tables(), *credits_table()])


def reply_tables() -> Iterator[str]:
    meanings = kind_meanings()
    for kind in ReplyKind:
        yield f"## `{kind}`\n"
        yield f"{meanings[kind]}\n"
        yield "| language | reply |"
        yield "|---|---|"
        samples = {**SAMPLES, "resets_at": NEXT_MONTH} if kind is ReplyKind.MONTH_BUDGET else SAMPLES
        for language in LANGUAGES:
            text = reply(kind, language, zone=ZONE, now=NOW, **samples).replace("\n", "<br>")
            yield f"| {language} | {text} |"
        yield ""


def credits_table() -> Iterator[str]:
    yield "## Credits\n"
    yield "The plural forms, which CLDR chooses by the number.\n"
    yield "| language | credits |"
    yield "|---|---|"
    for language in LANGUAGES:
        catalogue = load_catalogue(language)
        yield f"| {language} | {' · '.join(format_credits(count, catalogue.credits, catalogue.locale) for count in SAMPLE_COUNTS)} |"
    yield ""


def kind_meanings() -> dict[ReplyKind, str]:
    """The docstring of each kind, by kind."""
    [declared] = [node for node in ast.parse(inspect.getsource(sys.modules[ReplyKind.__module__])).body if isinstance(node, ast.ClassDef)]
    return {
        ReplyKind[target.id]: meaning
        for above, below in zip(declared.body, declared.body[1:], strict=False)
        if isinstance(above, ast.Assign) and isinstance(target := above.targets[0], ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(meaning := below.value.value, str)
    }
