"""Keys are used only from files that nobody else can read, one per shard."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

import pytest
from multiversx_sdk import UserSecretKey, UserWallet
from relayer_support import NETWORK, RELAYERS, wallet, write_keys

from millrace.chain import address
from millrace.relayer.signing import keystore


def load(files: tuple[str, ...], **env: str) -> dict[int, bytes]:
    pairs = keystore.load(files, tuple(env), NETWORK, env)
    return {shard: pair.public for shard, pair in pairs.items()}


def test_one_key_per_shard(tmp_path: Path) -> None:
    """Files in any order give each shard its key; a shard with two keys, or none, is an error."""
    files = write_keys(tmp_path)
    assert load(files[::-1]) == {shard: pair.public for shard, pair in RELAYERS.items()}
    with pytest.raises(keystore.KeyStoreError, match="shard 0 has a key already"):
        load((*files, files[0]))
    with pytest.raises(keystore.KeyStoreError, match="no key for shard 1, 2"):
        load(files[:1])


def test_row_37_key_file_permissions(tmp_path: Path) -> None:
    """A file others can read, a link or a directory is refused, and the text shows nothing of the key."""
    files = write_keys(tmp_path)
    first = Path(files[0])
    for mode in (0o640, 0o604, 0o620, 0o602, 0o610, 0o601):
        first.chmod(mode)
        with pytest.raises(keystore.KeyStoreError, match="chmod 600") as error:
            load(files)
        assert bytes(RELAYERS[0]._signing).hex() not in str(error.value)
    first.chmod(0o600)
    link = tmp_path / "link.pem"
    link.symlink_to(first)
    with pytest.raises(keystore.KeyStoreError, match="link"):
        load((str(link), *files[1:]))
    with pytest.raises(keystore.KeyStoreError, match="regular file"):
        load((str(tmp_path), *files[1:]))
    first.write_text("-----BEGIN nonsense")
    with pytest.raises(keystore.KeyStoreError, match="not a PEM file"):
        load(files)


def test_encrypted_keystore_files(tmp_path: Path) -> None:
    """A keystore file made by the chain's SDK opens with its passphrase and with no other."""
    files = list(write_keys(tmp_path))
    secret = UserSecretKey(bytes(RELAYERS[0]._signing))
    encrypted = tmp_path / "shard0.json"
    UserWallet.from_secret_key(secret, "correct horse").save(encrypted)
    passphrase = tmp_path / "passphrase"
    passphrase.write_text("correct horse\n")
    for path in (encrypted, passphrase):
        path.chmod(0o600)
    files[0] = str(encrypted)
    pairs = keystore.load(tuple(files), (), NETWORK, {}, str(passphrase))
    assert pairs[0].public == RELAYERS[0].public
    assert keystore.public_keys((str(encrypted),)) == [RELAYERS[0].public]
    with pytest.raises(keystore.KeyStoreError, match="key_passphrase_file"):
        load(tuple(files))
    passphrase.write_text("wrong")
    with pytest.raises(keystore.KeyStoreError, match="wrong passphrase"):
        keystore.load(tuple(files), (), NETWORK, {}, str(passphrase))
    encrypted.write_text("{}")
    with pytest.raises(keystore.KeyStoreError, match="not a keystore file"):
        keystore.load(tuple(files), (), NETWORK, {}, str(passphrase))


def keystore_file(folder: Path, **changes: Any) -> tuple[str, str]:
    """A keystore with fields of its `crypto` changed, outer ones first, and the file with its passphrase."""
    file, passphrase = folder / "key.json", folder / "passphrase"
    UserWallet.from_secret_key(UserSecretKey(bytes(RELAYERS[0]._signing)), "pass").save(file)
    content = json.loads(file.read_text())
    crypto = content["crypto"]
    for name, value in changes.items():
        place = next(part for part in (crypto["kdfparams"], crypto["cipherparams"], crypto) if name in part)
        place[name] = value(crypto) if callable(value) else value
    file.write_text(json.dumps(content))
    passphrase.write_text("pass")
    for path in (file, passphrase):
        path.chmod(0o600)
    return str(file), str(passphrase)


