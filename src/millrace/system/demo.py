"""The demonstration: two swaps through every process, each step printed with its time, every claim checked.

The first swap is relayed for a wallet that holds tokens but no EGLD and must pay out exactly what was quoted.
The second uses a quote that another trader has made stale: the contract must revert it, and the wallet must
keep its tokens. The hash is computed, and its status subscribed to, before anything is sent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from millrace.chain.address import decode, encode
from millrace.chain.keys import KeyPair
from millrace.chain.transaction import Transaction, chain_hash, client_hash, signing_message
from millrace.client import AggregatorClient, RelayerClient
from millrace.runtime.tasks import end_tasks
from millrace.system.local_chain import LocalChain
from millrace.system.plan import LOCAL_CHAIN_ID, Plan, Ports, relayer_keys, services, wallet_in_shard
from millrace.system.processes import Processes, ServiceDied
from millrace.system.story import CheckFailed, Story

PAY, GET = "USDC-c76f1f", "UTK-2f80e9"
AMOUNT_IN = 2_500 * 10**6
SLIPPAGE = "0.005"
READY_SECONDS = 120.0
STATUS_SECONDS = 30.0
GAS_PRICE = 10**9
RELAYED_EXTRA_GAS = 50_000


async def main(*, seed: int, profile: str, log_directory: Path | None, console: Console | None = None) -> int:
    """Run the demonstration; 0 when every check held, 1 when one did not, 130 when interrupted."""
    console = console or Console(soft_wrap=not sys.stdout.isatty())
    task = asyncio.ensure_future(_run(console, seed, profile, log_directory))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        console.print("\ninterrupted; everything that was started has been stopped")
        return 130
    except (CheckFailed, ServiceDied) as failure:
        console.print(f"\n[red]The demonstration failed:[/red] {failure}", highlight=False)
        return 1
    console.print("\n[green]Every check held.[/green] Nothing is left running.")
    return 0


async def _run(console: Console, seed: int, profile: str, log_directory: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="millrace-demo-") as folder:
        plan = Plan(Ports.free(), Path(folder), seed=seed, profile=profile, poll_seconds=1.0)
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
            finally:
                await end_tasks([watcher, swaps])
            with story.step("stop everything"):
                await processes.stop_all()


async def start(plan: Plan, processes: Processes, story: Story) -> None:
    """Start every process of the plan at once and wait until all of them serve."""
    with story.step("ready: local chain, notifier, relayer, aggregator"):
        wanted = services(plan)
        for service in wanted:
            await processes.start(service)
        await asyncio.gather(*(processes.wait_ready(service, READY_SECONDS) for service in wanted))


async def _swaps(plan: Plan, story: Story) -> None:
    async with (
        LocalChain(plan.chain_url) as chain,
        AggregatorClient(plan.aggregator_url) as aggregator,
        RelayerClient(plan.relayer_ws_url) as relayer,
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
        aggregator: AggregatorClient,
        relayer: RelayerClient,
    ) -> None:
        self.plan = plan
        self.story = story
        self.chain = chain
        self.aggregator = aggregator
        self.relayer = relayer
        self.wallet = KeyPair.generate()
        self.relayer_keys = relayer_keys(plan)

    @property
    def address(self) -> str:
        """The wallet's address as text."""
        return encode(self.wallet.public)

    async def prepare(self) -> None:
        """Fund a wallet with tokens only, and hold the market still so that a quote stays true."""
        self.story.title("A wallet with tokens and no EGLD")
        with self.story.step(f"the faucet gives it {_amount(3 * AMOUNT_IN, 6)} {PAY}") as notes:
            probe = await self.aggregator.quote(PAY, GET, amount_in=AMOUNT_IN, sender=self.address)
            contract = decode(probe["transaction"]["receiver"])
            # The same shard as the contract: the status comes from a single shard's block.
            self.wallet = wallet_in_shard(self.plan.network.shard_of(contract), self.plan.network)
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
        status, delta = await self._relay_and_hear(transaction)
        self.story.check("the status is success", status["data"]["status"] == "success")
        after = await self.chain.balances(self.address)
        gained = after.get(GET, 0) - before.get(GET, 0)
        self.story.check(
            f"the wallet received exactly what was quoted: {gained} smallest units of {GET}",
            gained == int(quote["amountOut"]),
        )
        self.story.check(
            f"it paid exactly {AMOUNT_IN} smallest units of {PAY}",
            before[PAY] - after.get(PAY, 0) == AMOUNT_IN,
        )
        self.story.check("it still holds no EGLD: the relayer paid the fee", after["EGLD"] == 0)
        self.story.check(
            "the account update carries the same balances and the next nonce",
            int(delta["data"]["balances"][GET]) == after[GET] and delta["data"]["nonce"] == transaction.nonce + 1,
        )

    async def stale_swap(self) -> None:
        """The same with a quote that somebody else's trade has made stale: a fail, and nothing lost."""
        self.story.title("The same swap with a stale quote")
        quote = await self.fresh_quote()
        transaction = await self.signed(quote)
        await self._somebody_trades_first()
        before = await self.chain.balances(self.address)
        status, _ = await self._relay_and_hear(transaction)
        self.story.check(
            f"the status is fail: {status['data'].get('reason')}",
            status["data"]["status"] == "fail" and "execution failed" in status["data"]["reason"],
        )
        after = await self.chain.balances(self.address)
        self.story.check("the balances are unchanged", after == before)
        self.story.check("the nonce is used up", await self.chain.nonce(self.address) == transaction.nonce + 1)

    async def fresh_quote(self) -> dict[str, Any]:
        """A quote computed on the newest block."""
        await self._until(self._snapshot_reaches(await self.chain.newest_block()), "the aggregator is up to date")
        with self.story.step(f"quote {_amount(AMOUNT_IN, 6)} {PAY} → {GET}") as notes:
            begun = time.perf_counter()
            quote = await self.aggregator.quote(
                PAY, GET, amount_in=AMOUNT_IN, slippage=SLIPPAGE, includePaths=True, sender=self.address
            )
            took = (time.perf_counter() - begun) * 1000
            hops = [hop for path in quote["paths"] for hop in path["swaps"]]
            exchanges = sorted({hop["dex"] for hop in hops})
            notes.append(f"{quote['amountOutShort']:.6f} {GET}")
            notes.append(f"{len(quote['paths'])} paths over {len(hops)} pools of {', '.join(exchanges)}")
            notes.append(f"answered in {took:.1f} ms")
        return quote

    async def signed(self, quote: dict[str, Any]) -> Transaction:
        """The quote's transaction, with the relayer of the wallet's shard named before the wallet signs."""
        prepared = quote["transaction"]
        with self.story.step("sign it, the relayer's address included") as notes:
            network = self.plan.network
            relayer = self.relayer_keys[network.shard_of(self.wallet.public)].public
            unsigned = Transaction(
                nonce=await self.chain.nonce(self.address),
                value=int(prepared["value"]),
                receiver=decode(prepared["receiver"]),
                sender=self.wallet.public,
                gas_price=GAS_PRICE,
                gas_limit=int(prepared["gasLimit"]) + RELAYED_EXTRA_GAS,
                data=base64.b64decode(prepared["data"]),
                chain_id=LOCAL_CHAIN_ID,
                relayer=relayer,
            )
            signed = msgspec.structs.replace(unsigned, signature=self.wallet.sign(signing_message(unsigned)))
            notes.append(f"hash {client_hash(signed).hex()[:16]}…, known before it is sent")
        return signed

    async def _relay_and_hear(self, transaction: Transaction) -> tuple[dict[str, Any], dict[str, Any]]:
        """Subscribe, relay, and wait for the status and the account update of a transaction."""
        tx_hash = client_hash(transaction).hex()
        with self.story.step("subscribe to tx-status and to the account"):
            await self.relayer.subscribe(f"tx-status/{tx_hash}")
            await self.relayer.subscribe(f"address/{self.address}")
        with self.story.step("relay") as notes:
            reply = await self.relayer.relay(transaction)
            notes.append(f"{reply['status']}, on chain as {(reply.get('hashes') or ['-'])[0][:16]}…")
        self.story.check(f"the relayer took it {reply.get('failed') or ''}".rstrip(), reply["status"] == "completed")
        with self.story.step("the chain executes it; the status comes back") as notes:
            status = await self.relayer.next_message(f"tx-status/{tx_hash}", STATUS_SECONDS)
            notes.append(str(status["data"]["status"]))
        with self.story.step("the account update comes back"):
            delta = await self._delta_with_nonce(transaction.nonce + 1)
        await self.relayer.unsubscribe(f"address/{self.address}")
        return status, delta

    async def _delta_with_nonce(self, nonce: int) -> dict[str, Any]:
        while True:
            delta = await self.relayer.next_message(f"address/{self.address}", STATUS_SECONDS)
            if delta["data"]["nonce"] >= nonce:
                return delta

    async def _somebody_trades_first(self) -> None:
        """A bigger wallet buys the same token, so that the price moves beyond the quote's slippage."""
        amount = 40 * AMOUNT_IN
        with self.story.step(f"meanwhile another wallet swaps {_amount(amount, 6)} {PAY} → {GET}") as notes:
            whale = wallet_in_shard(self.plan.network.shard_of(self.wallet.public), self.plan.network)
            address = encode(whale.public)
            await self.chain.fund(address, PAY, amount)
            await self.chain.fund(address, "EGLD", 10**18)
            quote = await self.aggregator.quote(
                PAY, GET, amount_in=amount, slippage="0.05", sender=address, includePaths=False
            )
            prepared = quote["transaction"]
            unsigned = Transaction(
                nonce=0,
                value=int(prepared["value"]),
                receiver=decode(prepared["receiver"]),
                sender=whale.public,
                gas_price=GAS_PRICE,
                gas_limit=int(prepared["gasLimit"]),
                data=base64.b64decode(prepared["data"]),
                chain_id=LOCAL_CHAIN_ID,
            )
            signed = msgspec.structs.replace(unsigned, signature=whale.sign(signing_message(unsigned)))
            tx_hash = chain_hash(signed).hex()
            await self.relayer.subscribe(f"tx-status/{tx_hash}")
            await self.relayer.broadcast(signed)
            status = await self.relayer.next_message(f"tx-status/{tx_hash}", STATUS_SECONDS)
            notes.append(str(status["data"]["status"]))
        self.story.check("its swap succeeded", status["data"]["status"] == "success")

    async def _wait_for_balance(self, token: str, amount: int) -> dict[str, int]:
        async def funded() -> bool:
            return (await self.chain.balances(self.address)).get(token, 0) >= amount

        await self._until(funded, f"the faucet's {token} arrives")
        return await self.chain.balances(self.address)

    def _snapshot_reaches(self, block_nonce: int) -> Callable[[], Awaitable[bool]]:
        async def reached() -> bool:
            return bool((await self.aggregator.health())["blockNonce"] >= block_nonce)

        return reached

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Ask until `condition` holds. Raises `CheckFailed` when it does not within the status deadline."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STATUS_SECONDS):
                while not await condition():
                    await asyncio.sleep(0.05)
                return
        raise CheckFailed(what)


def _amount(units: int, decimals: int) -> str:
    whole, rest = divmod(units, 10**decimals)
    return f"{whole:,}" + (f".{rest:0{decimals}d}".rstrip("0") if rest else "")
