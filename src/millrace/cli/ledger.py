"""`millrace ledger`: what a relayer's budgets stand at, and what its keys may still have to pay for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import click

from millrace.cli.ask import decoded, operators_option, raw
from millrace.cli.shown import as_csv, console, number, percent, table
from millrace.runtime.terminal import say

_EGLD_DECIMALS = 18
_ADDRESS = 12  # characters of an address in a table; 62 leave no room


class _View(NamedTuple):
    """One list of the answer: its fields in CSV, and the head and cells of its table."""

    title: str
    fields: tuple[str, ...]
    head: tuple[str, ...]
    cells: Callable[[dict[str, Any]], tuple[str, ...]]
    texts: int = 1
    """So many columns at the left are no numbers."""


_BUDGET = (
    *("spentMinute", "perMinute", "spentHour", "perHour", "spentDay", "perDay"),
    *("atRisk", "mostAtRisk", "atRiskSignOnly", "mostAtRiskSignOnly", "lostHour", "mostLostHour"),
)
_HEAD = ("MINUTE", "HOUR", "DAY", "AT RISK", "LOST")


def _used(item: dict[str, Any]) -> tuple[str, ...]:
    """What of a budget is used, in percent: which pool is short is what one wants to see."""
    pairs = zip(_BUDGET[::2], _BUDGET[1::2], strict=True)
    return tuple(_share(item, used, most) for used, most in pairs if used != "atRiskSignOnly")


def _share(item: dict[str, Any], used: str, most: str) -> str:
    bound = int(item[most])
    return percent(int(item[used]) / bound) if bound else "-"


def _egld(amount: str | None) -> str:
    """An amount in EGLD, to six digits behind the point."""
    if amount is None:
        return "-"
    short = round(int(amount) / 10**_EGLD_DECIMALS, 6)
    return number(short) if short or not int(amount) else "<0.000001"


def _near(address: str) -> str:
    return f"{address[:_ADDRESS]}…{address[-4:]}"


_VIEWS = {
    "keys": _View(
        "Keys",
        ("shard", "address", "state", "left", "spendable", "writtenOff", *_BUDGET),
        ("SHARD", "STATE", "LEFT", "HOLDS", "RISKS", *_HEAD),
        lambda key: (
            str(key["shard"]),
            key["state"],
            _egld(key["left"]),
            _egld(key["spendable"]),
            _egld(key["atRisk"]),
            *_used(key),
        ),
        2,
    ),
    "people": _View("People", ("name", *_BUDGET), ("NAME", *_HEAD), lambda item: (item["name"], *_used(item))),
    "programmes": _View(
        "Programmes",
        ("name", "until", "isOver", "budget", "spent", "left", "users", "perUser"),
        ("NAME", "UNTIL", "BUDGET", "LEFT", "USED", "USERS"),
        lambda item: (
            item["name"],
            item["until"][:10] + (" (over)" if item["isOver"] else ""),
            _egld(item["budget"]),
            _egld(item["left"]),
            _share(item, "spent", "budget"),
            str(item["users"]),
        ),
        2,
    ),
    "users": _View(
        "Users",
        ("address", "atRisk", "transactions", "oldestSeconds", "spentHour", "perHour"),
        ("USER", "AT RISK", "TRANSACTIONS", "OLDEST, s", "IN AN HOUR", "OF IT"),
        lambda user: (
            _near(user["address"]),
            _egld(user["atRisk"]),
            str(user["transactions"]),
            str(user["oldestSeconds"]),
            _egld(user["spentHour"]),
            _share(user, "spentHour", "perHour"),
        ),
    ),
}


@click.command()
@click.argument("what", type=click.Choice([*_VIEWS, "all"]), default="all")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Users, at most.")
@click.option("--json", "as_json", is_flag=True, help="The relayer's answer as it is.")
@click.option("--csv", "is_csv", is_flag=True, help="Comma-separated values of WHAT, in atomic units.")
@operators_option
def ledger(what: str, limit: int, as_json: bool, is_csv: bool, operators: str) -> None:
    """Show what a relayer's budgets stand at, and what is at risk.

    WHAT is keys, people (with an API key), programmes, users or all. Tables
    are in EGLD, and in percent of the policy's budgets of a minute, an hour, a
    day, of what may be at risk, and of what may be lost in an hour. Asked is
    the relayer's port for operators.

    \b
    millrace ledger
    millrace ledger users --csv --limit 10000 > users.csv
    """
    if is_csv and what == "all":
        raise click.UsageError(f"--csv is of one WHAT: {', '.join(_VIEWS)}")
    body = raw(operators, "/ledger", {"limit": limit})
    if as_json:
        click.echo(body)
        return
    told = decoded(body, dict[str, Any], operators)
    if is_csv:
        view = _VIEWS[what]
        as_csv(view.fields, ([item.get(field) for field in view.fields] for item in told.get(what, [])))
        return
    for name in _VIEWS if what == "all" else (what,):
        _print(_VIEWS[name], told.get(name, []), told.get("usersKnown", 0) if name == "users" else None)


def _print(view: _View, items: list[dict[str, Any]], known: int | None) -> None:
    of = "" if known is None else f", {len(items)} of {known} that have something at risk or were paid for of late"
    say(f"{view.title}{of}" if items else f"{view.title}: none")
    if items:
        numbers = range(view.texts, len(view.head))
        console().print(table(view.head, [view.cells(item) for item in items], right=tuple(numbers)))
    click.echo()
