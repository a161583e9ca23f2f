"""The client against the real processes, on a local chain with the live network's rules."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from rich.console import Console

from millrace.system.demo import start
from millrace.system.local_chain import LocalChain
from millrace.system.plan import Plan, Ports, services
from millrace.system.processes import Processes
from millrace.system.story import Story
from millrace_client import Hub, Millrace, Missed, OutcomeUnknown, Quote, Refused, Wallet, sign
from millrace_client.hub import Event
from millrace_client.transaction import replaced

README = Path(__file__).parents[2] / "clients" / "python" / "README.md"
PAY, GET = "USDC-c76f1f", "UTK-2f80e9"
AMOUNT = 2_500_000_000
DEADLINE = 60.0

pytestmark = pytest.mark.asyncio(loop_scope="module")


class System:
    """Every process, and what is needed to reach and to kill them."""

    def __init__(self, plan: Plan, processes: Processes, chain: LocalChain) -> None:
        self.plan, self.processes, self.chain = plan, processes, chain

    def client(self, **options: Any) -> Millrace:
        """A client of all of it."""
        return Millrace(self.plan.aggregator_url, self.relayer_url, self.plan.relayer_ws_url, **options)

    @property
    def relayer_url(self) -> str:
        """The relayer's REST address."""
        return f"http://127.0.0.1:{self.plan.ports.relayer_http}"

    async def funded(self, amount: int = AMOUNT) -> Wallet:
        """A new wallet with tokens and no EGLD."""
        wallet = Wallet.generate()
        await self.chain.fund(wallet.address, PAY, amount)
        async with asyncio.timeout(DEADLINE):
            while (await self.chain.balances(wallet.address)).get(PAY, 0) < amount:
                await asyncio.sleep(0.05)
        return wallet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    """The whole system, started once."""
    folder = tmp_path_factory.mktemp("system")
    plan = Plan(Ports.free(), folder, profile="mainnet", poll_seconds=0.5)
    async with Processes(folder / "logs") as processes, LocalChain(plan.chain_url) as chain:
        await start(plan, processes, Story(Console(file=io.StringIO())))
        await chain.stop_traders()
        yield System(plan, processes, chain)


def _swap_of_the_readme() -> str:
    found = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


async def test_the_readmes_swap(system: System, tmp_path: Path) -> None:
    """The swap of the client's README, of at most 12 lines, runs as it stands there and is paid for by the relayer."""
    text = _swap_of_the_readme()
    assert len([line for line in text.splitlines() if line.strip()]) <= 12
    wallet = await system.funded()
    (tmp_path / "wallet.pem").write_text(wallet.to_pem(), encoding="utf-8")
    ports = system.plan.ports
    for usual, real in ((8100, ports.aggregator), (8201, ports.relayer_http), (8200, ports.relayer)):
        text = text.replace(f":{usual}", f":{real}")
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE
    )
    assert ran.returncode == 0, ran.stderr
    assert "success" in ran.stdout
    balances = await system.chain.balances(wallet.address)
    assert balances["EGLD"] == 0
    assert balances.get(PAY, 0) == 0
    assert balances[GET] > 0


async def test_a_multi_swap_is_made(system: System) -> None:
    """The batches of a multi-swap are prepared, signed and relayed in their order, and all of them end well."""
    wallet = await system.funded()
    async with system.client() as client:
        answer = await client.aggregator.multi_swap({PAY: AMOUNT}, GET, slippage="0.02", sender=wallet.address)
        made = await client.swap_all(answer, wallet)
        assert made.refused == []
        assert [(await handle.final(DEADLINE)).state for handle in made.handles] == ["success"]


async def test_everything_that_is_asked_is_typed(system: System) -> None:
    """Every question of the client is answered by the real services with the fields that its values have."""
    async with system.client() as client:
        aggregator, relayer = client.aggregator, client.relayer
        quote = await aggregator.quote(PAY, GET, amount_out=10**18, maxSplits=3)
        assert quote.amount_in is not None and quote.amount_in_max is not None and quote.paths
        ladder = await aggregator.ladder(PAY, GET, [10**6, 10**7])
        assert [step.amount_in for step in ladder.steps] == [10**6, 10**7]
        assert (await aggregator.batch_quote({PAY: AMOUNT}, GET)).batches[0].inputs[0].amount == AMOUNT
        assert (await aggregator.pair_config(PAY, GET)).decimals_in == 6
        assert not (await aggregator.pair_config(PAY, "NONE-000000")).supported
        assert (await aggregator.tokens("usdc")).tokens[0].ticker
        assert (await aggregator.pools(token=PAY, limit=2)).pools[0].reserves
        assert (await aggregator.prices(PAY)).prices[PAY].usdc == pytest.approx(1.0)
        assert (await aggregator.config()).limits.requests_per_second == 100
        assert (await aggregator.health()).status == "ok"
        assert (await relayer.relayers()).shard_rule == "mask"
        assert (await relayer.history(resolution=1)).resolution == 1
        with pytest.raises(Refused, match="unknown token_in"):
            await aggregator.quote("NONE-000000", GET, amount_in=1)


