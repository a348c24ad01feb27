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

from hermes.backends.scripted.places import fill
from hermes.backends.scripted.reading import OTHERWISE, BadScript, parse
from hermes.backends.scripted.rule import Answer, Call, Fault, Heard, Patterns, Rule, Texts, spoken
from hermes.backends.scripted.scene import Scene
from hermes.ports.backends import ModelRequest

__all__ = ["Answer", "BadScript", "Call", "Fault", "Rule", "Script"]


@dataclass(frozen=True, kw_only=True)
class Script:
    """Rules and a transcript, ready to be followed."""

    rules: tuple[Rule, ...] = ()
    transcript: tuple[Answer, ...] = ()
    otherwise: Texts = field(default_factory=lambda: {"": OTHERWISE})
    languages: Patterns = field(default_factory=dict)
    """By which words a language is recognised, where no rule says in which one it was spoken."""

    @classmethod
    def usual(cls) -> Script:
        """The script that ships with Hermes: a friendly concierge, which finds places and books in English, and greets, finds
        places and notes, corrects and forgets what users say of themselves in all sixteen languages."""
        return cls.parse((resources.files(__package__) / "usual.toml").read_text(encoding="utf-8"), where="usual.toml")

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
        said = parse(text, where)
        return cls(rules=said.rules, transcript=said.transcript, otherwise=said.otherwise, languages=said.languages)

    def answer(self, ask: ModelRequest, *, given: int = 0) -> Answer:
        """What is answered when so many answers have been given.

        Raises KeyError, TypeError, IndexError or AttributeError for what is no chat."""
        scene = Scene.of(ask, self._questions)
        *alone, heard = (Heard(words, self._language_of(words), scene.places(words)) for words in scene.readings())
        if given < len(self.transcript):
            return self.transcript[given].filled(heard.places)
        # What may be an answer to a question is first left to the rules that are sure of it.
        sure = [rule for rule in self.rules if rule.is_sure] if alone else []
        passes = [*((sure, each) for each in (*alone, heard)), (self.rules, heard)]
        answers = (rule.answer_to(scene, each) for rules, each in passes for rule in rules)
        otherwise = Answer(say=fill(spoken(self.otherwise, heard.language), heard.places))
        return next((answer for answer in answers if answer is not None), otherwise)

    @cached_property
    def _questions(self) -> frozenset[str]:
        return frozenset(text.strip() for rule in self.rules for texts in rule.ask.values() for text in texts.values())

    def _language_of(self, words: str) -> str:
        return next((name for name, pattern in self.languages.items() if pattern.search(words)), next(iter(self.otherwise)))
