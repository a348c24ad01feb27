"""PostgreSQL and Valkey out of their wheels: real servers, real processes, and none of them left behind by any test."""

import errno
import fcntl
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
import redis

from hermes.stores import embedded
from hermes.stores.embedded.home import HomeInUse, HomeUnusable, PlatformUnsupported, ServerFailed, home_at, make_home
from hermes.stores.embedded.launcher import ALL_STOPPED
from hermes.stores.embedded.programs import ServerUser, choose_server_user, find_binaries, first_executable

HOLDER = Path(__file__).with_name("holder.py")
PATIENCE_S = 30
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


# --- what the tests share


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that is not there yet. Afterwards no process may be left in it. Its path is short, or its sockets would be elsewhere."""
    with tempfile.TemporaryDirectory(prefix="hermes-", ignore_cleanup_errors=True) as folder, nothing_left_in(Path(folder)):
        yield Path(folder) / "home"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder of the user nobody, in a place where he can reach it: the folders of pytest are private."""
    folder = Path(tempfile.mkdtemp(prefix="hermes-nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    with nothing_left_in(folder):
        yield folder
    shutil.rmtree(folder)


@contextmanager
def nothing_left_in(folder: Path) -> Iterator[None]:
    yield
    left = processes_of(folder)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}


def processes_of(folder: Path) -> dict[int, str]:
    """Every living process that names the folder in its command line, or works in it, as the children of PostgreSQL do."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            place = os.fspath((process / "cwd").readlink())
        except OSError:
            continue
        if words and (str(folder) in words or Path(place).is_relative_to(folder)):
            found[int(process.name)] = words
    return found


class Holder:
    """Another process with a hold on the stores of a home."""

    def __init__(self, home: Path, uid: int | None = None) -> None:
        command = [sys.executable, str(HOLDER), str(home), *([str(uid)] if uid is not None else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._said: dict[str, Any] | None = None

    @property
    def said(self) -> dict[str, Any]:
        """Its one line, waited for."""
        if self._said is None:
            assert self.process.stdout
            self._said = json.loads(self.process.stdout.readline())
        return self._said

    @property
    def pids(self) -> tuple[int, int]:
        return self.said["postgres"], self.said["valkey"]

    def leave(self) -> None:
        self.process.communicate(timeout=PATIENCE_S)

    def kill(self) -> None:
        self.process.kill()
        self.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.leave()


def pids(home: Path) -> tuple[int | None, int | None]:
    seen = embedded.status(home)
    return seen.postgres, seen.valkey


def query(stores: embedded.StoreUrls, sql: str) -> Any:
    with psycopg.connect(stores.database_url) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchone() if cursor.description else None


def valkey(stores: embedded.StoreUrls, *command: str) -> Any:
    with redis.Redis.from_url(stores.redis_url, decode_responses=True) as client:
        return client.execute_command(*command)


def owners_and_modes(folders: list[Path]) -> dict[Path, tuple[int, int, int]]:
    return {folder: (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) for folder in folders if (found := folder.stat())}


def is_one_line(error: BaseException | None) -> bool:
    return len(str(error).splitlines()) == 1


# --- ready


def test_stores_are_ready_durable_and_private(home: Path) -> None:
    with embedded.run_servers(home) as stores:
        query(stores, "CREATE EXTENSION vector")
        assert query(stores, "SELECT '[1,0]'::vector <=> '[0,1]', lower('ÉCOLE'), to_tsvector('english', 'bars') @@ 'bar'") == (
            1.0,
            "école",
            True,
        )
        settings = ("fsync", "synchronous_commit", "full_page_writes", "data_checksums", "listen_addresses", "TimeZone", "server_encoding")
        shown = [query(stores, f"SHOW {name}")[0] for name in settings]
        assert shown == ["on", "on", "on", "on", "", "UTC", "UTF8"]
        assert query(stores, "SELECT datlocprovider, datlocale FROM pg_database WHERE datname = current_database()") == ("b", "C.UTF-8")
        assert query(stores, "SELECT count(*) FROM pg_hba_file_rules WHERE type <> 'local' AND auth_method <> 'reject'") == (0,)

        assert valkey(stores, "SET", "tone", "warm") is True
        assert valkey(stores, "EVAL", "return redis.call('GET', KEYS[1])", "1", "tone") == "warm"
        assert valkey(stores, "CONFIG", "GET", "appendonly", "appendfsync", "port") in (
            {"appendonly": "yes", "appendfsync": "everysec", "port": "0"},
            ["appendonly", "yes", "appendfsync", "everysec", "port", "0"],
        )

        parts = home_at(home)
        folders = [home, parts.stores, parts.postgres, parts.valkey, parts.sockets, parts.leases]
        assert {mode for _, _, mode in owners_and_modes(folders).values()} == {0o700}
        seen = embedded.status(home)
        assert seen.holders == (os.getpid(),)
        # Of a session of their own: Ctrl-C in a terminal goes to everybody in the terminal's session.
        assert [os.getsid(pid) for pid in (seen.postgres, seen.valkey) if pid] == [seen.postgres, seen.valkey]
    assert embedded.status(home) == ALL_STOPPED


def test_data_survives_a_restart(home: Path) -> None:
    with embedded.run_servers(home) as stores:
        query(stores, "CREATE TABLE venue AS SELECT 'La Brisa' AS name")
        valkey(stores, "SET", "tone", "warm")
        first = pids(home)
    with embedded.run_servers(home) as stores:
        assert (query(stores, "SELECT name FROM venue"), valkey(stores, "GET", "tone")) == (("La Brisa",), "warm")
        assert set(pids(home)).isdisjoint(first)


def test_nothing_outside_the_data_folder_changes(home: Path) -> None:
    around = [*home.parents, Path.home(), Path(tempfile.gettempdir())]
    before = owners_and_modes(around), Path("/etc/passwd").read_bytes(), list(home.parent.iterdir())
    with embedded.run_servers(home):
        assert home_at(home).sockets.is_relative_to(home)
    assert (owners_and_modes(around), Path("/etc/passwd").read_bytes(), list(home.parent.iterdir())) == (*before[:2], [*before[2], home])


def test_a_home_that_was_there_keeps_its_permissions(home: Path) -> None:
    home.mkdir(mode=0o755)
    (home / "hermes.toml").touch(mode=0o644)
    with embedded.run_servers(home):
        assert owners_and_modes([home, home / "stores"]) == {
            home: (os.geteuid(), os.getegid(), 0o755),
            home / "stores": (os.geteuid(), os.getegid(), 0o700),
        }


# --- shared


def test_two_processes_share_the_servers_and_the_last_one_stops_them(home: Path) -> None:
    with Holder(home) as first:
        started = first.pids
        with Holder(home) as second:
            assert second.pids == started
            assert sorted(second.said["holders"]) == sorted([first.process.pid, second.process.pid])
            first.leave()
            assert embedded.status(home) == embedded.ServerStatus(*started, (second.process.pid,))
    assert embedded.status(home) == ALL_STOPPED


def test_the_last_one_stops_them_when_the_one_who_started_them_was_killed(home: Path) -> None:
    with Holder(home) as first, Holder(home) as second:
        assert first.pids == second.pids
        first.kill()
        assert embedded.status(home) == embedded.ServerStatus(*second.pids, (second.process.pid,))
    assert embedded.status(home) == ALL_STOPPED


def test_two_holds_in_one_process_are_two(home: Path) -> None:
    with embedded.run_servers(home):
        before = pids(home)
        with embedded.run_servers(home):
            assert embedded.status(home).holders == (os.getpid(), os.getpid())
        assert pids(home) == before
    assert embedded.status(home) == ALL_STOPPED


def test_four_processes_at_once_make_one_database(home: Path) -> None:
    with ExitStack() as everybody:
        four = [everybody.enter_context(Holder(home)) for _ in range(4)]
        assert len({holder.pids for holder in four}) == 1
        assert sorted(path.name for path in (home / "stores").glob("postgres*")) == ["postgres", "postgres.log"]
    assert embedded.status(home) == ALL_STOPPED


def test_two_homes_stand_side_by_side(home: Path) -> None:
    other = home.with_name("other")
    with embedded.run_servers(home) as here, embedded.run_servers(other) as there:
        valkey(here, "SET", "tone", "warm")
        query(here, "CREATE TABLE venue AS SELECT 'La Brisa' AS name")
        assert valkey(there, "GET", "tone") is None
        assert query(there, "SELECT to_regclass('venue')") == (None,)
        assert set(pids(home)).isdisjoint(pids(other))


def test_a_fork_of_a_holder_holds_nothing(home: Path) -> None:
    program = f"""
import os, time
from pathlib import Path
from hermes.stores import embedded
home = Path({str(home)!r})
with embedded.run_servers(home):
    if (child := os.fork()) == 0:
        time.sleep(60)
        os._exit(0)
print(embedded.status(home))
os.kill(child, 9)
os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == f"{ALL_STOPPED}\n"


def test_stop_refuses_while_somebody_holds_them_unless_told_otherwise(home: Path) -> None:
    with Holder(home) as holder:
        running = holder.pids
        with pytest.raises(HomeInUse, match=f"in use by pid {holder.process.pid}") as refused:
            embedded.stop(home)
        assert is_one_line(refused.value)
        assert pids(home) == running
        assert embedded.stop(home, even_if_in_use=True) == embedded.ServerStatus(*running, (holder.process.pid,))
        assert pids(home) == (None, None)


def test_release_can_be_called_twice(home: Path) -> None:
    held = embedded.start(home)
    held.release()
    held.release()
    assert embedded.status(home) == ALL_STOPPED


def test_asking_creates_nothing(home: Path) -> None:
    assert (embedded.status(home), embedded.stop(home)) == (ALL_STOPPED, ALL_STOPPED)
    assert not home.exists()


def test_a_home_that_another_container_uses_is_refused(home: Path) -> None:
    with embedded.run_servers(home):
        pass
    with (home / "stores" / "leases" / "7-there").open("w", encoding="utf-8") as lease:
        lease.write("7 other-host pid:[1]")
        lease.flush()
        fcntl.flock(lease, fcntl.LOCK_EX)
        with pytest.raises(HomeInUse, match=r"in use from another container or machine \(other-host pid:\[1\]\)"):
            embedded.start(home)
        assert pids(home) == (None, None)
    with embedded.run_servers(home):  # its lock is gone, and so is he
        assert embedded.status(home).holders == (os.getpid(),)


# --- after a crash


def test_servers_of_a_killed_process_are_adopted(home: Path) -> None:
    with Holder(home) as holder:
        left = holder.pids
        holder.kill()
    assert embedded.status(home) == embedded.ServerStatus(*left, ())
    with embedded.run_servers(home) as stores:
        assert pids(home) == left
        assert (query(stores, "SELECT 1"), valkey(stores, "PING")) == ((1,), True)
    assert embedded.status(home) == ALL_STOPPED


def test_servers_of_a_killed_process_can_be_stopped(home: Path) -> None:
    with Holder(home) as holder:
        left = holder.pids
        holder.kill()
    assert embedded.stop(home) == embedded.ServerStatus(*left, ())
    assert embedded.status(home) == ALL_STOPPED


def test_files_of_killed_servers_do_not_stop_new_ones(home: Path) -> None:
    with embedded.run_servers(home) as stores:
        query(stores, "CREATE TABLE venue AS SELECT 'La Brisa' AS name")
        for pid in pids(home):
            os.kill(pid or 0, signal.SIGKILL)
        parts = home_at(home)
        assert all(
            path.exists() for path in (parts.postgres / "postmaster.pid", parts.postgres_socket, parts.valkey_socket, parts.valkey_pid)
        )
        with embedded.run_servers(home) as again:
            assert (query(again, "SELECT name FROM venue"), valkey(again, "PING")) == (("La Brisa",), True)


def test_a_stranger_with_the_pid_of_a_dead_server_is_left_alone(home: Path) -> None:
    with embedded.run_servers(home):
        kept = (home / "stores" / "postgres" / "postmaster.pid").read_text(encoding="utf-8")
    parts = home_at(home)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(parts.postgres), str(parts.valkey)]) as stranger:
        lines = [str(stranger.pid), *kept.splitlines()[1:]]
        (parts.postgres / "postmaster.pid").write_text("\n".join(lines), encoding="utf-8")
        (parts.sockets / ".s.PGSQL.5432.lock").write_text("\n".join(lines), encoding="utf-8")
        parts.valkey_pid.write_text(f"{stranger.pid}\n", encoding="utf-8")
        assert embedded.status(home) == ALL_STOPPED
        assert embedded.stop(home) == ALL_STOPPED
        with embedded.run_servers(home) as stores:
            assert (query(stores, "SELECT 1"), valkey(stores, "PING")) == ((1,), True)
        assert stranger.poll() is None
        stranger.kill()


