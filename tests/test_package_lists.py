"""A package whose docstring lists its modules lists exactly those that it has.

The rule is a function from the sources of a tree (path to text) to its faults, so it is tried on a small bad tree as well."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

SRC = Path(__file__).parents[1] / "src"

Sources = Mapping[str, str]
"""Text by path below src: {"hermes/graph/edit.py": "import ast"}."""

NAME = r"[a-z][a-z0-9_]*/?"
ENTRY = re.compile(rf"^ *({NAME}(?:,? +{NAME})*?)(?:: | {{2,}})(?=\S)", re.MULTILINE)
"""The names at the beginning of a line, before what they are: `anthropic  anthropic_request     Claude: …`."""
READING_ORDER = re.compile(r"\bin this order: ([^.]*)")
"""The other form: a sentence of names, some with a remark in brackets: `rows (linear), tree and ledger`."""
REMARK = re.compile(r"\([^)]*\)|\band\b")


def faults_in_lists(sources: Sources) -> list[str]:
    """Modules that a package has and its list does not name, and names in a list that are no module.

    A docstring with a list is one in which two lines begin with modules, or which says `in this order:`. Others may name a few modules."""
    faults = []
    for path in sorted(path for path in sources if path.endswith("/__init__.py")):
        modules = modules_of(path, sources)
        text = ast.get_docstring(ast.parse(sources[path], path)) or ""
        entries = [[name.rstrip("/") for name in re.findall(NAME, found)] for found in ENTRY.findall(text)]
        listed = [name for names in entries for name in names] if sum(bool(modules.intersection(names)) for names in entries) > 1 else []
        listed += [name.rstrip("/") for order in READING_ORDER.findall(text) for name in re.findall(NAME, REMARK.sub("", order))]
        if listed:
            faults += [f"{path}: {module} is not in the list" for module in sorted(modules - set(re.findall(r"\w+", text)))]
            faults += [f"{path}: there is no {name}" for name in listed if name not in modules]
    return faults


def modules_of(path: str, sources: Sources) -> set[str]:
    """The modules and packages that stand beside this `__init__.py`."""
    folder = PurePosixPath(path).parent
    inside = [PurePosixPath(each).relative_to(folder).parts for each in sources if PurePosixPath(each).is_relative_to(folder)]
    return {parts[0].removesuffix(".py") for parts in inside} - {"__init__", "__main__", "py"}


def test_every_list_of_modules_is_complete_and_true() -> None:
    sources = {path.relative_to(SRC).as_posix(): path.read_text(encoding="utf-8") for path in SRC.rglob("*.py")}
    assert faults_in_lists(sources) == []


def test_finds_a_missing_module_and_one_that_is_gone() -> None:
    listed = '"""Rows.\n\nrows  tree    what is written\nledger/       the proof\nspool: beside them\n"""'
    modules = dict.fromkeys(["hermes/a/rows.py", "hermes/a/tree.py", "hermes/a/ledger/__init__.py", "hermes/a/trie.py"], "")
    assert faults_in_lists({"hermes/a/__init__.py": listed, **modules}) == [
        "hermes/a/__init__.py: trie is not in the list",
        "hermes/a/__init__.py: there is no spool",
    ]


def test_finds_the_same_faults_in_a_reading_order() -> None:
    order = '"""Read it in this order: rows (linear, in a file) and tree. With a model: batch."""'
    assert faults_in_lists(
        {"hermes/a/__init__.py": order, **dict.fromkeys(["hermes/a/rows.py", "hermes/a/trie.py", "hermes/a/batch.py"], "")}
    ) == [
        "hermes/a/__init__.py: trie is not in the list",
        "hermes/a/__init__.py: there is no tree",
    ]


def test_a_docstring_without_a_list_may_name_a_module() -> None:
    assert faults_in_lists({"hermes/a/__init__.py": '"""`rows` makes rows."""', "hermes/a/rows.py": "", "hermes/a/trie.py": ""}) == []
