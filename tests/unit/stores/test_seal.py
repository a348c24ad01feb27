"""What is sealed opens for its user, in its scope, with its generation, and for no other user and nowhere else."""

import base64
import copy
import hmac
import pickle
import re
import time
import traceback
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from hermes.stores.seal import (
    DataKeyMissing,
    DataKeys,
    MasterKeyInvalid,
    MasterKeyMissing,
    MasterKeys,
    SealBroken,
    SealError,
    WrappedKey,
    new_data_key,
    new_master_key,
)

ANNA = UUID("aaaaaaaa-0000-4000-8000-000000000001")
BEN = UUID("bbbbbbbb-0000-4000-8000-000000000002")
SCOPE = "telegram:channel:bali/42"
TEXT = b"a sunset bar in Canggu"
KEY_1, KEY_2 = bytes(range(32)), bytes(range(32, 64))
FIRST = DataKeys({1: KEY_1})
ROTATED = DataKeys({1: KEY_1, 2: KEY_2})
OTHERS = DataKeys({1: bytes(32)})

# Neighbours: prefixes of each other, separators inside, two spellings of é, a whole and half an emoji, the words of the derivation itself.
SCOPES = (
    "",
    "a",
    "ab",
    "a:b",
    "a/b",
    "a:",
    ":a",
    "a\0b",
    "a\0",
    "\0a",
    "\0",
    "café",
    "cafe\u0301",
    "🌅",
    "\ud83c",
    "\ud83c\udf05",
    "seal",
    "history\0a",
    "x" * 5000,
)
scopes = st.sampled_from(SCOPES) | st.text()


# --- what the tests share


def hkdf(key: bytes, purpose: bytes, scope: bytes = b"") -> bytes:
    """RFC 5869 by hand, for one block: whatever Hermes derives, a reader with these four lines can derive."""
    drawn = hmac.digest(bytes(32), key, "sha256")
    return hmac.digest(drawn, b"hermes.seal\0" + purpose + b"\0" + scope + b"\x01", "sha256")