def test_servers_whose_sockets_are_gone_are_replaced(home: Path) -> None:
    with Holder(home) as holder:
        left = holder.pids
        holder.kill()
    shutil.rmtree(home_at(home).sockets)
    with embedded.run_servers(home) as stores:
        assert set(pids(home)).isdisjoint(left)
        assert (query(stores, "SELECT 1"), valkey(stores, "PING")) == ((1,), True)


def test_half_made_database_files_are_made_anew(home: Path) -> None:
    abandoned = make_home(home).stores / "postgres.new-1"
    abandoned.mkdir()
    (abandoned / "PG_VERSION").write_text("18\n", encoding="utf-8")
    with embedded.run_servers(home) as stores:
        assert query(stores, "SELECT 1") == (1,)
    assert not abandoned.exists()


def test_a_start_that_fails_says_why_and_leaves_nothing_running(home: Path) -> None:
    with embedded.run_servers(home):
        pass
    (home / "stores" / "postgres" / "postgresql.conf").write_text("no_such_setting = 1\n", encoding="utf-8")
    with pytest.raises(ServerFailed, match=r"PostgreSQL did not start: .*configuration.*; its log is /") as failed:
        embedded.start(home)
    assert is_one_line(failed.value)
    assert embedded.status(home) == ALL_STOPPED


