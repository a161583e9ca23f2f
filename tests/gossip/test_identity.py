"""The secret of a peer."""

from __future__ import annotations

import base64
import resource
import stat
from pathlib import Path

import pytest

from millrace.gossip.identity import IdentityError, from_seed, generate, parse_key, secret_key

SECRET = bytes(range(1, 33))


def test_seed_decides_the_secret() -> None:
    """The same seed gives the same secret, another seed another one."""
    assert from_seed("one") == from_seed("one") != from_seed("two")
    assert len(from_seed("one")) == 32


def test_random_secrets_differ() -> None:
    """Without file and seed each secret is new."""
    assert len({generate() for _ in range(20)}) == 20
    assert secret_key("", "") != secret_key("", "")


def test_hex_and_node_file_hold_the_same_key() -> None:
    """Plain hex digits and a node's PEM block (base64 of the digits) are both read."""
    body = base64.b64encode(SECRET.hex().encode()).decode()
    lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
    pem = f"-----BEGIN PRIVATE KEY for 16Uiu2HAm-----\n{lines}\n-----END PRIVATE KEY for 16Uiu2HAm-----\n"
    assert parse_key(SECRET.hex() + "\n", "key") == parse_key(pem, "key") == SECRET


@pytest.mark.parametrize("text", ["", "zz" * 32, "11" * 31, "00" * 32, "ff" * 32, "-----BEGIN PRIVATE KEY-----"])
def test_other_contents_are_refused_by_name(text: str) -> None:
    """What is no secret of the curve is refused with the name of the file."""
    with pytest.raises(IdentityError, match=r"peer\.key"):
        parse_key(text, "peer.key")


def test_missing_file_is_made_private_and_kept(tmp_path: Path) -> None:
    """A key file that does not exist is written with mode 0600 and read back the next time; it wins."""
    path = tmp_path / "peer.key"
    secret = secret_key(str(path), "seed")
    assert secret == secret_key(str(path), "other seed") != from_seed("seed")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """Where a disk has no room for a new key the error names the file, and with room the next start has a key."""
    path = tmp_path / "peer.key"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match=r"peer\.key"):
            secret_key(str(path), "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert secret_key(str(path), "") == secret_key(str(path), "")


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    """A path that cannot be read raises an error that names it."""
    with pytest.raises(IdentityError, match=tmp_path.name):
        secret_key(str(tmp_path), "")
