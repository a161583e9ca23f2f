"""`millrace swap`: quote, sign, relay, and the way to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.cli.ask import Ended, aggregator_option, relayer_option, relayer_ws_option
from millrace.cli.keys import open_wallet
from millrace.cli.quote import amount_of, facts, route
from millrace.cli.shown import console, table, units
from millrace.cli.watch import interrupted, interruptible

if TYPE_CHECKING:
    from millrace_client import Handle, Quote, Transaction

LOCAL_CHAIN = "local"


@click.command()
@click.argument("from_token", metavar="FROM")
@click.argument("to_token", metavar="TO")
@click.argument("amount")
@click.option(
    "--key",
    "key_file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="PEM, keystore or mnemonic file.",
)
@click.option("--password-file", type=click.Path(path_type=Path, dir_okay=False), help="Of a keystore.")
@click.option("--index", type=click.IntRange(min=0), default=0, help="Which of several keys.")
@click.option("--slippage", default="0.01", show_default=True, help="A fraction.")
@click.option("--units", "is_units", is_flag=True, help="AMOUNT is in smallest units.")
@click.option("--send/--dry-run", "send", default=None, help="Send it; by default only on a local chain.")
@click.option("--contract", envvar="MILLRACE_CONTRACT", show_envvar=True, help="Address: no other one is called.")
@click.option("--timeout", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Seconds for its end.")
@aggregator_option
@relayer_option
@relayer_ws_option
def swap(
    from_token: str,
    to_token: str,
    amount: str,
    key_file: Path,
    password_file: Path | None,
    index: int,
    slippage: str,
    is_units: bool,
    send: bool | None,
    contract: str | None,
    timeout: float,
    aggregator: str,
    relayer: str,
    relayer_ws: str,
) -> None:
    """Swap AMOUNT (in whole tokens); the relayer pays the gas.

    Against other chains than a local one it stops before anything is signed,
    unless you say --send. What the services give to sign is compared with what
    was asked.

    \b
    millrace swap USDC-c76f1f UTK-2f80e9 2500 --key wallet.pem
    Exit codes: 0 success; 1 refused, or failed on the chain; 2 wrong use;
    3 a service cannot be reached; 4 sent, and its end is not known (also
    after Ctrl-C).
    """
    smallest = amount_of(aggregator, from_token, to_token, amount, reverse=False, is_units=is_units)
    wallet = open_wallet(key_file, password_file, index)

    sent: list[str] = []

    async def work() -> None:
        from millrace_client import Millrace, sign

        async with Millrace(aggregator, relayer, relayer_ws, contract=contract) as client:
            quote = await client.quote(
                from_token, to_token, amount_in=smallest, slippage=slippage, sender=wallet.address
            )
            console().print(route(quote))
            console().print(table(("", ""), facts(quote)))
            prepared = await client.relayer.prepare(_transaction_of(quote))
            click.echo(f"{wallet.address} signs, {prepared.relayer} pays")
            click.echo(f"to {prepared.receiver} with {units(int(prepared.value), 18)} EGLD, chain {prepared.chain_id}")
            # What would be signed says where it can run; what a service says of itself does not.
            if not (prepared.chain_id == LOCAL_CHAIN if send is None else send):
                _dry_run(prepared)
                return
            signed = await sign(prepared, wallet)
            sent.append(signed.client_hash())
            handle = await client.relayer.relay(signed)
            click.echo(f"accepted as {handle.hash}")
            await _follow(handle, quote, timeout)

    def on_interrupt() -> Ended:
        return interrupted(sent[0]) if sent else Ended("interrupted: nothing was sent")

    interruptible(lambda: asyncio.run(work()), on_interrupt)


def _transaction_of(quote: Quote) -> Transaction:
    import msgspec

    if quote.transaction is None:
        raise Ended("the aggregator gives no transaction: ask its operator for a newer version")
    return msgspec.structs.replace(quote.transaction, nonce=None)


def _dry_run(prepared: Transaction) -> None:
    click.echo(
        f"dry run: chain {prepared.chain_id}, nonce {prepared.nonce}, gas limit {prepared.gas_limit}, "
        f"gas price {prepared.gas_price}; nothing was signed or sent. Say --send to make it."
    )


async def _follow(handle: Handle, quote: Quote, timeout: float) -> None:
    """Every state on its way, the last one as the exit code. Raises `Ended`."""
    async for outcome in handle.progress(timeout):
        fee = "" if outcome.fee is None else f", for a fee of {units(outcome.fee, 18)} EGLD that the relayer paid"
        click.echo(outcome.state + (f": {outcome.reason}" if outcome.reason else "") + fee)
    if handle.last.state != "success":
        raise Ended(f"nothing was swapped; {handle.hash} ended as {handle.last.state}")
    least = units(quote.amount_out_min, quote.decimals_out or 0)
    click.echo(f"swapped for at least {least} {quote.to}")
