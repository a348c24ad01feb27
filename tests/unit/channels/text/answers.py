"""Answers as models write them, and as no model does: for what must hold of every text."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Others may be busy beside us."""

CLUSTERS = (
    *("a", "Z", "9", "ß", "é", "e\u0301", "漢", "ก็", "กำ", "한", "\u1112\u1161\u11ab", "\uac00\u11a8", "\U0001d518", "\u0600\u0661"),
    *("\u0915\u094d\u0937\u093f", "\u0995\u09cd\u09b7", "\u1781\u17d2\u1789\u17bb\u17c6", "\u0dc3\u0dd2\u0d82", "1\ufe0f\u20e3"),
    *("😀", "👍🏽", "👩‍🍳", "👨‍👩‍👧‍👦", "🏳️‍🌈", "❤️", "🇮🇩", "🇯🇵", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"),
)
"""What a reader takes for one character each, whatever stands beside it. No two letters of a flag alone."""

WORDS = st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=12).map("".join)
PROSE = st.lists(WORDS | st.sampled_from([".", ". ", "! ", "\n", "\n\n", "   ", "。", "\uff0c", " - ", "\u00a0"]), max_size=40).map(
    " ".join
)

_LINES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
_INLINE = st.recursive(
    _LINES,
    lambda inner: st.one_of(
        inner.map("**{}**".format),
        inner.map("*{}*".format),
        inner.map("_{}_".format),
        inner.map("~~{}~~".format),
        inner.map("`{}`".format),
        inner.map("[{}](https://example.org/a?b=c)".format),
        st.lists(inner, min_size=2, max_size=4).map(" ".join),
        st.lists(inner, min_size=2, max_size=3).map("".join),
    ),
    max_leaves=10,
)
_BLOCKS = st.one_of(
    _INLINE,
    st.builds("{} {}".format, st.sampled_from(["#", "##", "####"]), _INLINE),
    st.builds(
        "```{}\n{}\n```".format, st.sampled_from(["", "python", "c++"]), st.lists(_LINES | st.just("    x"), max_size=12).map("\n".join)
    ),
    st.lists(_INLINE, min_size=1, max_size=5).map(lambda items: "\n".join(f"- {item}" for item in items)),
    st.lists(_INLINE, min_size=1, max_size=5).map(
        lambda items: "\n".join(f"{place}. {item}\n   - {item}" for place, item in enumerate(items, 1))
    ),
    st.lists(_INLINE, min_size=1, max_size=3).map(lambda lines: "\n".join(f"> {line}" for line in lines)),
    st.builds("| {} | {} |\n|---|--:|\n| {} | {} |".format, _LINES, _LINES, _INLINE, _LINES),
    st.just("---"),
)
MARKDOWN = st.lists(_BLOCKS, max_size=10).map("\n\n".join)

_SIGNS = (*"*_~`[]()!<>#-+|\\:& \n\t.1ab", "```", "**", "\n\n", "> ", "- ", "1. ", "<br>", "&amp;", "😀", "\u200d", "\u0301", "\ud800")
NOISE = st.lists(st.sampled_from(_SIGNS), max_size=200).map("".join)
ANSWERS = MARKDOWN | NOISE | PROSE
