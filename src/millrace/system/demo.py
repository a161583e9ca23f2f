"""The demonstration: two swaps through every process, each step printed with its time, every claim checked.

The first swap is relayed for a wallet that holds tokens but no EGLD and must pay out exactly what was quoted.
The second uses a quote that another trader has made stale: the contract must revert it, and the wallet must
keep its tokens. The hash is computed, and its status subscribed to, before anything is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from rich.console import Console

from millrace.chain.address import decode, encode
from millrace.client import Aggregator, Handle, Outcome, Quote, Relayer, Subscription, Transaction, Wallet, sign
from millrace.gossip.child import is_there
from millrace.runtime import extras
from millrace.runtime.tasks import end_tasks
from millrace.system.local_chain import LocalChain
from millrace.system.plan import Plan, Ports, relayer_keys, services, wallet_in_shard
from millrace.system.processes import Processes, ServiceDied
from millrace.system.story import CheckFailed, Story
from millrace_client.messages import AccountDelta, Push, TxStatus

PAY, GET = "USDC-c76f1f", "UTK-2f80e9"
AMOUNT_IN = 2_500 * 10**6
SLIPPAGE = "0.005"
READY_SECONDS = 120.0
STATUS_SECONDS = 30.0
NEXT = f"""
What next (in a checkout: ./run millrace …):
  millrace up                                  the same system, kept running, with a page on http://127.0.0.1:8080
  millrace quote {PAY} {GET} 2500   a quote of it, in another terminal
  millrace --help                              swaps, live tables, keys, settings, the services one by one"""
GAS_PRICE = 10**9
RELAYED_EXTRA_GAS = 50_000


async def main(
    *, seed: int, profile: str, log_directory: Path | None, keep: bool = False, console: Console | None = None
) -> int:
    """Run the demonstration; 0 when every check held, 1 when one did not, 130 when interrupted.

    With `keep` the system is on the documented ports, and runs on after the checks until it is interrupted: then 0.
    """
    console = console or Console(soft_wrap=not sys.stdout.isatty())
    kept = asyncio.Event()
    task = asyncio.ensure_future(_run(console, seed, profile, log_directory, kept if keep else None))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        console.print("\ninterrupted; everything that was started has been stopped")
        return 0 if kept.is_set() else 130
    except (CheckFailed, ServiceDied) as failure:
        console.print(f"\n[red]The demonstration failed:[/red] {failure}", highlight=False)
        return 1
    console.print("\n[green]Every check held.[/green] Nothing is left running.")
    console.print(NEXT, highlight=False, markup=False)
    return 0


async def _run(
    console: Console, seed: int, profile: str, log_directory: Path | None, kept: asyncio.Event | None
) -> None:
    """`kept` is set once only the system runs on, until this is cancelled; None: everything is stopped then."""
    with tempfile.TemporaryDirectory(prefix="millrace-demo-") as folder:
        ports = Ports.free() if kept is None else Ports()
        plan = Plan(ports, Path(folder), seed=seed, profile=profile, poll_seconds=1.0)
        async with Processes(log_directory or plan.data / "logs") as processes:
            story = Story(console)
            story.title("A chain and three services on this machine")
            await start(plan, processes, story)
            watcher = asyncio.ensure_future(processes.watch())
            swaps = asyncio.ensure_future(_swaps(plan, story))
            try:
                await asyncio.wait({watcher, swaps}, return_when=asyncio.FIRST_COMPLETED)
                if watcher.done():
                    watcher.result()
                await swaps
                if kept is not None:
                    kept.set()
                    await _keep(plan, console, watcher)
            finally:
                await end_tasks([watcher, swaps])
            with story.step("stop everything"):
                await processes.stop_all()


async def start(plan: Plan, processes: Processes, story: Story) -> None:
    """Start every process of the plan at once and wait until all of them serve. Raises `ServiceDied`."""
    if taken := plan.ports.taken():
        named = ", ".join(f"{port} ({name})" for name, port in taken.items())
        remedy = f"stop that, or choose others: `millrace up --port {min(taken)}=NUMBER`, `millrace up --free-ports`"
        raise ServiceDied(f"in use by somebody else: port {named}; {remedy}")
    with story.step("ready: local chain, notifier, relayer, aggregator, console"):
        wanted = services(plan)
        for service in wanted:
            await processes.start(service)
        await asyncio.gather(*(processes.wait_ready(service, READY_SECONDS) for service in wanted))
    if not is_there("python"):
        story.note(f"no gossip: transactions go through the chain API; for gossip: {extras.remedy('gossip')}")


async def _keep(plan: Plan, console: Console, watcher: asyncio.Future[None]) -> None:
    """Let the traders go on and say where to look, until a service dies or somebody has seen enough."""
    async with LocalChain(plan.chain_url) as chain:
        await chain.start_traders()
    console.print(f"\n[green]Every check held.[/green] It runs on: {plan.console_url} (Ctrl-C stops everything)")
    await watcher


async def _swaps(plan: Plan, story: Story) -> None:
    async with (
        LocalChain(plan.chain_url) as chain,
        Aggregator(plan.aggregator_url) as aggregator,
        Relayer(plan.relayer_url, plan.relayer_ws_url) as relayer,
    ):
        scene = Scene(plan, story, chain, aggregator, relayer)
        await scene.prepare()
        await scene.good_swap()
        await scene.stale_swap()


class Scene:
    """The actors of the demonstration and what they do, step by step."""

    def __init__(
        self,
        plan: Plan,
        story: Story,
        chain: LocalChain,
        aggregator: Aggregator,
        relayer: Relayer,
    ) -> None:
        self.plan = plan
        self.story = story
        self.chain = chain
        self.aggregator = aggregator
        self.relayer = relayer
        self.wallet = Wallet.generate()
        self.relayer_keys = relayer_keys(plan)

    @property
    def address(self) -> str:
        """The wallet's address as text."""
        return self.wallet.address

    async def prepare(self) -> None:
        """Fund a wallet with tokens only, and hold the market still so that a quote stays true."""
        self.story.title("A wallet with tokens and no EGLD")
        with self.story.step(f"the faucet gives it {_amount(3 * AMOUNT_IN, 6)} {PAY}") as notes:
            probe = await self.aggregator.quote(PAY, GET, amount_in=AMOUNT_IN, sender=self.address)
            contract = decode(_transaction_of(probe).receiver)
            # The same shard as the contract: the status comes from a single shard's block.
            self.wallet = self._wallet_in_shard(self.plan.network.shard_of(contract))
            await self.chain.fund(self.address, PAY, 3 * AMOUNT_IN)
            notes.append(self.address)
        balances = await self._wait_for_balance(PAY, 3 * AMOUNT_IN)
        self.story.check("it holds no EGLD, so it could not pay for gas itself", balances["EGLD"] == 0)
        with self.story.step("background traders pause") as notes:
            still_from = await self.chain.stop_traders()
            await self._until(self._snapshot_reaches(still_from), "the aggregator sees the market at rest")
            notes.append(f"the market stands still from block {still_from}")

    async def good_swap(self) -> None:
        """Quote, sign, subscribe, relay; the status and the account change arrive; the chain agrees."""
        self.story.title("A swap, paid for by the relayer")
        quote = await self.fresh_quote()
        before = await self.chain.balances(self.address)
        transaction = await self.signed(quote)
        outcome, balances, nonce = await self._relay_and_hear(transaction)
        self.story.check("the status is success", outcome.state == "success")
        after = await self.chain.balances(self.address)
        gained = after.get(GET, 0) - before.get(GET, 0)
        self.story.check(
            f"the wallet received exactly what was quoted: {gained} smallest units of {GET}",
            gained == quote.amount_out,
        )
        self.story.check(
            f"it paid exactly {AMOUNT_IN} smallest units of {PAY}",
            before[PAY] - after.get(PAY, 0) == AMOUNT_IN,
        )
        self.story.check("it still holds no EGLD: the relayer paid the fee", after["EGLD"] == 0)
        self.story.check(
            "the account update carries the same balances and the next nonce",
            balances[GET] == after[GET] and nonce == (transaction.nonce or 0) + 1,
        )

    async def stale_swap(self) -> None:
        """The same with a quote that somebody else's trade has made stale: a fail, and nothing lost."""
        self.story.title("The same swap with a stale quote")
        quote = await self.fresh_quote()
        transaction = await self.signed(quote)
        await self._somebody_trades_first()
        before = await self.chain.balances(self.address)
        outcome, _, _ = await self._relay_and_hear(transaction)
        self.story.check(
            f"the status is fail: {outcome.reason}",
            outcome.state == "fail" and "execution failed" in (outcome.reason or ""),
        )
        after = await self.chain.balances(self.address)
        self.story.check("the balances are unchanged", after == before)
        self.story.check("the nonce is used up", await self.chain.nonce(self.address) == (transaction.nonce or 0) + 1)

    async def fresh_quote(self) -> Quote:
        """A quote computed on the newest block."""
        await self._until(self._snapshot_reaches(await self.chain.newest_block()), "the aggregator is up to date")
        with self.story.step(f"quote {_amount(AMOUNT_IN, 6)} {PAY} → {GET}") as notes:
            begun = time.perf_counter()
            quote = await self.aggregator.quote(
                PAY, GET, amount_in=AMOUNT_IN, slippage=SLIPPAGE, includePaths=True, sender=self.address
            )
            took = (time.perf_counter() - begun) * 1000
            hops = [hop for path in quote.paths for hop in path.swaps]
            exchanges = sorted({hop.dex for hop in hops})
            notes.append(f"{quote.amount_out_short:.6f} {GET}")
            notes.append(f"{len(quote.paths)} paths over {len(hops)} pools of {', '.join(exchanges)}")
            notes.append(f"answered in {took:.1f} ms")
        return quote

    async def signed(self, quote: Quote) -> Transaction:
        """The quote's transaction, with the relayer of the wallet's shard named before the wallet signs."""
        with self.story.step("sign it, the relayer's address included") as notes:
            relayer = self.relayer_keys[self.plan.network.shard_of(self.wallet.public)].public
            prepared = _transaction_of(quote)
            unsigned = msgspec.structs.replace(
                prepared,
                nonce=await self.chain.nonce(self.address),
                gas_price=GAS_PRICE,
                gas_limit=prepared.gas_limit + RELAYED_EXTRA_GAS,
                relayer=encode(relayer),
            )
            signed = await sign(unsigned, self.wallet)
            notes.append(f"hash {signed.client_hash()[:16]}…, known before it is sent")
        return signed

    async def _relay_and_hear(self, transaction: Transaction) -> tuple[Outcome, dict[str, int], int]:
        """Subscribe, relay, and wait for the status and the account update: its balances and its nonce."""
        with self.story.step("subscribe to tx-status and to the account"):
            status = await self.relayer.subscribe(f"tx-status/{transaction.client_hash()}")
            account = await self.relayer.account(self.address)
        async with status, account:
            with self.story.step("relay") as notes:
                handle = await self.relayer.relay(transaction)
                notes.append(f"completed, on chain as {handle.hash[:16]}…")
            self.story.check("the relayer took it", handle.accepted is True)
            outcome = await self._heard(handle, status)
            with self.story.step("the account update comes back"):
                async with asyncio.timeout(STATUS_SECONDS):
                    async for delta in account:
                        if isinstance(delta, AccountDelta) and delta.data.nonce > (transaction.nonce or 0):
                            return outcome, delta.data.balances, delta.data.nonce
        raise CheckFailed("the account update did not come")

    async def _heard(self, handle: Handle, status: Subscription[Push]) -> Outcome:
        """The outcome, told by the subscription and by the handle alike."""
        with self.story.step("the chain executes it; the status comes back") as notes:
            told = await status.next(STATUS_SECONDS)
            outcome = await handle.final(STATUS_SECONDS)
            notes.append(outcome.state)
        self.story.check("it is told once", isinstance(told, TxStatus) and told.data.status == outcome.state)
        return outcome

    async def _somebody_trades_first(self) -> None:
        """A bigger wallet buys the same token, so that the price moves beyond the quote's slippage."""
        amount = 40 * AMOUNT_IN
        with self.story.step(f"meanwhile another wallet swaps {_amount(amount, 6)} {PAY} → {GET}") as notes:
            whale = self._wallet_in_shard(self.plan.network.shard_of(self.wallet.public))
            await self.chain.fund(whale.address, PAY, amount)
            await self.chain.fund(whale.address, "EGLD", 10**18)
            quote = await self.aggregator.quote(
                PAY, GET, amount_in=amount, slippage="0.05", sender=whale.address, includePaths=False
            )
            unsigned = msgspec.structs.replace(_transaction_of(quote), nonce=0, gas_price=GAS_PRICE)
            handle = await self.relayer.broadcast(await sign(unsigned, whale))
            outcome = await handle.final(STATUS_SECONDS)
            notes.append(outcome.state)
        self.story.check("its swap succeeded", outcome.state == "success")

    def _wallet_in_shard(self, shard: int) -> Wallet:
        return Wallet.from_pem_text(wallet_in_shard(shard, self.plan.network).to_pem())

    async def _wait_for_balance(self, token: str, amount: int) -> dict[str, int]:
        async def funded() -> bool:
            return (await self.chain.balances(self.address)).get(token, 0) >= amount

        await self._until(funded, f"the faucet's {token} arrives")
        return await self.chain.balances(self.address)

    def _snapshot_reaches(self, block_nonce: int) -> Callable[[], Awaitable[bool]]:
        async def reached() -> bool:
            return ((await self.aggregator.health()).block_nonce or 0) >= block_nonce

        return reached

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Ask until `condition` holds. Raises `CheckFailed` when it does not within the status deadline."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STATUS_SECONDS):
                while not await condition():
                    await asyncio.sleep(0.05)
                return
        raise CheckFailed(what)


def _transaction_of(quote: Quote) -> Transaction:
    if quote.transaction is None:
        raise CheckFailed("the quote holds a transaction to sign")
    return quote.transaction


def _amount(units: int, decimals: int) -> str:
    whole, rest = divmod(units, 10**decimals)
    return f"{whole:,}" + (f".{rest:0{decimals}d}".rstrip("0") if rest else "")
