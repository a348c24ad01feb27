"""`scripts/audit` against a server that speaks OSV's API, and against a file of its records."""

import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[2] / "scripts" / "audit"
RECORD = {
    "id": "PYSEC-2099-1",
    "summary": "Toy reads what it should not",
    "affected": [
        {
            "package": {"name": "Toy_Package", "ecosystem": "PyPI"},
            "versions": ["1.0", "1.1"],
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.2"}]}],
        }
    ],
}
LINE = "toy-package 1.1: PYSEC-2099-1 Toy reads what it should not; mended in 1.2\n"


class Osv(BaseHTTPRequestHandler):
    """The two requests of OSV that matter."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        self._answer({"results": [{"vulns": [{"id": RECORD["id"]}]} if self._has(each) else {} for each in asked]})

    def do_GET(self) -> None:
        self._answer(RECORD)

    def _has(self, asked: dict[str, object]) -> bool:
        return asked == {"package": {"name": "toy-package", "ecosystem": "PyPI"}, "version": "1.1"}

    def _answer(self, body: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def source() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "requirements.lock"
    file.write_text("# made by a tool\nToy.Package==1.1 ; python_version > '3' \\\n    --hash=sha256:00\nother[extra]==2.0\n")
    return file


def audit(*words: object) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, AUDIT, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_server_is_asked_about_each_package(source: str, lock: Path) -> None:
    assert audit("--source", source, lock) == (1, f"{LINE}2 packages, 1 known vulnerabilities ({source})\n", "")
    lock.write_text(lock.read_text().replace("1.1", "1.2"))
    assert audit("--source", source, lock) == (0, f"2 packages, 0 known vulnerabilities ({source})\n", "")


def test_a_file_of_records_needs_no_network(lock: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("a.json", json.dumps(RECORD))
        archive.writestr("b.json", json.dumps({**RECORD, "id": "PYSEC-2099-2", "withdrawn": "2099-01-01T00:00:00Z"}))
    code, output, _ = audit("--db", tmp_path / "all.zip", "--json", lock)
    assert (code, [each["id"] for each in json.loads(output)["vulnerabilities"]]) == (1, ["PYSEC-2099-1"])


def test_without_a_source_it_says_that_nothing_was_checked(lock: Path, tmp_path: Path) -> None:
    for words in (("--source", "http://127.0.0.1:9"), ("--db", tmp_path / "none.zip"), ("--source", "file:///etc/passwd")):
        code, output, errors = audit(*words, lock)
        assert (code, output, errors.endswith("; nothing was checked\n"), errors.count("\n")) == (3, "", True, 1)


def test_the_locks_of_this_repository_are_read(source: str) -> None:
    code, output, _ = audit("--source", source, "--json")
    assert (code, json.loads(output)["packages"] > 80) == (0, True)
