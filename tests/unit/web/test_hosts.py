"""Names of this server, addresses of proxies, and which requests must be for a known name."""

import pytest

from hermes.config import WebSettings
from hermes.web.console.sign_in_pages import own_path
from hermes.web.hosts import KnownHosts, host_in, is_in, is_local_name


def scope_of(path: str = "/console", *headers: tuple[str, str]) -> dict[str, object]:
    return {"path": path, "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers]}


def test_the_settings_name_the_hosts() -> None:
    web = WebSettings(host="Hermes-1", public_url="https://chat.example.com:8443/x", hosts=("hermes.internal", "*.cluster.local"))
    known = KnownHosts.of(web)
    assert known == KnownHosts(
        frozenset({"hermes-1", "chat.example.com", "hermes.internal", "*.cluster.local"}), frozenset({"chat.example.com"})
    )
    assert [host in known for host in ("hermes.internal", "a.b.cluster.local", "cluster.local", "xcluster.local", "evil.example")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert KnownHosts.of(WebSettings(host="0.0.0.0")) == KnownHosts(frozenset())  # noqa: S104  # nothing listens here
    assert not KnownHosts.of(WebSettings(public_url="http://chat.example.com")).tls_names


@pytest.mark.parametrize(
    ("host", "read"),
    [
        ("Hermes.Example:8080", "hermes.example"),
        ("[::1]:80", "::1"),
        ("127.0.0.1@evil.example", "evil.example"),
        ("hermes.example.", "hermes.example"),
        ("[", ""),
        ("", ""),
    ],
)
def test_a_host_is_read_without_its_port(host: str, read: str) -> None:
    assert host_in(scope_of("/", ("host", host))) == read


def test_two_hosts_are_none() -> None:
    assert host_in(scope_of("/", ("host", "localhost"), ("host", "evil.example"))) == ""
    assert host_in(scope_of("/")) == ""


def test_names_of_this_machine() -> None:
    assert [name for name in ("localhost", "a.localhost", "127.8.8.8", "::1", "evil.example", "10.0.0.1", "") if is_local_name(name)] == [
        "localhost",
        "a.localhost",
        "127.8.8.8",
        "::1",
    ]


def test_an_address_is_in_a_network() -> None:
    assert is_in("10.0.0.7", ["192.168.0.1", "10.0.0.0/24"])
    assert is_in("::ffff:10.0.0.7", ["10.0.0.0/24"]), "as a socket for both families shows it"
    assert is_in("fd00::7", ["fd00::/8"])
    assert not is_in("10.0.1.7", ["10.0.0.0/24", "fd00::/8"])
    assert not is_in("", ["0.0.0.0/0"])


@pytest.mark.parametrize(
    ("origin", "is_foreign"),
    [
        ("https://evil.example", True),
        ("http://evil.example:8080", True),
        ("https://hermes.internal.evil.example", True),
        ("http://[", True),
        ("http://hermes.internal:8080", False),
        ("HTTPS://HERMES.INTERNAL", False),
        ("http://localhost:3000", False),
        ("app://chat", False),
        ("null", False),
    ],
)
def test_a_page_of_another_site_is_foreign(origin: str, is_foreign: bool) -> None:
    known = KnownHosts(frozenset({"hermes.internal"}))
    assert known.is_foreign(scope_of("/", ("host", "hermes.internal:8080"), ("origin", origin))) is is_foreign
    assert known.is_foreign(scope_of("/", ("origin", "http://hermes.internal"), ("origin", origin))), "two of them"


def test_a_program_has_no_origin() -> None:
    assert not KnownHosts(frozenset()).is_foreign(scope_of("/", ("host", "localhost")))


def test_a_form_leads_to_a_page_of_the_console_only() -> None:
    own = ("/console", "/console/turns?status=failed", "/console/people/7#memory", "/console/search?q=a:b")
    assert [own_path(path) for path in own] == list(own)
    for path in ("//evil.example", "/\\evil.example", "/console\\..\\x", "javascript:x", "/consoles", "console/turns", "/console/\n"):
        assert own_path(path) == "/console"