@pytest.mark.parametrize(
    ("version", "advice"), [("12", "run `hermes upgrade`, which keeps the old data"), ("99", "use a newer version of Hermes")]
)
def test_files_of_another_major_version_are_refused_with_what_to_do(home: Path, version: str, advice: str) -> None:
    with embedded.run_servers(home):
        pass
    (home / "stores" / "postgres" / "PG_VERSION").write_text(f"{version}\n", encoding="utf-8")
    with pytest.raises(HomeUnusable, match=f"was made by PostgreSQL {version}, and this Hermes brings 18: {advice}") as refused:
        embedded.start(home)
    assert is_one_line(refused.value)
    assert embedded.status(home) == ALL_STOPPED


# --- paths


def test_a_long_home_has_its_sockets_in_a_private_folder_of_tmp(home: Path) -> None:
    long = home.joinpath(*["a folder, with a name of forty characters"] * 4)
    sockets = home_at(long).sockets
    with embedded.run_servers(long) as stores:
        assert (query(stores, "SELECT 1"), valkey(stores, "PING")) == ((1,), True)
        assert owners_and_modes([sockets]) == {sockets: (os.geteuid(), os.getegid(), 0o700)}
    assert len(os.fsencode(sockets / "valkey.sock")) < 60
    assert not sockets.exists()


