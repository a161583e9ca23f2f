"""The official SDKs themselves against a running relayer: what they make, sign and hash is taken and found again.

The Python SDK is always there. The JavaScript one needs Node and npm: set MILLRACE_JS_PREFIX to a directory for its
packages, and run `./run test -m foreign tests/relayer/test_official_sdks.py`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from multiversx_sdk import Address, Transaction, TransactionComputer, UserSecretKey
from relayer_support import Chain, connected, start, wallet

from javascript import sdk_folder
from millrace.chain import address, call

HERE = Path(__file__).parent
VECTORS: list[dict[str, Any]] = json.loads((HERE.parent / "vectors" / "sdk_hashes.json").read_text())["vectors"]
ALICE = wallet(1)
SEED = next(
    vector["request"]["seed"]
    for vector in VECTORS
    if vector["request"]["transaction"]["sender"] == address.encode(ALICE.public)
)
CONTRACT = "erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
SWAP = call.esdt_transfer("WEGLD-bd4d79", 10**18, "swap", b"USDC-c76f1f", b"\1")


async def ask(world: Any, path: str, body: Any = None) -> Any:
    async with aiohttp.ClientSession(world.http) as http:
        async with http.get(path) if body is None else http.post(path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()


async def follow(world: Any, chain: Chain, signed: dict[str, Any], sdk_hash: str) -> None:
    """The wallet subscribes by the hash its SDK computes, relays, and hears of it; so does who asks later."""
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"tx-status/{sdk_hash}")
        reply = await client.ask(action="relay", tx=signed)
        assert reply["status"] == "completed", reply
        (entry,) = world.service.lifecycle.inflight.entries()
        chain.final([entry.tx], failing={entry.chain_hash: "slippage"})
        heard = (await client.push())["data"]
        assert (heard["hash"], heard["status"]) == (sdk_hash, "fail")
        assert heard["chainHash"] == reply["hashes"][0]
    assert (await ask(world, f"/v1/transactions/{sdk_hash}"))["reason"] == "execution failed: slippage"


async def test_the_python_sdk(world: Any) -> None:
    """A swap prepared by the service, signed and hashed by the Python SDK, is told by that hash."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    key, computer = UserSecretKey(bytes.fromhex(SEED)), TransactionComputer()
    for nonce in range(2):
        own = Transaction(
            sender=key.generate_public_key().to_address("erd"),
            receiver=Address.new_from_bech32(CONTRACT),
            gas_limit=20_000_000,
            chain_id="local",
            data=SWAP,
        )
        wish = {name: value for name, value in own.to_dictionary().items() if name in _WISHED and value}
        prepared = await ask(world, "/v1/prepare", {"transaction": wish})
        made = Transaction.new_from_dictionary({"signature": "", **prepared["transaction"]})
        assert (made.nonce, made.data, made.gas_limit) == (nonce, SWAP, 20_050_000)
        made.signature = key.sign(computer.compute_bytes_for_signing(made))
        signed = {name: value for name, value in made.to_dictionary().items() if value is not None}
        await follow(world, chain, signed, computer.compute_transaction_hash(made).hex())


_WISHED = ("sender", "receiver", "gasLimit", "data")


class JavaScript:
    """The JavaScript SDK in a process of Node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def sign(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """What it makes of requests, see sdk.mjs."""
        process = await asyncio.create_subprocess_exec(
            *("node", "sdk.mjs"), cwd=self._folder, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate("".join(json.dumps(item) + "\n" for item in requests).encode())
        assert process.returncode == 0
        return [json.loads(line) for line in printed.splitlines()]


@pytest.fixture(scope="module")
def javascript() -> JavaScript:
    """The SDK, installed the first time."""
    return JavaScript(sdk_folder())


@pytest.mark.foreign
async def test_the_javascript_sdk_still_says_so(javascript: JavaScript) -> None:
    """The vectors are what the installed JavaScript SDK signs and hashes."""
    made = await javascript.sign(*(vector["request"] for vector in VECTORS))
    assert made == [{"transaction": item["transaction"], "hash": item["javascript"]} for item in VECTORS]


@pytest.mark.foreign
async def test_the_javascript_sdk(world: Any, javascript: JavaScript) -> None:
    """A swap prepared by the service, and transfers of its own making, signed and hashed by the JavaScript SDK."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    sender, relayer = address.encode(ALICE.public), (await ask(world, "/v1/relayers"))["relayers"][1]["address"]
    wish = {"sender": sender, "receiver": CONTRACT, "gasLimit": 20_000_000}
    prepared = await ask(world, "/v1/prepare", {"transaction": wish})
    (swap,) = await javascript.sign({"seed": SEED, "transaction": prepared["transaction"]})
    await follow(world, chain, swap["transaction"], swap["hash"])
    base = {"sender": sender, "receiver": address.encode(wallet(2).public), "gasPrice": 10**9, "chainID": "local"}
    for nonce, tokens in enumerate(([["USDC-c76f1f", 0, "5"]], [["NFT-123456", 5, "1"]]), start=1):
        request = {"seed": SEED, "tokens": tokens, "transaction": base | {"nonce": nonce, "relayer": relayer}}
        (transfer,) = await javascript.sign(request)
        await follow(world, chain, transfer["transaction"], transfer["hash"])
