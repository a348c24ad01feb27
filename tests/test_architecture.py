"""The order in which Hermes is read is the order in which it is built: a module imports only from earlier rooms.

Every rule is a function from the sources of a tree (path to text) to its faults, one line each. So each rule is tested
twice: Hermes has no fault, and a small bad tree has exactly the faults it was made with. A check that cannot fail proves nothing.
"""

import ast
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

READING_ORDER: tuple[tuple[str, ...], ...] = (
    ("graph",),
    ("trajectories",),
    ("",),  # hermes/__init__.py, the door: it shows the library, so it comes right after it
    ("event_log",),
    ("turn", "graphemes", "time_ids", "tasks", "http_client"),
    ("ports",),
    ("router",),
    ("soul", "gateway", "tools", "delivery"),
    ("testing",),  # what the fakes beside the channels are built on
    ("channels", "backends", "stores"),
    ("packs",),
    ("ops",),
    ("console",),
    ("config",),
    ("app",),
    ("web",),
    ("terminal",),
    ("cli",),
    ("__main__",),
)
RANK = {room: rank for rank, rooms in enumerate(READING_ORDER) for room in rooms}
LIBRARY = {"graph", "trajectories"}
ADAPTERS = {"channels", "backends", "stores"}
FAKES = "hermes.channels.fakes"
"""All fake platforms at one server. They stand beside their channels, and implement no port."""

COMMAND_LOADER = "hermes/cli/command_table.py"
"""Loads the module of the command that the user typed: loading all of them takes seconds. The names of modules in it count as imports."""
LOADERS = {
    COMMAND_LOADER,
    "hermes/app/tables.py",  # the store of a table, when a command first uses it; imports it for its type, so that the rules see it
    "hermes/event_log.py",  # structlog, with the first line that is written
    "hermes/__init__.py",  # the message graph, when the first of its names is used
    "hermes/trajectories/batch/object_import.py",  # tools and graders that the user names
    "hermes/packs/__init__.py",  # the packs that the settings name
    "hermes/cli/pack_commands.py",  # the commands that a pack names
}
"""The places that may load a module by its name."""
NAMED_LOADERS = {"__import__", "import_module", "resolve_name", "run_module", "run_path", "LazyLoader", "SourceFileLoader", "EntryPoint"}

IMPORT_LIMIT = 1.2
"""How many times as long as `asyncio`, which everybody who talks to models imports anyway. It takes about 40 ms."""

Sources = Mapping[str, str]
"""Text by path below src: {"hermes/graph/edit.py": "import ast"}."""


@cache
def parse_source(text: str, path: str) -> ast.Module:
    """Every rule reads the whole tree, so each file is parsed once. No rule changes a tree."""
    return ast.parse(text, path)


# --- the rules


def beyond_the_standard_library(sources: Sources) -> list[str]:
    """graph/ is a library that anybody can take along, so it stands on Python and itself."""
    return [
        f"{found.where}: graph imports {found.target}"
        for found in imports(sources)
        if room_of(found.importer) == "graph"
        and found.target.split(".")[0] not in sys.stdlib_module_names
        and not is_within(found.target, "hermes.graph")
    ]


def rings(sources: Sources) -> list[str]:
    """The first ring of imports, if there is one. Imports for types alone count: a type in the wrong module is a ring too.

    An import of `hermes.a.b` first runs `hermes/a/__init__.py` and all that it imports, so it is an import of `hermes.a` too. Not for
    modules inside of `hermes.a`: that package is already being imported then."""
    known = {module_of(path) for path in sources}
    order: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for found in sorted(imports(sources), key=lambda found: (found.importer, found.target)):
        packages = {name for name in packages_above(found.target) if not is_within(found.importer, name)}
        for target in sorted(known & {found.target, *packages}):
            order.add(found.importer, target)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        return [" <- ".join(error.args[1])]
    return []


def against_the_reading_order(sources: Sources) -> list[str]:
    """Imports from a later room, or from another room of the same rank; and rooms that have no place in the order yet."""
    unknown = sorted({room_of(module_of(path)) for path in sources} - RANK.keys())
    return [f"{room}: has no place in READING_ORDER" for room in unknown] + [
        f"{found.where}: {here or 'hermes'} imports {found.target}"
        for found in imports(sources)
        if is_within(found.target, "hermes")
        and (here := room_of(found.importer)) in RANK
        and (there := room_of(found.target)) in RANK
        and here != there
        and RANK[there] >= RANK[here]
    ]