def test_a_short_path_with_odd_characters_works(home: Path) -> None:
    odd = home.parent / "h,o'm\"e %41 é"
    with embedded.run_servers(odd) as stores:
        assert (query(stores, "SELECT 1"), valkey(stores, "PING")) == ((1,), True)


def test_a_socket_folder_that_somebody_else_prepared_is_refused(home: Path) -> None:
    long = home.joinpath(*["x" * 50] * 3)
    sockets = home_at(long).sockets
    sockets.mkdir(mode=0o777)
    sockets.chmod(0o777)
    try:
        with pytest.raises(HomeUnusable, match="is not a private folder of Hermes") as refused:
            embedded.start(long)
        assert is_one_line(refused.value)
        assert owners_and_modes([sockets]) == {sockets: (os.geteuid(), os.getegid(), 0o777)}
    finally:
        sockets.rmdir()
    assert embedded.status(long) == ALL_STOPPED


def test_one_home_has_one_name(home: Path) -> None:
    home.mkdir()
    link = home.with_name("link")
    link.symlink_to(home)
    with embedded.run_servers(home) as direct, embedded.run_servers(link) as linked:
        assert direct == linked


# --- where it cannot


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root; as nobody it is tested below")
def test_a_home_that_cannot_be_written_to_is_refused_in_one_line(home: Path) -> None:
    home.mkdir(mode=0o500)
    with pytest.raises(
        HomeUnusable, match=r"cannot write to .* \(Permission denied\); choose a folder of your own with HERMES_HOME"
    ) as refused:
        embedded.start(home)
    assert is_one_line(refused.value)


