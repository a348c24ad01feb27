"""A script: what is answered, and to what. Read from TOML, refused with one clear line where it is wrong.

    [[transcript]]   the next answer, whatever is asked, until there are no more
    [[rule]]         the first whose conditions all hold
    otherwise        what is said without any of them

    places    texts with places to fill in             moments   what people say about days and hours
    scene     what a script sees of a request          rule      when a rule is for it, and what it answers
    reading   from TOML to rules, or BadScript

Pure: knows neither time nor tokens, and does not remember how far a transcript has come."""

from __future__ import annotations

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
    """Rules and a transcript, ready to be followed."""

    rules: tuple[ScriptRule, ...] = ()
    transcript: tuple[ScriptAnswer, ...] = ()
    otherwise: TextsByLanguage = field(default_factory=lambda: {"": DEFAULT_OTHERWISE})
    languages: PatternsByLanguage = field(default_factory=dict)
    """By which words a language is recognised, where no rule says in which one it was spoken."""

    @classmethod
    def default(cls) -> Script:
        """The script that ships with Hermes: a friendly concierge, which finds places and books in English, and greets, finds
        places and notes, corrects and forgets what users say of themselves in all sixteen languages."""
        return cls.parse((resources.files(__package__) / "default.toml").read_text(encoding="utf-8"), where="default.toml")

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
    def parse(cls, text: str, *, where: str = "script") -> Script:
        """Read a script from its text; `where` is what errors call it. Raises BadScript."""
        said = parse_script(text, where)
        return cls(rules=said.rules, transcript=said.transcript, otherwise=said.otherwise, languages=said.languages)

    def answer(self, ask: ModelRequest, *, given: int = 0) -> ScriptAnswer:
        """What is answered when so many answers have been given.

        Raises KeyError, TypeError, IndexError or AttributeError for what is no chat."""
        scene = RequestView.of(ask, self._questions)
        *alone, heard = (UserWords(words, self._language_of(words), scene.places(words)) for words in scene.readings())
        if given < len(self.transcript):
            return self.transcript[given].filled(heard.places)
        # What may be an answer to a question is first left to the rules that are sure of it.
        sure = [rule for rule in self.rules if rule.is_sure] if alone else []
        passes = [*((sure, each) for each in (*alone, heard)), (self.rules, heard)]
        answers = (rule.answer_to(scene, each) for rules, each in passes for rule in rules)
        otherwise = ScriptAnswer(say=fill_text(text_in_language(self.otherwise, heard.language), heard.places))
        return next((answer for answer in answers if answer is not None), otherwise)

    @cached_property
    def _questions(self) -> frozenset[str]:
        return frozenset(text.strip() for rule in self.rules for texts in rule.ask.values() for text in texts.values())

    def _language_of(self, words: str) -> str:
        return next((name for name, pattern in self.languages.items() if pattern.search(words)), next(iter(self.otherwise)))
