"""`millrace demo` and `millrace up`: the whole system on this machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from millrace.runtime import extras


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


@click.command()
@click.option("--keep-logs", type=click.Path(path_type=Path), help="Folder for the services' logs.")
@click.option("--keep", is_flag=True, help="Keep it running on the usual ports afterwards, with the console's page.")
@click.option("--seed", default=1, show_default=True, help="Seed of the generated market.")
@_profile_option
def demo(keep_logs: Path | None, keep: bool, seed: int, profile: str) -> None:
    """Run two swaps through a local chain and all three services, and check every step."""
    extras.require("localnet", "millrace demo")
    from millrace.system import demo as demonstration

    sys.exit(asyncio.run(demonstration.main(seed=seed, profile=profile, log_directory=keep_logs, keep=keep)))


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=Path(".data"), show_default=True)
@click.option("--seed", default=1, show_default=True, help="Seed of the generated market.")
@_profile_option
def up(data: Path, seed: int, profile: str) -> None:
    """Run the local chain and all three services until Ctrl-C."""
    extras.require("localnet", "millrace up")
    from millrace.system import up as everything

    sys.exit(asyncio.run(everything.main(data=data.absolute(), seed=seed, profile=profile)))
