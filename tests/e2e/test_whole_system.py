"""The real processes over real sockets: the demonstration's flow, two observers per shard, a revert in the middle."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from rich.console import Console

from millrace.chain.address import decode
from millrace.client import Aggregator, Relayer
from millrace.localnet.settings import NEVER
from millrace.system.demo import AMOUNT_IN, GET, PAY, Scene, start
from millrace.system.local_chain import LocalChain, LocalChainError
from millrace.system.plan import Plan, Ports
from millrace.system.processes import Processes
from millrace.system.story import Story
from millrace_client.messages import TxStatus
from servers.absent import modules_of, without

DEADLINE = 30.0


KINDS: dict[str, dict[str, Any]] = {
    "present": {},
    "earlier": {"supernova_epoch": NEVER},
    "present-mainnet": {"profile": "mainnet"},
    "earlier-mainnet": {"supernova_epoch": NEVER, "profile": "mainnet"},
}
"""Both formats of blocks, under both rules of shards."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """The whole system, started once for each kind of chain, with a funded wallet and the market at rest."""
    folder = tmp_path_factory.mktemp("system")
    plan = Plan(Ports.free(), folder, observers_per_shard=2, poll_seconds=0.5, **KINDS[request.param])
    story = Story(Console(file=io.StringIO()))
    async with Processes(folder / "logs") as processes:
        await start(plan, processes, story)
        async with (
            LocalChain(plan.chain_url) as chain,
            Aggregator(plan.aggregator_url) as aggregator,
            Relayer(plan.relayer_url, plan.relayer_ws_url) as relayer,
        ):
            scene = Scene(plan, story, chain, aggregator, relayer)
            await scene.prepare()
            yield scene


async def metrics(scene: Scene) -> dict[str, float]:
    """The notifier's metrics, labels left in the names."""
    url = f"http://127.0.0.1:{scene.plan.ports.notifier_metrics}/metrics"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        lines = [line for line in (await response.text()).splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def control(scene: Scene, action: str, **body: object) -> dict[str, object]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{scene.plan.chain_url}/control/{action}", json=body) as response,
    ):
        assert response.status == 200, await response.text()
        return dict(await response.json())


async def eventually(condition: object, what: str) -> None:
    """Ask until the coroutine function `condition` answers true; bounded."""
    assert callable(condition)
    async with asyncio.timeout(DEADLINE):
        while not await condition():
            await asyncio.sleep(0.05)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_relayed_swap_pays_exactly_the_quote(scene: Scene) -> None:
    """Quote, sign, subscribe, relay: the status is success, and the wallet gets the quoted amount to the last unit."""
    await scene.good_swap()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stale_quote_fails_and_costs_the_wallet_nothing(scene: Scene) -> None:
    """A quote made stale by another trader reverts with its reason; balances stay, the nonce is used."""
    await scene.stale_swap()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_revert_takes_back_what_was_not_final(scene: Scene) -> None:
    """A swap executed in a block that is then reverted has its one status after the block that holds it is final."""
    quote = await scene.fresh_quote()
    transaction = await scene.signed(quote)
    before = await scene.chain.balances(scene.address)
    tx_hash = transaction.client_hash()
    shard = scene.plan.network.shard_of(decode(transaction.receiver))
    await control(scene, "finality", delayRounds=1000)
    statuses = await scene.relayer.subscribe(f"tx-status/{tx_hash}")
    handle = await scene.relayer.relay(transaction)
    assert handle.accepted

    async def executed() -> bool:
        try:
            return "receiverBlockHash" in await scene.chain.transaction(tx_hash)
        except LocalChainError:
            return False  # gossip has not brought it yet

    await eventually(executed, "the swap is in a block")
    first = (await scene.chain.transaction(tx_hash))["receiverBlockHash"]
    # Everything since finality stopped goes: the swap's block is among it.
    head = await _head(scene, shard)
    included = (await scene.chain.transaction(tx_hash))["receiverBlockNonce"]
    await control(scene, "revert", shard=shard, depth=head - included + 1)
    await eventually(executed, "the swap is in a block again")
    second = (await scene.chain.transaction(tx_hash))["receiverBlockHash"]
    assert second != first
    with pytest.raises(TimeoutError):
        await statuses.next(0.2)
    await control(scene, "finality", delayRounds=0)
    status = await statuses.next(DEADLINE)
    assert isinstance(status, TxStatus)
    assert status.data.status == "success"
    assert status.data.hash == tx_hash
    after = await scene.chain.balances(scene.address)
    assert after[GET] - before[GET] == quote.amount_out
    assert before[PAY] - after.get(PAY, 0) == AMOUNT_IN
    with pytest.raises(TimeoutError):
        await statuses.next(1.5)
    await statuses.close()


async def _head(scene: Scene, shard: int) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{scene.plan.chain_url}/health") as response:
        return int((await response.json())["blocks"][str(shard)])


@pytest.mark.asyncio(loop_scope="module")
async def test_two_observers_count_once(scene: Scene) -> None:
    """With two observers per shard the notifier drops as many duplicates as it delivers events, and saw the revert."""
    values = await metrics(scene)
    duplicates = sum(value for name, value in values.items() if "duplicate" in name and "nonce" not in name)
    reverts = sum(value for name, value in values.items() if "revert" in name)
    assert duplicates > 0, sorted(values)
    assert reverts > 0, sorted(values)


def test_the_demonstration_command(tmp_path: Path) -> None:
    """`millrace demo` prints both swaps and exits 0; no process of it is left."""
    result = subprocess.run(
        [sys.executable, "-m", "millrace", "demo", "--keep-logs", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Every check held" in result.stdout
    assert "through the chain API" not in result.stdout
    assert _processes_of(tmp_path) == []


def test_the_demonstration_without_gossip(tmp_path: Path) -> None:
    """Without the packages of gossip `millrace demo` says that the chain API takes the transactions, which it does."""
    result = subprocess.run(
        [sys.executable, "-m", "millrace", "demo", "--keep-logs", str(tmp_path)],
        env=without(tmp_path, modules_of("gossip")),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "transactions go through the chain API" in result.stdout
    assert "Every check held" in result.stdout
    told = [line for line in (tmp_path / "relayer.log").read_text().splitlines() if "no gossip" in line]
    assert len(told) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_demonstration_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, kill and even kill -9 in the middle of the demonstration leave no process behind."""
    child = subprocess.Popen(
        [sys.executable, "-m", "millrace", "demo", "--keep-logs", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    for line in child.stdout:
        if "the faucet gives" in line:
            break
    started = _processes_of(tmp_path)
    assert len(started) >= 4
    child.send_signal(number)
    child.stdout.read()
    child.stdout.close()
    code = child.wait(30)
    assert code == (-9 if number == signal.SIGKILL else 130)
    end = time.monotonic() + DEADLINE
    while (left := _processes_of(tmp_path)) and time.monotonic() < end:
        os.sched_yield()
    assert left == []


def _processes_of(log_folder: Path) -> list[int]:
    """Processes whose standard error is a log in this folder: the services, their signer and gossip processes."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                target = str((entry / "fd" / "2").readlink())
            except OSError:
                continue
            if target.startswith(str(log_folder)):
                found.append(int(entry.name))
    return found