def mac_of(crypto: dict[str, Any]) -> str:
    """The right MAC of what is there, whatever that is."""
    params = crypto["kdfparams"]
    numbers = {name: params[name] for name in ("n", "r", "p", "dklen")}
    derived = hashlib.scrypt(b"pass", salt=bytes.fromhex(params["salt"]), **numbers)
    return hmac.digest(derived[16:32], bytes.fromhex(crypto["ciphertext"]), "sha256").hex()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(({name: value}, "not a keystore file") for name in "nrp" for value in (-1, 0, 2**70)),
        ({"n": 3}, "not a keystore file"),
        ({"n": 2**19, "p": 1}, "not a keystore file"),
        *(({"dklen": value}, "not a keystore file") for value in (-1, 0, 15, 2**40, 2**70)),
        *(({"iv": value}, "not a keystore file") for value in ("ff" * 17, "zz", "é")),
        *(({name: "zz"}, "not a keystore file") for name in ("salt", "mac", "ciphertext")),
        ({"cipher": "aes-256-ctr"}, "not a keystore file"),
        ({"kdf": "pbkdf2"}, "not a keystore file"),
        ({"iv": "00" * 16}, "do not belong together"),
        ({"salt": "00" * 32}, "wrong passphrase, or a damaged file"),
        ({"mac": "00" * 32}, "wrong passphrase, or a damaged file"),
        ({"ciphertext": "00" * 64}, "wrong passphrase, or a damaged file"),
        *(({"ciphertext": "00" * size, "mac": mac_of}, "do not belong together") for size in (0, 31, 32, 63, 65)),
    ],
)
def test_keystores_that_cannot_be(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """Whatever stands in a keystore, its file is named with what is wrong; sound parameters open it."""
    file, passphrase = keystore_file(tmp_path, **changes)
    with pytest.raises(keystore.KeyStoreError, match=rf"key\.json: .*{words}"):
        keystore.load((file,), (), NETWORK, {}, passphrase)
    file, passphrase = keystore_file(tmp_path)
    with pytest.raises(keystore.KeyStoreError, match="no key for shard 1, 2"):
        keystore.load((file,), (), NETWORK, {}, passphrase)


def test_row_37_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A named pipe nobody writes to, as key file or passphrase file, holds up nothing."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(keystore.KeyStoreError, match="pipe: not a regular file"):
        load((str(pipe),))
    file, _ = keystore_file(tmp_path)
    with pytest.raises(keystore.KeyStoreError, match="pipe: not a regular file"):
        keystore.load((file,), (), NETWORK, {}, str(pipe))


@pytest.mark.parametrize(("text", "opens"), [("pass\r\n", True), ("pass\n", True), (" pass", False), ("pass ", False)])
def test_ends_of_lines_are_no_part_of_a_passphrase(tmp_path: Path, text: str, opens: bool) -> None:
    """What an editor puts behind the passphrase does not count; spaces do."""
    file, passphrase = keystore_file(tmp_path)
    Path(passphrase).write_bytes(text.encode())
    with pytest.raises(keystore.KeyStoreError, match="no key for shard 1, 2" if opens else "wrong passphrase"):
        keystore.load((file,), (), NETWORK, {}, passphrase)


@pytest.mark.parametrize("changes", [{"version": 3}, {"version": "4"}, {"kind": "mnemonic"}])
def test_keystores_of_another_sort(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Another version, or one that holds words instead of a key, is refused by its name and not decrypted."""
    file, passphrase = keystore_file(tmp_path)
    Path(file).write_text(json.dumps(json.loads(Path(file).read_text()) | changes))
    with pytest.raises(keystore.KeyStoreError, match=r"key\.json: not a keystore file of a secret key, version 4"):
        keystore.load((file,), (), NETWORK, {}, passphrase)


def test_seeds_in_the_environment() -> None:
    """For development each key may be 64 hex digits in a variable."""
    seeds = {f"KEY{shard}": bytes(wallet(shard, 50)._signing).hex() for shard in range(3)}
    assert load((), **seeds) == {shard: pair.public for shard, pair in RELAYERS.items()}
    for wrong in ("xyz", "", "00" * 31, "00" * 33):
        with pytest.raises(keystore.KeyStoreError, match="variable KEY1 does not hold 64 hex digits"):
            load((), **(seeds | {"KEY1": wrong}))
    with pytest.raises(keystore.KeyStoreError, match="variable KEY1 is not set"):
        keystore.load((), tuple(seeds), NETWORK, {name: seeds[name] for name in seeds if name != "KEY1"})


def test_whose_key_a_file_holds(tmp_path: Path) -> None:
    """PEM files and keystores name the address in clear; whatever names none is named itself."""
    pair = RELAYERS[1]
    files = {
        "a.pem": pair.to_pem(),
        "b.json": json.dumps({"bech32": address.encode(pair.public)}),
        "c.json": json.dumps({"address": pair.public.hex(), "crypto": {}}),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert keystore.public_keys(tuple(str(tmp_path / name) for name in files)) == [pair.public] * 3
    for name, text in (("d.pem", "x" * 1000), ("e.json", "{}"), ("f.json", "["), ("g.json", '{"address": "zz"}')):
        (tmp_path / name).write_text(text)
        with pytest.raises(keystore.KeyStoreError, match=f"{name}: does not say whose key it is"):
            keystore.public_keys((str(tmp_path / name),))
    with pytest.raises(keystore.KeyStoreError, match="cannot be opened"):
        keystore.public_keys((str(tmp_path / "none.pem"),))


def test_row_37_files_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key file that belongs to somebody else is refused: who owns it can change it."""
    files = write_keys(tmp_path)
    monkeypatch.setattr(keystore.os, "geteuid", lambda: Path(files[0]).stat().st_uid + 1)
    with pytest.raises(keystore.KeyStoreError, match="belongs to another user"):
        load(files)
