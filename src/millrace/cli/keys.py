"""`millrace keys`: wallets made, shown and checked, on this machine only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from millrace.cli.ask import Ended
from millrace.runtime.terminal import say

if TYPE_CHECKING:
    from millrace_client import Wallet

_password = click.option(
    "--password-file", type=click.Path(path_type=Path, dir_okay=False), help="Its first line; without it you are asked."
)
_index = click.option("--index", type=click.IntRange(min=0), default=0, help="Which of several keys.")


def open_wallet(file: Path, password_file: Path | None, index: int) -> Wallet:
    """The wallet in a PEM, keystore or mnemonic file. Raises `Ended`."""
    from millrace_client import Wallet, WalletError

    try:
        text = file.expanduser().read_text(encoding="utf-8")
        if "-----BEGIN" in text:
            return Wallet.from_pem_text(text, index)
        if text.lstrip().startswith("{"):
            return Wallet.from_keystore_text(text, _password_of(password_file, confirm=False), index)
        return Wallet.from_mnemonic(text, index)
    except (OSError, UnicodeDecodeError) as error:
        raise Ended(f"{file} cannot be read: {error}") from None
    except WalletError as error:
        raise Ended(f"{file}: {error}") from None


def _password_of(file: Path | None, *, confirm: bool) -> str:
    if file is None:
        return str(click.prompt("Password of the keystore", hide_input=True, confirmation_prompt=confirm, err=True))
    try:
        return file.read_text(encoding="utf-8").split("\n", 1)[0]
    except OSError as error:
        raise Ended(f"{file} cannot be read: {error.strerror}") from None


@click.group()
def keys() -> None:
    """Make, show and check wallets: PEM, keystore or mnemonic files. Nothing leaves this machine."""


@keys.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--form", type=click.Choice(["keystore", "pem", "mnemonic"]), default="keystore", show_default=True)
@click.option("--shard", type=click.IntRange(0, 2), help="Its address is to live in this shard.")
@click.option(
    "--rule",
    type=click.Choice(["mask", "modulo"]),
    default="mask",
    show_default=True,
    help="Which says the shard: that of live networks, or that of the profile `documented`.",
)
@_password
def new(file: Path, form: str, shard: int | None, rule: Literal["mask", "modulo"], password_file: Path | None) -> None:
    """Make a new wallet in FILE, which must not exist; only you may read it.

    \b
    millrace keys new wallet.json
    millrace keys new relayer-shard1.pem --form pem --shard 1
    """
    from millrace_client import Wallet
    from millrace_client.address import shard_of

    while True:
        words = _new_words() if form == "mnemonic" else ""
        wallet = Wallet.from_mnemonic(words) if words else Wallet.generate()
        if shard is None or shard_of(wallet.public, rule) == shard:
            break
    if form == "keystore":
        text = wallet.to_keystore(_password_of(password_file, confirm=True))
    else:
        text = words + "\n" if words else wallet.to_pem()
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise Ended(f"{file} exists: a key is never overwritten; name another file") from None
    except OSError as error:
        raise Ended(f"{file} cannot be written: {error.strerror}") from None
    click.echo(wallet.address)


def _new_words() -> str:
    from millrace_client import mnemonic

    return mnemonic.generate()


@keys.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_index
@_password
def show(file: Path, index: int, password_file: Path | None) -> None:
    """Show the address in FILE, its public key, and the shard it lives in. Never the secret."""
    from millrace_client.address import shard_of

    wallet = open_wallet(file, password_file, index)
    click.echo(f"address     {wallet.address}")
    click.echo(f"public key  {wallet.public.hex()}")
    click.echo(f"shard       {shard_of(wallet.public)}")
    click.echo(f"shard by the documented rule  {shard_of(wallet.public, 'modulo')}")


@keys.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_index
@_password
def check(file: Path, index: int, password_file: Path | None) -> None:
    """Check that FILE holds a whole key, that it signs, and that nobody else may read it.

    Exit code 1 with what to do where something is wrong.
    """
    wallet = open_wallet(file, password_file, index)
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(wallet.public).verify(b"millrace", wallet.sign(b"millrace"))
    except BadSignatureError:
        raise Ended(f"{file}: the key does not sign; restore it from a copy") from None
    mode = file.expanduser().stat().st_mode & 0o077
    if mode:
        raise Ended(f"{file}: others may read it ({mode:03o}); run chmod 600 {file}")
    say(f"{wallet.address}  whole, signs, and is yours alone")