async def test_streams_are_typed(system: System) -> None:
    """Gas, network and account streams and the quote stream give values."""
    wallet = Wallet.generate()
    async with system.client() as client:
        async with await client.relayer.network_stats() as network, await client.relayer.gas_stats() as gas:
            first, price = await network.next(DEADLINE), await gas.next(DEADLINE)
            assert not isinstance(first, type(None)) and first.data.network is not None
            assert price.data.shard in (0, 1, 2)
        async with await client.relayer.account(wallet.address) as account:
            await system.chain.fund(wallet.address, PAY, 7)
            delta = await account.next(DEADLINE)
            assert delta.data.balances[PAY] == 7
        async with await client.aggregator.stream(PAY, GET, amount_in=AMOUNT) as quotes:
            assert (await quotes.next(DEADLINE)).amount_out_min > 0


async def test_the_hub_is_read_and_resumed(system: System) -> None:
    """A consumer of the hub goes on behind the last event that it handled, also in another life."""
    url = system.plan.hub_url
    seen: list[int] = []
    async with asyncio.timeout(DEADLINE), Hub(url) as hub:
        async for event in hub:
            assert isinstance(event, Event) and event.topic
            seen.append(event.sequence)
            if len(seen) == 5:
                break
    assert hub.last == seen[3]  # the fifth was given and not finished
    async with asyncio.timeout(DEADLINE), Hub(url, resume_after=hub.last) as again:
        assert (await anext(again)).sequence == seen[4]


async def test_an_aggregator_killed_in_the_middle(system: System) -> None:
    """A quote stream goes on when the aggregator is back, and says that something was missed."""
    async with system.client() as client, await client.aggregator.stream(PAY, GET, amount_in=AMOUNT) as quotes:
        assert isinstance(await quotes.next(DEADLINE), Quote)
        os.kill(system.processes.pid("aggregator"), signal.SIGKILL)
        service = next(service for service in services(system.plan) if service.name == "aggregator")
        await system.processes.start(service)
        seen = []
        async with asyncio.timeout(DEADLINE):
            while not (seen and isinstance(seen[-1], Quote) and any(isinstance(item, Missed) for item in seen)):
                seen.append(await quotes.next())
        assert (await client.quote(PAY, GET, amount_in=AMOUNT)).amount_out is not None


async def test_a_relayer_killed_in_the_middle(system: System) -> None:
    """The handle of what a killed relayer had accepted says what it could not know, and resolves when it is back."""
    wallet = await system.funded()
    async with system.client(timeout=5.0) as client:
        quote = await client.quote(PAY, GET, amount_in=AMOUNT, slippage=0.02, sender=wallet.address)
        handle = await client.swap(quote, wallet)
        os.kill(system.processes.pid("relayer"), signal.SIGKILL)
        with pytest.raises(OutcomeUnknown) as unknown:
            await handle.final(0.5)
        assert unknown.value.hash == handle.hash
        service = next(service for service in services(system.plan) if service.name == "relayer")
        await system.processes.start(service)
        await system.processes.wait_ready(service, DEADLINE)
        outcome = await handle.final(DEADLINE)
        assert outcome.state == "success", outcome


async def test_a_relayer_killed_before_it_is_asked(system: System) -> None:
    """What is handed over while nobody is there waits for the relayer to come back, arrives once, and resolves."""
    wallet = await system.funded()
    async with system.client(timeout=DEADLINE) as client:
        quote = await client.quote(PAY, GET, amount_in=AMOUNT, slippage=0.02, sender=wallet.address)
        assert quote.transaction is not None
        signed = await sign(await client.relayer.prepare(replaced(quote.transaction, nonce=None)), wallet)
        os.kill(system.processes.pid("relayer"), signal.SIGKILL)
        relaying = asyncio.create_task(client.relayer.relay(signed))
        service = next(service for service in services(system.plan) if service.name == "relayer")
        await system.processes.start(service)
        await system.processes.wait_ready(service, DEADLINE)
        handle = await asyncio.wait_for(relaying, DEADLINE)
        assert (await handle.final(DEADLINE)).state == "success"
    assert (await system.chain.balances(wallet.address)).get(PAY, 0) == 0


async def test_the_command_on_the_whole_system(system: System, tmp_path: Path) -> None:
    """`swap` with the decimals of the chain ends well, `ledger` tells of it, and `doctor` finds all in order."""
    wallet, ports = await system.funded(), system.plan.ports
    (tmp_path / "wallet.pem").write_text(wallet.to_pem(), encoding="utf-8")
    places = {
        "MILLRACE_AGGREGATOR_URL": system.plan.aggregator_url,
        "MILLRACE_RELAYER_URL": system.relayer_url,
        "MILLRACE_RELAYER_WS_URL": system.plan.relayer_ws_url,
        "MILLRACE_RELAYER_OPERATORS_URL": f"http://127.0.0.1:{ports.relayer_metrics}",
        "MILLRACE_GATEWAY_URL": system.plan.chain_url,
        "MILLRACE_NOTIFIER_URL": f"http://127.0.0.1:{ports.notifier_http}",
    }

    async def millrace(*words: str) -> str:
        ran = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "millrace", *words], cwd=tmp_path, env=os.environ | places,
            capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    told = await millrace("swap", PAY, GET, "2,500", "--key", "wallet.pem", "--at-least", "0.000001")
    assert f"pays {AMOUNT} smallest units of {PAY} = 2,500 (6 decimals, by the chain)" in told and "swapped" in told
    assert f"{wallet.address},0,0,0," in await millrace("ledger", "users", "--csv", "--limit", "10000")
    found = await millrace("doctor")
    assert f"chain API: {system.plan.chain_url} answers, chain local" in found and "✗" not in found
