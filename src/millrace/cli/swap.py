"""`millrace swap`: quote, sign, relay, and the way to its end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from millrace.cli import complete, words
from millrace.cli.ask import Ended, aggregator_option, gateway_option, relayer_option, relayer_ws_option
from millrace.cli.keys import open_wallet
from millrace.cli.quote import facts, route
from millrace.cli.scales import Scales, scales_of
from millrace.cli.shown import console, table, units
from millrace.cli.watch import interrupted, interruptible
from millrace.runtime.terminal import Seconds, say

if TYPE_CHECKING:
    from millrace_client import Handle, Millrace, Quote, Transaction, Wallet

LOCAL_CHAIN = "local"


@click.command()
@click.argument("from_token", metavar="FROM", shell_complete=complete.tokens)
@click.argument("to_token", metavar="TO", shell_complete=complete.tokens)
@click.argument("amount", type=words.amount)
@click.option(
    "--key",
    "key_file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="PEM, keystore or mnemonic file.",
)
@click.option("--password-file", type=click.Path(path_type=Path, dir_okay=False), help="Of a keystore.")
@click.option("--index", type=click.IntRange(min=0), default=0, help="Which of several keys.")
@click.option("--slippage", type=words.fraction, default="0.01", show_default=True, help="A fraction.")
@click.option("--units", "is_units", is_flag=True, help="Amounts are in smallest units.")
@click.option("--decimals", type=click.IntRange(0, 18), help="Of FROM, by you.")
@click.option("--at-least", type=words.amount, metavar="AMOUNT", help="Sign for no less of TO than this.")
@click.option("--send/--dry-run", "send", default=None, help="Send it; by default only on a local chain.")
@click.option(
    "--contract",
    envvar="MILLRACE_CONTRACT",
    show_envvar=True,
    metavar="ADDRESS|any",
    help="Only this one is called; by default the chain's known one.",
)
@click.option("--timeout", type=Seconds(1.0), default=60.0, show_default=True, help="Seconds for its end.")
@gateway_option
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
    decimals: int | None,
    at_least: str | None,
    send: bool | None,
    contract: str | None,
    timeout: float,
    gateway: str | None,
    aggregator: str,
    relayer: str,
    relayer_ws: str,
) -> None:
    """Swap AMOUNT (in whole tokens); the relayer pays the gas.

    Against other chains than a local one it stops before anything is signed,
    unless you say --send. No service is trusted then: how many decimals FROM
    has must come from a --gateway, from you (--decimals), or not matter
    (--units), and what you get must be --at-least what you say, or you are
    asked.

    \b
    millrace swap USDC-c76f1f UTK-2f80e9 2500 --key wallet.pem
    millrace swap USDC-c76f1f UTK-2f80e9 2500 --key wallet.pem --send \\
        --gateway https://gateway.multiversx.com --at-least LEAST
    Exit codes: 0 success; 1 refused, or failed on the chain; 2 wrong use;
    3 a service cannot be reached; 4 sent, and its end is not known (also
    after Ctrl-C).
    """
    scales = scales_of(aggregator, from_token, to_token, gateway, decimals)
    pays = scales.pays.smallest(amount, is_units=is_units)
    least = None if at_least is None else scales.gets.smallest(at_least, is_units=is_units)
    wallet = open_wallet(key_file, password_file, index)
    services = _Services(aggregator, relayer, relayer_ws, contract)
    offers: list[_Offer] = []
    interruptible(lambda: offers.append(asyncio.run(_offer(services, scales, pays, slippage, wallet))), _nothing_sent)
    offer = offers[0]
    _show(offer, scales, wallet)
    # What would be signed says where it can run; what a service says of itself does not.
    is_local = offer.prepared.chain_id == LOCAL_CHAIN
    if not (is_local if send is None else send):
        _dry_run(offer.prepared)
        return
    if not is_local:
        _require_sure(scales, is_units=is_units, has_least=least is not None)
    _require_least(offer, scales, least)
    if not is_local and least is None:
        _ask(offer, scales)
    sent: list[str] = []
    interruptible(
        lambda: asyncio.run(_send(services, offer, scales, wallet, timeout, sent)),
        lambda: interrupted(sent[0]) if sent else _nothing_sent(),
    )


class _Services(NamedTuple):
    """Where they are, and which contract may be called."""

    aggregator: str
    relayer: str
    relayer_ws: str
    contract: str | None

    def client(self) -> Millrace:
        """A client of all of them. Raises `click.BadParameter` for a contract that is none."""
        from millrace_client import Millrace, TransactionError

        try:
            return Millrace(self.aggregator, self.relayer, self.relayer_ws, contract=self.contract)
        except TransactionError as error:
            raise click.BadParameter(f"--contract: {error}") from None


class _Offer(NamedTuple):
    """What was quoted, and what is to be signed for it."""

    quote: Quote
    prepared: Transaction


async def _offer(services: _Services, scales: Scales, pays: int, slippage: str, wallet: Wallet) -> _Offer:
    pair = (scales.pays.token, scales.gets.token)
    async with services.client() as client:
        quote = await client.quote(*pair, amount_in=pays, slippage=slippage, sender=wallet.address)
        return _Offer(quote, await client.relayer.prepare(_transaction_of(quote)))


def _show(offer: _Offer, scales: Scales, wallet: Wallet) -> None:
    """All that is signed for, in smallest units too: these are what the chain goes by."""
    quote, prepared = offer
    for told, scale in ((quote.decimals_in, scales.pays), (quote.decimals_out, scales.gets)):
        if told not in (None, scale.decimals):
            raise Ended(f"nothing was signed: the quote says {told} decimals of {scale.token}, not {scale.decimals}")
    console().print(route(quote))
    console().print(table(("", ""), facts(quote)))
    say(f"pays {scales.pays.shown(quote.amount_in or 0)}")
    say(f"gets at least {scales.gets.shown(quote.amount_out_min)}")
    say(f"{wallet.address} signs, {prepared.relayer} pays")
    say(f"to {prepared.receiver} with {units(int(prepared.value), 18)} EGLD, chain {prepared.chain_id}")


def _require_least(offer: _Offer, scales: Scales, least: int | None) -> None:
    if least is not None and offer.quote.amount_out_min < least:
        text = f"the least would be {offer.quote.amount_out_min} smallest units of {scales.gets.token}, not {least}"
        raise Ended(f"nothing was signed: {text}. Ask again later, or with another --at-least or --slippage")


def _require_sure(scales: Scales, *, is_units: bool, has_least: bool) -> None:
    """Raise `Ended` where the aggregator alone says how much an amount is that was typed in whole tokens."""
    for scale, is_typed, ways in (
        (scales.pays, True, "--gateway URL, --decimals N"),
        (scales.gets, has_least, "--gateway URL"),
    ):
        if is_typed and not is_units and not scale.is_sure:
            what = "is paid" if scale is scales.pays else "is enough"
            raise Ended(
                f"nothing was signed: only the aggregator says that {scale.token} has {scale.decimals} decimals, so "
                f"it would choose how much {what}. Say {ways}, or give amounts in smallest units with --units"
            )


def _ask(offer: _Offer, scales: Scales) -> None:
    """Ask whoever sits there whether the least is enough. Raises `Ended`."""
    least = f"{offer.quote.amount_out_min} smallest units of {scales.gets.token}"
    if not sys.stdin.isatty():
        raise Ended(f"nothing was signed: nobody agreed to as little as {least}. Say what is enough: --at-least AMOUNT")
    if not click.confirm(f"Sign it, for {least} at least?", err=True):
        raise Ended("nothing was signed")


async def _send(
    services: _Services, offer: _Offer, scales: Scales, wallet: Wallet, timeout: float, sent: list[str]
) -> None:
    """Sign, relay and follow. The hash is in `sent` before anything leaves."""
    from millrace_client import sign

    async with services.client() as client:
        signed = await sign(offer.prepared, wallet)
        sent.append(signed.client_hash())
        handle = await client.relayer.relay(signed)
        say(f"accepted as {handle.hash}")
        await _follow(handle, scales.gets.shown(offer.quote.amount_out_min), timeout)


def _nothing_sent() -> Ended:
    return Ended("interrupted: nothing was sent")


def _transaction_of(quote: Quote) -> Transaction:
    import msgspec

    if quote.transaction is None:
        raise Ended("the aggregator gives no transaction: ask its operator for a newer version")
    return msgspec.structs.replace(quote.transaction, nonce=None)


def _dry_run(prepared: Transaction) -> None:
    say(
        f"dry run: chain {prepared.chain_id}, nonce {prepared.nonce}, gas limit {prepared.gas_limit}, "
        f"gas price {prepared.gas_price}; nothing was signed or sent. Say --send to make it."
    )


async def _follow(handle: Handle, least: str, timeout: float) -> None:
    """Every state on its way, the last one as the exit code. Raises `Ended`."""
    async for outcome in handle.progress(timeout):
        fee = "" if outcome.fee is None else f", for a fee of {units(outcome.fee, 18)} EGLD that the relayer paid"
        say(outcome.state + (f": {outcome.reason}" if outcome.reason else "") + fee)
    if handle.last.state != "success":
        raise Ended(f"nothing was swapped; {handle.hash} ended as {handle.last.state}")
    say(f"swapped for at least {least}")