def test_a_home_that_is_a_file_is_refused_in_one_line(home: Path) -> None:
    home.touch()
    with pytest.raises(HomeUnusable, match=f"cannot write to .* \\({os.strerror(errno.EEXIST)}\\); choose a folder") as refused:
        embedded.start(home)
    assert is_one_line(refused.value)


def test_a_home_that_is_broken_inside_is_refused_in_one_line(home: Path) -> None:
    made = make_home(home)
    made.valkey.touch()
    with pytest.raises(HomeUnusable, match=r"cannot use .*File exists.*; free disk space or repair it") as refused:
        embedded.start(home)
    assert is_one_line(refused.value)
    assert embedded.status(home) == ALL_STOPPED


def test_a_platform_without_wheels_is_refused_in_one_line() -> None:
    with pytest.raises(PlatformUnsupported, match=r"no PostgreSQL for this platform .*; try pip install .*HERMES_DATABASE_URL") as refused:
        first_executable("PostgreSQL", [Path("/nowhere/postgres")])
    assert is_one_line(refused.value)


# --- as whom


def can_nobody_run_the_servers() -> bool:
    probe = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "test", "-x", str(find_binaries().postgres)]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


@pytest.fixture
def nobody() -> pwd.struct_passwd:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    if not can_nobody_run_the_servers():
        pytest.skip(f"the user nobody cannot reach the programs in {find_binaries().postgres.parent}")
    return pwd.getpwuid(NOBODY)


@needs_root
def test_root_keeps_its_files_and_the_servers_are_not_root_inside(home: Path) -> None:
    with embedded.run_servers(home):
        seen = embedded.status(home)
        assert {path.stat().st_uid for path in home.rglob("*")} == {0}
        for pid in (seen.postgres, seen.valkey):
            assert Path(f"/proc/{pid}/ns/user").readlink() != Path("/proc/self/ns/user").readlink()


def test_an_ordinary_user_runs_them_as_himself(nobody: pwd.struct_passwd, open_folder: Path) -> None:
    home = open_folder / "home"
    with Holder(home, NOBODY) as holder:
        assert [Path(f"/proc/{pid}").stat().st_uid for pid in holder.pids] == [NOBODY, NOBODY]
        assert {path.stat().st_uid for path in home.rglob("*")} == {NOBODY}
        # Root may join, and leaves nothing behind that the owner could not use.
        with embedded.run_servers(home) as stores:
            assert pids(home) == holder.pids
            assert (query(stores, "SELECT 1"), valkey(stores, "PING")) == ((1,), True)
    with embedded.run_servers(home):
        assert {path.stat().st_uid for path in home.rglob("*")} == {NOBODY}
    with Holder(home, NOBODY) as holder:
        assert "error" not in holder.said