def more_than_the_library_at_the_door(sources: Sources) -> list[str]:
    """`import hermes` gives the library and nothing that needs an extra."""
    return [
        f"{found.where}: the door imports {found.target}"
        for found in imports(sources)
        if found.importer == "hermes" and is_within(found.target, "hermes") and room_of(found.target) not in LIBRARY
    ]


def adapters_outside_the_composition_root(sources: Sources) -> list[str]:
    """app.py alone knows which adapter stands behind a port; everybody else knows the port. A pack holds its own adapters, and so builds on
    those of the stores."""
    return [
        f"{found.where}: {room_of(found.importer)} imports the adapter {found.target}"
        for found in imports(sources)
        if is_within(found.target, "hermes")
        and room_of(found.target) in ADAPTERS
        and room_of(found.importer) not in {"app", room_of(found.target)}
        and found.target != FAKES
        and not (room_of(found.importer) == "packs" and room_of(found.target) == "stores")
    ]


def certain_packs_outside_their_folder(sources: Sources) -> list[str]:
    """A pack can be removed: no module outside its folder imports it. hermes.packs finds packs by their names."""
    return [
        f"{found.where}: imports {found.target}"
        for found in imports(sources)
        if is_within(found.target, "hermes.packs")
        and found.target != "hermes.packs"
        and not is_within(found.importer, ".".join(found.target.split(".")[:3]))
    ]


def fakes_that_use_what_they_check(sources: Sources) -> list[str]:
    """A fake platform that shared code with its channel would repeat its mistakes, and prove nothing."""
    return [
        f"{found.where}: a fake imports {found.target}"
        for found in imports(sources)
        if is_fake(found.importer)
        and is_within(found.target, "hermes")
        and not is_fake(found.target)
        and room_of(found.target) not in {"testing", "tasks"}
    ]


def is_fake(module: str) -> bool:
    """Whether a module is part of a fake platform: channels/fakes, channels/meta_fake, channels/telegram/fake/…"""
    parts = module.split(".")
    return parts[1:2] == ["channels"] and (parts[-1] in {"fakes", "meta_fake"} or "fake" in parts)


def hidden_imports(sources: Sources) -> list[str]:
    """Imports inside functions, and loading a module by its name: the text of the name may be anywhere, so no spelling of it is allowed."""
    return [f"{found.where}: imports {found.target} inside a function" for found in imports(sources) if found.in_function] + [
        f"{where}: loads a module by its name"
        for path in sorted(sources)
        if path not in LOADERS
        for where in loads_by_name(path, sources[path])
    ]


def needless_loaders(sources: Sources) -> list[str]:
    """Places that may load modules by name and do not. Each one is a hole in the rule, so it is closed when it is not needed."""
    return [f"{path}: loads no module by its name" for path in sorted(LOADERS) if not loads_by_name(path, sources.get(path, ""))]


