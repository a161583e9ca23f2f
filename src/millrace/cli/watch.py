"""`millrace watch`: live tables in a terminal, plain lines in a pipe, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from millrace.cli import complete, words
from millrace.cli.ask import Ended, NotKnown, Unreached, hub_option, is_terminal, relayer_option, relayer_ws_option
from millrace.cli.shown import console, number, table
from millrace.runtime.terminal import Seconds, nobody_reads, say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from millrace_client import Missed, Relayer

FRAMES = 4
"""Pictures a second: more cannot be read."""
_SPARKS = "▁▂▃▄▅▆▇█"
_KEPT = 40


def interruptible(work: Callable[[], None], on_interrupt: Callable[[], Ended] | None = None) -> None:
    """Run until it ends or Ctrl-C; what the client raises becomes text and an exit code.

    Ctrl-C ends what is looked at with 0; what has an end of its own gives `on_interrupt`, which says what is left open,
    also where whoever reads has left.
    """
    from millrace_client import ClientError, OutcomeUnknown, Unreachable

    try:
        work()
    except KeyboardInterrupt:
        click.echo(err=True)
        if on_interrupt is not None:
            raise on_interrupt() from None
    except BrokenPipeError:
        nobody_reads()
        if on_interrupt is None:
            sys.exit(1)
        raise on_interrupt() from None
    except Unreachable as error:
        raise Unreached(str(error)) from None
    except OutcomeUnknown as error:
        raise NotKnown(str(error)) from None
    except ClientError as error:
        raise Ended(str(error)) from None


def interrupted(tx_hash: str) -> NotKnown:
    """What is said when nobody waits for the end of a transaction any more."""
    return NotKnown(f"interrupted: the end of {tx_hash} is not known; `millrace watch tx {tx_hash}` asks for it")


def line_of(missed: Missed) -> str:
    """What was missed, in a line."""
    count = "" if missed.count is None else f" {missed.count} messages"
    away = ""
    if missed.topic != "hub" and missed.since is not None and missed.until is not None:  # a hub's are sequences
        away = f" for {missed.until - missed.since:.1f} s"
    return f"missed{count}{away}: {missed.why}"


def sparkline(values: deque[float]) -> str:
    """A curve of letters."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    span = high - low or 1.0
    return "".join(_SPARKS[int((value - low) / span * (len(_SPARKS) - 1))] for value in values)


class _Screen:
    """Shows the newest picture, at most `FRAMES` times a second; in a pipe a line for each."""

    def __init__(self) -> None:
        from rich.live import Live

        self._is_live = is_terminal()
        self._live = Live(console=console(), auto_refresh=False)
        self._next = 0.0

    def __enter__(self) -> _Screen:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def show(self, picture: Callable[[], RenderableType], line: Callable[[], str]) -> None:
        """The newest state; left out when the last one is too fresh."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (1 / FRAMES if self._is_live else 1.0)
        if self._is_live:
            self._live.update(picture(), refresh=True)
        else:
            click.echo(line())

    def note(self, text: str) -> None:
        """Something that is not part of the picture."""
        click.echo(text, err=True)


@click.group()
def watch() -> None:
    """Look at something live, until Ctrl-C. In a pipe: one line a second at most."""


def _command(name: str) -> Callable[[Callable[..., Awaitable[None]]], click.Command]:
    """A verb of `watch` whose function gets a relayer's client as its first argument."""

    def made(function: Callable[..., Awaitable[None]]) -> click.Command:
        @watch.command(name, help=function.__doc__)
        @relayer_option
        @relayer_ws_option
        @functools.wraps(function)
        def command(relayer: str, relayer_ws: str, **named: Any) -> None:
            async def work() -> None:
                from millrace_client import Relayer

                async with Relayer(relayer, relayer_ws) as client:
                    await function(client, **named)

            tx_hash = named.get("tx_hash")
            interruptible(lambda: asyncio.run(work()), None if tx_hash is None else lambda: interrupted(tx_hash))

        return command

    return made


@_command("gas")
async def gas(relayer: Relayer) -> None:
    """Gas prices of the last half hour in each shard."""
    from millrace_client.messages import GasStats

    newest: dict[int, GasStats] = {}
    curves: dict[int, deque[float]] = {}

    def rows() -> list[tuple[str, ...]]:
        return [
            (str(shard), *(number(price) for price in _percentiles(stats)), sparkline(curves[shard]))
            for shard, stats in sorted(newest.items())
        ]

    with _Screen() as screen:
        async with await relayer.gas_stats() as stream:
            async for item in stream:
                if not isinstance(item, GasStats):
                    screen.note(line_of(item))
                    continue
                newest[item.data.shard] = item
                curves.setdefault(item.data.shard, deque(maxlen=_KEPT)).append(float(_percentiles(item)[0] or 0))
                if len(newest) == 1 + max(newest):
                    screen.show(
                        lambda: table(("SHARD", "P50", "P75", "P90", ""), rows(), right=(0, 1, 2, 3)),
                        lambda: "  ".join(f"shard {row[0]}: p50 {row[1]} p90 {row[3]}" for row in rows()),
                    )


