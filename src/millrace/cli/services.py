"""The `millrace` command. Each subcommand imports what it needs only when it runs: starting stays fast."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO

import click

from millrace.relayer import commands as relayer_verbs
from millrace.relayer.commands import Given
from millrace.runtime import logs, process
from millrace.runtime.settings import SettingsError, load, parse_overrides

# name -> (settings struct, the module whose `run(settings, stop)` is the service, uses uvloop)
_SERVICES = {
    "aggregator": ("millrace.aggregator.settings:AggregatorSettings", "millrace.aggregator.app", True),
    "relayer": ("millrace.relayer.settings:RelayerSettings", "millrace.relayer.app", True),
    "notifier": ("millrace.notifier.settings:NotifierSettings", "millrace.notifier.app", False),
    "pools": ("millrace.collector.settings:CollectorSettings", "millrace.collector.app", True),
    "localnet": ("millrace.localnet.settings:LocalnetSettings", "millrace.localnet.app", False),
}
_SUMMARIES = {
    "aggregator": "Answer swap quotes over REST.",
    "relayer": "Co-sign and broadcast transactions; stream their fate.",
    "notifier": "Take block events from nodes and deliver them to consumers.",
    "pools": "Collect the pools of all exchanges through a gateway and serve the pool document.",
    "localnet": "Run a chain in a box, for development and tests.",
}
# What else can be done with a service than to run it.
_VERBS: dict[str, tuple[click.Command, ...]] = {"relayer": relayer_verbs.VERBS}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="millrace")
def main() -> None:
    """Swap routing, sponsored relaying and event delivery for the MultiversX chain."""


def _shown(field: str, value: object) -> str:
    """A setting as it may be shown: a secret's presence, never its value."""
    return "***" if value and "secret" in field else repr(value)


def _service_command(name: str) -> click.Command:
    struct_path, app_module, uvloop = _SERVICES[name]
    verbs = _VERBS.get(name, ())
    make = (
        click.group(name, help=_SUMMARIES[name], invoke_without_command=True)
        if verbs
        else click.command(name, help=_SUMMARIES[name])
    )

    @make
    @click.option("--config", type=click.Path(path_type=Path), help="TOML file with the settings.")
    @click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One setting; repeatable.")
    @click.option("--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]))
    @click.option("--log-format", default="json", type=click.Choice(["json", "text"]))
    @click.option("--show-settings", is_flag=True, help="Print the settings that would hold, and end.")
    @click.option("--parent", type=int, hidden=True, help="End when the process with this id ends.")
    def command(
        config: Path | None,
        pairs: tuple[str, ...],
        log_level: str,
        log_format: str,
        show_settings: bool,
        parent: int | None,
    ) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is not None:
            context.obj = Given(config, pairs)
            return
        if parent is not None:
            process.die_with_parent(parent)
        module, _, struct = struct_path.partition(":")
        kind = getattr(importlib.import_module(module), struct)
        try:
            settings = load(name, kind, file=config, overrides=parse_overrides(pairs))
        except SettingsError as error:
            raise click.ClickException(str(error)) from error
        if show_settings:
            for field in kind.__struct_fields__:
                click.echo(f"{field} = {_shown(field, getattr(settings, field))}")
            return
        logs.configure(name, log_level, json=log_format == "json")
        run: Callable[[Any, asyncio.Event], Awaitable[None]] = importlib.import_module(app_module).run
        try:
            process.run_service(lambda stop: run(settings, stop), uvloop=uvloop)
        except OSError as error:
            raise click.ClickException(f"{name} cannot run: {error}") from error

    if isinstance(command, click.Group):
        for verb in verbs:
            command.add_command(verb)
    return command


for _name in _SERVICES:
    main.add_command(_service_command(_name))


@main.group()
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
        click.echo("     no key_files are set: its relayer is taken to be ours")
    for step in steps:
        click.echo(f"{'ok  ' if step.passed else 'NO  '}{step.name}: {step.text}")
    accepted = all(step.passed for step in steps)
    click.echo("The relayer would sponsor it." if accepted else "The relayer would not sponsor it.")
    sys.exit(0 if accepted else 1)


def _journal_path(config: Path | None, pairs: tuple[str, ...]) -> Path:
    from millrace.relayer.settings import RelayerSettings

    try:
        settings = load("relayer", RelayerSettings, file=config, overrides=parse_overrides(pairs))
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
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
            click.echo(f"{'LOOSER ' if change.is_looser else '       '}{change.name}: {change.words}")
        if any(change.is_looser for change in changes) and not allow_looser:
            raise click.ClickException("nothing was changed: say --allow-looser if what is marked is meant")
        policy_file.write(Path(settings.policy_file), text)
    except (SettingsError, policies.PolicyError, OSError, UnicodeDecodeError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{settings.policy_file} is written; {len(changes)} entries changed.")


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
        found = fees.open_fees(_journal_path(config, pairs))
    except fees.AtRiskError as error:
        raise click.ClickException(str(error)) from error
    for item in found:
        click.echo(
            f"{item.client_hash}  {item.kind} {item.state}  {item.sender} nonce {item.nonce}  "
            f"{item.fee} atomic units  {item.age_seconds} s old  from {item.ip}"
        )
    click.echo(f"{len(found)} at risk, {sum(item.fee for item in found)} atomic units together")


@policy.command("write-off")
@click.argument("client_hash", default="")
@click.option("--older-than", type=click.FloatRange(min=0), help="All that are so many seconds old.")
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
        journal = _journal_path(config, pairs)
        if client_hash:
            fees.ask_write_off(journal, client_hash)
            click.echo(f"{client_hash} will be written off.")
            return
        found = fees.ask_write_offs(journal, older_than, sender, ip)
    except fees.AtRiskError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{len(found)} will be written off, {sum(item.fee for item in found)} atomic units together.")


def _known_profile(_: click.Context, __: click.Parameter, name: str) -> str:
    from millrace.chain.network import profile

    try:
        return profile(name).name
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_profile_option = click.option(
    "--profile",
    default="documented",
    show_default=True,
    callback=_known_profile,
    help="Shard rule and gossip topics: documented, mainnet, devnet or testnet. The chain id is always local.",
)


@main.command()
@click.option("--keep-logs", type=click.Path(path_type=Path), help="Folder for the services' logs.")
@click.option("--seed", default=1, show_default=True, help="Seed of the generated market.")
@_profile_option
def demo(keep_logs: Path | None, seed: int, profile: str) -> None:
    """Run two swaps through a local chain and all three services, and check every step."""
    from millrace.system import demo as demonstration

    sys.exit(asyncio.run(demonstration.main(seed=seed, profile=profile, log_directory=keep_logs)))


@main.command()
@click.option("--data", type=click.Path(path_type=Path), default=Path(".data"), show_default=True)
@click.option("--seed", default=1, show_default=True, help="Seed of the generated market.")
@_profile_option
def up(data: Path, seed: int, profile: str) -> None:
    """Run the local chain and all three services until Ctrl-C."""
    from millrace.system import up as everything

    sys.exit(asyncio.run(everything.main(data=data.absolute(), seed=seed, profile=profile)))


if __name__ == "__main__":
    main()
