"""`millrace demo` and `millrace up`: the whole system on this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.runtime import extras

if TYPE_CHECKING:
    from millrace.system.plan import Ports


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
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path(".data"),
    show_default=True,
    help="Folder to keep: the relayer's keys and all logs outlast a start, the chain begins anew.",
)
@click.option("--seed", default=1, show_default=True, help="Seed of the generated market.")
@click.option(
    "--port", "pairs", multiple=True, metavar="NAME=NUMBER", help="Another port for one listener; repeatable."
)
@click.option("--free-ports", is_flag=True, help="Ports that are free, for all that --port does not name.")
@_profile_option
def up(data: Path, seed: int, pairs: tuple[str, ...], free_ports: bool, profile: str) -> None:
    """Run the local chain and all three services until Ctrl-C.

    Listeners that --port can name, and their usual ports: aggregator 8100,
    aggregator_metrics 8101, relayer 8200, relayer_http 8201, relayer_metrics
    8202, notifier 8300, notifier_http 8301, notifier_metrics 8302, localnet
    8400, console 8080, console_metrics 8081.

    \b
    millrace up --data ~/chain --port console=9080 --port aggregator=9100
    """
    extras.require("localnet", "millrace up")
    from millrace.system import up as everything

    ports = _ports(pairs, are_free=free_ports)
    sys.exit(asyncio.run(everything.main(data=data.absolute(), seed=seed, profile=profile, ports=ports)))


def _ports(pairs: Sequence[str], *, are_free: bool) -> Ports:
    """The usual ports, or free ones, but for those that are named. Raises `click.BadParameter`."""
    from dataclasses import asdict, replace

    from millrace.system.plan import Ports

    named: dict[str, int] = {}
    usual = Ports.free() if are_free else Ports()
    for pair in pairs:
        name, _, number = pair.partition("=")
        name = name.replace("-", "_")
        if name not in asdict(usual):
            raise click.BadParameter(f"--port {pair}: the names are {', '.join(asdict(usual))}")
        if not (number.isascii() and number.isdigit() and 0 < int(number) < 65_536):
            raise click.BadParameter(f"--port {pair}: a port is a number from 1 to 65535")
        named[name] = int(number)
    ports = replace(usual, **named)
    several = {port for port in asdict(ports).values() if list(asdict(ports).values()).count(port) > 1}
    if several:
        raise click.BadParameter(f"two listeners cannot share port {min(several)}: name another one with --port")
    return ports