def _percentiles(stats: Any) -> tuple[int | None, int | None, int | None]:
    found = stats.data.gas_price.percentiles
    return found.p50, found.p75, found.p90


@_command("network")
async def network(relayer: Relayer) -> None:
    """Transactions a second, blocks, peers and what waits."""
    from millrace_client.messages import NetworkStats

    curve: deque[float] = deque(maxlen=_KEPT)
    with _Screen() as screen:
        async with await relayer.network_stats() as stream:
            async for item in stream:
                if not isinstance(item, NetworkStats):
                    screen.note(line_of(item))
                    continue
                curve.append(item.data.network.current_tps or 0.0)
                rows = _network_rows(item, curve)
                screen.show(
                    lambda rows=rows: table(("", ""), rows),  # type: ignore[misc]
                    lambda rows=rows: "  ".join(f"{name} {value}" for name, value in rows[1:]),  # type: ignore[misc]
                )


def _network_rows(item: Any, curve: deque[float]) -> list[tuple[str, str]]:
    data = item.data
    block, meta = data.blocks.latest_shard, data.blocks.latest_meta
    times = ", ".join(f"{shard}: {number(ms)}" for shard, ms in sorted(data.blocks.block_time_ms_p50_by_shard.items()))
    return [
        ("", sparkline(curve)),
        ("tps", number(data.network.current_tps, 1)),
        ("tps in 30 s", number(data.network.avg_tps_30s, 1)),
        ("latest block", f"{block.nonce} of shard {block.shard_id}" if block else "-"),
        ("metachain", str(meta.nonce) if meta else "-"),
        ("block time, ms", times or "-"),
        ("waiting", number(data.mempool.estimated_queue)),
        ("peers", number(data.network.connected_peers)),
        ("validators", number(data.network.active_validators)),
        ("known", f"{100 * (data.health.data_completeness or 0):.0f} %"),
    ]


@_command("address")
@click.argument("account", metavar="ADDRESS", type=words.address)
async def address(relayer: Relayer, account: str) -> None:
    """Balances and nonce of ADDRESS, after each block that changes them."""
    from millrace_client.messages import AccountDelta

    async with await relayer.account(account) as stream:
        say(f"waiting for {account}", err=True)
        async for item in stream:
            if not isinstance(item, AccountDelta):
                click.echo(line_of(item), err=True)
                continue
            balances = "  ".join(f"{token} {amount}" for token, amount in sorted(item.data.balances.items()))
            say(f"block {item.data.block_nonce}  nonce {item.data.nonce}  {balances}", indent=4)


@_command("tx")
@click.argument("tx_hash", metavar="HASH", type=words.tx_hash)
@click.option("--timeout", type=Seconds(), default=60.0, show_default=True, help="Seconds.")
async def tx(relayer: Relayer, tx_hash: str, timeout: float) -> None:
    """What becomes of a transaction; ends with it. HASH is any of its three.

    \b
    Exit codes: 0 success; 1 failed, or nobody knows it; 4 no end in time, or
    Ctrl-C before it.
    """
    told, end = "", time.monotonic() + timeout
    async with await relayer.subscribe(f"tx-status/{tx_hash}") as stream:
        while True:
            known = await relayer.outcome(tx_hash)
            if known is not None and known.state != told:
                told = known.state
                say(told + (f"  {known.reason}" if known.reason else ""))
            if known is not None and known.has_ended:
                if known.state != "success":
                    raise Ended(f"{tx_hash} ended as {known.state}")
                return
            if time.monotonic() > end:
                if not told:
                    raise Ended(f"nobody knows {tx_hash}: was it sent to this relayer?")
                raise NotKnown(f"{tx_hash}: {told} after {timeout:g} s")
            with contextlib.suppress(TimeoutError):
                await stream.next(min(5.0, max(0.0, end - time.monotonic())))


@watch.command()
@hub_option
@click.option("--after", type=click.IntRange(min=0), help="Resume behind this sequence; 0 is the beginning.")
@click.option("--address", type=words.address, help="Only events of this address.")
@click.option("--identifier", default="", help="Only events with this identifier.", shell_complete=complete.identifiers)
def events(hub: str, after: int | None, address: str | None, identifier: str) -> None:
    """Block events of a notifier, one line each: sequence, topic, bytes."""
    from typing import cast

    from millrace_client.hub import Event, Hub, Level

    level = ("Address" if address else "") + ("Identifier" if identifier else "") or "All"

    async def work() -> None:
        async with Hub(
            hub, resume_after=after, level=cast(Level, level), address=address or "", identifier=identifier
        ) as stream:
            async for item in stream:
                if isinstance(item, Event):
                    marks = f"  marks {item.marks}" if item.marks else ""
                    say(f"{item.sequence}  {item.topic}  {len(item.payload)} bytes{marks}")
                else:
                    click.echo(line_of(item), err=True)

    interruptible(lambda: asyncio.run(work()))
