"""`millrace policy`: the relayer's sponsoring policy, looked at and changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from millrace.runtime.settings import SettingsError, load, parse_overrides
from millrace.runtime.terminal import Seconds, say

if TYPE_CHECKING:
    from millrace.relayer.settings import RelayerSettings


@click.group()
def policy() -> None:
    """Look at the relayer's sponsoring policy, and change it."""


@policy.command()
@click.argument("transaction", type=click.File("rb"))
@click.option("--person", default="", help="As if it came with an API key of this one of the policy's people.")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with the relayer's settings.")
@click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One relayer setting; repeatable.")
def explain(transaction: BinaryIO, person: str, config: Path | None, pairs: tuple[str, ...]) -> None:
    """Say what the policy would do with a transaction (a JSON file, - for standard input), and why."""
    from millrace.relayer.rules import explain as explaining
    from millrace.relayer.rules import policy as policies
    from millrace.relayer.rules import policy_file, stages
    from millrace.relayer.settings import RelayerSettings
    from millrace.relayer.signing import keystore

    try:
        settings = load("relayer", RelayerSettings, file=config, overrides=parse_overrides(pairs))
        rules = policy_file.PolicyFile(settings.policy_file, Path(settings.data_dir) / policies.KEPT)
        rules.begin()
        network, relayers = settings.network(), None
        if settings.key_files:
            keys = keystore.public_keys(settings.key_files)
            relayers = stages.Relayers({network.shard_of(key): key for key in keys})
        steps = list(explaining.explain(transaction.read(), rules.policy, network, relayers, person=person))
    except (SettingsError, policies.PolicyError, keystore.KeyStoreError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if relayers is None:
        say("     no key_files are set: its relayer is taken to be ours")
    for step in steps:
        say(f"{'ok  ' if step.passed else 'NO  '}{step.name}: {step.text}", indent=4)
    accepted = all(step.passed for step in steps)
    say("The relayer would sponsor it." if accepted else "The relayer would not sponsor it.")
    sys.exit(0 if accepted else 1)


def _settings(config: Path | None, pairs: tuple[str, ...]) -> RelayerSettings:
    from millrace.relayer.settings import RelayerSettings

    try:
        return load("relayer", RelayerSettings, file=config, overrides=parse_overrides(pairs))
    except SettingsError as error:
        raise click.ClickException(str(error)) from error


def _journal_of(settings: RelayerSettings) -> Path:
    return Path(settings.data_dir) / "journal.sqlite"


@policy.command("apply")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--allow-looser", is_flag=True, help="Also if it lets through or pays for more than the one in force.")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with the relayer's settings.")
@click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One relayer setting; repeatable.")
def apply_policy(file: Path, allow_looser: bool, config: Path | None, pairs: tuple[str, ...]) -> None:
    """Check a policy, show what it changes, and put it in the place of the relayer's policy_file, whole.

    A running relayer takes it within a second.
    """
    from millrace.relayer.rules import policy as policies
    from millrace.relayer.rules import policy_changes, policy_file
    from millrace.relayer.settings import RelayerSettings

    try:
        settings = load("relayer", RelayerSettings, file=config, overrides=parse_overrides(pairs))
        if not settings.policy_file:
            raise click.ClickException("no policy_file is set: name one in the relayer's settings")
        kept = Path(settings.data_dir) / policies.KEPT
        before = policy_file.in_force(Path(settings.policy_file), kept)
        text = file.read_text(encoding="utf-8-sig")
        changes = policy_changes.changes(before, policies.loads(text))
        for change in changes:
            say(f"{'LOOSER ' if change.is_looser else '       '}{change.name}: {change.words}", indent=7)
        if any(change.is_looser for change in changes) and not allow_looser:
            raise click.ClickException("nothing was changed: say --allow-looser if what is marked is meant")
        policy_file.write(Path(settings.policy_file), text)
    except (SettingsError, policies.PolicyError, OSError, UnicodeDecodeError) as error:
        raise click.ClickException(str(error)) from error
    say(f"{settings.policy_file} is written; {len(changes)} entries changed.")


@policy.command("new-key")
def new_key() -> None:
    """Make an API key for somebody: the key for them, and what the policy file says of it."""
    import secrets

    from millrace.relayer.rules import policy as policies

    key = secrets.token_urlsafe(32)
    click.echo(f'Authorization: Bearer {key}\n[people.NAME]\nkeys = ["{policies.hash_of_key(key)}"]')


@policy.command("at-risk")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with the relayer's settings.")
@click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One relayer setting; repeatable.")
def at_risk(config: Path | None, pairs: tuple[str, ...]) -> None:
    """List the fees the relayer's keys may still have to pay, oldest first."""
    from millrace.relayer.journal import at_risk as fees

    try:
        found = fees.open_fees(_journal_of(_settings(config, pairs)))
    except fees.AtRiskError as error:
        raise click.ClickException(str(error)) from error
    for item in found:
        say(
            f"{item.client_hash}  {item.kind} {item.state}  {item.sender} nonce {item.nonce}  "
            f"{item.fee} atomic units  {item.age_seconds} s old  from {item.ip}"
        )
    say(f"{len(found)} at risk, {sum(item.fee for item in found)} atomic units together")


@policy.command("write-off")
@click.argument("client_hash", default="")
@click.option("--older-than", type=Seconds(), help="All that are so many seconds old.")
@click.option("--sender", default="", help="All of this sender (bech32).")
@click.option("--ip", default="", help="All that this client address asked for.")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with the relayer's settings.")
@click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One relayer setting; repeatable.")
def write_off(
    client_hash: str, older_than: float | None, sender: str, ip: str, config: Path | None, pairs: tuple[str, ...]
) -> None:
    """Count fees at risk as spent: their transactions will not run, or it does not matter. It is audited.

    Of one transaction, or of all that fit the options. The relayer takes it within a second, or when it starts. Nothing
    else is ever signed for that sender and nonce, and the key keeps enough to pay until the nonce is used.
    """
    from millrace.relayer.journal import at_risk as fees

    is_query = older_than is not None or bool(sender) or bool(ip)
    if bool(client_hash) == is_query:
        raise click.UsageError("name one client hash, or what to write off by --older-than, --sender or --ip")
    try:
        settings = _settings(config, pairs)
        journal = _journal_of(settings)
        if client_hash:
            fees.ask_write_off(journal, client_hash, settings.mark_path)
            say(f"{client_hash} will be written off.")
            return
        found = fees.ask_write_offs(journal, older_than, sender, ip, settings.mark_path)
    except fees.AtRiskError as error:
        raise click.ClickException(str(error)) from error
    say(f"{len(found)} will be written off, {sum(item.fee for item in found)} atomic units together.")
