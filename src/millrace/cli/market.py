"""`millrace tokens` and `millrace pools list`: what can be traded."""

from __future__ import annotations

import click

from millrace.cli import complete
from millrace.cli.ask import aggregator_option, decoded, raw
from millrace.cli.shown import as_csv, console, number, table

_formats = [
    click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many."),
    click.option("--offset", type=click.IntRange(min=0), default=0, help="How many to pass over."),
    click.option("--json", "as_json", is_flag=True, help="The service's answer as it is."),
    click.option("--csv", "is_csv", is_flag=True, help="Comma-separated values."),
    aggregator_option,
]


def _with_formats(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(_formats):
        command = option(command)
    return command


@click.command()
@click.argument("search", default="", shell_complete=complete.tokens)
@_with_formats
def tokens(search: str, limit: int, offset: int, as_json: bool, is_csv: bool, aggregator: str) -> None:
    """List tokens, those with most liquidity first.

    SEARCH is a part of an identifier, name or ticker.

    \b
    millrace tokens usd
    millrace tokens --csv --limit 1000 > tokens.csv
    """
    from millrace_client.quotes import Tokens

    body = raw(aggregator, "/api/v1/tokens", {"search": search or None, "limit": limit, "offset": offset})
    if as_json:
        click.echo(body)
        return
    page = decoded(body, Tokens, aggregator)
    if is_csv:
        head = ["identifier", "name", "decimals", "isLp", "priceEgld", "priceUsdc", "liquidityUsdc", "pools"]
        as_csv(
            head,
            (
                (t.identifier, t.name, t.decimals, t.is_lp, t.price_egld, t.price_usdc, t.liquidity_usdc, t.pools)
                for t in page.tokens
            ),
        )
        return
    rows = [
        (
            token.identifier,
            token.name,
            str(token.decimals),
            number(token.price_usdc),
            number(token.liquidity_usdc, 0),
            str(token.pools),
        )
        for token in page.tokens
    ]
    names = ("TOKEN", "NAME", "DECIMALS", "USDC", "LIQUIDITY", "POOLS")
    console().print(table(names, rows, right=(2, 3, 4, 5)))
    click.echo(f"{len(rows)} of {page.total}, block {page.snapshot.block_nonce}", err=True)


@click.command("list")
@click.option("--token", help="Those that hold this token.", shell_complete=complete.tokens)
@click.option("--exchange", help="Names, comma-separated.", shell_complete=complete.exchanges)
@_with_formats
def list_pools(
    token: str | None, exchange: str | None, limit: int, offset: int, as_json: bool, is_csv: bool, aggregator: str
) -> None:
    """List an aggregator's pools, those with most liquidity first.

    \b
    millrace pools list --token USDC-c76f1f
    """
    from millrace_client.quotes import Pools

    asked = {"token": token, "exchange": exchange, "limit": limit, "offset": offset}
    body = raw(aggregator, "/api/v1/pools", asked)
    if as_json:
        click.echo(body)
        return
    page = decoded(body, Pools, aggregator)
    if is_csv:
        head = ["id", "dex", "kind", "address", "tokens", "reserves", "tradable", "liquidityUsdc"]
        as_csv(
            head,
            (
                (p.id, p.dex, p.kind, p.address, " ".join(p.tokens), " ".join(map(str, p.reserves)), p.tradable,
                 p.liquidity_usdc)
                for p in page.pools
            ),
        )  # fmt: skip
        return
    rows = [
        (
            pool.dex,
            " / ".join(pool.tokens),
            number(pool.liquidity_usdc, 0),
            "yes" if pool.tradable else f"no ({pool.state})",
        )
        for pool in page.pools
    ]
    console().print(table(("EXCHANGE", "TOKENS", "LIQUIDITY", "TRADED"), rows, right=(2,)))
    click.echo(f"{len(rows)} of {page.total}, block {page.snapshot.block_nonce}", err=True)
