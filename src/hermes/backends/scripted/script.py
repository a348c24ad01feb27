"""A script: which answer it gives to which request. Read from TOML; a wrong script is refused with one clear line.

    [[transcript]]   the next answer, whatever the request, until there are no more
    [[rule]]         the first rule whose conditions all hold answers
    otherwise        the answer if no rule holds

    placeholders     texts with places to fill in
    dates_and_times  days and hours in a user's words
    request_view     the parts of a request that a script sees
    statements       users' statements about themselves: the tool calls for them, and the confirmations
    rule             when a rule applies, and its answer
    script_parser    from TOML to rules, or BadScript

Pure: knows neither time nor tokens, and does not remember how far a transcript has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path

from hermes.backends.scripted.placeholders import fill_text
from hermes.backends.scripted.request_view import RequestView
from hermes.backends.scripted.rule import (
    PatternsByLanguage,
    ScriptAnswer,
    ScriptFault,
    ScriptRule,
    ScriptToolCall,
    TextsByLanguage,
    UserWords,
    text_in_language,
)
from hermes.backends.scripted.script_parser import DEFAULT_OTHERWISE, BadScript, parse_script
from hermes.ports.backends import ModelRequest

__all__ = ["BadScript", "Script", "ScriptAnswer", "ScriptFault", "ScriptRule", "ScriptToolCall"]


@dataclass(frozen=True, kw_only=True)
class Script:
    """Rules and a transcript, read and checked."""

    rules: tuple[ScriptRule, ...] = ()
    transcript: tuple[ScriptAnswer, ...] = ()
    otherwise: TextsByLanguage = field(default_factory=lambda: {"": DEFAULT_OTHERWISE})
    languages: PatternsByLanguage = field(default_factory=dict)
    """The words by which a language is recognised, where no rule tells the language."""

    @classmethod
    def default(cls, packs: Sequence[tuple[str, str]] = ()) -> Script:
        """The script that ships with Hermes, with those of packs, each with its name and text. In all sixteen languages it greets, and
        notes, corrects and forgets what users say about themselves. Raises BadScript."""
        own = (resources.files(__package__) / "default.toml").read_text(encoding="utf-8")
        return cls.parse(own, where="default.toml", packs=packs)

    @classmethod
    def load(cls, path: str | Path) -> Script:
        """Read a script from a file. Raises BadScript, also where the file cannot be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise BadScript(f"{path}: cannot be read ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise BadScript(f"{path}: is not UTF-8 text") from error
        return cls.parse(text, where=str(path))

    @classmethod
    def parse(cls, text: str, *, where: str = "script", packs: Sequence[tuple[str, str]] = ()) -> Script:
        """Read a script from its text; `where` names it in errors. Raises BadScript."""
        parsed = parse_script(text, where, packs)
        return cls(rules=parsed.rules, transcript=parsed.transcript, otherwise=parsed.otherwise, languages=parsed.languages)

    def answer(self, ask: ModelRequest, *, given: int = 0) -> ScriptAnswer:
        """The answer to a request, after `given` earlier answers.

        Raises KeyError, TypeError, IndexError or AttributeError for malformed messages."""
        view = RequestView.of(ask, self._questions)
        *alone, joined = (UserWords(words, self._language_of(words), view.places(words)) for words in view.readings())
        if given < len(self.transcript):
            return self.transcript[given].with_places(joined.places)
        # A message that may answer a question goes first to the rules that are sure of it.
        sure = [rule for rule in self.rules if rule.is_sure] if alone else []
        passes = [*((sure, each) for each in (*alone, joined)), (self.rules, joined)]
        answers = (rule.answer_to(view, each) for rules, each in passes for rule in rules)
        otherwise = ScriptAnswer(say=fill_text(text_in_language(self.otherwise, joined.language), joined.places))
        return next((answer for answer in answers if answer is not None), otherwise)

    @cached_property
    def _questions(self) -> frozenset[str]:
        return frozenset(text.strip() for rule in self.rules for texts in rule.ask.values() for text in texts.values())

    def _language_of(self, words: str) -> str:
        return next((name for name, pattern in self.languages.items() if pattern.search(words)), next(iter(self.otherwise)))
