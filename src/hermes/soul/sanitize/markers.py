"""Find text that imitates a system message: the marks that chat templates put between messages, and similar marks.

Looks at punctuation, which the other attack families ignore."""

# ruff: noqa: RUF001  # a colon is a colon in full width too

from __future__ import annotations

import re
import unicodedata


def has_marker(text: str) -> bool:
    """Whether a text holds a mark that only a chat template, or an imitation of one, contains."""
    if _SUSPECT.search(text) is None:
        return False
    lines = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).splitlines()
    # Runs of white space become one character: a pattern that may skip any amount takes quadratic time.
    plain = "\n".join(" ".join(line.split()) for line in lines)
    plain = _EMPTY_LINES.sub("\n", plain)
    return any(pattern.search(plain) for pattern in (_TEMPLATE, _TURN, _HEADING, _PRINT))


_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_EMPTY_LINES = re.compile(r"\n+")
_SUSPECT = re.compile(r"[<\[{#=\-*:：(＜［]")
_TEMPLATE = re.compile(
    r"<\|[a-z_ ]{2,24}\|>|<\|?(?:im_start|im_end|endoftext|eot_id|start_header_id|begin_of_text)\|?>|<</?sys>>"
    r"|\[/?(?:inst|sys|system|assistant|system_prompt|system message|admin)\]"
    r"|</?(?:system|assistant|sys|system[_-]prompt|prompt|instructions?|admin|developer|important|information|human)(?:\s[^<>]{0,60})?>"
    r"|<(?:start|end)_of_turn>|\{\{?#?system\b",
    re.IGNORECASE,
)
_SYSTEM = (
    r"system|sistem|sistema|système|systeem|система|系统|系統|システム|시스템|ระบบ|सिस्टम|النظام|نظام|developer|root|human|"
    r"sysadmin|system (?:prompt|message|note|instruction|update|alert|admin|command)s?|"
    r"admin(?:istrator)? (?:message|note|command|instruction)s?"
)
_TURN = re.compile(
    rf"(?:^|[\n.!?;\"'\]}})>])\s*(?:[#*_>\[\-]{{1,4}}\s*)?(?:{_SYSTEM})\s*[\]*_]{{0,3}}\s*[:：]\s*\S"
    r"|\n\s*(?:assistant|ai|user|model|bot)\s*[:：]\s*\S",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"#{2,6}\s*(?:new\s+|system\s+|updated\s+)?(?:instruction|system|task|prompt|directive)s?\b"
    r"|(?:[-=*#<\[_]{2,8}|[<\[(])\s*(?:begin|end|start|stop)\b[^\n]{0,24}\b"
    r"(?:prompt|instruction|context|system|input|conversation|document|task|user)s?\b"
    r"|\b(?:new|updated|revised|important|secret|hidden)\s+(?:system\s+)?(?:instruction|directive|prompt|command|objective)s?\s*[:：]",
    re.IGNORECASE,
)
_PRINT = re.compile(
    r"(?:console\.log|print|echo|cat|return|log|dump)\s*[( ]\s*[\"'$]?\s*(?:system[_ ]?prompt|system[_ ]?message|initial[_ ]?prompt)",
    re.IGNORECASE,
)