def flips(blob: bytes) -> Iterator[tuple[int, bytes]]:
    """Every blob that differs from this one by one bit, with the byte it is in."""
    for bit in range(8 * len(blob)):
        changed = bytearray(blob)
        changed[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(changed)


def refusal(deed: Callable[..., object], *arguments: object) -> type[SealError] | None:
    try:
        deed(*arguments)
    except SealError as error:
        return type(error)
    return None


def text_of(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode()


# --- sealing


@given(scope=scopes, plaintext=st.binary())
def test_what_is_sealed_opens_in_its_scope(scope: str, plaintext: bytes) -> None:
    sealed = ROTATED.seal(scope, plaintext)
    assert (ROTATED.open(scope, sealed), len(sealed)) == (plaintext, len(plaintext) + 33)


@given(here=scopes, there=scopes)
def test_it_opens_in_no_other_scope(here: str, there: str) -> None:
    sealed = ROTATED.seal(here, TEXT)
    assert refusal(ROTATED.open, there, sealed) == (None if here == there else SealBroken)


def test_neighbouring_scopes_are_strangers() -> None:
    sealed = {scope: FIRST.seal(scope, TEXT) for scope in SCOPES}
    opens = {(here, there) for here in SCOPES for there in SCOPES if refusal(FIRST.open, there, sealed[here]) is None}
    assert opens == {(scope, scope) for scope in SCOPES}


def test_it_opens_for_no_other_user() -> None:
    assert refusal(OTHERS.open, SCOPE, FIRST.seal(SCOPE, TEXT)) is SealBroken


def test_the_same_contents_are_sealed_differently_each_time() -> None:
    assert len({FIRST.seal(SCOPE, TEXT) for _ in range(100)}) == 100


def test_a_flipped_bit_anywhere_is_refused() -> None:
    sealed = FIRST.seal(SCOPE, b"ok")
    refused = [(at, refusal(FIRST.open, SCOPE, changed)) for at, changed in flips(sealed)]
    # Bytes 1 to 4 name the generation, and any other one is not held.
    assert refused == [(at, DataKeyMissing if 1 <= at <= 4 else SealBroken) for at in range(len(sealed)) for _ in range(8)]


def test_a_generation_rewritten_to_another_that_is_held_is_refused() -> None:
    twins = DataKeys({1: KEY_1, 2: KEY_1, 3: KEY_2})
    sealed = twins.seal(SCOPE, TEXT)
    for generation in (1, 2):
        assert refusal(twins.open, SCOPE, sealed[:4] + bytes([generation]) + sealed[5:]) is SealBroken
    # Even where the key is the same, the header is authenticated.
    first = FIRST.seal(SCOPE, TEXT)
    assert refusal(twins.open, SCOPE, first[:4] + b"\x02" + first[5:]) is SealBroken
    assert twins.open(SCOPE, first) == TEXT


def test_a_blob_cut_short_or_run_on_is_refused() -> None:
    sealed = FIRST.seal(SCOPE, b"ok")
    cut = [sealed[:length] for length in range(len(sealed))]
    assert {refusal(FIRST.open, SCOPE, blob) for blob in (*cut, sealed + b"\0", sealed * 2, sealed[1:])} == {SealBroken}


@pytest.mark.parametrize("version", [0, 2, 0x80, 255])
def test_an_unknown_version_is_refused(version: int) -> None:
    sealed = FIRST.seal(SCOPE, TEXT)
    with pytest.raises(SealBroken):
        FIRST.open(SCOPE, bytes([version]) + sealed[1:])


@given(noise=st.binary(max_size=80))
def test_noise_is_refused(noise: bytes) -> None:
    assert refusal(FIRST.open, SCOPE, noise) in {SealBroken, DataKeyMissing}
    assert refusal(FIRST.history(SCOPE).decode, noise) is SealBroken


def test_many_blobs_open_in_their_order_across_generations() -> None:
    texts = [f"message {number}".encode() for number in range(50)]
    blobs = [(FIRST if number % 7 < 3 else ROTATED).seal(SCOPE, text) for number, text in enumerate(texts)]
    assert ROTATED.open_all(SCOPE, iter(blobs)) == texts
    assert ROTATED.open_all(SCOPE, []) == []


@pytest.mark.parametrize("at", [0, 25, 49])
def test_one_broken_blob_fails_them_all(at: int) -> None:
    blobs = [FIRST.seal(SCOPE, TEXT) for _ in range(50)]
    for broken in (blobs[at][:-1], blobs[at][:9], b"", FIRST.seal("elsewhere", TEXT)):
        with pytest.raises(SealBroken):
            FIRST.open_all(SCOPE, [*blobs[:at], broken, *blobs[at + 1 :]])


def test_an_error_of_the_callers_own_is_not_taken_for_a_broken_seal() -> None:
    def rows() -> Iterator[bytes]:
        yield FIRST.seal(SCOPE, TEXT)
        raise ValueError("the connection is gone")

    with pytest.raises(ValueError, match="the connection is gone"):
        FIRST.open_all(SCOPE, rows())


def test_more_scopes_than_are_kept_ready_all_open() -> None:
    sealed = {f"session:{number}": FIRST.seal(f"session:{number}", b"%d" % number) for number in range(1000)}
    assert [FIRST.open(scope, blob) for scope, blob in sealed.items()] == [b"%d" % number for number in range(1000)]


def test_ten_thousand_blobs_open_within_60_ms() -> None:
    texts = [b"%0200d" % number for number in range(10_000)]
    blobs = [FIRST.seal(SCOPE, text) for text in texts]

    def seconds() -> float:
        started = time.thread_time()
        assert FIRST.open_all(SCOPE, blobs) == texts
        return time.thread_time() - started

    assert min(seconds() for _ in range(5)) < 0.060


# --- generations


def test_after_a_rotation_the_new_generation_seals_and_both_open() -> None:
    old, new = FIRST.seal(SCOPE, TEXT), ROTATED.seal(SCOPE, TEXT)
    assert (FIRST.newest, ROTATED.newest) == (1, 2)
    assert (old[:5].hex(), new[:5].hex()) == ("0100000001", "0100000002")
    assert [ROTATED.open(SCOPE, blob) for blob in (old, new)] == [TEXT, TEXT]


def test_the_newest_generation_is_the_greatest_number_in_whatever_order_they_come() -> None:
    keys = DataKeys({2: KEY_2, 300: new_data_key(), 1: KEY_1})
    assert (keys.newest, keys.seal(SCOPE, TEXT)[:5].hex(), keys.digest(SCOPE, TEXT)) == (300, "010000012c", FIRST.digest(SCOPE, TEXT))


def test_a_generation_that_is_not_held_is_named() -> None:
    with pytest.raises(DataKeyMissing, match=r"^generation 2 of the user's data key is not held$") as caught:
        FIRST.open(SCOPE, ROTATED.seal(SCOPE, TEXT))
    assert caught.value.generation == 2


def test_a_discarded_key_is_a_missing_key() -> None:
    with pytest.raises(DataKeyMissing) as caught:
        DataKeys({})
    assert (str(caught.value), caught.value.generation) == (DataKeyMissing.__doc__, None)


@pytest.mark.parametrize("generations", [{1: KEY_1[:31]}, {1: KEY_1 + b"\0"}, {1: b""}, {-1: KEY_1}, {2**32: KEY_1}, {1: KEY_1, 2: b""}])
def test_keys_of_another_size_and_impossible_generations_are_refused(generations: dict[int, bytes]) -> None:
    with pytest.raises(ValueError, match="a generation is a uint32, and its key has 32 bytes"):
        DataKeys(generations)


def test_the_first_and_the_last_generation_seal() -> None:
    for generation in (0, 2**32 - 1):
        keys = DataKeys({generation: KEY_1})
        assert keys.open(SCOPE, keys.seal(SCOPE, TEXT)) == TEXT


def test_keys_do_not_change_with_the_mapping_they_were_made_from() -> None:
    generations = {1: KEY_1}
    keys = DataKeys(generations)
    generations[2] = KEY_2
    assert (keys.newest, keys.open(SCOPE, keys.seal(SCOPE, TEXT))) == (1, TEXT)
    with pytest.raises(AttributeError):
        keys.newest = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        keys.more = KEY_2  # type: ignore[attr-defined]


def test_data_keys_are_32_bytes_and_never_the_same() -> None:
    made = {new_data_key() for _ in range(100)}
    assert ({len(key) for key in made}, len(made)) == ({32}, 100)


# --- history


@given(scope=scopes, plaintext=st.binary())
def test_a_token_is_read_in_its_scope(scope: str, plaintext: bytes) -> None:
    tokens = ROTATED.history(scope)
    assert tokens.decode(tokens.encode(plaintext)) == plaintext


@given(here=scopes, there=scopes)
def test_a_token_is_read_in_no_other_scope(here: str, there: str) -> None:
    token = ROTATED.history(here).encode(TEXT)
    assert refusal(ROTATED.history(there).decode, token) == (None if here == there else SealBroken)


def test_a_token_is_read_for_no_other_user() -> None:
    assert refusal(OTHERS.history(SCOPE).decode, FIRST.history(SCOPE).encode(TEXT)) is SealBroken


def test_a_token_is_fernet_and_nothing_else() -> None:
    plain = Fernet(text_of(hkdf(KEY_2, b"history", SCOPE.encode())))
    tokens = ROTATED.history(SCOPE)
    assert plain.decrypt(tokens.encode(TEXT)) == TEXT
    assert tokens.decode(plain.encrypt(TEXT)) == TEXT
    assert plain.extract_timestamp(tokens.encode(TEXT, at_s=1_700_000_000)) == 1_700_000_000
    assert abs(plain.extract_timestamp(tokens.encode(TEXT)) - time.time()) < 60


def test_a_token_that_was_changed_or_respelled_is_refused() -> None:
    tokens = FIRST.history(SCOPE)
    token = tokens.encode(b"ok")
    changed = [flipped for _, flipped in flips(token)]
    cut = [token[:length] for length in range(len(token))]
    respelled = [token + b"\n", b" " + token, token[:20] + b"!" + token[20:], token + b"AAAA", token + token]
    assert {refusal(tokens.decode, other) for other in (*changed, *cut, *respelled)} == {SealBroken}
    assert {refusal(tokens.rotate, other) for other in (*changed, *cut, *respelled)} == {SealBroken}


def test_a_rotated_token_is_of_the_newest_generation_and_keeps_its_time() -> None:
    newest = Fernet(text_of(hkdf(KEY_2, b"history", SCOPE.encode())))
    old = FIRST.history(SCOPE).encode(TEXT, at_s=1_700_000_000)
    assert ROTATED.history(SCOPE).decode(old) == TEXT
    with pytest.raises(InvalidToken):
        newest.decrypt(old)
    rotated = ROTATED.history(SCOPE).rotate(old)
    assert (newest.decrypt(rotated), newest.extract_timestamp(rotated)) == (TEXT, 1_700_000_000)
    assert refusal(FIRST.history(SCOPE).decode, rotated) is SealBroken
    assert refusal(ROTATED.history("elsewhere").rotate, old) is SealBroken


# --- digests


@given(scope=scopes, contents=st.binary())
def test_a_digest_outlives_a_rotation(scope: str, contents: bytes) -> None:
    plain = hmac.digest(hkdf(KEY_1, b"digest", scope.encode(errors="surrogatepass")), contents, "sha256")
    assert FIRST.digest(scope, contents) == ROTATED.digest(scope, contents) == plain


def test_digests_differ_across_contents_scopes_and_users() -> None:
    made = {keys.digest(scope, contents) for keys in (FIRST, OTHERS) for scope in SCOPES for contents in (b"", b"yes", b"no")}
    assert len(made) == 2 * len(SCOPES) * 3
    assert {len(digest) for digest in made} == {32}


# --- master keys


def test_a_new_master_key_is_44_characters_and_never_the_same() -> None:
    made = {new_master_key() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}=", key) for key in made)
    assert len({MasterKeys.parse([key]).current for key in made}) == 100


def test_a_master_key_reads_the_same_without_padding_and_with_space_around_it() -> None:
    key = new_master_key()
    names = {MasterKeys.parse([text]).current for text in (key, key.rstrip("="), f" {key}\n")}
    assert len(names) == 1
    assert re.fullmatch(r"[0-9a-f]{16}", names.pop())


@given(data_key=st.binary(min_size=32, max_size=32), owner=st.uuids())
def test_a_wrapped_key_is_unwrapped_for_its_owner(data_key: bytes, owner: UUID) -> None:
    masters = MasterKeys.parse([text_of(KEY_1)])
    wrapped = masters.wrap(data_key, owner)
    assert (wrapped.master, len(wrapped.blob), masters.unwrap(wrapped, owner)) == (masters.current, 61, data_key)


def test_the_same_key_is_wrapped_differently_each_time() -> None:
    masters = MasterKeys.parse([new_master_key()])
    assert len({masters.wrap(KEY_1, ANNA) for _ in range(100)}) == 100


def test_a_wrapped_key_moved_to_another_user_does_not_unwrap() -> None:
    masters = MasterKeys.parse([new_master_key()])
    assert refusal(masters.unwrap, masters.wrap(KEY_1, ANNA), BEN) is SealBroken


def test_a_wrapped_key_with_any_bit_flipped_or_of_another_length_does_not_unwrap() -> None:
    masters = MasterKeys.parse([new_master_key()])
    name, blob = (wrapped := masters.wrap(KEY_1, ANNA)).master, wrapped.blob
    bad = [*(changed for _, changed in flips(blob)), *(blob[:length] for length in range(len(blob))), blob + b"\0"]
    assert {refusal(masters.unwrap, WrappedKey(name, other), ANNA) for other in bad} == {SealBroken}


def test_a_key_wrapped_by_the_old_master_unwraps_while_the_old_one_is_listed() -> None:
    old, new = new_master_key(), new_master_key()
    wrapped = MasterKeys.parse([old]).wrap(KEY_1, ANNA)
    both, after = MasterKeys.parse([new, old]), MasterKeys.parse([new])
    assert both.unwrap(wrapped, ANNA) == KEY_1
    again = both.wrap(both.unwrap(wrapped, ANNA), ANNA)
    assert (again.master, after.unwrap(again, ANNA)) == (after.current, KEY_1)
    assert wrapped.master != again.master
    with pytest.raises(MasterKeyMissing, match=f"^master key {wrapped.master} is not configured") as caught:
        after.unwrap(wrapped, ANNA)
    assert caught.value.master == wrapped.master


def test_a_wrapped_key_under_the_name_of_another_master_does_not_unwrap() -> None:
    masters = MasterKeys.parse([new_master_key(), other := new_master_key()])
    renamed = WrappedKey(MasterKeys.parse([other]).current, masters.wrap(KEY_1, ANNA).blob)
    assert refusal(masters.unwrap, renamed, ANNA) is SealBroken


def test_only_a_data_key_is_wrapped() -> None:
    for other in (b"", KEY_1[:31], KEY_1 + b"\0"):
        with pytest.raises(ValueError, match="a data key has 32 bytes"):
            MasterKeys.parse([new_master_key()]).wrap(other, ANNA)


def test_without_a_master_key_the_message_says_how_to_make_one() -> None:
    with pytest.raises(MasterKeyInvalid, match=r"^there is no master key; make one with: hermes keys new-master$"):
        MasterKeys.parse([])


GOOD = text_of(bytes(range(100, 132)))
MALFORMED = {
    "empty": "",
    "short": GOOD[1:],
    "long": "A" + GOOD,
    "a password": "correct horse battery staple",
    "hex": KEY_1.hex(),
    "16 bytes": text_of(KEY_1[:16]),
    "standard base64": GOOD[:5] + "+/" + GOOD[7:],
    "not ASCII": GOOD[:5] + "é" + GOOD[6:],
    "a digit that is none": GOOD[:5] + "٣" + GOOD[6:],
    "a line break inside": GOOD[:20] + "\n" + GOOD[20:],
    "spare bits set": GOOD[:42] + chr(ord(GOOD[42]) + 1) + "=",
    "two paddings": GOOD + "=",
    "two keys in one": f"{GOOD},{GOOD}",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_master_key_is_refused_by_its_place_and_not_shown(text: str) -> None:
    with pytest.raises(MasterKeyInvalid) as caught:
        MasterKeys.parse([new_master_key(), text])
    assert str(caught.value) == "master key 2 is not 43 or 44 characters of URL-safe base64; make one with: hermes keys new-master"
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


# --- discretion


@pytest.mark.parametrize("holder", [FIRST, ROTATED, FIRST.history(SCOPE), MasterKeys.parse([GOOD])], ids=repr)
def test_a_holder_of_keys_is_not_pickled_copied_or_walked(holder: object) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="holds keys"):
            pickle.dumps(holder, protocol)
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds keys"):
            duplicate(holder)
    assert not hasattr(holder, "__dict__")
    assert not hasattr(holder, "__dataclass_fields__")


def test_a_holder_of_keys_shows_generations_and_names_alone() -> None:
    masters = MasterKeys.parse([GOOD])
    for show in (repr, str, format):
        assert show(ROTATED) == "DataKeys(generations 2, 1)"
        assert show(ROTATED.history(SCOPE)) == "FernetCipher()"
        assert show(masters) == f"MasterKeys({masters.current})"


def test_a_name_gives_no_part_of_the_key_away() -> None:
    name = MasterKeys.parse([GOOD]).current
    key = base64.urlsafe_b64decode(GOOD)
    assert name not in key.hex()
    assert bytes.fromhex(name) != hkdf(key, b"wrap")[:8]


def test_no_error_shows_a_key_or_a_plaintext_and_no_frame_of_ours_that_it_passed_holds_a_key() -> None:
    masters = MasterKeys.parse([GOOD])
    wrapped = masters.wrap(KEY_1, ANNA)
    deeds: list[Callable[[], object]] = [
        lambda: masters.unwrap(wrapped, BEN),
        lambda: masters.unwrap(WrappedKey("0" * 16, wrapped.blob), ANNA),
        lambda: FIRST.open("elsewhere", FIRST.seal(SCOPE, TEXT)),
        lambda: FIRST.open(SCOPE, ROTATED.seal(SCOPE, TEXT)),
        lambda: FIRST.open(SCOPE, b"\x01\0\0\0\x01 short"),
        lambda: FIRST.open_all(SCOPE, [b"\x02 from a later version"]),
        lambda: FIRST.history("elsewhere").decode(FIRST.history(SCOPE).encode(TEXT)),
        lambda: FIRST.history(SCOPE).rotate(b"not a token"),
    ]
    derived = [hkdf(KEY_1, purpose, SCOPE.encode()) for purpose in (b"seal", b"history")]
    secrets = [GOOD[:12], TEXT.decode(), *(repr(key)[2:20] for key in (KEY_1, KEY_2, *derived))]
    for deed in deeds:
        with pytest.raises(SealError) as caught:
            deed()
        told = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        ours = [frame.locals for frame in told.stack if frame.filename.endswith("/stores/seal.py")]
        shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r} {ours}"
        assert ours
        assert [secret for secret in secrets if secret in shown] == []
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("kind", [SealError, SealBroken, DataKeyMissing, MasterKeyInvalid])
def test_an_error_has_its_docstring_as_default_message(kind: type[SealError]) -> None:
    assert (str(kind()), issubclass(kind, SealError)) == (kind.__doc__, True)


@pytest.mark.parametrize(
    "error", [SealBroken(), DataKeyMissing(), DataKeyMissing(7), MasterKeyMissing("00ff"), MasterKeyInvalid("one line")], ids=repr
)
def test_an_error_reaches_another_process_whole(error: SealError) -> None:
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301 our own bytes
    assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))


