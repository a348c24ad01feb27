"""A signed export tells who made it; a wrong key, a changed manifest and a missing signature each end with one clear line."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.unit.test_cli_trajectories import run, save_graphs


def save_key(folder: Path, name: str, key: Any = None, password: bytes | None = None) -> tuple[Path, Path]:
    """Write a key pair as openssl does; return the paths of the private and the public key."""
    key = key or Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.public.pem"
    lock = NoEncryption() if password is None else BestAvailableEncryption(password)
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def signed_export(folder: Path, *more: object) -> tuple[Path, Path]:
    """Export with a signature; return the export and the public key."""
    private, public = save_key(folder, "key")
    assert run("export", save_graphs(folder / "graphs"), "--out", folder / "out", "--sign", private, "--json", *more)[::2] == (0, "")
    return folder / "out", public


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_export_that_the_trusted_key_signed_holds(tmp_path: Path, workers: str) -> None:
    out, public = signed_export(tmp_path, "--workers", workers)
    code, output, errors = run("verify", out, "--trusted", public, "--against", tmp_path / "graphs", "--json")
    assert (code, json.loads(output)["ok"], errors) == (0, True, "")
    assert run("verify", out)[0] == 0  # the signature is no stray file


def test_another_key_is_named(tmp_path: Path) -> None:
    out, _ = signed_export(tmp_path)
    _, other = save_key(tmp_path, "other")
    code, _, errors = run("verify", out, "--trusted", other)
    assert (code, errors.count("\n")) == (1, 1)
    assert "signed by another key, " in errors


@pytest.mark.parametrize("change", ["manifest", "line", "signature"])
def test_a_change_after_the_signature_is_noticed(tmp_path: Path, change: str) -> None:
    out, public = signed_export(tmp_path)
    ledger = out / "ledger.jsonl"
    manifest, *lines = ledger.read_text().splitlines(keepends=True)
    if change == "manifest":  # consistent in itself: only the signature shows it
        manifest = json.dumps({**json.loads(manifest), "source_root": "0" * 64}, sort_keys=True, separators=(",", ":")) + "\n"
    elif change == "line":
        lines.reverse()
    else:
        (out / "ledger.sig").write_text((out / "ledger.sig").read_text().replace('"signature": "', '"signature": "00')[:-5] + '"}')
    ledger.write_text("".join([manifest, *lines]))
    code, output, _ = run("verify", out, "--trusted", public, "--json")
    assert (code, json.loads(output)["problems"][-1]) == (1, f"{out}: ledger.jsonl was changed after it was signed, or the signature was")


@pytest.mark.parametrize(
    ("text", "refusal"),
    [(None, "{out}: not signed: there is no ledger.sig"), ("{}", "{out}/ledger.sig: not a signature that hermes export writes")],
)
def test_a_missing_or_broken_signature_is_one_line(tmp_path: Path, text: str | None, refusal: str) -> None:
    out, public = signed_export(tmp_path)
    (out / "ledger.sig").unlink()
    if text is not None:
        (out / "ledger.sig").write_text(text)
    code, output, _ = run("verify", out, "--trusted", public, "--json")
    assert (code, json.loads(output)["problems"]) == (1, [refusal.format(out=out)])


@pytest.mark.parametrize(
    ("command", "key", "complaint"),
    [
        ("--sign", "nowhere.pem", "nowhere.pem: No such file or directory"),
        ("--sign", "key.public.pem", "not a private key in PEM; make one with: openssl genpkey -algorithm ed25519 -out key.pem"),
        ("--sign", "ec.pem", "not an Ed25519 key"),
        ("--sign", "locked.pem", "the key has a password"),
        ("--trusted", "nowhere.pem", "nowhere.pem: No such file or directory"),
        ("--trusted", "key.pem", "not a public key in PEM; make one with: openssl pkey -in key.pem -pubout -out public.pem"),
        ("--trusted", "ec.public.pem", "not an Ed25519 key"),
    ],
)
def test_a_key_that_cannot_be_used_is_one_line_and_code_2(tmp_path: Path, command: str, key: str, complaint: str) -> None:
    out, _ = signed_export(tmp_path)
    save_key(tmp_path, "ec", generate_private_key(SECP256R1()))
    save_key(tmp_path, "locked", password=b"secret")
    arguments = ("verify", out) if command == "--trusted" else ("export", tmp_path / "graphs", "--out", tmp_path / "again")
    code, output, errors = run(*arguments, command, tmp_path / key)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert complaint in errors
    assert not (tmp_path / "again").exists()


def test_graphs_that_are_not_those_that_were_exported_are_noticed(tmp_path: Path) -> None:
    out, _ = signed_export(tmp_path)
    file = tmp_path / "graphs" / "chats.jsonl"
    assert run("verify", out, "--against", file)[0] == 0
    manifest = json.loads((out / "ledger.jsonl").read_text().splitlines()[0])
    roots = sorted(json.loads(line)["root"] for line in file.read_text().splitlines())
    assert len(manifest["source_root"]) == len(roots[0]) == 64
    text = (out / "ledger.jsonl").read_text().replace(manifest["source_root"], "0" * 64)
    (out / "ledger.jsonl").write_text(text)
    code, output, _ = run("verify", out, "--against", file, "--json")
    (problem,) = json.loads(output)["problems"]
    assert (code, "the graphs are not those that were exported: their roots give" in problem) == (1, True)