def suppressed_cancellations(sources: Sources) -> list[str]:
    """`suppress(CancelledError)` around a wait for a task that was cancelled also swallows the cancellation of the one who waits, and waits
    for ever where a library swallowed the other. hermes.tasks.end_tasks does neither."""
    return [
        f"{path}:{node.lineno}: suppresses a cancellation"
        for path in sorted(sources)
        for node in ast.walk(parse_source(sources[path], path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("suppress")
        and any(ast.unparse(argument).endswith(("CancelledError", "BaseException")) for argument in node.args)
    ]


# --- reading imports


@dataclass(frozen=True, slots=True)
class Import:
    """One module, named by one import statement. `from hermes.graph import edit` names hermes.graph.edit where that is a module."""

    importer: str
    target: str
    where: str
    in_function: bool


def imports(sources: Sources) -> Iterator[Import]:
    """Every import of the tree, in the order of its files and lines."""
    known = {module_of(path) for path in sources}
    for path in sorted(sources):
        for node, in_function in statements(parse_source(sources[path], path), in_function=False):
            for target in targets(node, path, known):
                yield Import(module_of(path), target, f"{path}:{node.lineno}", in_function)


def statements(tree: ast.AST, *, in_function: bool) -> Iterator[tuple[ast.stmt | ast.expr, bool]]:
    """Every statement and expression below a tree, each with whether it runs when a function is called."""
    inside = in_function or isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt | ast.expr):
            yield child, inside
        yield from statements(child, in_function=inside)


def targets(node: ast.stmt | ast.expr, path: str, known: set[str]) -> list[str]:
    """The modules that one statement imports; none for a statement of another kind."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = ".".join(filter(None, [package_above(path, level), module]))
            return sorted({f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in names})
        case ast.Constant(value=str(name)) if path == COMMAND_LOADER and name in known:
            return [name]
    return []


def loads_by_name(path: str, source: str) -> list[str]:
    """Where a file mentions a function that loads modules by name, called or not."""
    found = []
    for node in ast.walk(parse_source(source, path)):
        match node:
            case ast.ImportFrom(names=names) if any(alias.name in NAMED_LOADERS for alias in names):
                found.append(f"{path}:{node.lineno}")
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in NAMED_LOADERS:
                found.append(f"{path}:{node.lineno}")
    return found


def package_above(path: str, level: int) -> str:
    """What the dots of a relative import stand for: one dot is the package that the file lies in."""
    return ".".join(path.split("/")[:-level]) if level else ""


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def packages_above(module: str) -> list[str]:
    """hermes.a.b lies in hermes.a, which lies in hermes."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def room_of(module: str) -> str:
    """The name below hermes: graph for hermes.graph.edit, and "" for hermes itself."""
    return module.partition(".")[2].partition(".")[0]


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


# --- Hermes keeps the rules


@pytest.fixture(scope="module")
def hermes() -> Sources:
    sources = {path.relative_to(SRC).as_posix(): path.read_text(encoding="utf-8") for path in SRC.rglob("*.py")}
    assert "hermes/graph/__init__.py" in sources, "an empty tree keeps every rule"
    return sources


def test_the_graph_imports_the_standard_library_only(hermes: Sources) -> None:
    assert beyond_the_standard_library(hermes) == []


def test_there_are_no_import_rings(hermes: Sources) -> None:
    assert rings(hermes) == []


def test_reading_order_is_layering_order(hermes: Sources) -> None:
    assert against_the_reading_order(hermes) == []


def test_the_map_names_every_room_in_reading_order(hermes: Sources) -> None:
    drawn = re.findall(r"^    (\w+) {2,}\S", ast.get_docstring(ast.parse(hermes["hermes/__init__.py"]), clean=False) or "", re.MULTILINE)
    there = {room_of(module_of(path)) for path in hermes}
    assert drawn == [room for rooms in READING_ORDER for room in rooms if room in there and room not in {"", "__main__"}]


def test_the_door_shows_the_library_only(hermes: Sources) -> None:
    assert more_than_the_library_at_the_door(hermes) == []


def test_only_the_composition_root_imports_adapters(hermes: Sources) -> None:
    assert adapters_outside_the_composition_root(hermes) == []


def test_the_fakes_use_nothing_of_what_they_check(hermes: Sources) -> None:
    assert any(is_fake(module_of(path)) for path in hermes)
    assert fakes_that_use_what_they_check(hermes) == []


def test_no_module_outside_a_pack_imports_it(hermes: Sources) -> None:
    assert certain_packs_outside_their_folder(hermes) == []


def test_no_import_hides_in_a_function(hermes: Sources) -> None:
    assert hidden_imports(hermes) == []


def test_every_place_that_may_load_modules_by_name_does(hermes: Sources) -> None:
    assert needless_loaders(hermes) == []


def test_no_cancellation_is_suppressed(hermes: Sources) -> None:
    assert suppressed_cancellations(hermes) == []


# --- the rules can fail


def test_finds_what_the_graph_must_not_import() -> None:
    bad = {
        "hermes/graph/__init__.py": "import json, msgspec\nfrom hermes.graph.edit import apply",
        "hermes/graph/edit.py": "from collections.abc import Mapping\nfrom hermes.turn import Turn\nfrom numpy.linalg import norm",
        "hermes/graph/traversal.py": "from . import edit\nfrom .edit import apply\nfrom .. import turn\nfrom hermes_graph import other",
        "hermes/graphs.py": "import msgspec",
        "hermes/turn.py": "import msgspec",
    }
    assert beyond_the_standard_library(bad) == [
        "hermes/graph/__init__.py:1: graph imports msgspec",
        "hermes/graph/edit.py:2: graph imports hermes.turn",
        "hermes/graph/edit.py:3: graph imports numpy.linalg",
        "hermes/graph/traversal.py:3: graph imports hermes.turn",
        "hermes/graph/traversal.py:4: graph imports hermes_graph",
    ]


def test_finds_a_ring_through_three_modules() -> None:
    chain = {"hermes/a.py": "import hermes.b", "hermes/b.py": "from hermes import c", "hermes/c.py": "import json"}
    assert rings(chain) == []
    [ring] = rings({**chain, "hermes/c.py": "from .a import x"})
    assert set(ring.split(" <- ")) == {"hermes.a", "hermes.b", "hermes.c"}


def test_finds_a_ring_through_a_package_that_shows_its_modules() -> None:
    package = {
        "hermes/graph/__init__.py": "from hermes.graph.edit import apply",
        "hermes/graph/edit.py": "from hermes.graph import traversal",
    }
    assert rings({**package, "hermes/graph/traversal.py": ""}) == []
    [ring] = rings({**package, "hermes/graph/traversal.py": "from hermes.graph import apply"})
    assert set(ring.split(" <- ")) == {"hermes.graph", "hermes.graph.edit", "hermes.graph.traversal"}


def test_finds_a_ring_through_the_init_of_a_package_on_the_way_to_a_module() -> None:
    steps = {
        "hermes/router/steps/__init__.py": "from hermes.router.steps.load import load",
        "hermes/router/steps/load.py": "from hermes.router.call import ask",
        "hermes/router/steps/resolve.py": "",
    }
    assert rings({**steps, "hermes/router/call.py": ""}) == []
    [ring] = rings({**steps, "hermes/router/call.py": "from hermes.router.steps.resolve import User"})
    assert set(ring.split(" <- ")) == {"hermes.router.call", "hermes.router.steps", "hermes.router.steps.load"}
    bare = {**steps, "hermes/router/steps/__init__.py": "", "hermes/router/call.py": "from hermes.router.steps.resolve import User"}
    assert rings(bare) == [], "a package that imports nothing closes no ring"


def test_finds_a_ring_of_types_and_a_module_that_imports_itself() -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hermes.b import B"
    assert len(rings({"hermes/a.py": typed, "hermes/b.py": "import hermes.a"})) == 1
    assert len(rings({"hermes/a.py": "import hermes.a"})) == 1


def test_finds_imports_against_the_reading_order() -> None:
    bad = {
        "hermes/__init__.py": "from hermes.graph import MessageGraph",
        "hermes/cli.py": "from hermes import MessageGraph\nfrom hermes.app import start\nimport hermes.__main__",
        "hermes/graph/edit.py": "from hermes.graph.traversal import walk\nfrom hermes import MessageGraph",
        "hermes/helpers.py": "",
        "hermes/soul/load.py": "from hermes.ports import memories\nfrom hermes.gateway.complete import complete",
        "hermes/trajectories/rows.py": "from hermes.graph import MessageGraph\nfrom typing import Any\nfrom ..turn import Turn",
    }
    assert against_the_reading_order(bad) == [
        "helpers: has no place in READING_ORDER",
        "hermes/cli.py:3: cli imports hermes.__main__",
        "hermes/graph/edit.py:2: graph imports hermes",
        "hermes/soul/load.py:2: soul imports hermes.gateway.complete",
        "hermes/trajectories/rows.py:3: trajectories imports hermes.turn",
    ]


def test_finds_more_than_the_library_at_the_door() -> None:
    bad = {
        "hermes/__init__.py": "import json\nfrom hermes.graph import Edit\nfrom hermes import trajectories\nfrom hermes.app import start",
        "hermes/trajectories/__init__.py": "",
        "hermes/cli.py": "from hermes.app import start",
    }
    assert more_than_the_library_at_the_door(bad) == ["hermes/__init__.py:4: the door imports hermes.app"]


def test_finds_adapters_outside_the_composition_root() -> None:
    bad = {
        "hermes/app.py": "from hermes.stores.postgres import Postgres",
        "hermes/stores/postgres.py": "from hermes.stores.sql import load",
        "hermes/backends/ollama.py": "from hermes.stores.sql import load",
        "hermes/web.py": "from hermes.channels import telegram",
        "hermes/cli.py": "from hermes.channels.fakes import open_platforms",
        "hermes/channels/fakes.py": "",
    }
    assert adapters_outside_the_composition_root(bad) == [
        "hermes/backends/ollama.py:1: backends imports the adapter hermes.stores.sql",
        "hermes/web.py:1: web imports the adapter hermes.channels",
    ]


def test_finds_fakes_that_use_what_they_check() -> None:
    bad = {
        "hermes/channels/fakes.py": "from hermes.channels.telegram.fake import X\nfrom hermes.channels.telegram.channel import read",
        "hermes/channels/meta_fake.py": "import aiohttp\nfrom hermes.channels.meta import check_signature",
        "hermes/channels/telegram/channel.py": "from hermes.ports.channels import Channel",
        "hermes/channels/telegram/fake/people.py": "from hermes.testing.platforms import FakePerson\nfrom hermes.turn import Platform",
    }
    assert fakes_that_use_what_they_check(bad) == [
        "hermes/channels/fakes.py:2: a fake imports hermes.channels.telegram.channel",
        "hermes/channels/meta_fake.py:2: a fake imports hermes.channels.meta",
        "hermes/channels/telegram/fake/people.py:2: a fake imports hermes.turn",
    ]


def test_finds_imports_of_a_certain_pack() -> None:
    bad = {
        "hermes/packs/__init__.py": "from hermes.ports import tools",
        "hermes/packs/taxi/__init__.py": "from hermes.packs import Pack\nfrom hermes.packs.taxi.tools import ride",
        "hermes/packs/taxi/tools.py": "from hermes.packs.hotel import room",
        "hermes/packs/hotel.py": "",
        "hermes/app.py": "from hermes.packs import find_pack\nfrom hermes.packs import taxi",
    }
    assert certain_packs_outside_their_folder(bad) == [
        "hermes/app.py:2: imports hermes.packs.taxi",
        "hermes/packs/taxi/tools.py:1: imports hermes.packs.hotel",
    ]


def test_finds_imports_hidden_in_functions() -> None:
    bad = {
        "hermes/cli.py": """\
if True:
    import rich
class Command:
    import typer
    async def run(self):
        if self:
            from hermes.app import start
"""
    }
    assert hidden_imports(bad) == ["hermes/cli.py:7: imports hermes.app inside a function"]


@pytest.mark.parametrize(
    "line",
    [
        'importlib.import_module("hermes.app")',
        "importlib.import_module(APP_MODULE)",
        'importlib.import_module(f"hermes.{room}.start")',
        'importlib.import_module("." + room, package="hermes")',
        "[importlib.import_module(part.module) for part in PARTS]",
        "load = importlib.import_module",
        "from importlib import import_module as load",
        '__import__("hermes.app")',
        'pkgutil.resolve_name("hermes.app:start")',
        'runpy.run_module("hermes.app")',
        "importlib.util.LazyLoader(loader)",
        'EntryPoint("start", "hermes.app:start", "any").load()',
    ],
)
def test_finds_modules_that_are_loaded_by_name(line: str) -> None:
    for source, number in ((line, 1), (f"def load(room):\n    {line}", 2)):
        assert f"hermes/web.py:{number}: loads a module by its name" in hidden_imports({"hermes/web.py": source})
        assert not any(fault.endswith("by its name") for fault in hidden_imports(dict.fromkeys(LOADERS, source)))


def test_what_the_command_loader_names_are_imports() -> None:
    table = 'PARTS = [Part("hermes.cli.fleet", ("fleet",)), Part("hermes.stores.postgres")]\nimport_module(PARTS[0].module)'
    tree = {
        COMMAND_LOADER: table,
        "hermes/cli/fleet.py": "from hermes.cli.command_table import build",
        "hermes/stores/postgres.py": "",
    }
    assert len(rings(tree)) == 1
    assert adapters_outside_the_composition_root(tree) == [f"{COMMAND_LOADER}:1: cli imports the adapter hermes.stores.postgres"]
    assert against_the_reading_order({COMMAND_LOADER: 'PART = "hermes.__main__"', "hermes/__main__.py": ""}) == [
        f"{COMMAND_LOADER}:1: cli imports hermes.__main__"
    ]


def test_finds_a_place_that_loads_nothing_by_name() -> None:
    full = dict.fromkeys(LOADERS, "import_module(name)")
    assert needless_loaders(full) == []
    assert needless_loaders({**full, COMMAND_LOADER: "import hermes"}) == [f"{COMMAND_LOADER}: loads no module by its name"]


def test_finds_suppressed_cancellations() -> None:
    bad = {
        "hermes/web.py": "with suppress(OSError, asyncio.CancelledError):\n    pass\nwith contextlib.suppress(CancelledError):\n    pass",
        "hermes/work.py": "with suppress(TimeoutError):\n    pass",
    }
    assert suppressed_cancellations(bad) == ["hermes/web.py:1: suppresses a cancellation", "hermes/web.py:3: suppresses a cancellation"]


# --- importing does nothing

# Runs in an interpreter of its own: sees every file, socket and process through Python's audit events, and every read of
# the environment through a stand-in for os.environ, from the moment before the import to the moment after it.
PROBE = """
import json, os, sys

src, package = sys.argv[1:]
sys.path.insert(0, src)
python_files = tuple(os.path.join(folder, "") for folder in sys.path)
faults = []

class Watched(type(os.environ)):
    def __getitem__(self, key):
        faults.append(f"environ {key}")
        return super().__getitem__(key)
    def __iter__(self):
        faults.append("environ *")
        return super().__iter__()
    def __setitem__(self, key, value):
        faults.append(f"environ {key}")

def watch(event, args):
    if event == "open":
        path = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes)) else str(args[0])
        source = path.startswith(python_files) and path.endswith((".py", ".pyc")) and "site-packages" not in path
        if not (source and args[1] in ("r", "rb", None)):
            faults.append(f"open {path}")
    elif event in ("os.listdir", "os.scandir"):
        if not os.path.join(str(args[0]), "").startswith(python_files):
            faults.append(f"{event} {args[0]}")
    elif event.split(".")[0] in ("socket", "subprocess", "shutil", "tempfile", "sqlite3", "urllib") or event in (
        "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.mkdir", "os.remove", "os.rename", "os.putenv", "os.unsetenv"
    ):
        faults.append(event)

real = os.environ
os.environ = Watched(real._data, real.encodekey, real.decodekey, real.encodevalue, real.decodevalue)
sys.addaudithook(watch)
__import__(package)
seen, faults = faults, []
os.environ = real
sys.stdout.write(json.dumps(seen))
"""

STOPWATCH = """
import sys, time
sys.path.insert(0, sys.argv[1])
start = time.process_time()
__import__(sys.argv[2])
sys.stdout.write(str((time.process_time() - start) * 1000))
"""


def in_a_bare_interpreter(program: str, src: Path, package: str, *options: str) -> str:
    """What a program prints in an interpreter that has only the standard library, and reads neither settings nor .pth files."""
    command = [sys.executable, "-I", "-S", *options, "-c", program, str(src), package]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout


def touched_by_importing(src: Path, package: str) -> list[str]:
    """Everything outside itself that importing a package touches, but for Python's own files."""
    faults: list[str] = json.loads(in_a_bare_interpreter(PROBE, src, package, "-B"))
    return faults


def test_importing_hermes_touches_no_file_network_or_environment() -> None:
    assert touched_by_importing(SRC, "hermes") == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("open('/dev/null')", "open /dev/null"),
        ("open(__file__, 'a')", "open {src}/touchy.py"),
        ("import pathlib; pathlib.Path(__file__).with_suffix('.txt').exists() or pathlib.Path('/dev/null').read_text()", "open /dev/null"),
        ("import os; os.listdir('/')", "os.listdir /"),
        ("import os; os.getenv('HERMES_TIER')", "environ HERMES_TIER"),
        ("import os; os.environ.get('HERMES_TIER')", "environ HERMES_TIER"),
        ("import os; 'HERMES_TIER' in os.environ", "environ HERMES_TIER"),
        ("import os; dict(os.environ)", "environ *"),
        ("import socket; socket.socket().close()", "socket.__new__"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
    ],
)
def test_finds_what_an_import_touches(tmp_path: Path, line: str, fault: str) -> None:
    (tmp_path / "touchy.py").write_text(line, encoding="utf-8")
    assert fault.format(src=tmp_path) in touched_by_importing(tmp_path, "touchy")


def test_importing_hermes_takes_about_as_long_as_importing_asyncio(tmp_path: Path) -> None:
    # Processor time, by turns and the best of nine each, because the others tell what else the machine was doing. Bytecode is kept as in
    # any installed package, but in a folder of this test, so that the first run pays for compiling and the rest do not.
    cache = ("-X", f"pycache_prefix={tmp_path}")
    taken = [[float(in_a_bare_interpreter(STOPWATCH, SRC, package, *cache)) for package in ("hermes", "asyncio")] for _ in range(9)]
    ours, theirs = (min(times) for times in zip(*taken, strict=True))
    assert ours < IMPORT_LIMIT * theirs