# --- known answers: stored data depends on every byte of these. A change here loses what was sealed before it.


def test_what_was_sealed_long_ago_still_opens() -> None:
    blobs = (
        "0100000001c8c9cacbcccdcecfd0d1d2d33622389411925d18f4a2754a14993b16bd61ef9e2136c44dab0df6f9334e8fe52863ccee6d44",
        "0100000002c8c9cacbcccdcecfd0d1d2d3034ac2065c8e42869034b3b1a2d014b89034b9e6822d21b4a667a369b67101e4af67a0557e78",
    )
    assert ROTATED.open_all(SCOPE, map(bytes.fromhex, blobs)) == [TEXT, TEXT]
    token = b"gAAAAABlU_EAAAECAwQFBgcICQoLDA0OD1dQb_a5VWZFtoCktJUBgxF_VAXvn4KbnCPBF6qSggTWx56nLJi5yJCM8XEJcJh8z16BWDvXH7DojQ85C8U5SM0="
    assert ROTATED.history(SCOPE).decode(token) == TEXT
    assert ROTATED.digest(SCOPE, TEXT).hex() == "047ca44eaa2516a2def67ca66e61c8b1472efe2f569a6b03320923dd755e0b81"


def test_what_was_wrapped_long_ago_still_unwraps() -> None:
    masters = MasterKeys.parse(["AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="])
    blob = "01c8c9cacbcccdcecfd0d1d2d3e2582309f682e3c526d30e6e1766a0569c32841a882edd5c82d268bf12072241ba40240658ad876930c04cdb7e2c8b76"
    assert (masters.current, masters.unwrap(WrappedKey("7707bfc6bcb979f6", bytes.fromhex(blob)), ANNA)) == ("7707bfc6bcb979f6", KEY_2)


def test_a_blob_is_version_generation_nonce_and_aes_gcm_under_the_key_of_its_scope() -> None:
    scope = "café:1".encode()
    sealed = ROTATED.seal("café:1", TEXT)
    head, nonce, rest = sealed[:5], sealed[5:17], sealed[17:]
    assert head == b"\x01" + (2).to_bytes(4, "big")
    assert AESGCM(hkdf(KEY_2, b"seal", scope)).decrypt(nonce, rest, head + scope) == TEXT


def test_a_wrapped_key_is_version_nonce_and_aes_gcm_bound_to_its_owner() -> None:
    wrapped = MasterKeys.parse([text_of(KEY_1)]).wrap(KEY_2, ANNA)
    assert wrapped.master == hkdf(KEY_1, b"name")[:8].hex()
    assert wrapped.blob[:1] == b"\x01"
    assert AESGCM(hkdf(KEY_1, b"wrap")).decrypt(wrapped.blob[1:13], wrapped.blob[13:], b"\x01" + ANNA.bytes) == KEY_2
