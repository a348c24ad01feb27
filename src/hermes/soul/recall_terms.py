"""The terms that a text is found by: its words in lower case, without endings, and without common words.

One rule for all languages: an English ending is removed, and the rest is cut after seven letters, where the inflections of most languages
begin. In scripts without spaces between words a term is two characters. On the recall data seven letters find as much as a stemmer does,
and need no guess of the language (see docs/adr/0016-memory.md)."""

from __future__ import annotations

import re
import unicodedata

MAX_TERM_LETTERS = 7
DENSE = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Thai, Japanese, Chinese and Korean: scripts without spaces between words, or with particles attached to them."""
WORD = re.compile(rf"[{DENSE}]+|[^\W_{DENSE}](?:[^\W_{DENSE}]|[\u0900-\u0dff]|['\u2019](?=\w))*")
DENSE_WORD = re.compile(f"[{DENSE}]")
ENDINGS = (
    *(("ingly", 3), ("ings", 3), ("edly", 3), ("ing", 3), ("ied", 3), ("ies", 3), ("est", 4), ("ely", 4)),
    *(("ed", 3), ("ly", 4), ("es", 3), ("er", 4), ("s", 3), ("e", 3), ("y", 4)),
)
"""Each with the number of letters that must be left."""
DOUBLED_LETTERS = frozenset("bdfgmnprt")


def terms(text: str) -> list[str]:
    """Return the terms of a text, in order, with repetitions."""
    return [term for word in words(text) for term in split_word(word)]


def words(text: str) -> list[str]:
    """The words of a text, folded, without the common ones and without single letters."""
    found = (word.replace("\u2019", "'").removesuffix("'s").replace("'", "") for word in WORD.findall(fold(text)))
    return [word for word in found if word not in COMMON_WORDS and (len(word) > 1 or word.isdigit() or DENSE_WORD.match(word))]


def fold(text: str) -> str:
    """The text in one spelling: compatible forms, lower case, Latin letters without accents.

    Other scripts keep their marks: there they are letters."""
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    bare = "".join(mark for mark in decomposed if not "\u0300" <= mark <= "\u036f")
    return unicodedata.normalize("NFKC", bare)


def word_set(text: str) -> frozenset[str]:
    """The words of a list in source code, folded."""
    return frozenset(fold(text).split())


def split_word(word: str) -> list[str]:
    if DENSE_WORD.match(word):
        return [word[at : at + 2] for at in range(max(1, len(word) - 1))]
    return [stem(word)[:MAX_TERM_LETTERS]]


def stem(word: str) -> str:
    for ending, kept in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= kept and not word.endswith("ss"):
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] in DOUBLED_LETTERS else word


COMMON_WORDS = word_set(
    # en
    "an the of to in on at by for with from and or but is are was were be been am do does did have has had im ive me my mine you your we "
    "our us it its this that these those there what which who whom whose when where why how not no so if as than then too very can could "
    "will would should may might just also about into over "
    # id
    "saya aku kamu anda dia kami kita yang di ke dari dan atau itu ini apa siapa kapan dimana mana untuk dengan pada adalah "
    # es, pt
    "yo mi mis tu su el la los las un una unos unas de del al en que qué cuál con por para es soy eu meu minha os as um uma do da em com "
    "qual se lo na "
    # fr
    "je mon ma mes ton ta le les une des du au aux et ou où est suis que qui quel quelle dans sur pour avec ce cette il elle "
    # de, nl
    "ich mein meine dein der die das den dem ein eine einen und oder ist bin zu mit für auf von was wer wo wie ik mijn jij het een van op "
    "met voor wat wie waar hoe "
    # it, tr, ru
    "io mio mia gli uno dei che chi cosa dove sono ben benim bir ve ile bu ne мой моя мы на что кто где как это "
)
