"""The TypeScript client on the real services: every question it can ask, and services that are killed meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from millrace.chain.address import encode
from millrace.system.demo import GET
from servers.typescript_client import System, Worker, at_work

pytestmark = [pytest.mark.foreign, pytest.mark.asyncio(loop_scope="module")]
SCRIPT = Path(__file__).parent / "services.mjs"


@pytest_asyncio.fixture(loop_scope="module")
async def worker(installed: Path, system: System) -> AsyncIterator[Worker]:
    """The installed client in Node, with a wallet that holds tokens and no EGLD."""
    key = await system.wallet()
    where = {
        "AGGREGATOR": system.plan.aggregator_url,
        "RELAYER": f"http://127.0.0.1:{system.plan.ports.relayer_http}",
        "SOCKET": f"ws://127.0.0.1:{system.plan.ports.relayer}",
        "HUB": f"ws://127.0.0.1:{system.plan.ports.notifier}/hub/ws",
    }
    async with at_work(SCRIPT, installed, PEM=key.to_pem(), ADDRESS=encode(key.public), **where) as running:
        yield running


async def test_the_whole_surface(worker: Worker, system: System) -> None:
    """Each question gets the service's answer, in the shape that the types promise."""
    told = await worker.ask("surface")
    assert int(told["quote"]["amountOut"]) > int(told["quote"]["amountOutMin"]) > 0
    assert told["quote"]["transaction"]["chainID"] == "local"
    assert told["reverse"]["amountOut"] >= str(10**18)
    assert [len(told["ladder"]["steps"]), told["pair"]["supported"]] == [2, True]
    assert told["multiSwap"]["batches"][0]["transaction"]["sender"]
    assert told["batch"]["batches"]
    assert [len(told["tokens"]["tokens"]), len(told["pools"]["pools"])] == [2, 2]
    assert list(told["prices"]["prices"]) == ["USDC-c76f1f"]
    assert told["config"]["chainId" if "chainId" in told["config"] else "chainID"] == "local"
    assert told["health"]["status"] == "ok"
    assert [item["type"] for item in told["stream"]] == ["quote", "quote"]
    assert told["relayers"]["shardRule"] == "mask"
    assert told["relayer"]["address"] in [relayer["address"] for relayer in told["relayers"]["relayers"]]
    assert told["ready"]["ready"] is True
    assert told["history"]["resolution"] == 1
    assert {item["type"] for item in told["gas"]} == {"gasStats"}
    assert {item["type"] for item in told["stats"]} <= {"networkStats", "missed"}


async def test_genuine_answers_pass_the_checks(worker: Worker) -> None:
    """What the aggregator makes is accepted to the unit: tokens, EGLD at either end, wrapping, reverse, many inputs."""
    seen = await worker.ask("checked")
    assert {name for _, name in seen} == {"ESDTTransfer", "xo", "MultiESDTNFTTransfer"}
    assert {name for value, name in seen if value != "0"} == {"xo"}


async def test_a_refusal(worker: Worker) -> None:
    """A nonce that is none yet is refused with the relayer's reason, before anything is signed."""
    assert await worker.ask("refused") == {"name": "Refused", "reason": "nonce too high", "code": "nonce_too_high"}


async def test_the_hub(worker: Worker) -> None:
    """Events come in order from the beginning, and a second consumer goes on behind the last one that was handled."""
    told = await worker.ask("hub")
    sequences = [int(item["sequence"]) for item in told["before"]]
    assert sequences == sorted(sequences)
    later = [int(item["sequence"]) for item in told["after"]]
    assert later == sorted(later)
    assert later[0] == sequences[-1], "the last one was handed out, but its reader never asked for the next"
    assert {item["topic"] for item in told["before"]} == {"SaveBlock"}


async def test_the_relayer_is_killed_after_it_took_a_swap(worker: Worker, system: System) -> None:
    """The handle resolves although the connection, and perhaps the status, was lost with the relayer."""
    sent = await worker.ask("swap")
    await system.kill("relayer")
    worker.say("final")
    await system.start("relayer")
    final = await worker.answer()
    assert (final["hash"], final["state"], final["known"]) == (sent["hash"], "success", "success")


async def test_the_relayer_is_killed_before_it_is_asked(worker: Worker, system: System) -> None:
    """A swap that is asked for while there is no relayer waits for it, and is carried out once."""
    await system.kill("relayer")
    worker.say("swap")
    await system.start("relayer")
    sent = await worker.answer()
    assert sent["accepted"] is True
    assert (await worker.ask("final"))["state"] == "success"
    (update,) = await worker.ask("account")
    assert update["type"] == "missed" or int(update["data"]["balances"][GET]) >= int(sent["least"])


async def test_subscriptions_outlive_the_relayer(worker: Worker, system: System) -> None:
    """A topic goes on after a restart, and what was missed is told before."""
    await worker.ask("listen")
    await system.kill("relayer")
    worker.say("heard")
    await system.start("relayer")
    heard = await worker.answer()
    assert "missed" in heard
    assert heard[-1] == "gasStats"


async def test_the_aggregator_is_killed_in_a_stream(worker: Worker, system: System) -> None:
    """A stream of quotes goes on after a restart, and says that something was missed."""
    assert await worker.ask("stream") == "quote"
    await system.kill("aggregator")
    worker.say("quoted")
    await system.start("aggregator")
    assert await worker.answer() is True
