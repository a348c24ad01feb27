"""One word per thing: class names, function names, constants and prose that a stranger understands at first reading.

Every rule is a function from texts by path to its faults, and each is tried on a small bad tree as well."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]

Texts = Mapping[str, str]
"""Text by path below the root: {"src/hermes/turn.py": "class User: ..."}."""

MAX_INDEFINITE_PERSONS = 60
INDEFINITE_PERSON = re.compile(r"\b(whoever|whom|somebody|nobody|everybody|anybody)\b", re.IGNORECASE)

PARTICIPLE = re.compile(
    r"_*(?:[a-z]+ed|begun|born|bound|bought|bred|brought|broken|built|caught|chosen|come|done|drawn|driven|eaten|fallen|felt|found|frozen|given|gone|got|gotten"
    r"|grown|heard|held|hidden|kept|known|laid|led|left|lent|lost|made|meant|met|paid|said|seen|sent|shown|shut|slept|sold|spent|spoken|stood|stuck|sworn"
    r"|taken|taught|thought|told|torn|understood|won|worn|written)"
)
VERBS_THAT_LOOK_LIKE_PARTICIPLES = {"embed", "feed", "need", "seed", "shed", "speed"}

VAGUE_BOUND = re.compile(r"_*(?:MOST|LEAST|USUAL|USUALLY|ENOUGH)(?:_|$)")


# --- the rules


def shared_class_names(texts: Texts) -> list[str]:
    """A class name occurs once in the package, so that a reader who meets it knows which class is meant. There is no exception."""
    places = defaultdict(list)
    for path, node in statements(texts):
        if isinstance(node, ast.ClassDef):
            places[node.name].append(path)
    return [f"{name}: {', '.join(paths)}" for name, paths in sorted(places.items()) if len(paths) > 1]


def bare_participles(texts: Texts) -> list[str]:
    """A function is named by a verb, or by what it returns: open_session or first_line, not opened."""
    return [
        f"{path}:{node.lineno}: {node.name}"
        for path, node in statements(texts)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and PARTICIPLE.fullmatch(node.name)
        and node.name.strip("_") not in VERBS_THAT_LOOK_LIKE_PARTICIPLES
    ]


def vague_bounds(texts: Texts) -> list[str]:
    """A bound is MAX_, MIN_ or DEFAULT_ with what it bounds."""
    return [
        f"{path}:{node.lineno}: {name}"
        for path, node in statements(texts)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in assigned_names(node)
        if VAGUE_BOUND.match(name)
    ]


def indefinite_persons(texts: Texts) -> list[str]:
    """Prose names who acts: the worker, the user, the operator, the platform, the client."""
    return [f"{path}: {found.group()}" for path, text in texts.items() for found in INDEFINITE_PERSON.finditer(text)]


# --- reading


def statements(texts: Texts) -> Iterator[tuple[str, ast.stmt]]:
    for path, text in texts.items():
        for node in ast.parse(text, path).body:
            yield path, node


def assigned_names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def texts_of(*patterns: str) -> Texts:
    paths = chain.from_iterable(sorted(ROOT.glob(pattern)) for pattern in patterns)
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


# --- the rules hold, and would be broken by a bad tree


def test_a_class_name_occurs_once():
    assert shared_class_names(texts_of("src/**/*.py")) == []


def test_a_second_class_of_the_same_name_is_found():
    assert shared_class_names({"a.py": "class Call: ...\nclass Answer: ...", "b.py": "class Call: ..."}) == ["Call: a.py, b.py"]


def test_no_function_is_a_bare_participle():
    assert bare_participles(texts_of("src/**/*.py")) == []


def test_a_bare_participle_is_found():
    bad = "def told(error): ...\nasync def _kept(rows): ...\ndef embed(text): ...\ndef kept_rows(rows): ..."
    assert bare_participles({"a.py": bad}) == ["a.py:1: told", "a.py:2: _kept"]


def test_bounds_are_named_max_min_or_default():
    assert vague_bounds(texts_of("src/**/*.py")) == []


def test_a_vague_bound_is_found():
    assert vague_bounds({"a.py": "MOST_ROWS = 3\n_USUAL: int = 1\nMAX_ROWS = 3\nMOSTLY = 1"}) == ["a.py:1: MOST_ROWS", "a.py:2: _USUAL"]


def test_prose_names_who_acts():
    found = indefinite_persons(texts_of("src/**/*.py", "docs/**/*.md", "README.md", "CONTRIBUTING.md"))
    assert len(found) <= MAX_INDEFINITE_PERSONS, "\n".join(found)


def test_an_indefinite_person_is_found():
    assert indefinite_persons({"a.md": "Whoever leaves pays; nobody's fault."}) == ["a.md: Whoever", "a.md: nobody"]
