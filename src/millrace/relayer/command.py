"""Commands for operators of a relayer: `millrace policy explain`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from millrace.chain.network import PROFILES
from millrace.chain.network import profile as named_profile
from millrace.relayer import policy as rules
from millrace.relayer.explain import explain as steps_of


@click.group()
def policy() -> None:
    """Look into the sponsoring policy."""


@policy.command()
@click.argument("transaction", type=click.File("rb"))
@click.option(
    "--policy-file", type=click.Path(path_type=Path), help="The relayer's TOML file; without it the defaults."
)
@click.option("--profile", default="documented", type=click.Choice(list(PROFILES)), show_default=True)
@click.option("--chain-id", help="When it is not the profile's.")
@click.option("--p90", type=int, help="Gas price that nine in ten transactions do not exceed now.")
def explain(
    transaction: click.utils.LazyFile, policy_file: Path | None, profile: str, chain_id: str | None, p90: int | None
) -> None:
    """Say what a relayer would check in TRANSACTION (a JSON file, or -), and where it would stop."""
    network = named_profile(profile, **({"chain_id": chain_id} if chain_id else {}))
    try:
        loaded = rules.loads(policy_file.read_text(encoding="utf-8")) if policy_file else rules.Policy()
    except (OSError, UnicodeDecodeError, rules.PolicyError) as error:
        raise click.ClickException(f"{policy_file}: {error}") from error
    passed = True
    for step in steps_of(transaction.read(), loaded, network, p90=p90):
        passed = step.passed
        click.echo(f"{'ok ' if passed else 'NO '} {step.name}: {step.text}")
    click.echo("it would be sponsored" if passed else "it would be refused")
    sys.exit(0 if passed else 1)