def test_a_home_that_cannot_be_written_to_is_refused_to_nobody(nobody: pwd.struct_passwd, open_folder: Path) -> None:
    home = open_folder / "home"
    home.mkdir(mode=0o555)
    with Holder(home, NOBODY) as holder:
        message = f"cannot write to {home} (Permission denied); choose a folder of your own with HERMES_HOME"
        assert holder.said == {"error": "HomeUnusable", "message": message}
    assert list(home.iterdir()) == []


def test_without_namespaces_root_uses_the_user_nobody(nobody: pwd.struct_passwd, open_folder: Path) -> None:
    os.chown(open_folder, 0, 0)
    open_folder.chmod(0o755)
    home = open_folder / "home"
    made = make_home(home)
    refused = ServerUser(("false",))
    held = embedded.start(home, choose_server_user(made, find_binaries().postgres, namespace=refused))
    try:
        assert (query(held.stores, "SELECT 1"), valkey(held.stores, "PING")) == ((1,), True)
        assert owners_and_modes([open_folder, home, made.stores]) == {
            open_folder: (0, 0, 0o755),
            home: (0, 0, 0o711),
            made.stores: (NOBODY, nobody.pw_gid, 0o700),
        }
    finally:
        held.release()
    with embedded.run_servers(home) as stores:  # and stays with him
        assert query(stores, "SELECT 1") == (1,)
        assert Path(f"/proc/{embedded.status(home).postgres}").stat().st_uid == NOBODY


@needs_root
def test_without_namespaces_a_home_inside_a_private_one_works_and_nothing_is_opened(home: Path) -> None:
    """Root in a container, as most images have it: namespaces are refused, and /root is closed to everybody else."""
    home.parent.chmod(0o700)
    made = make_home(home)
    held = embedded.start(home, choose_server_user(made, find_binaries().postgres, namespace=ServerUser(("false",))))
    try:
        assert (query(held.stores, "SELECT 1"), valkey(held.stores, "PING")) == ((1,), True)
        assert owners_and_modes([home.parent, home]) == {home.parent: (0, 0, 0o700), home: (0, 0, 0o700)}
        assert Path(f"/proc/{embedded.status(home).postgres}").stat().st_uid == NOBODY
    finally:
        held.release()
    with embedded.run_servers(home) as stores:
        assert query(stores, "SELECT 1") == (1,)


@needs_root
def test_without_any_way_to_drop_root_the_home_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    made = make_home(tmp_path.joinpath(*["x" * 50] * 3))  # its sockets are in /tmp, where others called nobody could come near
    before = owners_and_modes([tmp_path, made.path, made.stores, made.leases, made.start_lock])
    with pytest.raises(
        PlatformUnsupported, match="set HERMES_HOME to a folder such as /var/lib/hermes, or start Hermes as an ordinary user"
    ) as refused:
        choose_server_user(made, find_binaries().postgres, namespace=ServerUser(("false",)))
    assert is_one_line(refused.value)
    assert owners_and_modes(list(before)) == before


# --- how fast


def test_starts_are_quick(home: Path) -> None:
    # The promise is 4 s for the first start and 1 s for later ones, and benchmarks/start.py measures it. Here the machine may be busy.
    def seconds(action: Callable[[], Any]) -> float:
        begun = time.perf_counter()
        action()
        return time.perf_counter() - begun

    held: list[embedded.ServerLease] = []
    first_s = seconds(lambda: held.append(embedded.start(home)))
    held.pop().release()
    later_s = seconds(lambda: held.append(embedded.start(home)))
    held.pop().release()
    assert (first_s < 8, later_s < 2) == (True, True), (first_s, later_s)
