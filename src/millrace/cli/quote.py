"""`millrace quote`: the best swap between two tokens, once or on every new state of the market."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from millrace.cli import complete, words
from millrace.cli.ask import aggregator_option, is_terminal, raw, understood
from millrace.cli.scales import decimals_told
from millrace.cli.shown import as_csv, console, number, percent, table, to_units, units
from millrace.runtime.terminal import say

if TYPE_CHECKING:
    from rich.tree import Tree

    from millrace_client.quotes import Quote

_HEAD = (
    "from",
    "to",
    "amountIn",
    "amountOut",
    "amountOutMin",
    "priceImpact",
    "optimalityGap",
    "gasLimit",
    "blockNonce",
)


@click.command()
@click.argument("from_token", metavar="FROM", shell_complete=complete.tokens)
@click.argument("to_token", metavar="TO", shell_complete=complete.tokens)
@click.argument("amount", type=words.amount)
@click.option("--reverse", is_flag=True, help="AMOUNT is what TO has to pay.")
@click.option("--units", "is_units", is_flag=True, help="AMOUNT is in smallest units.")
@click.option("--slippage", type=words.fraction, default="0.01", show_default=True, help="A fraction.")
@click.option("--max-splits", type=click.IntRange(1, 50), help="Paths at most.")
@click.option("--sender", type=words.address, help="Address: --json then holds a transaction.")
@click.option("--watch", is_flag=True, help="Again on every new state of the market, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="The service's answer as it is.")
@click.option("--csv", "is_csv", is_flag=True, help="Comma-separated values.")
@aggregator_option
def quote(
    from_token: str,
    to_token: str,
    amount: str,
    reverse: bool,
    is_units: bool,
    slippage: str,
    max_splits: int | None,
    sender: str | None,
    watch: bool,
    as_json: bool,
    is_csv: bool,
    aggregator: str,
) -> None:
    """Ask for the best swap of AMOUNT (in whole tokens).

    \b
    millrace quote USDC-c76f1f UTK-2f80e9 2500
    millrace quote USDC-c76f1f UTK-2f80e9 1000 --reverse
    millrace quote EGLD USDC-c76f1f 1.5 --watch --csv
    """
    smallest = _amount(aggregator, from_token, to_token, amount, reverse=reverse, is_units=is_units)
    asked: dict[str, str | int | None] = {
        "from": from_token,
        "to": to_token,
        "amountOut" if reverse else "amountIn": str(smallest),
        "slippage": slippage,
        "maxSplits": max_splits,
        "sender": sender,
    }
    if watch:
        import asyncio

        from millrace.cli.watch import interruptible

        interruptible(lambda: asyncio.run(_watch(aggregator, asked, as_json, is_csv)))
        return
    from msgspec import structs

    from millrace_client.quotes import quote_of

    body = raw(aggregator, "/api/v1/quote", asked)
    if as_json:
        click.echo(body)
        return
    answer = understood(lambda: quote_of(body), aggregator)
    known = None if reverse else smallest
    amount_in = known if answer.amount_in is None else answer.amount_in
    answer = structs.replace(answer, from_=answer.from_ or from_token, to=answer.to or to_token, amount_in=amount_in)
    if is_csv:
        as_csv(_HEAD, [_row(answer)])
        return
    console().print(route(answer))
    console().print(table(("", ""), facts(answer)))


def _amount(aggregator: str, from_token: str, to_token: str, text: str, *, reverse: bool, is_units: bool) -> int:
    """Smallest units of an amount as it was typed. Raises `Ended` for a pair that cannot be traded."""
    if is_units:
        return to_units(text, 0)
    return to_units(text, decimals_told(aggregator, from_token, to_token)[reverse])


def _row(answer: Quote) -> tuple[object, ...]:
    return (
        answer.from_,
        answer.to,
        answer.amount_in,
        answer.amount_out,
        answer.amount_out_min,
        answer.price_impact,
        answer.optimality_gap,
        answer.estimated_gas_limit,
        answer.snapshot and answer.snapshot.block_nonce,
    )


def facts(answer: Quote) -> list[tuple[str, str]]:
    """What there is to know of a quote beside its route."""
    least = _of(answer.amount_out_min, answer.decimals_out, answer.to)
    rows = [
        ("at least", f"{least} ({percent(answer.slippage)} slippage)"),
        ("rate", "-" if answer.rate is None else f"{number(answer.rate)} {answer.to} for one {answer.from_}"),
        ("price impact", percent(answer.price_impact)),
        ("best possible is at most", f"{percent(answer.optimality_gap)} more"),
        ("gas limit", number(answer.estimated_gas_limit)),
    ]
    if answer.search_cut:
        rows.append(("search", "cut short by the aggregator's deadline: asked again it may find more"))
    if answer.profit_short is not None:
        rows.append(("profit", f"{number(answer.profit_short)} {answer.to}"))
    if answer.snapshot is not None:
        rows.append(("block", str(answer.snapshot.block_nonce)))
    return rows


def _of(amount: int | None, decimals: int | None, token: str | None) -> str:
    """An amount of a token, as far as a deployment tells it."""
    if amount is None:
        return str(token)
    return f"{amount} smallest units of {token}" if decimals is None else f"{units(amount, decimals)} {token}"


def route(answer: Quote) -> Tree:
    """The route as a tree: shares, exchanges, tokens and amounts."""
    from rich.text import Text
    from rich.tree import Tree

    paid = _of(answer.amount_in, answer.decimals_in, answer.from_)
    gets = _of(answer.amount_out, answer.decimals_out, answer.to)
    tree = Tree(Text(f"{paid} → {gets}", style="bold"))
    for path in answer.paths:
        share = f"{path.split_ppm / 10_000:.4g} %"
        branch = tree.add(Text(f"{share}  {number(path.amount_in_short)} → {number(path.amount_out_short)}"))
        for hop in path.swaps:
            branch.add(
                Text.assemble(
                    (hop.dex, "cyan"),
                    f"  {number(hop.amount_in_short)} {hop.from_} → {number(hop.amount_out_short)} {hop.to}",
                )
            )
    return tree


async def _watch(aggregator: str, asked: dict[str, str | int | None], as_json: bool, is_csv: bool) -> None:
    """The stream: one line a quote, or in a terminal the newest one in place."""
    from rich.console import Group
    from rich.live import Live

    from millrace.cli.watch import FRAMES, line_of
    from millrace_client import Aggregator, Missed, Quote

    amount_in, amount_out = asked.get("amountIn"), asked.get("amountOut")
    async with (
        Aggregator(aggregator) as client,
        await client.stream(
            str(asked["from"]),
            str(asked["to"]),
            amount_in=None if amount_in is None else int(amount_in),
            amount_out=None if amount_out is None else int(amount_out),
            slippage=str(asked["slippage"]),
            maxSplits=asked["maxSplits"],
        ) as stream,
    ):
        in_place = is_terminal() and not as_json and not is_csv
        if is_csv:
            as_csv(_HEAD, [])
        with Live(console=console(), refresh_per_second=FRAMES, auto_refresh=False, transient=False) as live:
            async for item in stream:
                if not isinstance(item, Quote):
                    click.echo(line_of(item) if isinstance(item, Missed) else str(item), err=True)
                elif in_place:
                    live.update(Group(route(item), table(("", ""), facts(item))), refresh=True)
                else:
                    _line(item, as_json, is_csv)


def _line(answer: Quote, as_json: bool, is_csv: bool) -> None:
    import csv
    import io

    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(answer))
    elif is_csv:
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow(_row(answer))
        click.echo(out.getvalue())
    else:
        block = answer.snapshot.block_nonce if answer.snapshot else "-"
        gets = units(answer.amount_out or 0, answer.decimals_out or 0)
        say(f"block {block}  {gets} {answer.to}  rate {number(answer.rate)}  gap {percent(answer.optimality_gap)}")
