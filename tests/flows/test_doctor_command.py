"""`hermes doctor` beside a Hermes that runs, beside other programs at its port, and with MCP servers; and commands that show the port."""

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes.channels.fakes import open_platforms
from hermes.tools.mcp import McpServer, McpTimeouts, ServerAway, list_server_tools
from tests.flows.command import hermes
from tests.flows.service import Service, running

MCP_SERVER = [sys.executable, str(Path(__file__).parents[1] / "unit" / "tools" / "mcp_server.py")]


async def findings(service: Service, folder: Path, part: str) -> list[dict[str, Any]]:
    ended = await hermes(service, folder, "doctor", "--json")
    return [{key: found[key] for key in ("health", "says")} for found in json.loads(ended.output) if found["part"] == part]


def write_settings(folder: Path, port: int | None, more: str = "") -> None:
    (folder / "hermes.toml").write_text(f"[web]\nport = {port}\n{more}", encoding="utf-8")


async def test_the_doctor_does_not_warn_of_its_own_hermes_but_of_another(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        port = urlsplit(service.url).port
        write_settings(tmp_path, port)
        unknown = [{"health": "warning", "says": f"127.0.0.1:{port}: a Hermes with other settings runs there"}]
        ours = [{"health": "good", "says": f"this Hermes runs at {service.url}/"}]
        async with service.database.pool.connection() as connection:
            await connection.execute("delete from processes")
        assert await findings(service, tmp_path, "web") == unknown
        async with service.database.pool.connection() as connection:  # as the heartbeat of `hermes serve` does
            row = (service.hermes.process_id, "serve", "here", 1, "1")
            await connection.execute("insert into processes (id, role, host, pid, version) values (%s, %s, %s, %s, %s)", row)
        assert await findings(service, tmp_path, "web") == ours
        async with service.database.pool.connection() as connection:
            await connection.execute("delete from processes")
        (home := tmp_path / "elsewhere").mkdir(exist_ok=True)
        secret = (await service.key("terminal"))["Authorization"].partition(" ")[2]
        (home / "chat.key").write_text(secret, encoding="ascii")
        assert await findings(service, tmp_path, "web") == ours, "a server that takes the key of this home is its own"


async def test_another_program_at_the_port_is_a_warning_also_if_it_never_answers(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            write_settings(tmp_path, port)
            expected = [{"health": "warning", "says": f"127.0.0.1:{port}: another program listens there"}]
            assert await findings(service, tmp_path, "web") == expected
        async with open_platforms() as platforms:
            port = urlsplit(platforms.url).port
            write_settings(tmp_path, port)
            assert await findings(service, tmp_path, "web") == [{**expected[0], "says": f"127.0.0.1:{port}: another program listens there"}]


async def test_the_doctor_lists_the_mcp_servers(database_url: str, redis_url: str, tmp_path: Path) -> None:
    servers = {"small": MCP_SERVER, "gone": ["/nowhere/at-all"]}
    tables = "".join(f"\n[mcp.{name}]\ncommand = {json.dumps(command)}\n" for name, command in servers.items())
    async with running(database_url, redis_url, has_worker=False) as service:
        write_settings(tmp_path, 0, f'{tables}\n[mcp.far]\nurl = "http://127.0.0.1:1/mcp"\n\n[tools]\ntimeout_s = 30\n')
        small, gone, far = await findings(service, tmp_path, "mcp")
    assert (small["health"], small["says"].startswith("small: "), small["says"].endswith(" tools")) == ("good", True, True)
    assert gone == {"health": "warning", "says": "gone: there is no program /nowhere/at-all"}
    assert (far["health"], far["says"].startswith("far: ")) == ("warning", True)


async def test_a_server_that_ends_at_once_is_away_and_one_line_says_so() -> None:
    with pytest.raises(ServerAway) as away:
        await list_server_tools(McpServer(name="x", command=("false",)), McpTimeouts(connect_s=5))
    assert "\n" not in str(away.value)
    with pytest.raises(ServerAway, match=r"no list of tools within 0\.5 s"):
        await list_server_tools(McpServer(name="x", command=("sleep", "60")), McpTimeouts(connect_s=0.5))


# --- the port of the settings


async def test_examples_show_the_port_of_the_settings_or_the_public_address(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        write_settings(tmp_path, 8123)
        local = await hermes(service, tmp_path, "keys", "create", "one")
        write_settings(tmp_path, 8123, 'public_url = "https://h.example/hermes/"\n')
        public = await hermes(service, tmp_path, "keys", "create", "two")
    assert ("curl -s http://127.0.0.1:8123/v1/messages " in local.complaints, local.code) == (True, 0)
    assert ("curl -s https://h.example/hermes/v1/messages " in public.complaints, public.code) == (True, 0)


async def test_the_fakes_send_their_webhooks_to_the_port_of_the_settings(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        settings = service.hermes.settings
        assert settings.database_url is not None
        assert settings.redis_url is not None
        write_settings(tmp_path, urlsplit(service.url).port)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hermes", "platforms", "fake", "--join", "--port", "0", "--json"),
            env={
                "PATH": "/usr/bin:/bin",
                "HERMES_HOME": str(tmp_path / "home"),
                "HERMES_DATABASE_URL": settings.database_url.reveal(),
                "HERMES_REDIS_URL": settings.redis_url.reveal(),
                "HERMES_MASTER_KEYS": ((settings.home or Path()) / "master.key").read_text(encoding="ascii"),
            },
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(60):
                shown = json.loads(await process.stdout.readline())
            assert f"{service.url}/webhooks/telegram/fake" in json.dumps(shown)
        finally:
            process.terminate()
            await process.wait()
        async with service.database.begin() as tx:
            accounts = await service.hermes.adapters.channel_accounts.list(tx)
    assert len(accounts) == 5


async def test_the_public_address_is_what_platforms_are_given(database_url: str, redis_url: str, tmp_path: Path) -> None:
    add = ("channels", "add", "telegram", "--token", "1:" + "A" * 35, "--json", "--wait", "0")
    async with running(database_url, redis_url, has_worker=False) as service, open_platforms() as platforms:
        write_settings(tmp_path, 8123, 'public_url = "https://h.example/"\n')
        said = await hermes(service, tmp_path, "channels", "add", "whatsapp", "--api-key", "k", "--wait", "0")
        assert "https://h.example/webhooks/whatsapp/whatsapp/" in said.output
        own = (*add[:4], platforms.telegram.token, *add[5:], "--base-url", platforms.url)
        pushed = json.loads((await hermes(service, tmp_path, *own)).output)
        polled = json.loads((await hermes(service, tmp_path, *own, "--url", "none")).output)
        write_settings(tmp_path, 8123, 'public_url = "http://h.example"\n')
        plain = json.loads((await hermes(service, tmp_path, *own)).output)
    assert (pushed["is_polled"], polled["is_polled"], plain["is_polled"]) == (False, True, True)
